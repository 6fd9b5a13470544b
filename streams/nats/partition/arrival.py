"""A delivered message and its events, which are the tokens of events in the pipeline."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING

from penstock.streams.nats.partition.batches import events_of

if TYPE_CHECKING:
    from penstock.streams.nats.partition.partition import Partition

__all__ = ["Arrival", "Delivery"]

# Of a message that is done: nothing is added to it.
_NO_PLACES: set[int] = set()


@dataclass(slots=True, eq=False)
class Arrival:
    """The place of a message in its stream, and of the one before it in its `partition`; when it
    was stored (seconds since 1970), how many events it holds, how many of them are `left` to be
    done, and how many were `dropped` as duplicates.

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
    dropped: int = 0
    begun: int = 0
    """So many of its first events are done, unless all are."""
    started: set[int] = field(init=False, default_factory=set[int])
    """The places of the events that have begun."""
    _beyond: set[int] = field(init=False, default_factory=set[int])
    _events: list[bytes] = field(init=False, default_factory=list[bytes])

    @property
    def events(self) -> list[bytes]:
        """The JSON of each."""
        if not self._events:
            # Split only when needed: until then one object holds all of them.
            self._events = [self.body] if self.token else events_of(self.body)
        return self._events

    def runs(self) -> Iterator[tuple[int, int]]:
        """The places of the events that are done, in order: from the first, up to and without the
        second."""
        if not self.left:
            yield 0, self.count
            return
        low, high = 0, self.begun
        for place in sorted(self._beyond):
            if place > high:
                if high > low:
                    yield low, high
                low = place
            high = place + 1
        if high > low:
            yield low, high

    def end(self, places: Collection[int]) -> bool:
        """The events at these places are done; returns whether more of the first ones are."""
        beyond = self._beyond
        beyond.update(places)
        before = self.begun
        while self.begun in beyond:
            beyond.remove(self.begun)
            self.begun += 1
        return self.begun > before

    def forget(self) -> None:
        """All of its events are done: keep what is needed to say so."""
        self.body = b""
        self._events.clear()
        self._beyond = self.started = _NO_PLACES

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
