"""A worker that is started before anything was published."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Pipeline, distinct_within, for_each, from_iterable
from penstock.streams.base.errors import StreamDiffers
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.layout import layout_of
from penstock.streams.nats.cluster.publisher import Publisher
from penstock.streams.nats.cluster.worker import Worker
from tests.helpers.until import until


def _pipeline(seen: list[Any], by: str) -> Pipeline:
    return from_iterable(list[Any]()).pipe(distinct_within(10, by=by)).to(for_each(seen.append))


def test_a_worker_that_comes_first_waits_for_the_first_publisher_who_decides_on_the_partitions(
    server: Servers,
) -> None:
    async def story() -> None:
        client = await connect(server.urls)
        seen, warnings = list[Any](), list[str]()
        pipeline = _pipeline(seen, "n")
        worker = Worker(client, layout_of(pipeline, "first"), pipeline, warn=warnings.append)
        running = asyncio.create_task(worker.run())
        await until(lambda: bool(warnings))
        (told,) = warnings
        assert "waits for 'first', which has no stream yet: the first `penstock publish`" in told
        layout = await layout_of(pipeline, "first", 8, room=1 << 20).prepare(client)
        async with Publisher(client, layout) as publisher:
            await publisher.publish({"n": 1})
        await until(lambda: seen == [{"n": 1}])
        assert worker.layout.partitions == 8
        worker.begin_drain()
        report = await running
        assert (report.statistics["finished"], len(warnings)) == (1, 1)
        await client.close()

    asyncio.run(story())


def test_a_worker_that_waits_for_a_publisher_can_be_drained(server: Servers) -> None:
    async def story() -> None:
        client = await connect(server.urls)
        warnings = list[str]()
        pipeline = _pipeline([], "n")
        worker = Worker(client, layout_of(pipeline, "nobody"), pipeline, warn=warnings.append)
        running = asyncio.create_task(worker.run())
        await until(lambda: bool(warnings))
        worker.begin_drain()
        assert (await running).statistics["in"] == 0
        names = [info.config.name for info in await jetstream(client).streams_info()]
        assert "penstock-nobody" not in names
        await client.close()

    asyncio.run(story())


def test_a_worker_that_waited_ends_if_the_stream_has_other_settings_than_its_pipeline(
    server: Servers,
) -> None:
    async def story() -> None:
        client = await connect(server.urls)
        warnings = list[str]()
        pipeline, other = _pipeline([], "n"), _pipeline([], "uuid")
        worker = Worker(client, layout_of(pipeline, "other"), pipeline, warn=warnings.append)
        running = asyncio.create_task(worker.run())
        await until(lambda: bool(warnings))
        await layout_of(other, "other", room=1 << 20).prepare(client)
        with pytest.raises(StreamDiffers, match="identity is uuid there, n here"):
            async with asyncio.timeout(30):
                await asyncio.shield(running)
        await client.close()

    asyncio.run(story())
