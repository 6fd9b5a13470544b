"""What a master makes of the report of a worker whose jobs went to another meanwhile.

Workers are played by the test, message by message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from orjson import dumps, loads

from operators import group_by, spread
from sinks import collect
from sources import WorkPool
from streams import Running, from_iterable
from streams.jetstream.connection import connect, jetstream
from streams.jetstream.letters import letters_of
from streams.jetstream.server import Servers
from streams.work.wire import CONSUMER, Wire

Job = tuple[int, int]
"""Its number, and how often it went out before."""


FIRST, AGAIN, NEXT = (1, 0), (1, 1), (2, 0)


def done(job: Job, value: Any) -> dict[str, list[Any]]:
    return {"done": [[*job, value]]}


def failed(job: Job) -> dict[str, list[Any]]:
    return {"failed": [[*job, "ValueError", "no", 3]]}


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
        while not self._epic:
            await self._client.publish(self._wire.hello, dumps({"worker": "all", "capacity": 4}))
            messages = await self._js.pull_subscribe_bind(CONSUMER, self._wire.stream)
            try:
                (first,) = await messages.fetch(1, timeout=0.2)
            except TimeoutError:
                continue
            self._messages, self._first = messages, first
            self._epic = first.subject.split(".")[-2]
        return running

    async def take(self) -> Job:
        """The next job that is delivered."""
        message, self._first = self._first, None
        if message is None:
            (message,) = await self._messages.fetch(1, timeout=30)
        await message.ack()
        ((number, generation, _),) = loads(message.data)
        return number, generation

    async def report(self, what: dict[str, list[Any]]) -> None:
        """Report, and wait until the master knows."""
        nothing: dict[str, Any] = {"done": [], "failed": [], "returned": [], "asked": []}
        report = {"worker": "all", "capacity": 4, **nothing, **what}
        await self._client.request(self._wire.reports(self._epic), dumps(report), timeout=30)

    async def queued(self) -> int:
        """How many parcels are on the server, after what the master has sent so far."""
        await self._client.request(self._wire.about, b"", timeout=30)
        return int((await self._js.stream_info(self._wire.stream)).state.messages)

    async def letters(self) -> int:
        return len([letter async for letter in letters_of(self._js, self._wire.letters)])


async def repeated(stand: Stand, results: list[Any]) -> Running:
    """Job 1 went out a second time, to another worker; job 2 is of the same client."""
    running = await stand.offer(["a1", "a2"], results)
    assert await stand.take() == FIRST
    await stand.report({"asked": [FIRST]})
    assert await stand.take() == AGAIN
    return running


async def ended(stand: Stand, running: Running) -> None:
    """Job 2 is done, and the epic is over."""
    assert await stand.take() == NEXT
    await stand.report(done(NEXT, "second"))
    await asyncio.wait_for(running.wait(), 60)


def test_the_next_job_of_a_client_waits_for_the_repetition_not_for_a_late_report(
    server: Servers,
) -> None:
    async def story() -> None:
        results: list[Any] = []
        async with Stand(server, "late-done") as stand:
            running = await repeated(stand, results)
            await stand.report(done(FIRST, "late"))
            assert await stand.queued() == 0
            await stand.report(done(AGAIN, "current"))
            await ended(stand, running)
            assert results == ["current", "second"]

    asyncio.run(story())


def test_a_late_failure_changes_nothing(server: Servers) -> None:
    async def story() -> None:
        results: list[Any] = []
        async with Stand(server, "late-failure") as stand:
            running = await repeated(stand, results)
            await stand.report(failed(FIRST))
            assert await stand.queued() == 0
            await stand.report(done(AGAIN, "current"))
            assert await stand.letters() == 0
            await ended(stand, running)
            assert results == ["current", "second"]

    asyncio.run(story())


@pytest.mark.parametrize(
    "end",
    [{"asked": [AGAIN]}, {"returned": [AGAIN]}, failed(AGAIN)],
    ids=["lost", "returned", "failed"],
)
def test_a_late_result_counts_once_the_repetition_has_ended_without_one(
    server: Servers, end: dict[str, list[Any]]
) -> None:
    async def story() -> None:
        results: list[Any] = []
        async with Stand(server, f"late-{next(iter(end))}", attempts=2) as stand:
            running = await repeated(stand, results)
            await stand.report(done(FIRST, "late"))
            await stand.report(end)
            assert await stand.letters() == 0
            await ended(stand, running)
            assert results == ["late", "second"]

    asyncio.run(story())
