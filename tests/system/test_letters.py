"""Events whose dead letters are hard to write: they end no worker and stall no key."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from orjson import dumps

from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.server import Servers
from tests.helpers.system.fleet import PIPELINE, Fleet

# No test waits for a lease here: a slow machine loses none by itself.
LEASE = 15.0

FAILING = """
FAULTS = {
    "surrogate": lambda event: "half \\ud83d a pair",
    "quote": lambda event: f"cannot read {event}",
    "long": lambda event: "x" * 1_500_000,
    "poison": lambda event: "poison",
}


async def handler(event):
    with log.working(event["client"], event["seq"]):
        await asyncio.sleep(SECONDS)
        if "fault" in event:
            raise ValueError(FAULTS[event["fault"]](event))
    return event


pipeline ="""


def test_no_letter_is_too_hard_to_write(run_seed: int, server: Servers, tmp_path: Path) -> None:
    random_ = random.Random(run_seed)
    name = f"letters-{run_seed}"
    pipeline = PIPELINE.replace("pipeline =", FAILING)
    with Fleet(server.urls, tmp_path, name, pipeline=pipeline, lease=LEASE) as fleet:
        faults = ["surrogate", "quote", "long", "poison"] * 5
        events: list[dict[str, Any]] = [fleet.event(f"client {n % 20}") for n in range(400)]
        failing: set[tuple[str, int]] = set()
        for event, fault in zip(random_.sample(events, len(faults)), faults, strict=True):
            event["fault"] = fault
            event["text"] = "y" * (600_000 if fault == "quote" else 10)
            failing.add((event["client"], event["seq"]))

        async def put_by_another_client() -> None:
            client = await connect(fleet.urls)
            for number in range(3):
                body = random_.randbytes(900_000)
                await jetstream(client).publish(f"penstock.{name}.in.foreign{number}", body)
            await client.close()

        async def story() -> None:
            await fleet.prepare()
            fleet.start("a", "b", "c")
            await fleet.settled("a", "b", "c")
            publisher = fleet.start_publisher(events)
            await put_by_another_client()
            await fleet.until_all_arrived(but=frozenset(failing))
            assert publisher.wait() == 0
            letters = await fleet.letters(len(faults) + 3)
            assert len(letters) == len(faults) + 3
            for worker in "abc":
                assert fleet.workers[worker].poll() is None, fleet.errors(worker)
                fleet.drain(worker)
            await fleet.until(lambda: all(one.poll() is not None for one in fleet.workers.values()))
            # Drained, or drained with events that failed.
            assert {one.returncode for one in fleet.workers.values()} <= {3, 4}

        asyncio.run(story())
        verdict = fleet.verdict(given_up=failing)
        assert verdict.lost == failing
        assert (verdict.misordered, verdict.overlaps) == ([], [])


def test_thousands_of_bad_events_at_once_end_no_worker(
    run_seed: int, server: Servers, tmp_path: Path
) -> None:
    random_ = random.Random(run_seed)
    name = f"flood-{run_seed}"
    with Fleet(server.urls, tmp_path, name, partitions=64, lease=LEASE) as fleet:
        bad = 4_000
        without_key = [{"id": f"bad {number}", "seq": 1} for number in range(bad // 2)]

        async def flood() -> None:
            client = await connect(fleet.urls)
            for number, event in enumerate(without_key):
                key = f"{random_.randrange(1 << 30)}"
                await client.publish(f"penstock.{name}.in.{key}", b"garbage %d" % number)
                await client.publish(f"penstock.{name}.in.{key}", dumps(event))
            await client.flush()
            await client.close()

        async def story() -> None:
            await fleet.prepare()
            await flood()
            fleet.start("a", "b")
            await fleet.publish(20, 1000.0, 0.4)
            await fleet.until_all_arrived()
            assert len(await fleet.letters(bad)) == bad
            assert [one.poll() for one in fleet.workers.values()] == [None, None]

        asyncio.run(story())
        verdict = fleet.verdict()
        assert (verdict.misordered, verdict.overlaps) == ([], [])
