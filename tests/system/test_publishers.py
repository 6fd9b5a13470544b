"""Publishers while servers are frozen, and with events that servers refuse."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path

import pytest

from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.layout import token
from tests.helpers.system.fleet import Fleet

RATE, SECONDS = 500.0, 6.0


def test_a_publisher_waits_out_seconds_without_a_quorum(
    run_seed: int, cluster: Servers, tmp_path: Path
) -> None:
    random_ = random.Random(run_seed)
    frozen = random_.sample(range(3), 2)
    seconds = random_.uniform(2.5, 5.0)
    with Fleet(cluster.urls, tmp_path, "quorum", lease=10.0, window=30.0) as fleet:

        async def disturb() -> None:
            await fleet.until(lambda: fleet.sent.total() > RATE)
            for number in frozen:
                cluster.signal(number, signal.SIGSTOP)
            await asyncio.sleep(seconds)
            for number in frozen:
                cluster.signal(number, signal.SIGCONT)

        async def story() -> None:
            await fleet.prepare()
            await asyncio.gather(fleet.publish(50, RATE, SECONDS), disturb())
            await fleet.replicated()
            fleet.start("a")
            await fleet.until_all_arrived()

        asyncio.run(story())
        verdict = fleet.verdict()
        assert (verdict.misordered, verdict.overlaps, verdict.repeated) == ([], [], 0)


@pytest.mark.parametrize("batch", [None, 16])
def test_keys_of_any_length_keep_their_order(
    run_seed: int, batch: int | None, server: Servers, tmp_path: Path
) -> None:
    random_ = random.Random(run_seed)
    name = f"long-{batch}-{run_seed}"
    with Fleet(server.urls, tmp_path, name, batch=batch, lease=15.0) as fleet:
        sizes = [1, 100, 3_000, 4_096, 50_000, 100_000]
        # Two of each size that differ in their last letter alone.
        clients = [f"{'k' * size}{last}" for size in sizes for last in "ab"]
        events = [fleet.event(client) for client in random_.sample(clients * 10, 10 * len(clients))]
        poison = random_.choice([event for event in events if len(event["client"]) > 4_000])
        poison["poison"] = True
        failing = frozenset({(poison["client"], poison["seq"])})

        async def story() -> None:
            await fleet.prepare()
            publisher = fleet.start_publisher(events)
            fleet.start("a", "b")
            await fleet.until_all_arrived(but=failing)
            assert publisher.wait() == 0
            (letter,) = await fleet.letters(1)
            assert letter.value == poison
            assert letter.key == token(poison["client"])

        asyncio.run(story())
        verdict = fleet.verdict(given_up=failing)
        assert (verdict.misordered, verdict.overlaps) == ([], [])
