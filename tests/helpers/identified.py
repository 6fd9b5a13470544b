"""A sink that keeps each value with the identity of the event of the source that it was made of."""

from __future__ import annotations

from typing import Any

from penstock.streams.protocol.event import Event
from penstock.streams.protocol.identity import Identity, identities
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.own import SinkStage
from penstock.streams.stages.sink_stage import Closed, Sink

__all__ = ["Found", "identified"]

Found = list[tuple[Any, Identity]]


def identified(into: Found) -> Sink[Any]:
    """The sink that appends to `into`, for values that were made of one event each."""
    return _Identified(into)


class _Identified(Sink[Any]):
    def __init__(self, into: Found) -> None:
        self.info = StageInfo("identified")
        self._into = into

    def open(self, run: Run, closed: Closed) -> SinkStage[Any]:
        return _Stage(closed, self._into)


class _Stage(SinkStage[Any]):
    def __init__(self, closed: Closed, into: Found) -> None:
        super().__init__(closed)
        self._into = into

    def on_events(self, events: list[Event[Any]], /) -> None:
        for event in events:
            (one,) = identities(event)
            self._into.append((event.value, one))
            event.finish()
