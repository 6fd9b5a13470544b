"""Stands in for the workers of a pool, message by message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orjson import dumps, loads

from penstock import Running, WorkPool, collect, from_iterable, group_by, spread
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.letters import letters_of
from penstock.streams.work_pulling.wire import ALONE, CONSUMER, Wire

__all__ = ["Job", "Stand"]

Job = tuple[int, int]
"""Its number, and how often it was sent before."""


class Stand:
    """Stands in for all workers of a pool, which together have room for four jobs."""

    def __init__(self, server: Servers, name: str, attempts: int = 3) -> None:
        self.pool = WorkPool(server.urls, name, attempts=attempts)
        self._wire = Wire(tuple(server.urls), name, attempts, 30.0)

    async def __aenter__(self) -> Stand:
        self._client: Any = await connect(self._wire.servers)
        await self._wire.prepare(self._client)
        self._js: Any = jetstream(self._client)
        self._epic = ""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def offer(self, values: Iterable[Any], results: list[Any]) -> Running:
        """Begin an epic; jobs of the same first letter are one client's."""
        epic = from_iterable(values).pipe(group_by(lambda value: value[0]), spread())
        running = self.pool.offer(epic).to(collect(results)).start()
        # One subscription: a parcel that comes when a fetch has just given up is the next one's.
        self._messages = await self._js.pull_subscribe_bind(CONSUMER, self._wire.stream)
        while not self._epic:
            await self._client.publish(
                self._wire.subject("hello"), dumps({"worker": "all", "capacity": 4})
            )
            try:
                (self._first,) = await self._messages.fetch(1, timeout=0.2)
            except TimeoutError:
                continue
            self._epic = self._first.subject.split(".")[-2]
        return running

    async def take(self) -> Job:
        """The next job that is delivered, by itself."""
        (job,), _ = await self.take_parcel()
        return job

    async def take_parcel(self) -> tuple[list[Job], bool]:
        """The jobs that are delivered next, and whether a worker does them beside no others."""
        message, self._first = self._first, None
        if message is None:
            (message,) = await self._messages.fetch(1, timeout=30)
        await message.ack()
        jobs = [(number, generation) for number, generation, _ in loads(message.data)]
        return jobs, message.subject.split(".")[-1].startswith(ALONE)

    async def say(self, hello: bytes, report: bytes) -> None:
        """Send the master a message with this content as a greeting, a report and a question."""
        await self._client.publish(self._wire.subject("hello"), hello)
        await self._client.publish(self._wire.reports(self._epic), report)
        await self._client.publish(self._wire.subject("about"), report)

    async def report(self, what: dict[str, list[Any]]) -> None:
        """Report, and wait until the master has confirmed."""
        kinds = ("done", "failed", "returned", "asked", "alone")
        nothing: dict[str, Any] = {kind: [] for kind in kinds}
        report = {"worker": "all", "capacity": 4, **nothing, **what}
        await self._client.request(self._wire.reports(self._epic), dumps(report), timeout=30)

    async def queued(self) -> int:
        """How many parcels are on the server, once what the master has sent so far is stored."""
        await self._client.request(self._wire.subject("about"), b"", timeout=30)
        return int((await self._js.stream_info(self._wire.stream)).state.messages)

    async def letters(self) -> int:
        return len([letter async for letter in letters_of(self._js, self._wire.letters)])
