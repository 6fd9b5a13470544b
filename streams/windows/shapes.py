"""The shapes of windows: tumbling, sliding, session, calendar, by count."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from math import inf
from typing import TYPE_CHECKING, Any, Literal, overload

from penstock.streams.base.calendar import zone_named
from penstock.streams.base.errors import BuildError
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import require_count

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

__all__ = [
    "Calendar",
    "Counted",
    "Regular",
    "Seconds",
    "Session",
    "Shape",
    "Unit",
    "calendar",
    "session",
    "sliding",
    "tumbling",
]

Seconds = float | timedelta

Unit = Literal["hour", "day", "week", "month", "quarter", "year"]
_UNITS = ("hour", "day", "week", "month", "quarter", "year")

# Times in seconds since 1970, as floats, are a quarter of a microsecond apart.
_LEAST = Fraction(1, 1_000_000)


@dataclass(frozen=True)
class Regular:
    """Windows of equal length, of which one begins at 1970-01-01 in UTC and one each `every`
    seconds before and after it."""

    length: Fraction
    every: Fraction

    def __str__(self) -> str:
        length, every = _shown(self.length), _shown(self.every)
        return f"tumbling({length})" if length == every else f"sliding({length}, {every})"


@dataclass(frozen=True)
class Session:
    """Windows that end with `gap` seconds without an event, and are at most `most` seconds long."""

    gap: Fraction
    most: Fraction

    def __str__(self) -> str:
        return f"session({_shown(self.gap)}, most={_shown(self.most)})"


@dataclass(frozen=True)
class Calendar:
    """Windows of a unit of the calendar of a time zone."""

    unit: Unit
    zone: ZoneInfo

    def __str__(self) -> str:
        return f"calendar({self.unit}, {self.zone})"


@dataclass(frozen=True)
class Counted:
    """Windows of so many events, in the order in which they come."""

    count: int

    def __str__(self) -> str:
        return f"tumbling(count={self.count})"


Shape = Regular | Session | Calendar | Counted


@overload
def tumbling(seconds: Seconds) -> Regular: ...
@overload
def tumbling(*, count: int) -> Counted: ...
@recorded
def tumbling(seconds: Seconds | None = None, *, count: int | None = None) -> Regular | Counted:
    """Windows of so many seconds (or a timedelta), one after the other; an event is in one of them.

    They begin at 1970-01-01T00:00:00Z and at the multiples of their length before and after it. A
    length such as 0.1 is that decimal number, and the bounds are the floats nearest to its
    multiples. With `count`, windows of so many events, in the order in which they come: nothing is
    late for those, and a last one with fewer is closed by the end of the input. Raises BuildError
    for anything else.
    """
    if (seconds is None) == (count is None):
        raise BuildError("tumbling(): give either seconds or count=, the number of events")
    if count is not None:
        require_count("tumbling", count=count)
        return Counted(count)
    length = _exact("tumbling", "seconds", seconds)
    return Regular(length, length)


@recorded
def sliding(length: Seconds, every: Seconds) -> Regular:
    """Windows of `length` seconds (or a timedelta), one of which begins at each multiple of
    `every`, counted from 1970-01-01T00:00:00Z; an event is in all that have its time.

    An event costs as much as in one window: it is added to one slice, as long as the greatest
    common divisor of both, and the slices of a window are put together when it closes. Raises
    BuildError for lengths that are not positive, or if `every` is longer than `length`.
    """
    exact = Regular(_exact("sliding", "length", length), _exact("sliding", "every", every))
    if exact.every > exact.length:
        raise BuildError(
            f"sliding(length={length!r}, every={every!r}): events between two windows would be in "
            "none; give an every that is not longer than the length"
        )
    return exact


@recorded
def session(gap: Seconds, *, most: Seconds = 86_400) -> Session:
    """Windows of events that are less than `gap` seconds (or a timedelta) apart.

    A session ends `gap` seconds after its last event, and an event at that time is in the next one.
    One event may join several sessions to one. An event that would make a session longer than
    `most`, from its first event to its end, begins a new one. Raises BuildError for lengths that
    are not positive, or if `most` is not longer than `gap`.
    """
    exact = Session(_exact("session", "gap", gap), _exact("session", "most", most))
    if exact.most <= exact.gap:
        raise BuildError(
            f"session(gap={gap!r}, most={most!r}): a session is at least as long as its gap; give "
            "a most that is longer"
        )
    return exact


@recorded
def calendar(unit: Unit, *, zone: str = "UTC") -> Calendar:
    """Windows that are the hours, days, weeks (from Monday), months, quarters or years of a zone.

    Where the clock is set forward or back, a day has 23 or 25 hours, and of the hour that comes
    twice each is a window. Raises BuildError for another unit, or an unknown zone.
    """
    if unit not in _UNITS:
        raise BuildError(f"calendar({unit!r}): use one of {', '.join(_UNITS)}")
    return Calendar(unit, zone_named(zone, f"calendar(zone={zone!r})"))


def _shown(length: Fraction) -> str:
    return str(length.numerator) if length.denominator == 1 else repr(float(length))


def _exact(function: str, name: str, seconds: Any) -> Fraction:
    """A length as a fraction: 0.1 is a tenth, and not the float that is nearest to it."""
    if isinstance(seconds, timedelta):
        exact = Fraction(seconds // timedelta(microseconds=1), 1_000_000)
    elif isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds < inf:
        exact = Fraction(repr(seconds)) if seconds > 0 else Fraction()
    else:
        exact = Fraction()
    if exact < _LEAST:
        raise BuildError(
            f"{function}({name}={seconds!r}): seconds, or a timedelta, of at least a microsecond "
            "are needed"
        )
    return exact
