"""The clocks by which something is due in a stage with states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from penstock.streams.protocol.event import Event
from penstock.streams.runtime.timer import Timer
from penstock.streams.state.changes import Root
from penstock.streams.state.commits import Commits

if TYPE_CHECKING:
    from penstock.streams.protocol.stage_info import StageInfo
    from penstock.streams.runtime.context import Run

__all__ = ["Clock", "EventClock", "WallClock"]


class Clock(Protocol):
    """Says what time it is, in seconds since 1970, and when it has become later."""

    def now(self) -> float:
        """The time; `-inf` while it is not known, or nothing is due any more."""
        ...

    def ring_at(self, due: float | None, /) -> None:
        """Have the stage told when this time has perhaps come."""

    def close(self) -> None:
        """Tell the stage nothing more."""


class EventClock(Clock, Protocol):
    """The watermark of a stage."""

    @property
    def watermark(self) -> float:
        """The time when it was last asked for."""
        ...

    def last(self) -> float:
        """The watermark before the end of the input, from which on it is infinity."""
        ...

    def hold(self, events: Sequence[Event[Any]], commits: Commits, /) -> list[Root]:
        """Note that events have arrived, and hold back their ends: their roots."""
        ...

    def time_of(self, event: Event[Any], /) -> float:
        """When an event happened. Raises WrongType if it has no time."""
        ...


class WallClock:
    """The wall clock, up to the end of the stream: what is not due by then waits for the next run.

    `ring` is called when it is later, `has_ended` says whether the stream has ended.
    """

    def __init__(
        self, run: Run, info: StageInfo, ring: Callable[[], object], has_ended: Callable[[], bool]
    ) -> None:
        self._wall = run.wall
        self._has_ended = has_ended
        self._alarm = Timer(run, info, ring)

    def now(self) -> float:
        return -inf if self._has_ended() else self._wall()

    def ring_at(self, due: float | None, /) -> None:
        if due is not None:
            self._alarm.set(due - self._wall())

    def close(self) -> None:
        self._alarm.cancel()
