"""The wall clock in place of a watermark: each event happens when it arrives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.timer import Timer
from penstock.streams.state.changes import Root
from penstock.streams.state.commits import Commits

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["ProcessingTime"]


class ProcessingTime:
    """The wall clock, which never goes back here: about the rest see `Watermark`."""

    def __init__(
        self, run: Run, info: StageInfo, ring: Callable[[], object], has_ended: Callable[[], bool]
    ) -> None:
        self._wall = run.wall
        self._pauses = run.pauses
        self._has_ended = has_ended
        self._alarm = Timer(run, info, ring)
        self._latest = self.watermark = -inf

    def now(self) -> float:
        self._read()
        if self._has_ended() and self._pauses.input_ended:
            self.watermark = inf
        return self.watermark

    def _read(self) -> None:
        self._latest = self.watermark = max(self._latest, self._wall())

    def ring_at(self, due: float | None, /) -> None:
        if due is not None:
            self._alarm.set(due - self._wall())

    def close(self) -> None:
        self._alarm.cancel()

    def arrived(self, _: Sequence[Event[Any]], /) -> None:
        """Note that events have arrived, whose ends are not held back."""
        self._read()

    def stamp(self, _: Event[Any], /) -> float:
        return self._latest

    def hold(self, events: Sequence[Event[Any]], commits: Commits, /) -> list[Root]:
        self._read()
        return commits.hold(events)
