"""Mistakes in sources, stages and sinks of the user's own that would lose events, or never end."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock import Event, Fixed, Flowable, adaptive_flat_map, collect
from penstock.streams.base.errors import BufferFull, BuildError
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run as StreamRun
from penstock.streams.stages.own import DemandStage, SinkStage, SourceStage, Stage
from penstock.streams.stages.sink_stage import Closed, Sink
from penstock.streams.testing.plugin import Run


class Rows(SourceStage[int]):
    def __init__(self, downstream: Subscriber[int], run: StreamRun, ask: bool = True) -> None:
        super().__init__(downstream, run, StageInfo("rows"))
        self._asks = ask

    def produce(self) -> None:
        for number in range(3):
            if self.demand or not self._asks:
                self.emit(number, self.run.now())
        self.complete()


async def work(number: int) -> int:
    return number


def refused(method: str) -> Any:
    told = rf"\w+\.{method} is async, and nothing awaits it: make it plain, and let it start a task"
    return pytest.raises(BuildError, match=told)


def test_a_method_that_nothing_awaits_is_refused_if_it_is_async() -> None:
    with refused("accept"):

        class _Sink(SinkStage[int]):  # pyright: ignore[reportUnusedClass]
            async def accept(self, event: Event[Any]) -> None: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]

    with refused("on_events"):

        class _Stage(Stage[int, int]):  # pyright: ignore[reportUnusedClass]
            async def on_events(self, events: list[Event[Any]], /) -> None: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]

    with refused("release"):

        class _Source(SourceStage[int]):  # pyright: ignore[reportUnusedClass]
            async def release(self) -> None: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]

    with refused("take"):

        class _Keeping(DemandStage):  # pyright: ignore[reportUnusedClass]
            async def take(self, events: list[Event[Any]], /) -> None: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]


@pytest.mark.parametrize("name", ["ack", "nack"])
def test_an_acknowledgement_that_nothing_awaits_is_refused(run: Run, name: str) -> None:
    async def later(*_: object) -> None: ...

    def start(downstream: Subscriber[int], around: StreamRun) -> None:
        rows = Rows(downstream, around)
        setattr(rows, name, later)
        rows.start()

    rows: Flowable[int] = Flowable(start, StageInfo("rows"))
    with refused(name):
        run(rows.to(collect([])).run())


def test_a_source_that_was_not_started_is_an_error(run: Run) -> None:
    def forget(downstream: Subscriber[int], around: StreamRun) -> None:
        Rows(downstream, around)

    rows: Flowable[int] = Flowable(forget, StageInfo("rows"))
    told = r"nothing is sent to stage 2 'collect': .* call `start\(\)` .* `source.attach\("
    with pytest.raises(BuildError, match=told):
        run(rows.to(collect([])).run())


def test_an_operator_that_attaches_no_source_is_an_error(run: Run) -> None:
    rows: Flowable[int] = Flowable(lambda down, r: Rows(down, r).start(), StageInfo("rows"))
    lost: Flowable[int] = Flowable(lambda down, r: None, StageInfo("lost"), rows)
    with pytest.raises(BuildError, match="nothing is sent to stage 3 'collect'"):
        run(lost.to(collect([])).run())


def test_a_source_that_sends_more_than_was_requested_is_an_error(run: Run) -> None:
    rows: Flowable[int] = Flowable(lambda down, r: Rows(down, r, False).start(), StageInfo("rows"))
    told = "1 event was sent, and 0 were requested: a source sends while its `demand` is above 0"
    with pytest.raises(BufferFull, match=told) as raised:
        run(rows.pipe(adaptive_flat_map(work, Fixed(2))).to(collect([])).run())
    assert raised.value.__notes__ == ["in stage 1 'rows'"]


class Opens(Sink[int]):
    info = StageInfo("opens")

    def open(self, run: StreamRun, closed: Closed) -> SinkStage[int]:
        return cast("SinkStage[int]", None)


def test_a_sink_that_opens_no_stage_is_an_error(run: Run) -> None:
    rows: Flowable[int] = Flowable(lambda down, r: Rows(down, r).start(), StageInfo("rows"))
    with pytest.raises(BuildError, match=r"open\(\) returned None, and not a SinkStage") as raised:
        run(rows.to(Opens()).run())
    assert raised.value.__notes__ == ["in stage 2 'opens'"]
