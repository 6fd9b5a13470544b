"""In-memory fakes of the servers and databases of sources, for virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, ClassVar

from orjson import dumps

from penstock.streams.nats.client.place import place_of
from penstock.streams.nats.streams.replies import WORKING
from penstock.streams.sql_queue.schema import Required
from tests.helpers.nats.model import Client, Server

__all__ = ["Connection", "Looks", "look"]


class Connection(Client):
    """A connection to its own fake server; the stream `first_7` has {"n": 0} to {"n": 6}.

    `told` has the answers to each message of the latest one: +ACK, -NAK or +TERM.
    """

    told: ClassVar[list[tuple[int, bytes]]]

    @classmethod
    async def make(cls, urls: object, **options: object) -> Connection:
        await asyncio.sleep(0)
        cls.told = []
        return cls(Server())

    async def stream_info(self, stream: str) -> Any:
        for number in range(int(stream.removeprefix("first_"))):
            self.server.publish(stream, dumps({"n": number}))
        config = SimpleNamespace(name=stream, subjects=[])
        return SimpleNamespace(config=config, created="2026-01-01 00:00:00")

    async def add_consumer(self, stream: str, config: Any) -> Any:
        await super().add_consumer(stream, config)
        return SimpleNamespace(name="me")

    async def request(self, subject: str, payload: bytes, timeout: float) -> Any:  # noqa: ASYNC109
        if subject.startswith("$JS.ACK"):
            await asyncio.sleep(0)
            return SimpleNamespace(data=b"")
        if not subject.startswith("$JS.API.CONSUMER.INFO"):
            return await super().request(subject, payload, timeout)
        await asyncio.sleep(0)
        delivered, ended = self.server.delivery, {number for number, _ in self.told}
        info = {
            "config": {"ack_wait": 30 * 10**9},
            "stream_name": subject.split(".")[4],
            "name": "me",
            "created": "2026-01-01T00:00:00Z",
            "num_pending": len(self.server.stored) - delivered,
            "num_ack_pending": delivered - len(ended),
        }
        return SimpleNamespace(data=dumps(info))

    async def delete_consumer(self, stream: str, consumer: str) -> None:
        await asyncio.sleep(0)

    async def flush(self, timeout: float = 10) -> None:  # noqa: ASYNC109
        await asyncio.sleep(0)

    async def publish(self, subject: str, payload: bytes = b"", reply: str = "") -> None:
        # One consumer gets each message once, however it answers.
        if reply:
            await super().publish(subject, payload, reply)
        elif subject.startswith("$JS.ACK"):
            what = payload.split()[0]
            self.told += [(place_of(subject).sequence, what)] if what != WORKING else []


class Looks:
    """A queue whose every look returns the number of looks before."""

    def __init__(self, *_: object, beside: bool) -> None:
        self.number = -1

    async def open(self, required: Required) -> None:
        await asyncio.sleep(0)

    async def close(self) -> None:
        await asyncio.sleep(0)


async def look(store: Looks, window: float) -> int:
    """Stands for `penstock.streams.sql_queue.analytics.statistics.measure`."""
    await asyncio.sleep(0)
    store.number += 1
    return store.number
