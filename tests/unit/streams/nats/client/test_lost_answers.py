"""Servers that are busy: the first request of each kind, or its answer, gets lost."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from nats.errors import TimeoutError as NoAnswer

from penstock import (
    Fixed,
    WorkPool,
    adaptive_flat_map,
    collect,
    for_each,
    from_iterable,
    group_by,
    spread,
)
from penstock.streams.nats.client.client import Client
from penstock.streams.nats.client.connection import connect
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.layout import layout_of
from penstock.streams.nats.cluster.publisher import Publisher
from penstock.streams.nats.cluster.view import look
from penstock.streams.nats.cluster.worker import Worker

pytestmark = pytest.mark.parametrize("seed", range(2))


@pytest.fixture
def lossy(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request of each subject, or its answer, gets lost."""
    random_ = random.Random(seed)
    request = Client.request
    asked: set[str] = set()

    async def losing(self: Client, subject: str, *words: Any, **options: Any) -> Any:
        is_first = subject not in asked
        asked.add(subject)
        if is_first and random_.random() < 0.5:
            raise NoAnswer
        answer = await request(self, subject, *words, **options)
        if is_first:
            raise NoAnswer
        return answer

    monkeypatch.setattr(Client, "request", losing)


@pytest.mark.usefixtures("lossy")
def test_a_master_and_a_worker_of_a_pool_begin(server: Servers, seed: int) -> None:
    async def story() -> None:
        pool = WorkPool(server.urls, f"lossy-{seed}", lease=5)
        worker = pool.work(lambda job: 2 * job, Fixed(4)).start()
        results: list[int] = []
        async with asyncio.timeout(60):
            await pool.offer(range(20), ordered=True).to(collect(results)).run()
            await worker.drain()
        assert results == list(range(0, 40, 2))

    asyncio.run(story())


@pytest.mark.usefixtures("lossy")
def test_a_worker_of_a_pipeline_begins(server: Servers, seed: int) -> None:
    async def story() -> None:
        results: list[int] = []
        all_arrived = asyncio.Event()

        def arrived(n: int) -> None:
            results.append(n)
            if n == 9:
                all_arrived.set()

        pipeline = (
            from_iterable(list[Any]())
            .pipe(group_by("k"), spread(), adaptive_flat_map(lambda event: event["n"]))
            .to(for_each(arrived))
        )
        client = await connect(server.urls)
        layout = await layout_of(pipeline, f"lossy-{seed}", 2, room=1 << 20).prepare(client)
        async with asyncio.timeout(60):
            async with Publisher(client, layout) as publisher:
                for n in range(10):
                    await publisher.publish({"k": "a", "n": n})
            worker = Worker(client, layout, pipeline, ttl=5.0)
            running = asyncio.create_task(worker.run())
            waiting = asyncio.create_task(all_arrived.wait())
            await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
            worker.begin_drain(5.0)
            await running
        await client.close()
        assert results == list(range(10))

    asyncio.run(story())


@pytest.mark.usefixtures("lossy")
def test_what_is_unfinished_is_reported(server: Servers, seed: int) -> None:
    async def story() -> None:
        stream = from_iterable([{"key": n} for n in range(10)]).pipe(group_by("key"), spread())
        client = await connect(server.urls)
        layout = layout_of(stream.to(collect([])), f"lossy-view-{seed}", 4)
        layout = await layout.prepare(client)
        view = await look(client, layout)
        assert (view.stored, view.unfinished, view.workers) == (0, 0, {})
        await client.close()

    asyncio.run(story())
