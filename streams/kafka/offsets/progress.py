"""The progress in one partition: which records are finished, as an offset and a text beside it.

Kafka keeps one committed offset for each partition of a group, and a short text, the metadata of
the commit. The offset is the *floor*, below which every record is finished. The text holds what is
finished above it, so that a restart does not repeat it. The idea is that of
confluentinc/parallel-consumer, which keeps such maps in the same place; the format is our own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence, Set
from itertools import islice

from penstock.streams.delivery.ranges import Range

__all__ = ["Progress"]

_NONE: Set[int] = frozenset()


class Progress:
    """Records of one partition as they are read, in order, and as they are finished, in any order.

    `known` are the ranges that an earlier reader has finished above the floor from which this one
    begins. Memory: a number for each record that is read and not finished, and the known ranges.
    Time: O(1) a record.
    """

    def __init__(self, known: Sequence[Range] = ()) -> None:
        self.inside = 0
        """Events in the pipeline."""
        self.position: int | None = None
        """The offset behind the last record that was read; None if none was."""
        # In order, each with the position before it was read.
        self._unfinished: dict[int, int | None] = {}
        self._known = list(known)
        self._begins = [begin for begin, _ in known]

    def __len__(self) -> int:
        """Records that are read and not finished."""
        return len(self._unfinished)

    def read(self, offset: int) -> bool:
        """Note a record that was read. Returns False if it is finished already."""
        before, self.position = self.position, offset + 1
        if self._known:
            place = bisect_right(self._begins, offset) - 1
            if place >= 0 and offset < self._known[place][1]:
                return False
        self._unfinished[offset] = before
        return True

    def first(self, most: int) -> list[int]:
        """The first offsets that are read and not finished, at most so many."""
        return list(islice(self._unfinished, most))

    def finish(self, offset: int) -> None:
        """A record is finished."""
        self._unfinished.pop(offset, None)

    @property
    def floor(self) -> int | None:
        """The offset to commit: everything below it is finished. None if nothing was read."""
        return self.floor_after(_NONE)

    def floor_after(self, done: Set[int]) -> int | None:
        """The floor when these records will be finished as well."""
        for offset in self._unfinished:
            if offset not in done:
                return offset
        return self._done_to(self.position)

    def _done_to(self, position: int | None) -> int | None:
        """The same position, or the end of the known range that it is in."""
        if position is not None and self._known:
            place = bisect_right(self._begins, position) - 1
            if place >= 0:
                return max(position, self._known[place][1])
        return position

    def finished(self, done: Set[int] = _NONE) -> Iterator[Range]:
        """The ranges that are finished above the floor, in order, or will be with those in `done`.

        Offsets that have no record, such as those that were compacted away, count as finished
        beside a record that is. Between two that are not they are left out, as they need not be
        remembered.
        """
        if self.position is None:
            yield from self._known
            return
        begin: int | None = None
        for offset, before in self._unfinished.items():
            if offset in done:
                continue
            if begin is not None and before is not None and begin < before:
                yield begin, offset
            begin = offset + 1
        if begin is not None and begin < self.position:
            yield begin, self.position
        if begin is None:
            # All is finished up to the floor.
            begin = self._done_to(self.position)
        for first, end in self._known:
            # What is not read again yet.
            if end > max(self.position, begin or 0):
                yield max(first, self.position), end
