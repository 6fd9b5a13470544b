"""Publishes events to a pipeline, none lost and none stored twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from orjson import dumps

from penstock.streams.base.keys import key_function
from penstock.streams.io.encoding import encoded
from penstock.streams.keyed.written import identity
from penstock.streams.nats.client.outbox import Outbox
from penstock.streams.nats.cluster.layout import identity_token, token
from penstock.streams.nats.partition.batches import body_of, header_of

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from penstock.streams.io.letter import Letter
    from penstock.streams.nats.client.client import Client
    from penstock.streams.nats.cluster.layout import Layout

__all__ = ["Publisher", "send_again"]

# Bytes of the events of one message, unless a single event has more: small enough that no worker
# waits long for it, and within the servers' limit.
_LARGE = 1 << 17
# Keys whose partition is remembered.
_KEYS = 1 << 16


class Publisher:
    """Stores events, inside its `async with` block. Any number may be under way at once.

    An event that no server takes is retried for a minute, which is longer than servers take to
    restart one by one; one that may be stored already, for less time than the server remembers ids.

    If messages hold several events, `publish_all` takes events of one partition, as given by
    `partition_of`; the owner of the partition then drops the duplicates.
    """

    def __init__(self, client: Client, layout: Layout) -> None:
        self.published = self.duplicates = 0
        self._outbox = Outbox(client, doubt=layout.doubt)
        self._layout = layout
        self._identity: Callable[[Any], Any] | None = (
            None if layout.identity is None else key_function(layout.identity)
        )
        self._key: Callable[[Any], Any] | None = (
            None if layout.key is None else key_function(layout.key)
        )
        self._count = 0
        # Without keys, equal identities have to meet.
        self._place = self._key or self._identity
        self._partition_of = lru_cache(_KEYS)(layout.partition_of)
        self._large = min(_LARGE, client.max_payload // 2)

    async def __aenter__(self) -> Publisher:
        await self._outbox.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._outbox.stop()

    async def publish(self, value: Any) -> None:
        """Store one event, as JSON.

        Raises PayloadTooLarge, StreamMissing, PublishFailed if the servers have not stored it in
        time, which says whether it may be stored, and any error of reading the identity or the key.
        """
        body = encoded(value)
        known_by = identity_token(self._identity(value)) if self._identity else uuid4().hex
        self._count += 1
        key = self._key(value) if self._key else self._count
        known = await self._outbox.stored(f"{self._layout.inlet}.{token(key)}", body, known_by)
        self.duplicates += known
        self.published += not known

    def partition_of(self, value: Any) -> int:
        """The partition of an event's key, or else of its identity; without both, in rotation."""
        if self._place is None:
            self._count += 1
            return self._count % len(self._layout.numbers)
        place = self._place(value)
        # An invalid key is reported here, not by a worker.
        hash(place)
        return self._partition_of(token(place))

    async def publish_all(self, values: Sequence[Any]) -> None:
        """Store events of one partition, in order, in as few messages as their size allows.

        Raises what `publish` raises; events before the failing one may then be stored.
        """
        partition = self.partition_of(values[0])
        bodies = [encoded(value) for value in values]
        identities = [] if self._identity is None else [_plain(self._identity(v)) for v in values]
        most = self._layout.batch or 1
        for begin, end in _parts(bodies, identities, self._large, most):
            await self._outbox.stored(
                self._layout.batches(partition),
                body_of(bodies[begin:end], identities[begin:end]),
                uuid4().hex,
                header_of(end - begin),
            )
            self.published += end - begin


def _plain(key: object) -> int | str:
    """An identity that JSON keeps distinct: numbers and texts as they are, all else encoded as
    another text."""
    plain = identity(key)
    if type(plain) is int or (type(plain) is str and not plain.startswith("\0")):
        return plain
    return f"\0{identity_token(key)}"


def _parts(
    bodies: Sequence[bytes], identities: Sequence[int | str], largest: int, most: int
) -> Iterator[tuple[int, int]]:
    """The ranges of the events of each message, at most so many; an event that is larger than the
    limit goes alone."""
    begin = size = 0
    for place, body in enumerate(bodies):
        own = len(body) + len(dumps(identities[place]) if identities else b"") + 2
        if place > begin and (size + own > largest or place == begin + most):
            yield begin, place
            begin, size = place, 0
        size += own
    yield begin, len(bodies)


async def send_again(outbox: Outbox, js: JetStreamContext, layout: Layout, letter: Letter) -> None:
    """Publish a letter's event anew, with its key, and delete the letter. Raises EventOmitted, and
    what `Outbox.stored` raises.

    The new id differs from the event's own, which the window for duplicates may still hold; it is
    the same for every attempt, so an interrupted attempt sends nothing twice.
    """
    event = letter.event()
    id = f"{layout.letters}:{letter.sequence}"
    await outbox.stored(f"{layout.inlet}.{letter.key or layout.key_of(event)}", event, id)
    await js.delete_msg(layout.letters, letter.sequence)
