"""How a worker does a job that has to be alone, and which jobs it does not begin.

The test plays the master, message by message.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from orjson import dumps, loads

from penstock import Fixed, WorkPool
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.requests import Requests
from penstock.streams.nats.client.server import Servers
from penstock.streams.work_pulling.wire import ALONE, Wire
from tests.helpers.until import until

EPIC = "e"


class Played:
    """A master that confirms everything, and what happened in its order."""

    def __init__(self, server: Servers, name: str, lease: float = 30.0) -> None:
        self.log: list[str] = []
        self.may_end = asyncio.Event()
        self.pool = WorkPool(server.urls, name, lease=lease)
        self._wire = Wire(tuple(server.urls), name, 3, lease)

    async def __aenter__(self) -> Played:
        self._client: Any = await connect(self._wire.servers)
        await self._wire.prepare(self._client)
        await self._client.listen(self._wire.reports(EPIC), self._reported)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def _reported(self, message: Any) -> None:
        report = loads(message.data)
        for kind in ("done", "returned", "asked", "alone"):
            self.log += [f"{kind} {job[0]}" for job in report[kind]]
        await self._client.publish(message.reply, b"")

    async def send(self, parcel: str, *numbers: int) -> None:
        jobs = [(number, 1, number) for number in numbers]
        await jetstream(self._client).publish(f"{self._wire.jobs(EPIC)}.{parcel}", dumps(jobs))

    async def work(self, job: int) -> int:
        self.log.append(f"begun {job}")
        await self.may_end.wait()
        return job

    async def logged(self, *what: str) -> None:
        await until(lambda: set(what) <= set(self.log))


def test_a_job_that_has_to_be_alone_begins_when_no_others_are_at_work_and_the_master_knows(
    server: Servers,
) -> None:
    async def story() -> None:
        async with Played(server, "alone") as master:
            worker = master.pool.work(master.work, Fixed(4)).start()
            await master.send("1", 1)
            await master.logged("begun 1")
            await master.send(f"{ALONE}2", 2)
            await master.send(f"{ALONE}3", 3)
            await master.send("4", 4)
            await master.logged("returned 3", "returned 4")
            assert master.log == ["begun 1", "returned 3", "returned 4"]
            master.may_end.set()
            await master.logged("done 2")
            order = master.log.index
            assert order("done 1") < order("alone 2") < order("begun 2")
            # Afterwards it takes others again.
            await master.send("5", 5)
            await master.logged("done 5")
            await worker.drain()

    asyncio.run(story())


def test_a_worker_that_leaves_returns_the_job_that_was_to_be_alone(server: Servers) -> None:
    async def story() -> None:
        async with Played(server, "leaves") as master:
            worker = master.pool.work(master.work, Fixed(4)).start()
            await master.send("1", 1)
            await master.logged("begun 1")
            await master.send(f"{ALONE}2", 2)
            await master.send("3", 3)
            await master.logged("returned 3")
            leaving = asyncio.create_task(worker.drain())
            await asyncio.sleep(0)
            master.may_end.set()
            await leaving
            assert "done 1" in master.log
            assert "returned 2" in master.log
            assert "begun 2" not in master.log

    asyncio.run(story())


def test_a_job_that_comes_again_before_it_has_begun_is_returned(
    server: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease was over: another worker may have it from the same message, and ask for it."""
    came: list[tuple[Any, Any]] = []

    class Noted(Requests):
        def __init__(self, *given: Any) -> None:
            client, stream, consumer, room, arrived, failed = given

            def note(message: Any) -> None:
                came.append((arrived, message))
                arrived(message)

            super().__init__(client, stream, consumer, room, note, failed)

    def block() -> None:
        time.sleep(0.6)

    async def story() -> None:
        async with Played(server, "again", lease=0.5) as master:
            worker = master.pool.work(master.work, Fixed(1)).start()
            await master.send("1", 1, 2)
            await master.logged("begun 1")
            # The loop is blocked for longer than the lease, which the server answers for anew.
            block()
            (arrived, message) = came[0]
            leases = arrived.__self__._leases
            await until(lambda: leases.newest.held)
            arrived(message)
            master.may_end.set()
            await master.logged("returned 2")
            assert "begun 2" not in master.log
            await worker.drain()

    monkeypatch.setattr("penstock.streams.work_pulling.jetstream_worker.Requests", Noted)
    asyncio.run(story())
