"""Slices of periods: the values at an instant, and the extremes and mean of each calendar month."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from math import inf
from operator import attrgetter, itemgetter
from typing import Any

from penstock.streams.base.errors import WrongType, describe
from penstock.streams.temporal.periods.counts import Periods
from penstock.streams.temporal.periods.intervals import Axis, IntervalError, Period
from penstock.streams.temporal.periods.tallies import rounded

__all__ = ["Month", "as_of", "by_month"]

_UNIT = timedelta(microseconds=1)

# A stretch of time within one month: the first day of the month, how long it lasts, and its value.
_Piece = tuple[date, int, Any]


@dataclass(slots=True)
class Month:
    """The least, the mean over time and the greatest value of `key` in a calendar month.

    `month` is its first day. `key` is None where there are no keys.
    """

    key: Any
    month: date
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


def by_month(periods: Periods, *, until: Any = None) -> list[Month]:
    """The least, the mean over time and the greatest value of each calendar month, by key.

    Months are those of the calendar of the periods; datetimes with a time zone are in UTC. A count
    is 0 where no row is valid, from the beginning of a key's first month to the end of its last
    one. With any other aggregate, time without a valid row does not contribute, and a month
    without any is left out. `until`, a date, datetime or text in ISO 8601, is where the time that
    is examined ends; without it, an open period lasts to the end of the month of the latest end
    point of all periods.

    The mean is exact before it is rounded to a float, or to a decimal where all values are
    decimals. O(n + months) time, and memory for the months. Raises WrongType for periods that are
    not of dates or datetimes, and for an `until` of another kind; IntervalError for a month that
    ends after the year 9999.

    >>> from penstock.streams.temporal import sequenced
    >>> orders = [("2004-07-01", "2004-07-11"), ("2004-07-31", "2004-08-02")]
    >>> for month in by_month(sequenced(orders, begin=0, end=1)):
    ...     print(month.month, month.least, round(month.mean, 2), month.greatest)
    2004-07-01 0 0.35 1
    2004-08-01 0 0.03 1
    """
    if not periods:
        return []
    stop = _stop(periods, until)
    found: list[Month] = []
    for key, mine in groupby(periods, attrgetter("key")):
        whole = _cut(mine, stop)
        if periods.aggregate == "count":
            whole = _with_zeros(whole, stop)
        for month, pieces in groupby(_by_month(whole, stop), itemgetter(0)):
            found.append(_summary(key, month, list(pieces)))
    return found


def _stop(periods: Periods, until: Any) -> Any:
    """Where the time that is examined ends."""
    first = periods[0].begin
    if not isinstance(first, date):
        raise WrongType(
            f"by_month needs periods of dates or datetimes; the first begins at {describe(first)}"
        )
    if until is None:
        latest = max(point for p in periods for point in (p.begin, p.end) if point is not None)
        open_at_latest = any(p.end is None and p.begin == latest for p in periods)
        # A month that only begins at the last end point has not been reached.
        return _next_month(latest if open_at_latest else latest - latest.resolution)
    axis = Axis()
    axis.point(first)
    try:
        return axis.point(until)
    except TypeError as error:
        raise WrongType(f"until={describe(until)}: {error}") from None


def _cut(periods: Iterable[Period], stop: Any) -> Iterator[tuple[Any, Any, Any]]:
    for period in periods:
        end = stop if period.end is None else min(period.end, stop)
        if period.begin < end:
            yield period.begin, end, period.value


def _with_zeros(
    stretches: Iterable[tuple[Any, Any, Any]], stop: Any
) -> Iterator[tuple[Any, Any, Any]]:
    """The same with a count of 0 between them, and to both ends of the months of a key."""
    at = None
    for begin, end, value in stretches:
        at = _first(begin) if at is None else at
        if at < begin:
            yield at, begin, 0
        yield begin, end, value
        at = end
    if at is not None and at != _first(at):
        rest = _month_end(at, stop)
        if at < rest:
            yield at, rest, 0


def _by_month(stretches: Iterable[tuple[Any, Any, Any]], stop: Any) -> Iterator[_Piece]:
    """The stretches, each cut where a month ends."""
    month, after = date.min, None
    for begin, end, value in stretches:
        at = begin
        while at < end:
            if after is None or at >= after:
                month, after = date(at.year, at.month, 1), _month_end(at, stop)
            last = min(end, after)
            yield month, (last - at) // _UNIT, value
            at = last


def _first(point: Any) -> Any:
    """The beginning of its month."""
    if isinstance(point, datetime):
        return point.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return point.replace(day=1)


def _month_end(point: Any, stop: Any) -> Any:
    """The end of its month, or `stop` if that comes first."""
    # The last month of the calendar has an end only by `stop`.
    same = (point.year, point.month) == (stop.year, stop.month)
    return stop if same else min(stop, _next_month(point))


def _next_month(point: Any) -> Any:
    try:
        # No month has more than 31 days, and none of 28 or more is skipped.
        return _first(_first(point) + timedelta(31))
    except OverflowError:
        raise IntervalError(
            f"the month of {describe(point)} ends after the year 9999: give `until`"
        ) from None


def _summary(key: Any, month: date, pieces: list[_Piece]) -> Month:
    values = [value for *_, value in pieces]
    return Month(key, month, min(values), _mean(pieces), max(values))


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
