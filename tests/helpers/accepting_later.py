"""A sink that accepts events later, with any bound."""

from __future__ import annotations

from typing import Any

from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.own import SinkStage
from penstock.streams.stages.sink_stage import Closed, Sink

__all__ = ["AcceptingLater"]


class AcceptingLater(Sink[Any]):
    """Takes every event, and accepts each a number of seconds later.

    It declares that it holds `bound` events (None: unknown), however many it holds.
    """

    def __init__(self, seconds: float, bound: int | None = 0) -> None:
        self.info = StageInfo("later", bound=bound)
        self._seconds = seconds

    def open(self, run: Run, closed: Closed) -> SinkStage[Any]:
        return _Accepting(run, closed, self._seconds)


class _Accepting(SinkStage[Any]):
    def __init__(self, run: Run, closed: Closed, seconds: float) -> None:
        super().__init__(closed)
        self._run, self._seconds = run, seconds
        self._open = 0
        self._ending = False

    def on_events(self, events: list[Event[Any]], /) -> None:
        for event in events:
            self._open += 1
            self._run.loop.call_later(self._seconds, self._accept, event)

    def _accept(self, event: Event[Any]) -> None:
        self._open -= 1
        event.finish()
        if self._ending:
            self.on_completed()

    def on_completed(self) -> None:
        self._ending = True
        if not self._open:
            self.close()
