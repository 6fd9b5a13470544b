"""Reads what a stream has of some subjects from a sequence on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from penstock.streams.nats.client.ordered import Ordered

if TYPE_CHECKING:
    from penstock.streams.nats.client.client import Client

__all__ = ["Stored", "stored"]

# Messages that have arrived or are on request.
_ROOM = 2_048


class Stored(NamedTuple):
    """A message of a stream; `left` come after it."""

    sequence: int
    subject: str
    body: bytes
    stored: float
    left: int


async def stored(
    client: Client, stream: str, subjects: Sequence[str], first: int
) -> AsyncGenerator[list[Stored]]:
    """What the stream has of these subjects from the sequence `first` on, in its order, up to a
    message that none came after when it was sent."""
    ordered = Ordered(client, stream, subjects, first, lambda: _ROOM)
    async with aclosing(ordered.messages()) as messages:
        async for some in messages:
            if some:
                yield [
                    Stored(
                        place.sequence, message.subject, message.data, place.stored, place.pending
                    )
                    for message, place in some
                ]
            if not ordered.pending:
                return
