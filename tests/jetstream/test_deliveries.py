from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from operators import adaptive_flat_map
from sinks import for_each
from streams import from_iterable
from streams.engine import Engine
from streams.jetstream.deliveries import Deliveries
from streams.jetstream.floors import Floors
from streams.jetstream.layout import Layout
from streams.jetstream.lease import Lease
from streams.jetstream.partition import Partition
from streams.testing import MemorySink, VirtualTimeLoop
from tests.jetstream.model import Client, Server


@asynccontextmanager
async def owned(
    server: Server, handle: Callable[[int], int], done: list[int]
) -> AsyncIterator[Partition]:
    """A partition with a pipeline that reverts what fails."""
    table: Any = server.table
    unused: Any = None
    client: Any = Client(server)
    lease = Lease(unused, "p.0", b"me", 1, math.inf, asyncio.get_running_loop().time)
    deliveries = Deliveries("stream", MemorySink())
    floors = Floors(table, "today")
    floors.start()
    partition = Partition(0, lease, client, Layout("a", None, None), deliveries, floors)
    running = (
        from_iterable(list[int]())
        .pipe(adaptive_flat_map(handle, on_error="revert"))
        .to(for_each(done.append))
    ).start(engine=Engine(deliveries.flowable, "stop"), drain_deadline=1)
    await partition.look()
    yield partition
    running.cancel()
    await running.wait()
    await partition.abandon()
    await floors.stop()
    await client.close()


def test_a_reverted_event_is_given_again_a_second_later_until_it_is_done() -> None:
    loop = VirtualTimeLoop()
    tried: list[float] = []
    done: list[int] = []

    def handle(number: int) -> int:
        if number == 1:
            tried.append(round(loop.time(), 1))
            if len(tried) < 3:
                raise ValueError("not yet")
        return number

    async def story() -> None:
        server = Server()
        for number in (1, 2, 3):
            server.publish("key", b"%d" % number)
        async with owned(server, handle, done):
            await asyncio.sleep(1.5)
            assert done == [2, 3]
            assert server.table.floor == 0
            await asyncio.sleep(1)
            assert done == [2, 3, 1]
            assert server.table.floor == 3
            assert tried == [tried[0], tried[0] + 1, tried[0] + 2]

    loop.run_until_complete(story())
    loop.close()


def test_a_reverted_event_is_left_to_the_next_owner_of_its_partition() -> None:
    loop = VirtualTimeLoop()
    tried: list[int] = []

    def handle(number: int) -> int:
        tried.append(number)
        raise ValueError("never")

    async def story() -> None:
        server = Server()
        server.publish("key", b"1")
        async with owned(server, handle, []) as partition:
            await asyncio.sleep(0.5)
            await partition.stop()
            await asyncio.sleep(5)
            assert tried == [1]
            assert server.table.floor == 0

    loop.run_until_complete(story())
    loop.close()
