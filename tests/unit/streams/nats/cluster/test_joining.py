"""What a worker has read and not begun goes to others when they join, or when it drains."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from penstock import (
    Fixed,
    Pipeline,
    Report,
    adaptive_flat_map,
    for_each,
    from_iterable,
    group_by,
    spread,
)
from penstock.streams.nats.client.client import Client
from penstock.streams.nats.client.connection import connect
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.layout import Layout, layout_of
from penstock.streams.nats.cluster.publisher import Publisher
from penstock.streams.nats.cluster.worker import Worker
from tests.helpers.until import until

_PARTITIONS = 8
_EVENTS = 200


def _pipeline(handler: Callable[[dict[str, int]], Any]) -> Pipeline:
    grouped = from_iterable(list[Any]()).pipe(group_by("k"), spread())
    return grouped.pipe(adaptive_flat_map(handler, Fixed(1))).to(for_each(bool))


async def _filled(client: Client, name: str) -> Layout:
    layout = layout_of(_pipeline(dict), name, _PARTITIONS, room=1 << 20)
    layout = await layout.prepare(client)
    async with Publisher(client, layout) as publisher:
        for n in range(_EVENTS):
            await publisher.publish({"k": n % 40, "n": n})
    return layout


async def _all_read(worker: Worker) -> None:
    """Wait until all is read, and one of them has begun."""

    def is_read() -> bool:
        running = worker.running
        return running is not None and running.statistics()["waiting"] == _EVENTS - 1

    await until(is_read)


@asynccontextmanager
async def _begun(
    client: Client, layout: Layout, name: str, handler: Callable[[dict[str, int]], Any]
) -> AsyncIterator[Worker]:
    worker = Worker(client, layout, _pipeline(handler), name=name, ttl=30.0)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_one_that_joins_waits_only_for_calls_that_have_begun(server: Servers) -> None:
    done: list[dict[str, int]] = []

    async def story() -> None:
        client = await connect(server.urls)
        may_end = asyncio.Event()

        async def first_handler(event: dict[str, int]) -> dict[str, int]:
            await may_end.wait()
            done.append(event)
            return event

        async def second_handler(event: dict[str, int]) -> dict[str, int]:
            done.append(event)
            return event

        layout = await _filled(client, "joining")
        async with _begun(client, layout, "first", first_handler) as first:
            await _all_read(first)
            async with _begun(client, layout, "second", second_handler) as second:
                # The one that has begun may be of a partition of its share.
                await until(lambda: len(second.partitions) >= _PARTITIONS // 2 - 1)
                may_end.set()
                await until(lambda: len(done) >= _EVENTS)
                await until(lambda: len(second.partitions) == len(first.partitions))
        await client.close()

    asyncio.run(story())
    # Each once, and those of a key in their order.
    assert Counter(event["n"] for event in done) == Counter(range(_EVENTS))
    of_keys = {event["k"]: list[int]() for event in done}
    for event in done:
        of_keys[event["k"]].append(event["n"])
    assert all(numbers == sorted(numbers) for numbers in of_keys.values())


def test_one_that_drains_waits_only_for_calls_that_have_begun(server: Servers) -> None:
    async def story() -> Report:
        client = await connect(server.urls)
        layout = await _filled(client, "draining")
        may_end = asyncio.Event()

        async def handler(event: dict[str, int]) -> dict[str, int]:
            await may_end.wait()
            return event

        worker = Worker(client, layout, _pipeline(handler), name="first", ttl=30.0)
        running = asyncio.create_task(worker.run())
        await _all_read(worker)
        worker.begin_drain(60.0, by_signal=True)
        # Of all partitions but that of the event that has begun.
        await until(lambda: len(worker.partitions) == 1)
        may_end.set()
        report = await running
        await client.close()
        return report

    report = asyncio.run(story())
    assert report.outcome == "drained"
    numbers = report.statistics
    assert (numbers["finished"], numbers["returned"]) == (1, _EVENTS - 1)
