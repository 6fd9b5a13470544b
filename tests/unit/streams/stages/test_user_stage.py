from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from penstock import (
    Event,
    Fixed,
    Flowable,
    adaptive_flat_map,
    from_async_iterable,
    from_iterable,
    group_by,
    spread,
)
from penstock.streams.protocol.acknowledgement import Family
from penstock.streams.protocol.blame import blame
from penstock.streams.protocol.event import (
    DROPPED,
    FAILED,
    RETURNED,
    Ending,
    finish_all,
    new_events,
)
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run as StreamRun
from penstock.streams.stages.own import SinkStage, SourceStage, Stage
from penstock.streams.stages.sink_stage import Closed, Sink
from penstock.streams.stages.user_stage import guarded
from penstock.streams.testing import MemorySink, MemorySource, Probe, play
from penstock.streams.testing.loop import VirtualTimeLoop
from penstock.streams.testing.plugin import Run

Operator = Callable[[Flowable[Any]], Flowable[Any]]


class Picky(Stage[int, int]):
    """A user's stage: it raises on 500, and where the test says so."""

    def __init__(self, downstream: Subscriber[int], raises_in: str = "") -> None:
        super().__init__(downstream)
        self._raises_in = raises_in

    def on_events(self, events: list[Event[Any]], /) -> None:
        for event in events:
            if event.value == 500:
                raise ValueError("five hundred")
        self.downstream.on_events(events)

    def on_completed(self) -> None:
        if self._raises_in == "on_completed":
            raise ValueError("cannot end")
        super().on_completed()

    def on_error(self, error: BaseException, /) -> None:
        if self._raises_in == "on_error":
            raise RuntimeError("cannot even fail")
        super().on_error(error)


def stage_of(make: Callable[[Subscriber[Any]], Subscriber[Any]]) -> Operator:
    def operator(source: Flowable[Any]) -> Flowable[Any]:
        def attach(downstream: Subscriber[Any], run: StreamRun) -> None:
            source.attach(make(downstream), run)

        return Flowable(attach, StageInfo("picky"), source)

    return operator


picky = stage_of(Picky)


async def soon(value: int) -> int:
    return await asyncio.sleep(0.001, value)


async def numbers() -> AsyncIterator[int]:
    for number in range(1000):
        yield number


def beside_groups(source: Flowable[Any]) -> Flowable[Any]:
    return source.pipe(
        group_by(lambda n: n % 7, each=lambda group: group.pipe(picky), idle=60), spread()
    )


BLAMED = {
    "after a source": from_iterable(range(1000)).pipe(picky),
    "in a new loop iteration": MemorySource(range(501)).pipe(picky),
    "after an async iterable": from_async_iterable(numbers).pipe(picky),
    "after a plain handler": from_iterable(range(1000)).pipe(adaptive_flat_map(lambda n: n), picky),
    "after calls": from_iterable(range(1000)).pipe(adaptive_flat_map(soon, Fixed(8)), picky),
    "before calls": from_iterable(range(1000)).pipe(picky, adaptive_flat_map(soon, Fixed(8))),
    "after spread": from_iterable(range(1000)).pipe(group_by(lambda n: n % 7), spread(), picky),
    "in a group": from_iterable(range(1000)).pipe(beside_groups),
}


async def failing(flow: Flowable[Any], *sinks: Sink[Any]) -> tuple[BaseException, dict[str, Any]]:
    running = flow.to(*(sinks or [MemorySink()])).start()
    with pytest.raises((ValueError, ExceptionGroup)) as raised:
        await running.wait()
    return raised.value, running.statistics()


@pytest.mark.parametrize("name", BLAMED)
def test_what_a_users_own_stage_raises_ends_the_pipeline_and_says_where(
    run: Run, name: str
) -> None:
    error, numbers = run(failing(BLAMED[name]))
    assert str(error) == "five hundred"
    (note,) = error.__notes__
    assert "'picky'" in note
    assert note.endswith("on the event 500")
    # A source that can give it again gets it back.
    gives_again = isinstance(BLAMED[name].chain()[0], MemorySource)
    assert numbers["failed"] == (0 if gives_again else 1)
    assert numbers["unfinished"] == 0


def test_the_stage_is_named_by_its_place(run: Run) -> None:
    error, _ = run(failing(from_iterable(range(1000)).pipe(adaptive_flat_map(abs), picky)))
    assert error.__notes__ == ["in stage 3 'picky', on the event 500"]


def test_of_a_list_the_event_is_named_too(run: Run) -> None:
    source, sink = MemorySource(range(1000)), MemorySink()
    error, numbers = run(failing(source.pipe(stage_of(Picky)), sink))
    assert error.__notes__ == ["in stage 2 'picky', on the event 500"]
    assert sink.values == source.acked == list(range(500))
    assert source.failed == [500]
    assert numbers["unfinished"] == 0


class LeavesInside(Stage[int, int]):
    """Wants two events, and cancels with the second."""

    def __init__(self, downstream: Subscriber[int]) -> None:
        super().__init__(downstream)
        self.seen: list[int] = []

    def on_events(self, events: list[Event[Any]], /) -> None:
        for event in events:
            self.seen.append(event.value)
            event.finish()
            if len(self.seen) == 2:
                self.upstream.cancel()


