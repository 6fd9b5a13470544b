"""The progress in one partition: which records are finished, as an offset and a text beside it.

Kafka keeps one committed offset for each partition of a group, and a short text, the metadata of
the commit. The offset is the *floor*, below which every record is finished. The text holds what is
finished above it, so that a restart does not repeat it. The idea is that of
confluentinc/parallel-consumer, which keeps such maps in the same place; the format is our own.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import islice

__all__ = ["Progress", "Range", "finished_in", "text_of_all", "text_of_most"]

Range = tuple[int, int]
"""Offsets from the first, up to and without the second."""

# What a text begins with: one of two encodings.
_RUNS, _BITS = "r", "b"

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


def text_of_most(floor: int, finished: Iterable[Range], most: int) -> str:
    """The text for these ranges above the floor, of at most so many bytes.

    What does not fit is left out, the last ranges first: it is then repeated after a restart.
    """
    ranges = list(_joined(finished))
    if not ranges:
        return ""
    room = max(0, most - len(_RUNS)) // 4 * 3
    runs, of_runs = _runs(floor, ranges, room)
    if of_runs == sum(end - begin for begin, end in ranges):
        return _RUNS + b64encode(runs).decode() if runs else ""
    bits, of_bits = _bits(floor, ranges, room)
    if of_bits > of_runs:
        return _BITS + b64encode(bits).decode()
    return _RUNS + b64encode(runs).decode() if runs else ""


def text_of_all(floor: int, finished: Iterable[Range], most: int) -> str | None:
    """The text for all these ranges; None if they do not fit."""
    ranges = list(_joined(finished))
    text = text_of_most(floor, ranges, most)
    return text if finished_in(floor, text) == ranges else None


def finished_in(floor: int, text: str) -> list[Range]:
    """The ranges in a text that `text_of_most` made for this floor; none in any other text."""
    try:
        if text.startswith(_RUNS):
            return list(_from_runs(floor, b64decode(text[len(_RUNS) :], validate=True)))
        if text.startswith(_BITS):
            return list(_from_bits(floor, b64decode(text[len(_BITS) :], validate=True)))
    except ValueError:
        pass
    return []


def _joined(ranges: Iterable[Range]) -> Iterator[Range]:
    """The same offsets, with ranges that touch as one."""
    last: Range | None = None
    for begin, end in ranges:
        if last is not None and last[1] == begin:
            last = last[0], end
            continue
        if last is not None:
            yield last
        last = begin, end
    if last is not None:
        yield last


# Runs: alternately how many offsets are not finished and how many are, as variable-length numbers.


def _runs(floor: int, ranges: Iterable[Range], room: int) -> tuple[bytes, int]:
    """The encoding of the first ranges that fit, and how many offsets these hold."""
    encoded = bytearray()
    at, count = floor, 0
    for begin, end in ranges:
        pair = _number(begin - at) + _number(end - begin)
        if len(encoded) + len(pair) > room:
            break
        encoded += pair
        at, count = end, count + end - begin
    return bytes(encoded), count


def _from_runs(floor: int, encoded: bytes) -> Iterator[Range]:
    numbers = _numbers(encoded)
    at = floor
    for gap in numbers:
        run = next(numbers, None)
        if run is None:
            raise ValueError("half a pair")
        yield at + gap, at + gap + run
        at += gap + run


def _number(n: int) -> bytes:
    """Seven bits a byte, the lowest first, as in Protocol Buffers."""
    encoded = bytearray()
    while n > 127:
        encoded.append(n & 127 | 128)
        n >>= 7
    encoded.append(n)
    return bytes(encoded)


def _numbers(encoded: bytes) -> Iterator[int]:
    n = shift = 0
    for byte in encoded:
        n |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield n
            n = shift = 0
    if shift:
        raise ValueError("half a number")


# Bits: one for each offset from the floor on.


def _bits(floor: int, ranges: Iterable[Range], room: int) -> tuple[bytes, int]:
    """The encoding of the offsets that fit, and how many of these are finished."""
    bits = 0
    last = floor + 8 * room
    count = 0
    for begin, end in ranges:
        if begin >= last:
            break
        size = min(end, last) - begin
        bits |= ((1 << size) - 1) << (begin - floor)
        count += size
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little"), count


def _from_bits(floor: int, encoded: bytes) -> Iterator[Range]:
    bits = f"{int.from_bytes(encoded, 'little'):b}"[::-1]
    begin = bits.find("1")
    while begin >= 0:
        end = bits.find("0", begin)
        if end < 0:
            end = len(bits)
        yield floor + begin, floor + end
        begin = bits.find("1", end)
