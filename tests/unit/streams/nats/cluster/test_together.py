"""Workers that begin at the same time share what is there already."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock import Fixed, Pipeline, adaptive_flat_map, for_each, from_iterable, group_by, spread
from penstock.streams.nats.client.client import Client
from penstock.streams.nats.client.connection import connect
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.layout import Layout, layout_of
from penstock.streams.nats.cluster.publisher import Publisher
from penstock.streams.nats.cluster.worker import Worker
from tests.helpers.until import until

_PARTITIONS = 8


def _pipeline(handler: Any) -> Pipeline:
    grouped = from_iterable(list[Any]()).pipe(group_by("k"), spread())
    return grouped.pipe(adaptive_flat_map(handler, Fixed(4))).to(for_each(bool))


async def _never(_: object) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def _begun(
    client: Client, layout: Layout, name: str, **options: Any
) -> AsyncIterator[Worker]:
    worker = Worker(client, layout, _pipeline(_never), name=name, **options)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _filled(client: Client, name: str) -> Layout:
    layout = await layout_of(_pipeline(_never), name, _PARTITIONS, room=1 << 20).prepare(client)
    async with Publisher(client, layout) as publisher:
        for n in range(200):
            await publisher.publish({"k": str(n % 40), "n": n})
    return layout


def test_none_takes_partitions_before_all_are_there(server: Servers) -> None:
    async def story() -> list[int]:
        client = await connect(server.urls)
        layout = await _filled(client, "together")
        options: dict[str, Any] = {"ttl": 30.0, "together": 2}
        async with _begun(client, layout, "first", **options) as first:
            await until(lambda: first._known)
            looks = 0
            share = first._share

            async def looked() -> None:
                nonlocal looks
                await share()
                looks += 1

            first._share = looked  # type: ignore[method-assign]
            for _ in range(3):
                before = looks
                await first._news.tell()
                await until(lambda before=before: looks > before)
            assert first.partitions == {}
            async with _begun(client, layout, "second", **options) as second:
                await until(lambda: len(first.partitions) + len(second.partitions) == _PARTITIONS)
                shares = [len(first.partitions), len(second.partitions)]
        await client.close()
        return shares

    # Though nothing of what is there can be finished.
    assert asyncio.run(story()) == [4, 4]


def test_one_that_the_others_do_not_join_takes_all_after_a_lease(server: Servers) -> None:
    async def story() -> None:
        client = await connect(server.urls)
        layout = await _filled(client, "alone")
        async with _begun(client, layout, "first", ttl=1.0, together=2) as first:
            await until(lambda: len(first.partitions) == _PARTITIONS)
        await client.close()

    asyncio.run(story())