def test_a_stage_that_cancels_inside_a_list_gets_no_other_list(run: Run) -> None:
    source = from_iterable(range(1000))
    made: list[LeavesInside] = []

    def make(downstream: Subscriber[Any]) -> LeavesInside:
        made.append(LeavesInside(downstream))
        return made[-1]

    async def story() -> dict[str, Any]:
        run = StreamRun()
        Flowable.attach(source.pipe(stage_of(make)), Probe[int](request=1000), run)
        await asyncio.sleep(1)
        await run.close()
        return run.nesting.sources[0].statistics()

    numbers = run(story())
    # The source had made chunks of one and of two events.
    assert made[0].seen == [0, 1, 2]
    assert (numbers["in"], numbers["finished"], numbers["returned"]) == (3, 3, 0)


class Sizes(Stage[Any, Any]):
    """Notes the sizes of the lists that it gets."""

    def __init__(self, downstream: Subscriber[Any], sizes: list[int]) -> None:
        super().__init__(downstream)
        self._sizes = sizes

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._sizes.append(len(events))
        self.downstream.on_events(events)


def test_a_users_own_stage_gets_whole_lists_and_so_do_the_stages_below_it(run: Run) -> None:
    sizes: list[list[int]] = [[], []]
    stages = [stage_of(lambda below, seen=seen: Sizes(below, seen)) for seen in sizes]
    run(from_iterable(range(1000)).pipe(*stages).to(MemorySink()).run())
    assert sizes[0] == sizes[1]
    assert sum(sizes[0]) == 1000
    assert len(sizes[0]) < 30


class Part(Stage[Any, Any]):
    """Ends the multiples of 3 at once, sends other events on, some as children, and raises on 7."""

    def on_events(self, events: list[Event[Any]], /) -> None:
        for event in events:
            if event.value % 3 == 0:
                event.drop("three")
            elif event.value == 7:
                raise ValueError("seven")
            elif event.value % 2:
                family = Family(event, "part")
                child = family.child(event.value)
                family.close()
                self.downstream.on_events([child])
            else:
                self.downstream.on_events([event])


class Half(SinkStage[int]):
    """Accepts the events of a list up to 7, on which it raises."""

    def on_events(self, events: list[Event[Any]], /) -> None:
        for event in events:
            if event.value == 7:
                raise ValueError("seven")
            event.finish()


class _Nothing:
    """A subscription to what is given by hand."""

    def request(self, n: int, /) -> None: ...

    def cancel(self) -> None: ...


class Origins:
    """Notes how events have ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, Ending]] = []

    def settle(self, events: list[Event[Any]], ending: Ending, _: Any, /) -> None:
        self.ended += [(event.value, ending) for event in events]

    def of(self, ending: Ending) -> list[int]:
        return [value for value, how in self.ended if how is ending]


def give(stage: Any, count: int, acceptances: int = 1) -> tuple[Origins, list[Event[int]]]:
    """Give `stage` one list of so many events, each of which misses some acceptances."""
    origins = Origins()
    events: list[Event[int]] = new_events(range(count), 0.0, origins)
    for event in events:
        event.pending = acceptances
    reader = guarded(stage, StageInfo("stage"), StreamRun())
    reader.on_subscribe(_Nothing())
    reader.on_events(events.copy())
    return origins, events


@pytest.mark.parametrize("count", [1, 5, 7, 8, 9, 12])
def test_what_a_list_has_done_with_before_an_exception_is_not_given_again(count: int) -> None:
    probe = Probe[int](request=100)
    sent: list[int] = []

    class Below(Stage[Any, Any]):
        def on_events(self, events: list[Event[Any]], /) -> None:
            sent.extend(event.value for event in events)
            finish_all(events)

    origins, _ = give(Part(Below(cast(Any, probe))), count)
    assert sent == [n for n in range(min(count, 7)) if n % 3]
    assert origins.of(DROPPED) == [n for n in range(min(count, 7)) if n % 3 == 0]
    assert origins.of(FAILED) == ([7] if count > 7 else [])
    assert origins.of(RETURNED) == list(range(8, count))
    assert len(origins.ended) == count


class Fails(Stage[Any, Any]):
    """Fails the event 7 by its own policy, which stops, and raises its error."""

    def on_events(self, events: list[Event[Any]], /) -> None:
        for event in events:
            if event.value == 7:
                error = ValueError("seven")
                blame(error, StageInfo("fails"), event)
                event.fail(error)
                raise error
            self.downstream.on_events([event])


def test_after_an_event_that_the_stage_has_failed_itself_the_rest_is_returned() -> None:
    probe: Any = Probe[int](request=100)
    origins, _ = give(Fails(probe), 10)
    assert origins.of(FAILED) == [7]
    assert origins.of(RETURNED) == [8, 9]
    assert "on the event 7" in probe.error.__notes__[0]
    assert len(probe.error.__notes__) == 1


def test_a_sink_that_raises_in_a_list_accepts_no_event_in_place_of_another_sink() -> None:
    closed: list[object] = []
    origins, events = give(Half(closed.append), 10, acceptances=2)
    # The other sink has still to accept what this one has accepted.
    assert [event.pending for event in events[:7]] == [1] * 7
    assert origins.of(FAILED) == [7]
    assert origins.of(RETURNED) == [8, 9]


def test_a_diagram_shows_what_a_users_own_stage_raises() -> None:
    ((time, error),) = play("-a-b|", picky, lookup={"a": 500, "b": 1})
    assert (time, str(error)) == (1.0, "five hundred")
    assert "on the event 500" in error.__notes__[0]


def test_without_a_loop_a_subscriber_gets_the_error() -> None:
    probe = Probe[int](request=1000)
    from_iterable(range(1000)).pipe(picky).connect(probe)
    assert str(probe.error) == "five hundred"
    assert probe.values == list(range(500))


def test_a_stage_may_raise_at_the_end(run: Run) -> None:
    operator = stage_of(lambda downstream: Picky(downstream, "on_completed"))
    assert play("-1|", operator)[0] == (1.0, 1)
    error, numbers = run(failing(from_iterable(range(9)).pipe(operator)))
    assert (str(error), error.__notes__) == ("cannot end", ["in stage 2 'picky'"])
    assert numbers["finished"] == 9


def test_a_stage_that_cannot_even_fail_ends_the_pipeline(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    operator = stage_of(lambda downstream: Picky(downstream, "on_error"))
    error, numbers = run(failing(from_iterable(range(1000)).pipe(operator)))
    assert str(error) == "five hundred"
    assert "cannot even fail" in caplog.text
    assert (numbers["failed"], numbers["unfinished"]) == (1, 0)


class Lines(Sink[int]):
    """A user's own sink, which forgot that `accept` is the place to raise."""

    info = StageInfo("lines")

    def open(self, run: StreamRun, closed: Closed) -> SinkStage[int]:
        return _Lines(closed)


