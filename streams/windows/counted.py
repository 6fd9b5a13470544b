"""Windows of so many events of one key, in the order in which they come.

state     [[count, start, end, acc, revision, changed], full]
full      [[start, end, acc, revision], ...]
"""

from __future__ import annotations

from math import inf
from typing import Any, Generic, TypeVar

from penstock.streams.aggregates.aggregate import Aggregate
from penstock.streams.windows.shapes import Counted
from penstock.streams.windows.window import Window

__all__ = ["CountedWindows"]

V = TypeVar("V")


class CountedWindows(Generic[V]):
    """The windows by count of one key. From the first to the last time of its events; a window is
    due as soon as it is full, whatever the watermark."""

    def __init__(self, shape: Counted, aggregate: Aggregate[V]) -> None:
        self._count = shape.count
        self._aggregate = aggregate

    def new(self) -> Any:
        return [[0, None, None, None, 0, False], []]

    def is_empty(self, state: Any, /) -> bool:
        return not state[0][0] and not state[1]

    def open(self, state: Any, /) -> int:
        (count, *_), full = state
        return len(full) + bool(count)

    def due(self, state: Any, /) -> float | None:
        return -inf if state[1] else None

    def add(self, state: Any, time: float, value: Any, watermark: float, /) -> bool:
        aggregate = self._aggregate
        window, full = state
        count, start, end, acc, revision, _ = window
        if not count:
            start, end, acc = time, time, aggregate.start()
        acc = aggregate.add(acc, value, time)
        count, start, end = count + 1, min(start, time), max(end, time)
        if count == self._count:
            full.append([start, end, acc, revision])
            state[0] = [0, None, None, None, 0, False]
        else:
            window[:] = count, start, end, acc, revision, True
        return True

    def close(self, key: Any, state: Any, watermark: float, /) -> list[Window[V]]:
        window, full = state
        if watermark == inf and window[0]:
            full.append(window[1:5])
            state[0] = [0, None, None, None, 0, False]
        found = [
            Window(key, start, end, self._aggregate.result(acc), revision + 1, True)
            for start, end, acc, revision in full
        ]
        full.clear()
        return found

    def early(self, key: Any, state: Any, /) -> list[Window[V]]:
        window = state[0]
        if not window[5]:
            return []
        _, start, end, acc, revision, _ = window
        window[4:] = revision + 1, False
        return [Window(key, start, end, self._aggregate.result(acc), revision + 1, False)]
