"""What a source, a stage or a sink of the user's own raises while it is ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import pytest

from penstock import (
    Fixed,
    Flowable,
    Pipeline,
    adaptive_flat_map,
    collect,
    for_each,
    from_async_iterable,
    from_iterable,
    group_by,
    ops,
    spread,
)
from penstock.streams.pipelines.running import Running
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run as StreamRun
from penstock.streams.stages.own import SinkStage, SourceStage, Stage
from penstock.streams.stages.sink_stage import Closed, Sink
from penstock.streams.testing.plugin import Run


class CannotEnd(Exception):
    """What the test lets one method raise."""


class _Breaking:
    """Raises in the method whose name it is given."""

    breaks_in: str

    def breaks(self, method: str) -> None:
        if self.breaks_in == method:
            raise CannotEnd(method)


class _Numbers(SourceStage[int], _Breaking):
    def __init__(self, downstream: Subscriber[int], run: StreamRun, breaks_in: str) -> None:
        super().__init__(downstream, run, StageInfo("numbers"))
        self.breaks_in = breaks_in
        self._next = 0
        self.ack = self._acknowledge
        self.nack = self._take_back

    def produce(self) -> None:
        if self._next == 20:
            self.breaks("produce")
        while self.demand and self._next < 20:
            self._next += 1
            self.emit(self._next, self.run.now())

    def _acknowledge(self, events: list[Event[Any]]) -> None:
        self.breaks("ack")

    def _take_back(self, events: list[Event[Any]], error: BaseException | None) -> None:
        self.breaks("nack")

    def release(self) -> None:
        self.breaks("release")

    def stop(self) -> None:
        self.breaks("stop")
        super().stop()


class _Passing(Stage[int, int], _Breaking):
    """Passes a cancel on before it raises: what is above it could not end otherwise."""

    def __init__(self, downstream: Subscriber[int], breaks_in: str) -> None:
        super().__init__(downstream)
        self.breaks_in = breaks_in

    def cancel(self) -> None:
        super().cancel()
        self.breaks("cancel")


class _Holding(SinkStage[int], _Breaking):
    """Accepts each event after a second."""

    asks_first = 4

    def __init__(self, closed: Closed, run: StreamRun, breaks_in: str) -> None:
        super().__init__(closed)
        self.breaks_in = breaks_in
        self._run = run
        self._held: list[Event[Any]] = []
        self._timer: asyncio.TimerHandle | None = None

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._held += events
        if self._timer is None:
            self._timer = self._run.call_later(1, self.info, self._accept)

    def _accept(self) -> None:
        held, self._held, self._timer = self._held, [], None
        for event in held:
            event.finish()
        if self.state:
            self.end_if_idle()
        else:
            self.upstream.request(len(held))

    @property
    def is_idle(self) -> bool:
        self.breaks("is_idle")
        return not self._held

    def give_back(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        held, self._held = self._held, []
        for event in held:
            event.give_back()
        self.breaks("give_back")


class _Hold(Sink[int]):
    def __init__(self, breaks_in: str) -> None:
        self.info = StageInfo("hold", bound=4)
        self._breaks_in = breaks_in

    def open(self, run: StreamRun, closed: Closed) -> SinkStage[int]:
        if self._breaks_in == "open":
            raise CannotEnd("open")
        return _Holding(closed, run, self._breaks_in)


fails: ContextVar[bool] = ContextVar("fails", default=False)


async def work(number: int) -> int:
    await asyncio.sleep(0.5)
    if number == 7 and fails.get():
        raise ValueError("seven")
    return number


def breaking(method: str) -> Pipeline:
    """A pipeline whose parts are of the user's own; one of them raises in `method`."""

    def start(downstream: Subscriber[int], run: StreamRun) -> None:
        _Numbers(downstream, run, method).start()

    def passing(source: Flowable[int]) -> Flowable[int]:
        return Flowable(
            lambda downstream, run: source.attach(_Passing(downstream, method), run),
            StageInfo("passing"),
            source,
        )

    numbers: Flowable[int] = Flowable(
        start, StageInfo("numbers", delivery=Delivery(acknowledges=True))
    )
    grouped = numbers.pipe(group_by(lambda number: number % 3, buffer=8), spread(), passing)
    return grouped.pipe(adaptive_flat_map(work, limit=Fixed(2))).to(_Hold(method))


def unfinished(running: Running) -> tuple[str, int]:
    numbers = running.statistics()
    return numbers["state"], numbers["unfinished"]


CANCELLED = ["nack", "release", "cancel", "give_back"]


