"""The place of a delivered message in its stream, from its acknowledgement subject."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Place", "place_of"]

_NANOSECONDS = 1_000_000_000


class Place(NamedTuple):
    """The place of a message: how often it was delivered, its number in the stream and among the
    consumer's deliveries, when it was stored (seconds since 1970), and how many come after it."""

    delivered: int
    sequence: int
    delivery: int
    stored: float
    pending: int


def place_of(reply: str) -> Place:
    """Read a message's place from the subject that acknowledges it."""
    words = reply.split(".")
    # Newer servers put the domain and a hash of the account in front.
    first = 4 if len(words) < 11 else 6
    delivered, sequence, delivery, stored, pending = map(int, words[first : first + 5])
    return Place(delivered, sequence, delivery, stored / _NANOSECONDS, pending)
