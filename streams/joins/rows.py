"""The rows of one key on the two sides of a join, and their pairs.

    state    [left rows, right rows], each by time
    row      [time, after, value, paired]

`after` is the watermark of its stream when a late row was emitted; of others it is less than all
times, as a number, because JSON has no infinity. Two rows are a pair if the later one happened at
most `within` seconds after the earlier one, and both were emitted before the watermark of their
streams had passed the earlier time by more than that. Then the earlier one, whichever it was, is
still there when the other one comes: so the pairs do not depend on which stream is read faster.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from math import inf, nextafter
from operator import itemgetter
from typing import Any, NamedTuple

__all__ = ["LEFT", "RIGHT", "Paired", "PairedRows", "Sided"]

LEFT, RIGHT = 0, 1

_TIME, _AFTER, _VALUE, _PAIRED = range(4)

_LEAST = -1e300

_time_of = itemgetter(_TIME)
_by_time = itemgetter(0)

Paired = tuple[float, tuple[Any, Any]]
"""A result with its time, the lesser one of its rows."""


class Sided(NamedTuple):
    """A row with the side that it came from. A row that `pairs` with none has no key."""

    side: int
    value: Any
    pairs: bool = True


class PairedRows:
    """What `streams/windows` asks of the windows of one key, for the rows of one key.

    Rows without a partner are results of the sides that `keeps` says. Time: O(log n) for a row, and
    O(1) for each of its pairs. Memory: the rows whose time is at most `within` before the
    watermark.
    """

    def __init__(self, within: float, keeps: tuple[bool, bool]) -> None:
        self._within = within
        self._keeps = keeps
        self.found: list[Paired] = []
        """The results of the row that was added last."""
        self.unpaired = 0
        """How many rows without a partner the last call has let go."""

    def new(self) -> Any:
        return [[], []]

    def is_empty(self, state: Any, /) -> bool:
        return not (state[LEFT] or state[RIGHT])

    def open(self, state: Any, /) -> int:
        return len(state[LEFT]) + len(state[RIGHT])

    def alone(self, state: Any, /) -> int:
        """How many rows have no partner yet."""
        return sum(not row[_PAIRED] for rows in state for row in rows)

    def due(self, state: Any, /) -> float | None:
        left, right = state
        if not left:
            if not right:
                return None
            first = right[0][_TIME]
        elif not right:
            first = left[0][_TIME]
        else:
            first = min(left[0][_TIME], right[0][_TIME])
        # A row of exactly that time may still come.
        return nextafter(self._end(first), inf)

    def _end(self, time: float) -> float:
        return time + self._within

    def _end_of(self, row: Any) -> float:
        return self._end(row[_TIME])

    def add(self, state: Any, time: float, value: Sided, watermark: float, /) -> bool:
        side, own, pairs = value
        self.found, self.unpaired = [], 0
        end = self._end(time)
        if end < watermark:
            return False
        if not pairs:
            self.unpaired = 1
            if self._keeps[side]:
                self.found = [(time, self._alone(side, own))]
            return True
        after, is_paired = max(watermark, _LEAST), False
        others = state[1 - side]
        for at in range(bisect_left(others, time, key=self._end_of), len(others)):
            other = others[at]
            if other[_TIME] > end:
                break
            if max(after, other[_AFTER]) > min(end, self._end_of(other)):
                continue
            is_paired = other[_PAIRED] = True
            pair = (own, other[_VALUE]) if side == LEFT else (other[_VALUE], own)
            first = other[_TIME]
            self.found.append((first if first < time else time, pair))
        insort(state[side], [time, after, own, is_paired], key=_time_of)
        return True

    def close(self, key: Any, state: Any, watermark: float, /) -> list[Paired]:
        """The rows without a partner that leave by a watermark, in the order of their times."""
        gone: list[tuple[float, int, Any]] = []
        for side, rows in enumerate(state):
            count = 0
            for time, _, value, is_paired in rows:
                if self._end(time) >= watermark:
                    break
                count += 1
                if not is_paired:
                    gone.append((time, side, value))
            del rows[:count]
        self.unpaired = len(gone)
        if len(gone) > 1:
            gone.sort(key=_by_time)
        return [(time, self._alone(side, value)) for time, side, value in gone if self._keeps[side]]

    def early(self, key: Any, state: Any, /) -> list[Paired]:
        return []

    @staticmethod
    def _alone(side: int, value: Any) -> tuple[Any, Any]:
        return (value, None) if side == LEFT else (None, value)
