"""Sums and averages of a whole table, in half the time that a `Sweep` takes.

Each step is one call of a function that is written in C, for all points together. Sums are of whole
numbers, and so exact.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, compress, count, islice, repeat
from operator import is_not, ne, neg, not_
from typing import Any

from penstock.streams.temporal.periods.columns import (
    Column,
    as_numbers,
    in_order,
    near,
    places_in_order,
)
from penstock.streams.temporal.periods.intervals import Period, new_periods

__all__ = ["periods_of_totals"]


def periods_of_totals(
    key: Any,
    begins: list[Any],
    ends: list[Any],
    amounts: list[Any],
    whole: Callable[[Column], list[int]],
    values: Callable[[list[int], list[int]], list[Any]],
) -> list[Period]:
    """The periods of values that are made of the sum of the valid rows' amounts, and of their
    number.

    Rows are valid over [begin, end), which is never empty; an end of None is open. `whole` makes
    the amounts whole numbers, and `values` makes values of the sums of those.
    """
    if not begins:
        return []
    points, totals, counts = _totals(begins, ends, amounts, whole)
    of_points = values(totals, counts)
    # The periods are made where it was, in memory that is in the processor's cache.
    del totals
    return _periods(key, points, of_points, counts)


def _totals(
    begins: list[Any],
    ends: list[Any],
    amounts: list[Any],
    whole: Callable[[Column], list[int]],
) -> tuple[list[Any], list[int], list[int]]:
    """The points in their order, and the total and the number of the rows from each of them on."""
    closed: Column = ()
    are_open = type(None) in map(type, ends)
    if are_open:
        closed = list(map(is_not, ends, repeat(None)))
        # Of an open row, any point.
        ends = [begin if end is None else end for begin, end in zip(begins, ends, strict=True)]
    rows = len(begins)
    points = begins + ends
    numbers = as_numbers(points)
    # In the order of beginnings the ends are nearly sorted, and what is looked up lies close.
    order = places_in_order(numbers[:rows])
    entering = whole(in_order(near(amounts), order))
    leaving: Column = list(map(neg, entering))
    stops: Column = order
    if are_open:
        closed = in_order(closed, order)
        leaving, stops = (list(compress(column, closed)) for column in (leaving, stops))
    found: Column = _both(numbers, order, stops)
    # Two runs that are nearly sorted, so that sorting them together takes little time.
    merged = places_in_order(found)
    totals = list(accumulate(in_order([*entering, *leaving], merged)))
    counts = list(accumulate(in_order([1] * rows + [-1] * len(stops), merged)))
    found = in_order(found, merged)
    points = list(found if numbers is points else in_order(_both(points, order, stops), merged))
    # Of equal points, the last.
    are_last = [*map(ne, found, islice(found, 1, None)), True]
    if not all(are_last):
        points, totals, counts = (
            list(compress(column, are_last)) for column in (points, totals, counts)
        )
    return points, totals, counts


def _both(points: list[Any], begins: Column, ends: Column) -> list[Any]:
    """The beginnings of some rows, and then the ends of some; `points` are those of all rows."""
    rows = len(points) // 2
    return [*in_order(near(points[:rows]), begins), *in_order(near(points[rows:]), ends)]


def _periods(key: Any, points: list[Any], values: list[Any], rows: list[int]) -> list[Period]:
    """The periods of the values from each point on, over which there are so many rows."""
    has_gaps = rows.count(0) > (not rows[-1])
    if has_gaps:
        # Another value than any.
        for place in compress(count(), map(not_, rows)):
            values[place] = None
    are_new = [True, *map(ne, values, islice(values, 1, None))]
    if not rows[-1]:
        # Nothing begins at the last point, whatever the value of no rows is.
        are_new[-1] = True
    if not all(are_new):
        points, values = list(compress(points, are_new)), list(compress(values, are_new))
    ends = [*islice(points, 1, None), None]
    if not rows[-1]:
        ends.pop()
        values.pop()
    if has_gaps:
        are_values = list(map(is_not, values, repeat(None)))
        points, ends, values = (
            list(compress(column, are_values)) for column in (points, ends, values)
        )
    return new_periods(key, points, ends, values)
