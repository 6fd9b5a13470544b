"""What becomes of a worker whose streams are deleted, or whose server is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import Pipeline, for_each, from_iterable
from penstock.streams.base.errors import StreamMissing
from penstock.streams.nats.client.client import Client
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.layout import Layout, layout_of
from penstock.streams.nats.cluster.publisher import Publisher
from penstock.streams.nats.cluster.worker import Worker
from tests.helpers.until import until


def _pipeline(seen: list[Any]) -> Pipeline:
    return from_iterable(list[Any]()).to(for_each(seen.append))


@asynccontextmanager
async def _working(
    client: Client, layout: Layout, seen: list[Any], warnings: list[str]
) -> AsyncIterator[asyncio.Task[Any]]:
    """A worker that has done an event."""
    worker = Worker(client, layout, _pipeline(seen), ttl=1.0, warn=warnings.append)
    running = asyncio.create_task(worker.run())
    try:
        await _publish(client, layout)
        await until(lambda: bool(seen))
        yield running
    finally:
        worker.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _publish(client: Client, layout: Layout) -> None:
    async with Publisher(client, layout) as publisher:
        await publisher.publish({"n": 1})


@pytest.mark.parametrize(
    ("bucket", "again"),
    [("", False), ("", True), ("KV_", False), ("KV_penstock_floors-", False)],
)
def test_a_worker_whose_stream_is_deleted_ends_and_says_so(
    bucket: str, again: bool, server: Servers
) -> None:
    name = f"deleted-{len(bucket)}-{again}"

    async def story() -> None:
        client = await connect(server.urls)
        layout = layout_of(_pipeline([]), name, 2, room=1 << 20)
        made = await layout.prepare(client)
        stream = f"{bucket}{name if bucket.endswith('-') else made.stream}"
        async with _working(client, made, [], []) as running:
            await jetstream(client).delete_stream(stream)
            if again:
                # A publisher makes it again, with other events under the same numbers.
                await layout.prepare(client)
                await _publish(client, made)
            with pytest.raises(StreamMissing, match=f"'{stream}' has been deleted or"):
                async with asyncio.timeout(30):
                    await asyncio.shield(running)
        await client.close()

    asyncio.run(story())


def test_a_worker_whose_server_is_away_says_so_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    seen: list[Any] = []
    warnings: list[str] = []

    async def story(servers: Servers) -> None:
        client = await connect(servers.urls)
        layout = await layout_of(_pipeline([]), "away", 2, room=1 << 20).prepare(client)
        async with _working(client, layout, seen, warnings):
            await asyncio.to_thread(servers.stop, 0)
            await until(lambda: any("is not connected: " in text for text in warnings))
            servers.start(0)
            await asyncio.to_thread(servers.wait)
            await _publish(client, layout)
            await until(lambda: len(seen) >= 2)
        await client.close()

    with Servers(tmp_path) as servers:
        asyncio.run(story(servers))
