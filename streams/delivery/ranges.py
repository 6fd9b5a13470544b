"""The ranges that are finished above a floor, as a short text."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

__all__ = ["Range", "Text", "finished_in", "merged", "text_of_all", "text_of_most"]

Range = tuple[int, int]
"""Numbers from the first, up to and without the second."""

# What a text begins with: one of two encodings.
_RUNS, _BITS = "r", "b"


class Text(NamedTuple):
    """Ranges as a text, and how many numbers of the last ranges are not in it."""

    text: str
    left_out: int


def text_of_most(floor: int, finished: Iterable[Range], most: int) -> Text:
    """The text for these ranges above the floor, of at most so many bytes.

    What does not fit is left out, the last ranges first: it is then repeated after a restart.
    """
    ranges = list(_joined(finished))
    count = sum(end - begin for begin, end in ranges)
    room = max(0, most - len(_RUNS)) // 4 * 3
    encoded, mark = _runs(floor, ranges, room), _RUNS
    if encoded[1] < count and (bits := _bits(floor, ranges, room))[1] > encoded[1]:
        encoded, mark = bits, _BITS
    body, held = encoded
    return Text(mark + b64encode(body).decode() if body else "", count - held)


def text_of_all(floor: int, finished: Iterable[Range], most: int) -> str | None:
    """The text for all these ranges; None if they do not fit."""
    text, left_out = text_of_most(floor, finished, most)
    return None if left_out else text


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


def merged(*several: Iterable[Range]) -> list[Range]:
    """The ranges that have the numbers of all these, in order."""
    found: list[Range] = []
    for begin, end in sorted(chain.from_iterable(several)):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def _joined(ranges: Iterable[Range]) -> Iterator[Range]:
    """The same numbers, with ranges that touch as one."""
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


# Runs: alternately how many numbers are not finished and how many are, as variable-length numbers.


def _runs(floor: int, ranges: Iterable[Range], room: int) -> tuple[bytes, int]:
    """The encoding of the first ranges that fit, and how many numbers these hold."""
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
    """The encoding of the numbers that fit, and how many of these are finished."""
    bits = bytearray(room)
    last = floor + 8 * room
    count = 0
    for begin, end in ranges:
        if begin >= last:
            break
        size = min(end, last) - begin
        first, shift = divmod(begin - floor, 8)
        # In so many bytes only: whole numbers of this size are slow to change.
        behind = (shift + size + 7) // 8 + first
        own = int.from_bytes(bits[first:behind], "little") | ((1 << size) - 1) << shift
        bits[first:behind] = own.to_bytes(behind - first, "little")
        count += size
    return bytes(bits.rstrip(b"\0")), count


def _from_bits(floor: int, encoded: bytes) -> Iterator[Range]:
    bits = f"{int.from_bytes(encoded, 'little'):b}"[::-1]
    begin = bits.find("1")
    while begin >= 0:
        end = bits.find("0", begin)
        if end < 0:
            end = len(bits)
        yield floor + begin, floor + end
        begin = bits.find("1", end)
