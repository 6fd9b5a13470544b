"""The guard of event time: how far the time of an event may be ahead of the wall clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from math import inf
from typing import Any, Final

from penstock.streams.base.duration import in_seconds, is_duration
from penstock.streams.base.errors import BuildError, TimeAhead, describe
from penstock.streams.base.validation import unit_of

__all__ = ["MAX_AHEAD", "Ahead", "MaxAhead", "check_max_ahead"]

MAX_AHEAD: Final = 3600.0
"""The default, in seconds: an hour. It is known from the same number by its identity."""

MaxAhead = float | timedelta | None

# In some places the day begins so many seconds earlier than in UTC.
_EARLIEST = 14 * 3600


def check_max_ahead(function: str, max_ahead: object, *, has_time: bool = True) -> None:
    """Raise BuildError unless it is a length of time, or None, and what it bounds is given."""
    if not has_time and max_ahead is not MAX_AHEAD:
        raise BuildError(
            f"{function}(max_ahead={max_ahead!r}): give it together with time, which it bounds; "
            "without that an event has the time at which it was created"
        )
    if max_ahead is not None and not is_duration(max_ahead):
        raise BuildError(
            f"{function}(max_ahead={max_ahead!r}): give seconds or a timedelta, which cannot be "
            "negative, or None for no bound"
        )


class Ahead:
    """Refuses times that are more than `max_ahead` (seconds, or a timedelta) ahead of the clock.

    An operator has a clock of its own, which the times of its events move, such as the largest time
    seen. One event with a wrong time would move it for all that come later, so that time is
    refused before it does. `wall` returns the wall clock, in seconds since 1970.
    """

    def __init__(self, max_ahead: MaxAhead, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._most = inf if max_ahead is None else in_seconds(max_ahead)

    def latest(self) -> float:
        """The latest time that an event may have now, in seconds since 1970."""
        return self._wall() + self._most

    def check(self, seconds: float, stamp: Any) -> None:
        """Raise TimeAhead if `seconds`, the time that `stamp` stands for, is too far ahead."""
        if isinstance(stamp, date) and not isinstance(stamp, datetime):
            seconds -= _EARLIEST
        if seconds > self.latest():
            by = seconds - self._wall()
            advice = unit_of(stamp, self._wall()) or (
                "If it is not in seconds since 1970, or if times without a zone are not of UTC, "
                "give max_ahead=None, or a greater one"
            )
            raise TimeAhead(
                f"the time {describe(stamp)} is {by:,.0f} s ahead of the clock, and max_ahead is "
                f"{self._most:,g} s: it would move the time of all later events. {advice}. "
                'on_error="skip" or route(sink) sets such an event aside'
            )
