"""The time of the results of a stage, which follows the watermark of that stage.

watermark of a join     103
within 10               a row of 93 may still have a partner: results from 93 on may come
on their way            a result of 91, in a slow handler
watermark below         91
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nextafter, ulp
from typing import TYPE_CHECKING, Any, Protocol

from penstock.streams.event_time.above import Timed
from penstock.streams.event_time.source_time import SourceTime
from penstock.streams.protocol.event import Event

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["ResultTime"]


class _Followed(Protocol):
    """The watermark of the stage."""

    @property
    def is_silent(self) -> bool:
        """Whether nothing comes to the stage, and only the clock moves its watermark."""
        ...

    def ring_at(self, due: float | None, /) -> None:
        """Have the stage told when its watermark may have come to this time."""


class ResultTime(SourceTime):
    """The time of results, each of which comes before the watermark of its stage is more than
    `behind` seconds past the time of the result.

    It has one line. Neither the times of results nor silence move that: the watermark of the stage
    has both in it. The line is silent when that is, and `is_over` says that no result is due any
    more. Nothing of it is stored.
    """

    def __init__(
        self,
        run: Run,
        timed: Timed,
        name: str,
        behind: float,
        followed: _Followed,
        is_over: Callable[[], bool],
    ) -> None:
        self._followed = followed
        self._is_over = is_over
        super().__init__(run, name, inf, inf)
        self._behind = behind
        self._readers_of_run = timed.readers(run)
        assert self.whole is not None
        self._line = self.whole
        self._watermark = -inf
        self._was_silent = False
        # The least time at which a stage below waits for the watermark.
        self._due = inf
        timed.add(run, self)

    @property
    def is_read(self) -> bool:
        """Whether a stage below reads it."""
        return bool(self._readers_of_run)

    @property
    def is_held(self) -> bool:
        """Whether its results are ahead of others, so that no more may come soon."""
        return self._line.is_held

    def stamp(self, results: list[Event[Any]], times: list[float]) -> None:
        """Give results of one origin their times. They are on their way from now on."""
        if results:
            self._line.emit(results[0].origin, results, times)

    def follow(self, watermark: float) -> None:
        """The stage has sent what is due by its watermark."""
        is_silent = self._is_silent
        has_moved = self._watermark < watermark < inf
        if has_moved:
            self._watermark = watermark
            # The next number below: rounding may put the time of a result there.
            self._line.first = nextafter(watermark, -inf) - self._behind
            if self._line.first >= self._due:
                self._due = inf
        if has_moved or is_silent is not self._was_silent:
            self._was_silent = is_silent
            self.changed()
        self._ring()

    def went_back(self) -> None:
        """States have come, or are those from before: results may be as old as these."""
        self._line.first = self._watermark = -inf
        self._go_back()

    # The clock.

    @property
    def _is_silent(self) -> bool:
        return self._followed.is_silent and self._is_over()

    @property
    def idle(self) -> float:
        """After how many seconds without an event the line is silent."""
        return 0.0 if self._is_silent else inf

    @idle.setter
    def idle(self, _: float) -> None: ...

    def ring_at(self, due: float, /) -> None:
        if self._line.first < due < self._due:
            self._due = due
            self._ring()

    def _ring(self) -> None:
        due = self._due
        if due < inf:
            # More than is lost by rounding.
            self._followed.ring_at(due + self._behind + 4 * ulp(abs(due) + self._behind))

    # The store.

    def is_kept_in(self, store: object) -> bool:
        # It follows from what is kept of the sources.
        return True
