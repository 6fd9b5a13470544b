"""Reads what a stream has of some subjects from a sequence on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.streams.base.errors import RightsMissing
from penstock.streams.nats.client.answers import answered
from penstock.streams.nats.client.message import Message
from penstock.streams.nats.client.place import place_of
from penstock.streams.nats.client.requests import Requests

if TYPE_CHECKING:
    from penstock.streams.nats.client.client import Client

__all__ = ["Stored", "api", "stored"]

# Messages that have arrived or are on request.
_ROOM = 2_048
# Seconds after which servers delete a consumer that nothing reads, and in which they answer.
_FORGOTTEN = 30
_ANSWER = 5.0


class Stored(NamedTuple):
    """A message of a stream; `left` come after it."""

    sequence: int
    subject: str
    body: bytes
    stored: float
    left: int


async def api(client: Client, what: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request to the API of servers, which is repeated while they cannot answer.
    Raises errors of the API, and CannotConnect."""
    from nats.js.errors import APIError
    from orjson import dumps, loads

    async def ask() -> dict[str, Any]:
        reply = await client.request(f"$JS.API.{what}", dumps(fields), timeout=_ANSWER)
        answer: dict[str, Any] = loads(reply.data)
        if "error" in answer:
            APIError.from_error(answer["error"])
        return answer

    return await answered(ask)


async def stored(
    client: Client, stream: str, subjects: Sequence[str], first: int
) -> AsyncGenerator[list[Stored]]:
    """What the stream has of these subjects from the sequence `first` on, in its order, up to a
    message that none came after when it was sent."""
    while True:
        made = await api(client, f"CONSUMER.CREATE.{stream}", _consumer(stream, subjects, first))
        if not made["num_pending"]:
            return
        async for some in _of_consumer(client, stream, made["name"]):
            yield some
            first = some[-1].sequence + 1
            if not some[-1].left:
                return
        # The consumer is gone, or something of it was lost.


def _consumer(stream: str, subjects: Sequence[str], first: int) -> dict[str, Any]:
    return {
        "stream_name": stream,
        "config": {
            "filter_subjects": list(subjects),
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(1, first),
            "ack_policy": "none",
            "num_replicas": 1,
            "mem_storage": True,
            "inactive_threshold": _FORGOTTEN * 1_000_000_000,
        },
    }


async def _of_consumer(client: Client, stream: str, consumer: str) -> AsyncGenerator[list[Stored]]:
    """What a new consumer delivers, up to something that is missing."""
    from nats.errors import Error

    arrived: list[Message] = []
    failures: list[Exception] = []
    something = asyncio.Event()

    def has_arrived(message: Message) -> None:
        arrived.append(message)
        something.set()

    def failed(error: Exception) -> None:
        failures.append(error)
        something.set()

    requests = Requests(
        *(client, stream, consumer, lambda: _ROOM - len(arrived), has_arrived, failed),
        easily=True,
    )
    await requests.start()
    try:
        delivery = 0
        while not failures:
            await something.wait()
            something.clear()
            messages, arrived[:] = arrived.copy(), ()
            found: list[Stored] = []
            for message in messages:
                place = place_of(message.reply)
                if place.delivery != delivery + 1:
                    failed(LookupError(delivery))
                    break
                delivery += 1
                one = (place.sequence, message.subject, message.data, place.stored, place.pending)
                found.append(Stored(*one))
            if found:
                yield found
                requests.look()
        if isinstance(failures[0], RightsMissing):
            raise failures[0]
    finally:
        await requests.stop()
        with suppress(Error):
            await client.publish(f"$JS.API.CONSUMER.DELETE.{stream}.{consumer}")
