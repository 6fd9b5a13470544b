"""The values themselves, in order of time, up to a bound."""

from __future__ import annotations

from bisect import bisect_right
from heapq import merge
from operator import itemgetter
from typing import Any

from penstock.streams.aggregates.aggregate import BaseAggregate
from penstock.streams.aggregates.simple import plain_reader
from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By
from penstock.streams.base.validation import is_count

__all__ = ["Collected"]

_by_time = itemgetter(0)


class Collected(BaseAggregate[list[Any]]):
    """The earliest values, or a field of each; those with equal times in order of arrival."""

    def __init__(self, of: By[Any] | None, most: int) -> None:
        if not is_count(most):
            raise BuildError(f"agg.list(most={most!r}): must be a whole number of at least 1")
        super().__init__(plain_reader(of, "list"))
        self._most = most

    def start(self) -> Any:
        return []

    def put(self, acc: Any, read: Any, time: float) -> Any:
        if not acc or acc[-1][0] <= time:
            if len(acc) < self._most:
                acc.append([time, read])
        else:
            acc.insert(bisect_right(acc, time, key=_by_time), [time, read])
            del acc[self._most :]
        return acc

    def merge(self, acc: Any, other: Any, /) -> Any:
        # Of equal times, those of `acc` come first.
        acc[:] = merge(acc, other, key=_by_time)
        del acc[self._most :]
        return acc

    def result(self, acc: Any, /) -> list[Any]:
        return [value for _, value in acc]
