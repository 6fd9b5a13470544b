"""The rows of one key of a table by the times from which they are valid, and the events that wait.

    state    [rows, waiting]
    row      [begin, time, value], by begin
    waiting  [due, time, event], by due

A row is seen by the events from `begin` on: that is its time, or, if it came late, the watermark of
the table when it was emitted. So what an event finds does not depend on which stream is read
faster: when the watermark has passed an event's time, all rows have come that it may see. Of these
the one with the greatest time is valid.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from math import inf, nextafter
from operator import itemgetter
from typing import Any

from penstock.streams.joins.rows import LEFT, Sided

__all__ = ["VersionedRows"]

_BEGIN, _TIME, _VALUE = range(3)
_DUE = 0

_by_first = itemgetter(0)


class VersionedRows:
    """What `streams/windows` asks of the windows of one key, for a key of a table.

    An event comes from the left, a row from the right. With `now` an event gets the newest row at
    once. Otherwise it waits until the watermark has passed its time, and without a row by then up
    to `wait` seconds of event time longer. Rows that no event of less than `keep` seconds before
    the watermark can see any more are dropped. Time: O(log n) in the rows and events of the key,
    and O(n) in those that came late. Memory: these.
    """

    def __init__(self, wait: float, keep: float, *, now: bool) -> None:
        self._wait = wait
        self._keep = keep
        self._now = now
        self.found: list[tuple[Any, Any]] = []
        """The results of what was added last."""
        self.has_changed = False
        """Whether that has changed the state."""

    def new(self) -> Any:
        return [[], []]

    def is_empty(self, state: Any, /) -> bool:
        return not (state[0] or state[1])

    def open(self, state: Any, /) -> int:
        return len(state[0])

    def waiting(self, state: Any, /) -> int:
        """How many events wait."""
        return len(state[1])

    def due(self, state: Any, /) -> float | None:
        rows, waiting = state
        due: float = waiting[0][_DUE] if waiting else inf
        if len(rows) > 1:
            due = min(due, rows[1][_BEGIN] + self._keep)
        # What is of exactly that time may still come.
        return nextafter(due, inf) if due < inf else None

    def add(self, state: Any, time: float, value: Sided, watermark: float, /) -> bool:
        rows, waiting = state
        side, own, has_key = value
        self.has_changed = False
        self.found = []
        if side != LEFT:
            if has_key:
                self.has_changed = True
                self._put(rows, waiting, max(time, watermark), time, own)
            return True
        if time + self._keep < watermark:
            return False
        if not has_key:
            self.found = [(own, None)]
        elif self._now:
            self.found = [(own, _valid(rows, inf, inf))]
        else:
            self.has_changed = True
            insort(waiting, [time, time, own], key=_by_first)
        return True

    def _put(self, rows: Any, waiting: Any, begin: float, time: float, value: Any) -> None:
        insort(rows, [begin, time, value], key=_by_first)
        if begin == time:
            return
        # For events without any other they need not wait longer than for this.
        for one in waiting:
            due, own_time, _ = one
            if time <= own_time < begin < due:
                one[_DUE] = begin
        waiting.sort(key=_by_first)

    def close(self, key: Any, state: Any, watermark: float, /) -> list[tuple[Any, Any]]:
        """The events that need not wait any more, each with its row."""
        rows, waiting = state
        gone: list[tuple[Any, Any]] = []
        while waiting and waiting[0][_DUE] < watermark:
            due, time, event = waiting.pop(0)
            row = _valid(rows, due, time)
            end = time + self._wait
            if row is not None or due >= end:
                gone.append((event, row))
                continue
            begins = (begin for begin, of, _ in rows if of <= time and due < begin <= end)
            insort(waiting, [min(begins, default=end), time, event], key=_by_first)
        self._drop(rows, watermark)
        return gone

    def _drop(self, rows: Any, watermark: float) -> None:
        """Drop the rows that others replace for all events that are not late."""
        count = 0
        while count < len(rows) and rows[count][_BEGIN] + self._keep < watermark:
            count += 1
        if count > 1:
            rows[:count] = [_newest(rows, count - 1, inf)]

    def early(self, key: Any, state: Any, /) -> list[tuple[Any, Any]]:
        return []


def _valid(rows: Any, due: float, time: float) -> Any:
    """The value of the newest row up to this time that has begun by `due`; None if there is
    none."""
    found = _newest(rows, bisect_right(rows, due, key=_by_first) - 1, time)
    return None if found is None else found[_VALUE]


def _newest(rows: Any, last: int, time: float) -> Any:
    """Of the rows up to the place `last` the one with the greatest time, up to this one; of several
    the last. None if there is none."""
    newest: Any = None
    for at in range(last, -1, -1):
        row = rows[at]
        if row[_TIME] <= time and (newest is None or row[_TIME] > newest[_TIME]):
            newest = row
        if newest is not None and row[_BEGIN] <= newest[_TIME]:
            # Those before it have begun earlier, and are of earlier times.
            break
    return newest
