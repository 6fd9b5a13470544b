"""A delivered message and its events, which are the tokens of events in the pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING

from penstock.streams.nats.partition.batches import events_of

if TYPE_CHECKING:
    from penstock.streams.nats.partition.partition import Partition

__all__ = ["Arrival", "Delivery"]


@dataclass(slots=True, eq=False)
class Arrival:
    """The place of a message in its stream, and of the one before it in its `partition`; when it
    was stored (seconds since 1970), how many events it holds, and how many of them are `left` to be
    done.

    `token` is the key of its event as written in the subject, empty if there are several.
    """

    partition: Partition
    sequence: int
    before: int
    stored: float
    body: bytes
    token: str
    count: int
    left: int = 0
    _events: list[bytes] = field(init=False, default_factory=list[bytes])

    @property
    def events(self) -> list[bytes]:
        """The JSON of each."""
        if not self._events:
            # Split only when needed: until then one object holds all of them.
            self._events = [self.body] if self.token else events_of(self.body)
        return self._events

    def position(self, place: int) -> float:
        """The place an event would have if those of each message had been stored one by one, evenly
        spaced since the message before."""
        return self.before + (place + 1) / self.count * (self.sequence - self.before)

    def deliveries(self, places: Iterable[int]) -> list[Delivery]:
        """The events at these places, as tokens."""
        return list(map(Delivery, zip(repeat(self), places)))


class Delivery(tuple[Arrival, int]):
    """One event: its message, and its place in it."""

    __slots__ = ()

    @property
    def data(self) -> bytes:
        """Its JSON."""
        return self[0].events[self[1]]

    @property
    def key(self) -> str:
        """Its key as written in subjects."""
        return self[0].token or self[0].partition.layout.key_of(self.data)

    def __str__(self) -> str:
        arrival, place = self
        of = f"event {place + 1} of " if arrival.count > 1 else ""
        return f"{of}message {arrival.sequence} of partition {arrival.partition.number}"
