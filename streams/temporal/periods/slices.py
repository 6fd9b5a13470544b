"""Slices of periods: the values at an instant, and the extremes and mean by the calendar."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from math import inf
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from penstock.streams.base.calendar import Days, days_at, first_day, next_first
from penstock.streams.base.errors import WrongType, describe
from penstock.streams.temporal.periods.counts import Periods
from penstock.streams.temporal.periods.intervals import Axis, IntervalError, Period
from penstock.streams.temporal.periods.tallies import rounded

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

__all__ = ["Slice", "as_of", "by_calendar"]

_UNIT = timedelta(microseconds=1)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# A stretch of time within one unit: its first day, how long the stretch lasts, and its value.
_Piece = tuple[date, int, Any]


@dataclass(slots=True)
class Slice:
    """The least, the mean over time and the greatest value of `key` in a day, week, month, quarter
    or year of the calendar.

    `first` is its first day. `key` is None where there are no keys.
    """

    key: Any
    first: date
    least: Any
    mean: Any
    greatest: Any


def as_of(periods: Periods, at: Any) -> dict[Any, Any]:
    """The value of each key at the instant `at`; without keys, of the key None.

    `at` is a number, date, datetime or text in ISO 8601, of the kind of the periods. A count is 0
    where no row is valid; by any other aggregate the key is then left out, and so is a key without
    any period. O(n) time. Raises WrongType for an instant of another kind.

    >>> from penstock.streams.temporal import sequenced
    >>> as_of(sequenced([(0, 10), (2, 5), (5, 7)], begin=0, end=1), 6)
    {None: 2}
    """
    axis = Axis()
    try:
        for period in periods[:1]:
            axis.point(period.begin)
        point = axis.point(at)
    except TypeError as error:
        raise WrongType(f"at={describe(at)}: {error}") from None
    found: dict[Any, Any] = {}
    for period in periods:
        if period.begin <= point and (period.end is None or point < period.end):
            found[period.key] = period.value
        elif periods.aggregate == "count":
            found.setdefault(period.key, 0)
    return found


def by_calendar(
    periods: Periods, unit: Days, *, until: Any = None, zone: ZoneInfo | None = None
) -> list[Slice]:
    """The least, the mean over time and the greatest value of each day, week (from Monday), month,
    quarter or year, by key.

    Units are those of the calendar of the periods; of datetimes with a time zone those of `zone`,
    or of UTC: a day has 23 or 25 hours where its clock is set forward or back. A count is 0 where
    no row is valid, from the beginning of a key's first unit to the end of its last one. With any
    other aggregate, time without a valid row does not contribute, and a unit without any is left
    out. `until`, a date, datetime or text in ISO 8601, is where the time that is examined ends;
    without it, an open period lasts to the end of the unit of the latest end point of all periods.

    The mean is exact before it is rounded to a float, or to a decimal where all values are
    decimals. O(n + units) time, and memory for the units. Raises WrongType for periods that are
    not of dates or datetimes, for a `zone` where they have none, and for an `until` of another
    kind; IntervalError for a unit that ends after the year 9999.

    >>> from penstock.streams.temporal import sequenced
    >>> orders = [("2004-07-01", "2004-07-11"), ("2004-07-31", "2004-08-02")]
    >>> for month in by_calendar(sequenced(orders, begin=0, end=1), "month"):
    ...     print(month.first, month.least, round(month.mean, 2), month.greatest)
    2004-07-01 0 0.35 1
    2004-08-01 0 0.03 1
    """
    if not periods:
        return []
    cut = _cut_of(periods[0].begin, unit, zone)
    stop = _stop(periods, cut, until)
    found: list[Slice] = []
    for key, mine in groupby(periods, attrgetter("key")):
        whole = _within(mine, stop)
        if periods.aggregate == "count":
            whole = _with_zeros(whole, cut, stop)
        for first, pieces in groupby(_by_unit(whole, cut, stop), itemgetter(0)):
            found.append(_summary(key, first, list(pieces)))
    return found


class _Cut:
    """Where a unit begins and ends that has a date, or a datetime without a zone."""

    def __init__(self, unit: Days) -> None:
        self.unit: Days = unit

    def first(self, point: Any) -> date:
        """The first day of the unit that has this point."""
        return first_day(self.unit, _day(point))

    def begin(self, point: Any) -> Any:
        """The point at which that unit begins."""
        return self._at(self.first(point), point)

    def end(self, point: Any) -> Any:
        """The point at which it ends. Raises OverflowError after the year 9999."""
        return self._at(next_first(self.unit, self.first(point)), point)

    def _at(self, day: date, like: Any) -> Any:
        return datetime.combine(day, time()) if isinstance(like, datetime) else day


class _ZonedCut(_Cut):
    """The same of a datetime in UTC, by the calendar of a zone."""

    def __init__(self, unit: Days, zone: ZoneInfo) -> None:
        super().__init__(unit)
        self._zone = zone

    def first(self, point: datetime) -> date:
        return self._bounds(point)[0]

    def begin(self, point: datetime) -> datetime:
        return _EPOCH + timedelta(seconds=self._bounds(point)[1])

    def end(self, point: datetime) -> datetime:
        return _EPOCH + timedelta(seconds=self._bounds(point)[2])

    def _bounds(self, point: datetime) -> tuple[date, int, int]:
        try:
            return days_at(self.unit, self._zone, (point - _EPOCH) // timedelta(seconds=1))
        except (OverflowError, ValueError):
            raise IntervalError(
                f"the {self.unit} of {describe(point)} is out of range in {self._zone}"
            ) from None


def _cut_of(first: Any, unit: Days, zone: ZoneInfo | None) -> _Cut:
    if not isinstance(first, date):
        raise WrongType(
            f"by_calendar needs periods of dates or datetimes; the first begins at "
            f"{describe(first)}"
        )
    has_zone = isinstance(first, datetime) and first.tzinfo is not None
    if zone is None:
        return _Cut(unit) if not has_zone else _UtcCut(unit)
    if not has_zone:
        raise WrongType(
            f"zone={str(zone)!r} goes with datetimes that have a time zone; the first begins at "
            f"{describe(first)}"
        )
    return _ZonedCut(unit, zone)


class _UtcCut(_Cut):
    """The same of a datetime in UTC, by its calendar."""

    def _at(self, day: date, like: Any) -> Any:
        return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _stop(periods: Periods, cut: _Cut, until: Any) -> Any:
    """Where the time that is examined ends."""
    if until is None:
        latest = max(point for p in periods for point in (p.begin, p.end) if point is not None)
        open_at_latest = any(p.end is None and p.begin == latest for p in periods)
        # A unit that only begins at the last end point has not been reached.
        last = latest if open_at_latest else latest - latest.resolution
        try:
            return cut.end(last)
        except OverflowError:
            raise IntervalError(
                f"the {cut.unit} of {describe(last)} ends after the year 9999: give `until`"
            ) from None
    axis = Axis()
    axis.point(periods[0].begin)
    try:
        return axis.point(until)
    except TypeError as error:
        raise WrongType(f"until={describe(until)}: {error}") from None


def _within(periods: Iterable[Period], stop: Any) -> Iterator[tuple[Any, Any, Any]]:
    for period in periods:
        end = stop if period.end is None else min(period.end, stop)
        if period.begin < end:
            yield period.begin, end, period.value


def _with_zeros(
    stretches: Iterable[tuple[Any, Any, Any]], cut: _Cut, stop: Any
) -> Iterator[tuple[Any, Any, Any]]:
    """The same with a count of 0 between them, and to both ends of the units of a key."""
    at = None
    for begin, end, value in stretches:
        at = cut.begin(begin) if at is None else at
        if at < begin:
            yield at, begin, 0
        yield begin, end, value
        at = end
    if at is not None and at != cut.begin(at):
        rest = _end(at, cut, stop)
        if at < rest:
            yield at, rest, 0


def _by_unit(stretches: Iterable[tuple[Any, Any, Any]], cut: _Cut, stop: Any) -> Iterator[_Piece]:
    """The stretches, each cut where a unit ends."""
    first, after = date.min, None
    for begin, end, value in stretches:
        at = begin
        while at < end:
            if after is None or at >= after:
                first, after = cut.first(at), _end(at, cut, stop)
            last = min(end, after)
            yield first, (last - at) // _UNIT, value
            at = last


def _end(point: Any, cut: _Cut, stop: Any) -> Any:
    """The end of its unit, or `stop` if that comes first."""
    try:
        return min(stop, cut.end(point))
    except OverflowError:
        # The last unit of the calendar has an end only by `stop`.
        return stop


def _day(point: date) -> date:
    return point.date() if isinstance(point, datetime) else point


def _summary(key: Any, first: date, pieces: list[_Piece]) -> Slice:
    values = [value for *_, value in pieces]
    return Slice(key, first, min(values), _mean(pieces), max(values))


def _mean(pieces: list[_Piece]) -> Any:
    values = {value for *_, value in pieces}
    if values & {inf, -inf}:
        # A sum beyond the largest float.
        return sum(values & {inf, -inf})
    weighed = (length * (v if isinstance(v, int) else Fraction(v)) for _, length, v in pieces)
    exact = Fraction(sum(weighed), sum(length for _, length, _ in pieces))
    if all(isinstance(value, Decimal) for value in values):
        return Decimal(exact.numerator) / Decimal(exact.denominator)
    return rounded(exact)
