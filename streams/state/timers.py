"""The timers of one stage: those due within a minute are in memory, all others in the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf, nextafter
from sys import maxsize
from typing import Any, NamedTuple

from penstock.streams.state.changes import Cell
from penstock.streams.state.codec import key_in
from penstock.streams.state.states import States

__all__ = ["AT_ONCE", "Timers"]

AT_ONCE = 100
"""The number of keys whose timers fire before the loop goes on."""

# Timers that are due within so many seconds are in memory.
_AHEAD = 60.0

# Those that are read from the store at once.
_MOST = 1_000


class Found(NamedTuple):
    """The timers in the store that are due before `until`, and whether there are later ones."""

    due: list[tuple[float, bytes]]
    until: float
    is_more: bool


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
        # Keys that were taken from the heap.
        self._ready: deque[Any] = deque()
        # Up to when they are in the heap, and an order for those of one time.
        self._until = -inf
        self._pushed = 0
        # Whether there are any that are due later.
        self._is_more = True

    def __len__(self) -> int:
        return len(self._looks) + len(self._ready)

    def note(self, cell: Cell) -> None:
        """Note that the timers of a key have changed."""
        if cell.timers:
            self._note(min(cell.timers.values()), cell.key)

    def _note(self, due: float, key: Any) -> None:
        if due >= self._until:
            self._is_more = True
        elif due < self._looks.get(key, inf):
            self._looks[key] = due
            self._pushed += 1
            heappush(self._heap, (due, self._pushed, key))

    def restart(self) -> None:
        """Read all that are due soon from the store again: some may have fired in vain."""
        self._heap.clear()
        self._looks.clear()
        self._until, self._is_more = -inf, True

    def next(self) -> float | None:
        """The time of the next check, in seconds since 1970; None if there is no timer."""
        if self._ready:
            return -inf
        more = self._until - _AHEAD / 2 if self._is_more else inf
        next_ = min(self._heap[0][0], more) if self._heap else more
        return next_ if next_ < inf else None

    def ready(self) -> deque[Any]:
        """The keys with a timer that is perhaps due now, up to 100; the caller takes them out."""
        now, heap, ready = self._wall(), self._heap, self._ready
        while heap and heap[0][0] <= now and len(ready) < AT_ONCE:
            look, _, key = heappop(heap)
            if self._looks.get(key) == look:
                del self._looks[key]
                ready.append(key)
        return ready

    # Reading.

    @property
    def is_behind(self) -> bool:
        """Whether the timers that are due soon are to be read from the store."""
        return self._until <= self._wall() + _AHEAD / 2

    def reading(self) -> tuple[Callable[[], Found], Callable[[Found], None]]:
        """A function that reads timers from the store, in any thread as `States.read`, and one for
        its result. No timer may change in between."""
        after, until = self._until, self._wall() + _AHEAD
        # They may be committed when the store was read already.
        uncommitted = self._states.uncommitted()

        def read() -> Found:
            return _found(self._states, after, until)

        def add(found: Found) -> None:
            self._until, self._is_more = found.until, found.is_more
            for due, text in found.due:
                if due < found.until:
                    self._note(due, key_in(text))
            for due, key in uncommitted:
                self._note(due, key)

        return read, add


def _found(states: States, after: float, until: float) -> Found:
    found = states.due(after, until, _MOST)
    if len(found) == _MOST:
        # There may be more of the last time.
        until = last = found[-1][0]
        if last == found[0][0]:
            until = nextafter(last, inf)
            found = states.due(after, until, maxsize)
    return Found(found, until, bool(states.due(until, inf, 1)))
