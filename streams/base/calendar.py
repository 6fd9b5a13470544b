"""The calendar of a time zone: where its days, weeks, months, quarters and years begin.

A day begins with the first second at which its date has begun, also where its midnight is skipped
or comes twice: so a day has 23 or 25 hours where the clock is set forward or back.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from penstock.streams.base.errors import BuildError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

__all__ = ["Days", "change", "days_at", "first_day", "local", "next_first", "zone_named"]

Days = Literal["day", "week", "month", "quarter", "year"]
"""A unit of whole days. A week begins on Monday, as in ISO 8601."""


def zone_named(name: str, where: str) -> ZoneInfo:
    """The time zone with this name. Raises BuildError, which begins with `where`, for another."""
    # Slow to import, and few pipelines have a calendar.
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BuildError(
            f"{where}: the time zone database has no such zone. Zones have names such as "
            '"Europe/Athens"; where the system has no database, install tzdata'
        ) from error


def first_day(unit: Days, day: date) -> date:
    """The first day of the unit that has this day."""
    match unit:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case "year":
            return day.replace(month=1, day=1)


def next_first(unit: Days, first: date) -> date:
    """The first day of the next unit. Raises OverflowError after the year 9999."""
    match unit:
        case "day":
            return first + timedelta(days=1)
        case "week":
            return first + timedelta(days=7)
        case "month":
            # No month has more than 31 days, and none of 28 or more is skipped.
            return (first + timedelta(days=31)).replace(day=1)
        case "quarter":
            return (first + timedelta(days=92)).replace(day=1)
        case "year":
            return (first + timedelta(days=366)).replace(day=1)


def days_at(unit: Days, zone: ZoneInfo, second: int) -> tuple[date, int, int]:
    """The first day of the unit that has this second since 1970, and the seconds at which the unit
    begins and ends. Raises OverflowError after the year 9999."""
    first = first_day(unit, local(second, zone).date())
    start, end = _begin(first, zone), _begin(next_first(unit, first), zone)
    # The clock may have gone back to the day before, after this one had begun.
    while second >= end:
        first = next_first(unit, first)
        start, end = end, _begin(next_first(unit, first), zone)
    return first, start, end


def local(second: int, zone: ZoneInfo) -> datetime:
    """What the clock shows."""
    return datetime.fromtimestamp(second, zone)


def change(before: int, after: int, zone: ZoneInfo) -> int:
    """The second from which on the offset is that of `after`."""
    offset = local(after, zone).utcoffset()
    while before < after:
        middle = (before + after) // 2
        if local(middle, zone).utcoffset() == offset:
            after = middle
        else:
            before = middle + 1
    return after


def _begin(day: date, zone: ZoneInfo) -> int:
    """The first second at which this date has begun."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    earlier, later = sorted(int(midnight.replace(fold=n).timestamp()) for n in (0, 1))
    if local(earlier, zone).replace(tzinfo=None) == midnight.replace(tzinfo=None):
        return earlier
    # It is skipped: the clock goes from before it to after it.
    return change(earlier, later, zone)
