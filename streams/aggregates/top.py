"""The most frequent keys: exact while there are few different ones, then with a known error.

When there are too many keys, the count of the key that is just too many is taken from all counts,
and those that have nothing left are forgotten. Sources: J. Misra, D. Gries, "Finding repeated
elements" (1982); P. K. Agarwal and others, "Mergeable summaries" (2012), for parts put together.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import Any

from penstock.streams.aggregates.aggregate import BaseAggregate
from penstock.streams.aggregates.texts import text_reader, value_of
from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By
from penstock.streams.base.validation import is_count

__all__ = ["Top"]

_MOST = 10_000
# So many are kept when there are more, so that it is rare.
_KEPT = 5_000


class Top(BaseAggregate[list[tuple[Any, int]]]):
    """The keys with the greatest counts, each with its count; the state is the count of each."""

    def __init__(self, n: int, by: By[Any]) -> None:
        if not is_count(n) or n > _KEPT:
            raise BuildError(f"agg.top({n!r}, ...): give a whole number from 1 to {_KEPT:,}")
        super().__init__(text_reader(by, "top"))
        self._n = n

    def start(self) -> Any:
        return {}

    def put(self, acc: Any, read: Any, time: float) -> Any:
        acc[read] = acc.get(read, 0) + 1
        if len(acc) > _MOST:
            _reduce(acc)
        return acc

    def merge(self, acc: Any, other: Any, /) -> Any:
        for text, count in other.items():
            acc[text] = acc.get(text, 0) + count
        if len(acc) > _MOST:
            _reduce(acc)
        return acc

    def result(self, acc: Any, /) -> list[tuple[Any, int]]:
        # Of equal counts, by the text, so that the order of the events does not matter.
        first = nsmallest(self._n, acc.items(), key=_in_order)
        return [(value_of(text), count) for text, count in first]


def _in_order(one: tuple[str, int]) -> tuple[int, str]:
    text, count = one
    return -count, text


def _reduce(counts: dict[str, int]) -> None:
    """Take the count of the first key that is too many from all, and forget those without any."""
    too_many = sorted(counts.values(), reverse=True)[_KEPT]
    left = {text: count - too_many for text, count in counts.items() if count > too_many}
    counts.clear()
    counts.update(left)
