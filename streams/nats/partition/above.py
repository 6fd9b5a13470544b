"""The events of a partition that are done above its floor: its next owner does not repeat them.

The event at a place of a message has the number `size * sequence + place`, where `size` is how many
events a message holds at most. Events of a message that holds more are not noted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.streams.delivery.ranges import Range, finished_in, text_of_most

if TYPE_CHECKING:
    from penstock.streams.nats.partition.arrival import Arrival

__all__ = ["Above", "Known"]

# Bytes of a text: enough for any pattern of the next 98,000 numbers, or for 6,000 separate runs.
_MOST = 1 << 14


class Above(NamedTuple):
    """The numbers that are done, as a text that counts from `base`. Of the last messages in it, one
    is `sequence`, 0 for none, which was `stored` then. So many events that are done are `left_out`,
    because the text would be too long."""

    base: int = 0
    text: str = ""
    sequence: int = 0
    stored: float = 0.0
    left_out: int = 0

    @classmethod
    def of(cls, said: dict[str, Any]) -> Above:
        """Read an entry, which may have none."""
        match said.get("above"):
            case [int() as base, str() as text, int() as sequence, int() | float() as stored]:
                return cls(base, text, sequence, stored)
            case _:
                return cls()

    def said(self) -> dict[str, Any]:
        """The field of an entry, none if nothing is done above the floor."""
        return {"above": list(self[:4])} if self.text else {}


class Known:
    """What an owner has found done above its floor, and has not read again: see `Above`."""

    def __init__(self, above: Above, size: int) -> None:
        self._top = above.sequence, above.stored
        self._size = size
        self._ranges = finished_in(above.base, above.text)
        self._begins = [begin for begin, _ in self._ranges]

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def places(self, sequence: int, count: int) -> set[int]:
        """The places of a message of so many events that are done."""
        first = sequence * self._size
        last = first + min(count, self._size)
        done: set[int] = set()
        at = max(0, bisect_right(self._begins, first) - 1)
        while at < len(self._ranges) and self._ranges[at][0] < last:
            begin, end = self._ranges[at]
            done.update(range(max(begin, first) - first, min(end, last) - first))
            at += 1
        return done

    def with_those(self, floor: int, last: int, arrivals: Sequence[Arrival]) -> Above:
        """What is done now above a floor: these messages have been read again up to the last."""
        size = self._size
        rest = (max(floor, last) + 1) * size
        unread = ((max(begin, rest), end) for begin, end in self._ranges if end > rest)
        ranges = list(chain(_done_of(arrivals, size), unread))
        if not ranges:
            return Above()
        base = size * (floor + 1)
        text, _ = text_of_most(base, ranges, _MOST)
        noted = finished_in(base, text)
        end = (noted[-1][1] - 1) // size if noted else 0
        messages = [self._top, *((one.sequence, one.stored) for one in arrivals)]
        sequence, stored = max(one for one in [(0, 0.0), *messages] if one[0] <= end)
        left_out = sum(one.count - one.left for one in arrivals if one.sequence > end)
        return Above(base, text, sequence, stored, left_out)


def _done_of(arrivals: Iterable[Arrival], size: int) -> Iterator[Range]:
    """The ranges of what is done of these messages, which follow each other."""
    begin = end = -1
    for arrival in arrivals:
        first, whole = arrival.sequence * size, False
        for low, high in arrival.runs() if arrival.count <= size else ():
            if low or begin < 0:
                if begin >= 0:
                    yield begin, end
                begin = first + low
            end, whole = first + high, high == arrival.count
        if begin >= 0 and not whole:
            yield begin, end
            begin = -1
    if begin >= 0:
        yield begin, end
