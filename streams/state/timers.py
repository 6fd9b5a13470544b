"""The timers of one stage by one clock: those due within a minute are in memory, all others in the
store."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf, nextafter
from sys import maxsize
from typing import Any, NamedTuple

from penstock.streams.state.changes import Cell
from penstock.streams.state.codec import key_in
from penstock.streams.state.states import States

__all__ = ["Timers"]

# Keys that are due are read together, so many at a time.
_TOGETHER = 100

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

    `now` is the time of the clock that the timers are of, and is set before it is used. Memory: an
    entry for each key that is due within a minute; with `has_all`, which is for states that are not
    stored, for all of them. Time: O(log n) for each.
    """

    def __init__(self, states: States, *, has_all: bool = False) -> None:
        self._states = states
        self.now = -inf
        self._heap: list[tuple[float, int, Any]] = []
        # When the first timer of a key in the heap is looked at; others of it are out of date.
        self._looks: dict[Any, float] = {}
        # Up to when they are in the heap, and an order for those of one time.
        self._until = inf if has_all else -inf
        self._pushed = 0
        # Whether there are any that are due later.
        self._is_more = not has_all
        self._restarts = 0

    def __len__(self) -> int:
        return len(self._looks)

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
        self._restarts += 1

    def next(self) -> float | None:
        """The time of the next check, in seconds since 1970; None if there is no timer."""
        more = self._until - _AHEAD / 2 if self._is_more else inf
        next_ = min(self._heap[0][0], more) if self._heap else more
        return next_ if next_ < inf else None

    @property
    def is_due(self) -> bool:
        """Whether a timer of a key is perhaps due now."""
        heap = self._heap
        while heap and self._looks.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return bool(heap) and heap[0][0] <= self.now

    @property
    def key(self) -> Any:
        """The key of which a timer `is_due` first."""
        return self._heap[0][2]

    def first(self) -> Any:
        """The same, taken out: the caller takes care of its timers."""
        _, _, key = heappop(self._heap)
        del self._looks[key]
        return key

    def soon(self) -> set[Any]:
        """The key that is due first, and others that are due now."""
        due: list[tuple[float, int, Any]] = []
        while self.is_due and len(due) < _TOGETHER:
            due.append(heappop(self._heap))
        for one in due:
            heappush(self._heap, one)
        return {key for _, _, key in due}

    # Reading.

    @property
    def is_behind(self) -> bool:
        """Whether the timers that are due soon are to be read from the store."""
        return self._until < inf and self._until <= self.now + _AHEAD / 2

    def reading(self) -> tuple[Callable[[], Found], Callable[[Found], None]]:
        """A function that reads timers from the store, in any thread as `States.read`, and one for
        its result. No timer may change in between, except by a `restart`."""
        after, until = self._until, self.now + _AHEAD
        # They may be committed when the store was read already.
        uncommitted = self._states.uncommitted()
        restarts = self._restarts

        def read() -> Found:
            return _found(self._states, after, until)

        def add(found: Found) -> None:
            if restarts != self._restarts:
                # States have come or gone since: it is read again.
                return
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
