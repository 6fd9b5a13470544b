"""Floors on three servers, of which two stand still for a while."""

from __future__ import annotations

import asyncio
import random
import signal
from typing import Any

from nats.js.api import StreamConfig

from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.client.tables import table_of
from penstock.streams.nats.partition.floors import Floors, Mark
from tests.helpers.until import until


def test_floors_that_rise_while_two_of_three_servers_are_frozen_are_known_when_they_are_back(
    cluster: Servers, run_seed: int
) -> None:
    chance = random.Random(run_seed)

    async def story() -> None:
        first = await connect(cluster.urls)
        js: Any = jetstream(first)
        await js.add_stream(StreamConfig(name="s", subjects=["s.>"], num_replicas=3))
        await table_of(js, "s", "floors")
        leader = int((await js.stream_info("KV_floors")).cluster.leader[-1])
        # The worker's server is the one that stays, and leads: it takes writes, and cannot store
        # them.
        client = await connect([cluster.urls[leader]])
        floors = Floors(await table_of(jetstream(client), "s", "floors"), "s", "today")
        floors.start()
        owned = [await floors.claim(number, "me", 0, 3) for number in range(8)]
        others = [one for one in range(3) if one != leader]
        for other in others:
            cluster.signal(other, signal.SIGSTOP)
        last = chance.randint(6, 9)
        for second in range(1, last + 1):
            for floor in owned:
                floor.rise(Mark(second, float(second)))
            await asyncio.sleep(1)
        for other in others:
            cluster.signal(other, signal.SIGCONT)
        await until(lambda: {floor.known.sequence for floor in owned} == {last})
        assert [(await floors.read(number))[0].sequence for number in range(8)] == [last] * 8
        await floors.stop()
        await client.close()
        await first.close()

    asyncio.run(story())
