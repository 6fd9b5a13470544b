"""The watermark of a stage with states, as the clock of what is due in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from penstock.streams.event_time.above import Timed, are_merged
from penstock.streams.event_time.line import arrived
from penstock.streams.event_time.lines import TimeLines
from penstock.streams.event_time.result_time import ResultTime
from penstock.streams.event_time.times import time_of
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.state.changes import Root
from penstock.streams.state.commits import Commits

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["Watermark", "watermark_behind"]


class Watermark:
    """The watermark of the events that a stage gets.

    `ring` is called soon after it may have moved, other than by events that have arrived.
    `has_ended` says whether the stream has ended and the stage has all its events: then, if the
    input has ended for good, it is infinity. With `is_stored` it is kept with the `commits`. About
    `merges` see `TimeLines`.
    """

    def __init__(
        self,
        timed: Sequence[Timed],
        merges: bool,
        run: Run,
        info: StageInfo,
        commits: Commits,
        is_stored: bool,
        ring: Callable[[], object],
        has_ended: Callable[[], bool],
    ) -> None:
        self._pauses = run.pauses
        self.stamp = partial(time_of, info=info)
        """When an event happened; a `LateTime` if it is late. Raises WrongType if it has none."""
        self._has_ended = has_ended
        # The stages below were attached before this one. If one of them reads the times too, its
        # watermark needs all that is on its way to it: here too an event is on its way to its end.
        self._is_last = not any(one.is_read(run) for one in timed)
        kept = commits if is_stored else None
        self._lines = TimeLines(run, info, timed, kept, ring, merges=merges)
        self.watermark = -inf

    def now(self) -> float:
        is_over = self._has_ended() and self._pauses.input_ended
        self.watermark = inf if is_over else self._lines.watermark()
        return self.watermark

    def last(self) -> float:
        return self._lines.last()

    def results(
        self, timed: Timed, run: Run, name: str, behind: float, is_over: Callable[[], bool]
    ) -> ResultTime:
        """The time of the results of the stage, which is so many seconds behind this."""
        results = ResultTime(run, timed, name, behind, self, is_over)
        self._lines.results = results
        return results

    @property
    def is_silent(self) -> bool:
        return self._lines.is_silent

    def ring_at(self, due: int | float | None, /) -> None:
        # At the end it is infinity without being asked of the lines.
        if not self._has_ended():
            self._lines.ring_at(due)

    def close(self) -> None:
        self._lines.close()

    def arrived(self, events: Sequence[Event[Any]]) -> None:
        """Note that events have arrived, whose ends are not held back."""
        if self._is_last:
            for event in events:
                arrived(event)

    def hold(self, events: Sequence[Event[Any]], commits: Commits, /) -> list[Root]:
        if self._lines.is_back:
            # While they are on their way.
            self.now()
        lists = [arrived(event) for event in events] if self._is_last else [None] * len(events)
        roots = commits.hold(events)
        for list_, root, event in zip(lists, roots, events, strict=True):
            if list_ is not None and list_.kept is not None:
                list_.kept.held.append((root, event))
        self._lines.arrived()
        return roots

    def time_of(self, event: Event[Any], /) -> float:
        # As a plain number, which can be stored.
        return float(self.stamp(event))


def watermark_behind(source: Any, timed: Sequence[Timed], *others: Any) -> Callable[..., Watermark]:
    """What makes the watermark of a stage behind a stream, and others that it reads besides, with
    the rest of its arguments; `timed` is what gives the events their times."""
    chains = [stream.chain() for stream in (source, *others)]
    merges = all(are_merged([stream.info for stream in chain]) for chain in chains)
    return partial(Watermark, timed, merges)
