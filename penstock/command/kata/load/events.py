"""The kata's events, made from a seed, with the times at which they are due.

The load is an open loop: when an event is due depends on the seed alone, never on how fast
anybody consumes. A consumer that falls behind therefore sees its waiting times grow, as it
would behind a message broker, instead of slowing the sender down and hiding the delay.

Source: the stream of T. Nurkiewicz, "Small scale stream processing kata", parts 1 and 2 (2016).
As there, one event is sent in each period of 1 / rate, at a random moment within it, for a
random client. Unlike there, duplicates are part of the rate instead of an addition to it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

__all__ = ["DUPLICATE_WINDOW", "FIRST_CLIENT", "Event", "Load"]

FIRST_CLIENT = 1000
DUPLICATE_WINDOW = 10.0


class Event(TypedDict):
    """One delivery; a duplicate is a separate delivery with an earlier one's uuid.

    `sequence` counts the deliveries to one client from 0, duplicates included: of two
    deliveries to a client, the one with the smaller number was sent first.
    `created` is when the delivery is due, in seconds on the time line of the caller's `start`.
    """

    uuid: str
    client_id: int
    created: float
    sequence: int


@dataclass(frozen=True, slots=True)
class Load:
    """A seeded open-loop load; iterating yields `(due, event)`, due in seconds from the start.

    `rate` events per second for `seconds`, for `clients` clients (1000, 1001, ...); the share
    `duplicates` of them repeats the uuid and the client of an event of the last ten seconds.
    `list(load)` is the whole schedule, ordered by due time; it can be iterated any number of
    times and is the same each time. Where nothing new was sent for ten seconds (at a very low
    rate, or a share near 1), a new event takes the place of a duplicate.

    Memory of one iteration: the events of ten seconds, and one number per duplicate.
    Raises ValueError for a value out of range.
    """

    rate: float = 1000.0
    clients: int = 100
    duplicates: float = 0.01
    seconds: float = 10.0
    seed: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.rate < float("inf"):
            raise ValueError(
                f"rate is {self.rate}, must be more than 0 events per second, and finite"
            )
        if self.clients < 1:
            raise ValueError(f"clients is {self.clients}, must be at least 1")
        if not 0 <= self.duplicates <= 1:
            raise ValueError(f"duplicates is {self.duplicates}, must be a share from 0 to 1")
        if not 0 <= self.seconds < float("inf"):
            raise ValueError(f"seconds is {self.seconds}, must be finite and not negative")

    def __len__(self) -> int:
        """The number of events, duplicates included."""
        return round(self.rate * self.seconds)

    def __iter__(self) -> Iterator[tuple[float, Event]]:
        return self.schedule()

    def schedule(self, start: float = 0.0) -> Iterator[tuple[float, Event]]:
        """Yield `(due, event)`; `start` is the moment of due time 0 for `event["created"]`."""
        rng = random.Random(self.seed)
        repeats = self._positions_of_duplicates(rng)
        originals: deque[tuple[float, str, int]] = deque()
        sequences = [0] * self.clients
        for position in range(len(self)):
            due = (position + rng.random()) / self.rate
            while originals and originals[0][0] <= due - DUPLICATE_WINDOW:
                originals.popleft()
            if position in repeats and originals:
                _, identity, client = rng.choice(originals)
            else:
                identity = _uuid(rng.getrandbits(128))
                client = rng.randrange(self.clients)
                originals.append((due, identity, client))
            yield (
                due,
                Event(
                    uuid=identity,
                    client_id=FIRST_CLIENT + client,
                    created=start + due,
                    sequence=sequences[client],
                ),
            )
            sequences[client] += 1

    def _positions_of_duplicates(self, rng: random.Random) -> frozenset[int]:
        # The first event has nothing to repeat.
        candidates = range(1, len(self))
        count = min(round(len(self) * self.duplicates), len(candidates))
        return frozenset(rng.sample(candidates, count))


def _uuid(bits: int) -> str:
    """The text of the UUID of version 4 with these bits; `uuid.UUID` takes four times as long."""
    text = f"{bits & ~_FIXED | _VERSION_4:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


# The bits that the version and the variant take, and what they are.
_FIXED = 0xF << 76 | 0x3 << 62
_VERSION_4 = 0x4 << 76 | 0x2 << 62
