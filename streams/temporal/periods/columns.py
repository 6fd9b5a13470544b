"""Columns of a table: reordered, and as numbers that are quick to compare.

Each step is one call of a function that is written in C, for the whole column.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from itertools import repeat
from operator import itemgetter, sub
from typing import Any

__all__ = ["Column", "as_numbers", "in_order", "near", "places_in_order"]

Column = Sequence[Any]

# Up to this many seconds (68 years), two floats of seconds differ if their microseconds do.
_MOST_SECONDS = float(1 << 31)


def as_numbers(points: list[Any]) -> list[Any]:
    """Numbers in the same order as the points, if there are such: they are compared in a fraction
    of the time. Otherwise the points."""
    kinds = {*map(type, points)}
    if kinds == {date}:
        return list(map(date.toordinal, points))
    if kinds == {datetime}:
        seconds = list(map(timedelta.total_seconds, map(sub, points, repeat(points[0]))))
        if max(map(abs, seconds)) < _MOST_SECONDS:
            return seconds
    return points


def places_in_order(numbers: Column) -> list[int]:
    """The indexes of the numbers, sorted by number.

    Like the floats of `near`, they are new objects, which lie in memory in this order.
    """
    return array("q", sorted(range(len(numbers)), key=numbers.__getitem__)).tolist()


def near(column: Column) -> Column:
    """The column, as an array if it has only floats: it is quicker to read in any order.

    The floats read from an array are new objects, which lie in memory in the order of reading.
    Measured: all that follows for a million rows takes half the time.
    """
    return array("d", column) if {*map(type, column)} == {float} else column


def in_order(column: Column, places: Column) -> Column:
    """The values at these indexes of the column."""
    # `itemgetter` of one place returns no tuple.
    return itemgetter(*places)(column) if len(places) > 1 else [column[place] for place in places]