@pytest.mark.parametrize("method", CANCELLED)
def test_a_cancel_ends_a_run_whose_parts_raise_meanwhile_and_warns_of_the_error(
    run: Run, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        running = breaking(method).start()
        await asyncio.sleep(0.7)
        running.cancel()
        report = await running.wait()
        assert (report.outcome, *unfinished(running)) == ("cancelled", "closed", 0)

    run(main())
    assert f"CannotEnd: {method}" in caplog.text


@pytest.mark.parametrize("method", ["release", "cancel"])
def test_the_error_of_a_handler_is_raised_and_that_of_the_clean_up_after_it_logged(
    run: Run, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        fails.set(True)
        running = breaking(method).start()
        with pytest.raises(ValueError, match="seven"):
            await running.wait()
        assert unfinished(running) == ("closed", 0)

    run(main())
    assert f"CannotEnd: {method}" in caplog.text


def test_a_source_that_cannot_take_an_event_back_ends_the_run_of_the_event_that_failed(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        fails.set(True)
        running = breaking("nack").start()
        with pytest.raises(CannotEnd, match="nack"):
            await running.wait()
        assert unfinished(running) == ("closed", 0)

    run(main())
    assert "ValueError: seven" in caplog.text


ENDED: dict[str, str] = {
    "ack": "in stage 1 'numbers'",
    "release": "in stage 1 'numbers'",
    "stop": "in stage 1 'numbers'",
    "is_idle": "in stage 6 'hold'",
}


@pytest.mark.parametrize("method", ENDED)
def test_a_drain_raises_what_a_part_raises_meanwhile_and_says_where(run: Run, method: str) -> None:
    async def main() -> None:
        running = breaking(method).start()
        await asyncio.sleep(0.7)
        with pytest.raises(CannotEnd, match=method) as raised:
            await running.drain()
        assert raised.value.__notes__ == [ENDED[method]]
        assert unfinished(running) == ("closed", 0)

    run(main())


@pytest.mark.parametrize(
    ("method", "where"), [("produce", "in stage 1 'numbers'"), ("open", "in stage 6 'hold'")]
)
def test_what_a_source_raises_when_asked_or_a_sink_when_opened_says_where(
    run: Run, method: str, where: str
) -> None:
    with pytest.raises(CannotEnd, match=method) as raised:
        run(breaking(method).run())
    assert raised.value.__notes__ == [where]


class _NeverIdle(SinkStage[int]):
    def accept(self, event: Event[Any]) -> None: ...

    @property
    def is_idle(self) -> bool:
        raise CannotEnd("is_idle")


class _Never(Sink[int]):
    info = StageInfo("never")

    def open(self, run: StreamRun, closed: Closed) -> SinkStage[int]:
        return _NeverIdle(closed)


def test_a_sink_that_raises_once_it_has_accepted_everything_ends_the_pipeline(run: Run) -> None:
    with pytest.raises(CannotEnd) as raised:
        run(from_iterable([1]).to(_Never()).run())
    assert raised.value.__notes__ == ["in stage 2 'never'"]


class _Exit(BaseException):
    """An error that ends all."""


class _Stubborn(SourceStage[int]):
    """Emits ten numbers, and raises when it is cancelled."""

    raises: type[BaseException] = CannotEnd

    def produce(self) -> None:
        self.emit_all(range(min(10, self.demand)), self.run.now())
        self.demand = 0

    def cancel(self) -> None:
        super().cancel()
        raise self.raises("cancel")


class _Exiting(_Stubborn):
    raises = _Exit


def stubborn(kind: type[_Stubborn] = _Stubborn) -> Flowable[int]:
    info = StageInfo("stubborn")
    return Flowable(lambda downstream, run: kind(downstream, run, info).start(), info)


by_three = group_by(lambda number: int(number) % 3)


class _Closing(SinkStage[int]):
    def accept(self, event: Event[Any]) -> None: ...

    def close(self, error: BaseException | None = None) -> None:
        raise CannotEnd("close")


class _Close(Sink[int]):
    info = StageInfo("close")

    def open(self, run: StreamRun, closed: Closed) -> SinkStage[int]:
        return _Closing(closed)


def refuse_two(number: int) -> None:
    if number == 2:
        raise ValueError("two")


@pytest.mark.parametrize(
    ("pipeline", "method"),
    [
        (stubborn().to(for_each(refuse_two)), "cancel"),
        (stubborn().to(for_each(refuse_two), collect([])), "cancel"),
        (stubborn().pipe(ops.map(refuse_two)).to(collect([])), "cancel"),
        (stubborn().pipe(ops.take(3), ops.map(refuse_two)).to(collect([])), "cancel"),
        (stubborn().pipe(by_three, spread()).to(for_each(refuse_two)), "cancel"),
        (from_iterable(range(9)).to(for_each(refuse_two), _Close()), "close"),
        (from_iterable(range(9)).to(_Close(), for_each(refuse_two)), "close"),
    ],
)
def test_an_error_ends_a_run_whose_other_parts_cannot_end(
    run: Run, pipeline: Pipeline, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match="two"):
        run(pipeline.run())
    assert f"CannotEnd: {method}" in caplog.text


@pytest.mark.parametrize("kind", [_Stubborn, _Exiting])
def test_events_that_wait_are_returned_when_the_source_raises_in_its_cancel(
    run: Run, kind: type[_Stubborn]
) -> None:
    async def main() -> None:
        grouped = stubborn(kind).pipe(group_by(lambda number: number % 3), spread())
        running = grouped.pipe(adaptive_flat_map(work, Fixed(2))).to(collect([])).start()
        await asyncio.sleep(0.7)
        running.cancel()
        report = await running.wait()
        assert (report.outcome, *unfinished(running)) == ("cancelled", "closed", 0)

    run(main())


def test_the_error_of_a_source_is_logged_if_the_run_is_cancelled_before_it_is_raised(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """The sink still holds the event that came before it."""

    async def events() -> AsyncIterator[int]:
        yield 1
        raise OSError("source")

    async def main() -> None:
        running = from_async_iterable(events).to(_Hold("nothing")).start()
        await asyncio.sleep(0.5)
        running.cancel()
        assert (await running.wait()).outcome == "cancelled"

    run(main())
    assert "OSError: source" in caplog.text
