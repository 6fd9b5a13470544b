"""The least or the greatest amount of a whole table, in a third of the time that a `Sweep` takes.

The value can only change where a row begins, or where the row that has it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from penstock.streams.temporal.periods.columns import as_numbers, in_order, near, places_in_order
from penstock.streams.temporal.periods.intervals import Period

__all__ = ["periods_of_extremes"]

# A smaller heap is not worth compacting.
_FEW = 64

# The amount as it is compared, a number that no other row has, the end, and the amount.
_Row = tuple[Any, int, Any, Any]


def periods_of_extremes(
    key: Any,
    begins: list[Any],
    ends: list[Any],
    amounts: list[Any],
    turned: Callable[[Any], Any] | None,
) -> list[Period]:
    """The periods of the least amount of the valid rows, or, by amounts `turned` round, of the
    greatest.

    Rows are valid over [begin, end), which is never empty; an end of None is open. O(n log n) time;
    the heap has no more rows than about twice those valid at once.
    """
    places = places_in_order(as_numbers(begins))
    begins, ends, amounts = (list(in_order(near(c), places)) for c in (begins, ends, amounts))
    order = amounts if turned is None else list(map(turned, amounts))
    found: list[Period] = []
    heap: list[_Row] = []
    most = _FEW
    # The first row of the heap, which is valid just before `begin`, and when it ends.
    first: _Row | None = None
    first_ends: Any = None
    # Whether the value at `at`, where the last row began, is still to be found.
    is_due = False
    at = since = value = None

    def go_on(until: Any) -> None:
        """Find the values from `at` on, before `until`; None: for ever."""
        nonlocal at, since, value, first, first_ends
        while True:
            while heap and (end := heap[0][2]) is not None and end <= at:
                heappop(heap)
            first = heap[0] if heap else None
            now, first_ends = (None, None) if first is None else (first[3], first[2])
            if now != value:
                if value is not None:
                    found.append(Period(key, since, at, value))
                since, value = at, now
            if first_ends is None or (until is not None and first_ends >= until):
                return
            at = first_ends

    for begin, end, least, amount, number in zip(
        begins, ends, order, amounts, count(), strict=False
    ):
        if begin != at and (is_due or (first_ends is not None and first_ends <= begin)):
            go_on(begin)
            is_due = False
        at = begin
        if (
            first is not None
            and least >= first[0]
            and (first_ends is None or (end is not None and end <= first_ends))
        ):
            # It ends no later than the first and is no less: it never becomes the first.
            continue
        row = (least, number, end, amount)
        heappush(heap, row)
        if heap[0] is row:
            first, first_ends, is_due = row, end, True
        if len(heap) > most:
            # Rows that have ended and were never the first.
            heap[:] = [one for one in heap if one[2] is None or begin < one[2]]
            heapify(heap)
            most = 2 * len(heap) + _FEW
    if begins:
        go_on(None)
    if value is not None:
        found.append(Period(key, since, None, value))
    return found