class _Lines(SinkStage[int]):
    def on_events(self, events: list[Event[Any]], /) -> None:
        for event in events:
            if event.value == 500:
                raise ValueError("five hundred")
            event.finish()


@pytest.mark.parametrize("others", [0, 1])
def test_what_a_users_own_sink_raises_ends_the_pipeline_and_says_where(
    run: Run, others: int
) -> None:
    source = MemorySource(range(1000))
    sinks = [MemorySink() for _ in range(others)]
    error, numbers = run(failing(source, Lines(), *sinks))
    assert error.__notes__ == ["in stage 2 'lines', on the event 500"]
    assert source.failed == [500]
    assert numbers["unfinished"] == 0


class Breaks(SourceStage[int]):
    """A source of a user's that raises when its timer asks it for a second value."""

    def produce(self) -> None:
        if self.received:
            raise OSError("the table is gone")
        self.emit(1, self.run.now())
        self.run.loop.call_later(1, self.wake)


def test_what_a_users_own_source_raises_ends_the_pipeline(run: Run) -> None:
    info = StageInfo("breaks")
    source: Flowable[Any] = Flowable(lambda down, r: Breaks(down, r, info).start(), info)
    with pytest.raises(OSError, match="the table is gone"):
        run(source.to(MemorySink()).run())


class _Later(SinkStage[int]):
    """Writes in a task of the run, as a user's sink may, and cannot."""

    def __init__(self, closed: Closed, run: StreamRun) -> None:
        super().__init__(closed)
        self._run = run
        self._held: list[Event[Any]] = []

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._held += events
        self._run.spawn(self._write(), self.info.name)

    async def _write(self) -> None:
        raise OSError("the disk is full")

    @property
    def is_idle(self) -> bool:
        return not self._held

    def give_back(self) -> None:
        for event in self._held:
            event.give_back()


class Later(Sink[int]):
    info = StageInfo("later")

    def open(self, run: StreamRun, closed: Closed) -> SinkStage[int]:
        return _Later(closed, run)


def test_the_task_of_a_sink_that_fails_is_named_by_the_place_of_the_sink(run: Run) -> None:
    with pytest.raises(OSError, match="the disk is full") as raised:
        run(MemorySource([1]).to(Later(), MemorySink()).run())
    assert raised.value.__notes__ == ["in stage 2 'later'"]


class _Forgetful(SinkStage[int]):
    def on_events(self, events: list[Event[Any]], /) -> None:
        for event in events:
            if event.value != 2:
                event.finish()


class Forgetful(Sink[int]):
    info = StageInfo("forgetful")

    def open(self, run: StreamRun, closed: Closed) -> SinkStage[int]:
        return _Forgetful(closed)


def test_a_run_whose_sink_has_not_ended_an_event_is_not_completed(
    virtual_loop: VirtualTimeLoop, caplog: pytest.LogCaptureFixture
) -> None:
    report = virtual_loop.run_until_complete(from_iterable([1, 2, 3]).to(Forgetful()).run())
    assert (report.outcome, report.exit_status) == ("incomplete", 5)
    assert "1 event has not ended: a stage or a sink of your own" in caplog.text
