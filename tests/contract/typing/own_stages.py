"""Stages, a sink and a limiter of the user's own, with the types of their values."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, assert_type

from penstock import Event, Flowable, Sink, SinkStage, adaptive_flat_map
from penstock.streams.limits.limiter import Outcome
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.own import DemandStage, SourceStage, Stage
from penstock.streams.stages.sink_stage import Closed

T = TypeVar("T")


class Every(Stage[T, T]):
    def __init__(self, downstream: Subscriber[T], n: int) -> None:
        super().__init__(downstream)
        self._n = n

    def on_events(self, events: list[Event[T]], /) -> None:
        assert_type(events[0].value, T)
        self._let_pass(events[:: self._n], len(events))


class Held(DemandStage, Generic[T]):
    def __init__(self, downstream: Subscriber[T], run: Run) -> None:
        super().__init__(downstream, run, StageInfo("held"))
        self._held: list[Event[T]] = []

    def take(self, events: list[Event[Any]], /) -> None:
        self._held += events

    def step(self) -> bool:
        if self.demand and self._held:
            self.send(self._held.pop(0))
            return True
        return False


class Numbers(SourceStage[int]):
    def produce(self) -> None:
        self.emit("1", self.run.now())  # type: ignore[arg-type]
        self.emit_all([1, 2], self.run.now())


class Shown(SinkStage[str]):
    def accept(self, event: Event[str]) -> None:
        assert_type(event.value, str)
        event.value = 1  # type: ignore[assignment]


class shown(Sink[str]):
    info = StageInfo("shown")

    def open(self, run: Run, closed: Closed) -> SinkStage[str]:
        return Shown(closed)


class Four:
    limit = 4

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None: ...


def every(n: int) -> Callable[[Flowable[T]], Flowable[T]]:
    def operator(source: Flowable[T]) -> Flowable[T]:
        def attach(downstream: Subscriber[T], run: Run) -> None:
            source.attach(Every[T](Held(downstream, run), n), run)

        return Flowable(attach, StageInfo("every", str(n)), source)

    return operator


def text(number: int) -> str:
    return str(number)


numbers: Flowable[int] = Flowable(
    lambda down, run: Numbers(down, run, StageInfo("numbers")).start(), StageInfo("numbers")
)
assert_type(Event(1, 0.0, Numbers.__new__(Numbers)), Event[int])
numbers.pipe(every(2), adaptive_flat_map(text, Four())).to(shown())
numbers.to(shown())  # type: ignore[arg-type]
