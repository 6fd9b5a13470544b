"""Which positions of a log are finished: the lines of a file, the records of a partition.

    read      0 1 2 3 . . 6 7
    finished  x x   x x x   x      floor 2, finished above it: [3, 6) and [7, 8)

Positions are read in order and finished in any order. The *floor* is the first that is not
finished: a reader that begins there loses nothing. What is finished above it is kept as ranges, so
that such a reader need not repeat it. A position without an entry, such as one that was compacted
away, counts as finished beside a finished one; between two that are not finished it is left out, as
it need not be remembered. The idea of keeping the ranges, too, is that of
confluentinc/parallel-consumer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from itertools import chain, islice, repeat
from typing import Generic, TypeVar

from penstock.streams.delivery.ranges import Range

__all__ = ["Ledger"]

M = TypeVar("M")


class Ledger(Generic[M]):
    """The positions that were read, and which of them are finished; each that is not has a mark.

    `start` is the position to be read first; None if that is unknown. `known` are ranges that an
    earlier reader has finished. Memory: a number and a mark for each unfinished position, some
    numbers for each range. Time: O(1) per position, and per run that is read and finished as one.
    """

    def __init__(self, start: int | None = None, known: Iterable[Range] = ()) -> None:
        self.next = start
        """The position behind the last one that was read."""
        self._unfinished: dict[int, M] = {}
        # Runs of unfinished positions behind all these, in order: the end and mark of each by its
        # beginning; and how many positions they have.
        self._runs: dict[int, tuple[int, M]] = {}
        self._in_runs = 0
        # What an earlier reader has finished and this one has not come to, in order.
        self._known = deque(sorted(known))
        # The floor.
        self._bottom = start
        # The finished ranges above: the end of each by its beginning, and the reverse.
        self._ends: dict[int, int] = {}
        self._begins: dict[int, int] = {}
        # The same of positions without an entry that lie between two that are not finished.
        self._gap_ends: dict[int, int] = {}
        self._gap_begins: dict[int, int] = {}

    def __len__(self) -> int:
        """How many positions were read and are not finished."""
        return len(self._unfinished) + self._in_runs

    def read(self, position: int, mark: M) -> bool:
        """Note a position that was read. Returns False if it is finished already."""
        before, self.next = self.next, position + 1
        if before is None:
            self._bottom = position
        elif before < position:
            self._skip(before, position)
        if self._runs:
            self._split(position)
        self._unfinished[position] = mark
        if self._known and self.was_finished(position):
            self.finish(position)
            return False
        return True

    def read_all(self, marks: Sequence[M]) -> None:
        """Note successive positions, known ones too, which are to be finished."""
        assert self.next is not None
        first, self.next = self.next, self.next + len(marks)
        self._split(self.next)
        self._unfinished.update(zip(range(first, self.next), marks, strict=True))

    def read_run(self, position: int, count: int, mark: M) -> None:
        """Note so many successive positions with one mark, known ones too, which are to be
        finished."""
        before, self.next = self.next, position + count
        if before is None:
            self._bottom = position
        elif before < position:
            self._skip(before, position)
        self._runs[position] = self.next, mark
        self._in_runs += count

    def _split(self, position: int) -> bool:
        """Note each position of the runs that begin up to this one by itself; returns whether there
        are such runs."""
        runs, before = self._runs, self._in_runs
        while runs and (begin := next(iter(runs))) <= position:
            end, mark = runs.pop(begin)
            self._in_runs -= end - begin
            self._unfinished.update(zip(range(begin, end), repeat(mark)))
        return self._in_runs < before

    @property
    def resumes(self) -> bool:
        """Whether there may be positions ahead that an earlier reader has finished."""
        return bool(self._known)

    def was_finished(self, position: int) -> bool:
        """Whether an earlier reader has finished a position; asked of each in order."""
        known = self._known
        while known and known[0][1] <= position:
            known.popleft()
        return bool(known) and known[0][0] <= position

    def finish_all(self, first: int, last: int) -> None:
        """Finish successive positions, the last included."""
        unfinished, run = self._unfinished, self._runs.get(first)
        if run is not None and run[0] == last + 1:
            del self._runs[first]
            self._in_runs -= last + 1 - first
            unfinished[last] = run[1]
            self.finish(last, first)
            return
        self._split(last)
        rest = range(first, last)
        if all(map(unfinished.__contains__, rest)) and last in unfinished:
            deque(map(unfinished.pop, rest), 0)
            self.finish(last, first)
        else:
            for position in range(first, last + 1):
                self.finish(position)

    def finish(self, position: int, first: int | None = None) -> None:
        """A position is finished; nothing if it was already. Those before it from the `first` on
        are, too, and not among the unfinished any more."""
        try:
            del self._unfinished[position]
        except KeyError:
            if self._split(position):
                self.finish(position)
            return
        begin, end = position if first is None else first, position + 1
        if self._gap_ends:
            begin = self._gap_begins.pop(begin, begin)
            self._gap_ends.pop(begin, None)
            end = self._gap_ends.pop(end, end)
            self._gap_begins.pop(end, None)
        ends, begins = self._ends, self._begins
        if ends:
            begin = begins.pop(begin, begin)
            end = ends.pop(end, end)
        if begin != self._bottom:
            ends[begin] = end
            begins[end] = begin
        else:
            self._bottom = end
            begins.pop(end, None)

    def _skip(self, begin: int, end: int) -> None:
        if begin == self._bottom:
            self._bottom = end
        elif begin in self._begins:
            first = self._begins[end] = self._begins.pop(begin)
            self._ends[first] = end
        else:
            self._gap_ends[begin] = end
            self._gap_begins[end] = begin

    def after(self, done: Iterable[int]) -> Ledger[M]:
        """This ledger as it will be when these positions are finished as well. Time: O(n)."""
        other = copy(self)
        for name in ("_unfinished", "_runs", "_ends", "_begins", "_gap_ends", "_gap_begins"):
            setattr(other, name, getattr(self, name).copy())
        for position in done:
            other.finish(position)
        return other

    @property
    def floor(self) -> int | None:
        """The first position that is not finished; None if nothing was read."""
        return self._bottom

    def mark(self, default: M) -> M:
        """The mark of the first position that is not finished."""
        if self._bottom is None:
            return default
        if self._bottom in self._runs:
            return self._runs[self._bottom][1]
        return self._unfinished.get(self._bottom, default)

    def marks(self) -> Iterable[M]:
        """The marks of all positions that are not finished, in order; a run has one mark."""
        return chain(self._unfinished.values(), (mark for _, mark in self._runs.values()))

    def first(self, most: int) -> list[int]:
        """The first positions that were read and are not finished, at most so many."""
        runs = (range(begin, end) for begin, (end, _) in self._runs.items())
        return list(islice(chain(self._unfinished, chain.from_iterable(runs)), most))

    def finished(self) -> Iterator[Range]:
        """The ranges that are finished above the floor, in order. Time: O(n log n) of them."""
        yield from sorted(self._ends.items())
        for begin, end in self._known:
            if self.next is None or begin >= self.next:
                yield begin, end
            elif end > self.next:
                yield self.next, end
