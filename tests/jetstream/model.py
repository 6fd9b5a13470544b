"""A model of the servers: one partition of a stream, its one consumer, and what can get lost."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

__all__ = ["Client", "Message", "Server"]

_LATENCY = 0.001
_MOST_PENDING = 8192


class Message(SimpleNamespace):
    subject: str
    reply: str
    data: bytes
    headers: dict[str, str] | None


class Server:
    """The facts that are documented of JetStream: acknowledgements of all up to a message, a floor,
    a reset. One that arrives late, after a reset, may make it deaf to those that carry lower
    numbers of deliveries, until the next reset."""

    def __init__(self) -> None:
        self.stored: list[tuple[str, bytes]] = []
        self.floor = self._floor_delivery = 0
        self.lose_deliveries = self.lose_acknowledgements = 0
        self.last_acknowledgement = (0, 0)
        self._next = 1
        self.delivery = 0
        self._requests: deque[tuple[Client, str, int]] = deque()

    def publish(self, key: str, data: bytes) -> None:
        self.stored.append((key, data))
        self._deliver()

    def pull(self, client: Client, inbox: str, batch: int) -> None:
        self._requests.append((client, inbox, batch))
        self._deliver()

    def reset(self) -> None:
        self._next = self.floor + 1
        self.delivery = self._floor_delivery = 0
        self._requests.clear()

    def acknowledge(self, sequence: int, delivery: int) -> None:
        self.last_acknowledgement = sequence, delivery
        if sequence > self.floor and delivery > self._floor_delivery:
            self.floor, self._floor_delivery = sequence, delivery
            self._next = max(self._next, sequence + 1)
        self._deliver()

    def _deliver(self) -> None:
        while (
            self._requests
            and self._next <= len(self.stored)
            and self._next - self.floor <= _MOST_PENDING
        ):
            client, inbox, batch = self._requests.popleft()
            if batch > 1:
                self._requests.appendleft((client, inbox, batch - 1))
            sequence, self._next = self._next, self._next + 1
            self.delivery += 1
            if self.lose_deliveries:
                self.lose_deliveries -= 1
                continue
            key, data = self.stored[sequence - 1]
            pending = len(self.stored) - sequence
            reply = f"$JS.ACK.stream.p0.1.{sequence}.{self.delivery}.0.{pending}"
            client.deliver(inbox, Message(subject=key, reply=reply, data=data, headers=None))


class Client:
    """One worker's connection; what it sends and gets is in order, and may get lost."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.stats = {"reconnects": 0}
        self._inboxes: dict[str, Callable[[Message], Awaitable[None]]] = {}
        self._queue: asyncio.Queue[tuple[str, Message]] = asyncio.Queue()
        self._reading = asyncio.get_running_loop().create_task(self._read())
        self._count = 0

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    def deliver(self, inbox: str, message: Message) -> None:
        self._queue.put_nowait((inbox, message))

    async def _read(self) -> None:
        while True:
            inbox, message = await self._queue.get()
            await asyncio.sleep(_LATENCY)
            arrived = self._inboxes.get(inbox)
            if arrived is not None:
                await arrived(message)

    def new_inbox(self) -> str:
        self._count += 1
        return f"inbox {self._count}"

    async def subscribe(self, inbox: str, cb: Callable[[Message], Awaitable[None]]) -> Any:
        self._inboxes[inbox] = cb

        async def unsubscribe() -> None:
            self._inboxes.pop(inbox, None)

        return SimpleNamespace(unsubscribe=unsubscribe, drain=unsubscribe)

    async def publish(self, subject: str, payload: bytes = b"", reply: str = "") -> None:
        if subject.startswith("$JS.API.CONSUMER.MSG.NEXT"):
            self.server.pull(self, reply, json.loads(payload)["batch"])
            return
        assert payload == b"+ACK"
        if self.server.lose_acknowledgements:
            self.server.lose_acknowledgements -= 1
        else:
            self.server.acknowledge(*_numbers(subject))

    async def flush(self, timeout: float) -> None:  # noqa: ASYNC109
        await asyncio.sleep(_LATENCY)

    async def request(self, subject: str, payload: bytes, timeout: float) -> None:  # noqa: ASYNC109
        await asyncio.sleep(_LATENCY)
        self.server.acknowledge(*_numbers(subject))

    def jetstream(self, timeout: float) -> Client:
        return self

    async def add_consumer(self, stream: str, config: Any) -> None:
        await asyncio.sleep(_LATENCY)

    async def reset_consumer(self, stream: str, consumer: str) -> None:
        await asyncio.sleep(_LATENCY)
        self.server.reset()

    async def consumer_info(self, stream: str, consumer: str) -> Any:
        await asyncio.sleep(_LATENCY)
        return SimpleNamespace(
            ack_floor=SimpleNamespace(stream_seq=self.server.floor),
            delivered=SimpleNamespace(consumer_seq=self.server.delivery),
            num_pending=0,
            num_ack_pending=0,
        )

    async def purge_stream(self, stream: str, seq: int, subject: str) -> None:
        assert seq <= self.server.floor + 1


def _numbers(reply: str) -> tuple[int, int]:
    """The message's number in the stream and among the deliveries."""
    words = reply.split(".")
    return int(words[5]), int(words[6])
