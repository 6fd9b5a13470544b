"""The timers of one stage: those due within a minute are in memory, all others in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from math import inf, nextafter
from sys import maxsize
from typing import Any

from penstock.streams.state.changes import Cell
from penstock.streams.state.codec import key_in
from penstock.streams.state.states import States

__all__ = ["Timers"]

# Timers that are due within so many seconds are in memory.
_AHEAD = 60.0

# Those that are read from the store at once.
_MOST = 1_000


class Timers:
    """The keys with a timer, by the time when the first is due, in seconds since 1970.

    Memory: an entry for each key that is due within a minute. Time: O(log n) for each.
    """

    def __init__(self, states: States, wall: Callable[[], float]) -> None:
        self._states = states
        self._wall = wall
        self._heap: list[tuple[float, int, Any]] = []
        # When the first timer of a key in the heap is looked at; others of it are out of date.
        self._looks: dict[Any, float] = {}
        # Up to when they are in the heap, and an order for those of one time.
        self._until = -inf
        self._pushed = 0
        # Whether there are any that are due later.
        self._is_more = True

    def __len__(self) -> int:
        return len(self._looks)

    def note(self, cell: Cell) -> None:
        """Note that the timers of a key have changed."""
        if cell.timers:
            due = min(cell.timers.values())
            if due < self._until:
                self._push(cell.key, due)
            else:
                self._is_more = True

    def _push(self, key: Any, due: float) -> None:
        if due < self._looks.get(key, inf):
            self._looks[key] = due
            self._pushed += 1
            heappush(self._heap, (due, self._pushed, key))

    def next(self) -> float | None:
        """The time of the next check, in seconds since 1970; None if there is no timer."""
        more = self._until - _AHEAD / 2 if self._is_more else inf
        next_ = min(self._heap[0][0], more) if self._heap else more
        return next_ if next_ < inf else None

    def due(self) -> Iterator[Cell]:
        """The keys with a timer that is due now, one at a time, each as often as it has one.

        After each the caller has taken the timer out, or does not come back.
        """
        while True:
            now = self._wall()
            self._read(now)
            heap = self._heap
            if not heap or heap[0][0] > now:
                return
            look, _, key = heappop(heap)
            if self._looks.get(key) != look:
                continue
            del self._looks[key]
            cell = self._states.cell(key)
            if not cell.timers:
                continue
            if min(cell.timers.values()) <= now:
                yield cell
            self.note(cell)

    def _read(self, now: float) -> None:
        """Read the timers that are due soon from the store."""
        while self._until <= now + _AHEAD / 2:
            after, until = self._until, now + _AHEAD
            found = self._states.due(after, until, _MOST)
            if len(found) == _MOST:
                # There may be more of the last time.
                until = last = found[-1][0]
                if last == found[0][0]:
                    until = nextafter(last, inf)
                    found = self._states.due(after, until, maxsize)
            self._until = until
            for due, text in found:
                if due < until:
                    self._push(key_in(text), due)
            self._is_more = bool(self._states.due(until, inf, 1))
            # What is in memory only.
            for cell in self._states.changed():
                self.note(cell)
