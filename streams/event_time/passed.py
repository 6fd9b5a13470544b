"""How far the time of events has come, for a stage that forgets what is over and waits for none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from penstock.streams.event_time.above import Timed
from penstock.streams.event_time.line import LateTime, arrived
from penstock.streams.event_time.source_time import SourceTime, first_term
from penstock.streams.event_time.stored import keep_time
from penstock.streams.event_time.times import time_of
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.state.commits import Commits

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["PassedTime"]


class PassedTime:
    """The time up to which all events have come, or are late. With `commits` it is kept there."""

    def __init__(
        self, run: Run, info: StageInfo, timed: Sequence[Timed], commits: Commits | None = None
    ) -> None:
        self._info = info
        self._commits = commits
        # A stage below that reads the times needs what is on its way to it, and what is kept in a
        # store comes again until it is committed.
        self._arrives = commits is None and not any(one.is_read(run) for one in timed)
        self._sources: list[SourceTime] = []
        self._unread = [partial(one.unread, run, self._add) for one in timed]
        for one in timed:
            one.read(run, self._add)

    def _add(self, source: SourceTime) -> None:
        self._sources.append(source)
        source.on_gone(partial(self._forget, source))
        if self._commits is not None:
            keep_time(source, self._commits)

    def _forget(self, source: SourceTime) -> None:
        """The source has ended, and was made while the pipeline runs."""
        self._sources.remove(source)
        if not self._sources:
            for call in self._unread:
                call()

    def now(self) -> float:
        """The time up to which all events have come and, in a store, have been committed; after
        the end of the input it is what it was before."""
        lines = [line for source in self._sources for line in source.lines]
        first = first_term(lines)
        if first == inf:
            first = min(source.last for source in self._sources)
        return min([first, *(line.on_its_way() for line in lines)])

    def arrived(self, events: list[Event[Any]]) -> None:
        """Note that events have come."""
        if self._arrives:
            for event in events:
                arrived(event)

    def stamp(self, event: Event[Any]) -> tuple[float, float]:
        """When an event happened, and the watermark at which it was late; `-inf` if it was not.
        Raises WrongType for an event without a time."""
        time = time_of(event, self._info)
        return (float(time), time.watermark) if isinstance(time, LateTime) else (time, -inf)
