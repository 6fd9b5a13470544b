"""Events that end their workers, or block them for longer than their leases last."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.letters import Letter
from tests.helpers.system.fleet import PIPELINE, Fleet

LEASE = 2.0
CLIENTS, EVENTS, RATE = 24, 600, 400.0

HARMFUL = PIPELINE.replace("import sys\n", "import os\nimport sys\nimport time\n", 1).replace(
    'if event.get("poison"):',
    """if event.get("kills"):
            os._exit(9)
        if event.get("blocks"):
            time.sleep(event["blocks"])
        if event.get("poison"):""",
)


async def harmed(fleet: Fleet, harm: Callable[[dict[str, object]], None], which: int) -> Letter:
    """Let one event do harm, replace each worker that ends, and wait for all others."""
    await fleet.prepare()
    fleet.start("a", "b", "c")
    await fleet.settled("a", "b", "c")
    events = [fleet.event(f"client {i % CLIENTS}") for i in range(EVENTS)]
    harm(events[which])
    harmful = (str(events[which]["client"]), int(events[which]["seq"]))
    publisher = fleet.start_publisher(events)

    def all_others_arrived() -> bool:
        for name, worker in list(fleet.workers.items()):
            if worker.poll() is not None and f"{name}+" not in fleet.workers:
                fleet.start(f"{name}+")
        return not fleet.missing() - {harmful}

    await fleet.until(all_others_arrived)
    assert publisher.wait(60) == 0
    letters = await fleet.letters(1)
    assert [(one.value["client"], one.value["seq"]) for one in letters] == [harmful]
    return letters[0]


def test_an_event_that_ends_its_workers_is_a_dead_letter_after_its_attempts_and_no_other_is(
    server: Servers, tmp_path: Path, run_seed: int
) -> None:
    which = random.Random(run_seed).randrange(EVENTS)
    with Fleet(server.urls, tmp_path, f"kills-{run_seed}", lease=LEASE, pipeline=HARMFUL) as fleet:
        letter = asyncio.run(harmed(fleet, lambda event: event.update(kills=True), which))
        assert (letter.error, letter.attempts) == ("WorkerLost", 3)
        client, seq = letter.value["client"], letter.value["seq"]
        verdict = fleet.verdict(given_up={(client, seq)})
        # Until it was alone, too.
        assert verdict.starts[client, seq] in (4, 5)
        assert verdict.misordered == []
        assert verdict.overlaps == []


def test_an_event_that_blocks_its_workers_for_longer_than_their_leases_starves_no_other(
    server: Servers, tmp_path: Path, run_seed: int
) -> None:
    which = random.Random(run_seed).randrange(EVENTS)
    with Fleet(server.urls, tmp_path, f"blocks-{run_seed}", lease=LEASE, pipeline=HARMFUL) as fleet:
        letter = asyncio.run(harmed(fleet, lambda event: event.update(blocks=2.5 * LEASE), which))
        assert (letter.error, letter.attempts) == ("WorkerLost", 3)
        client, seq = letter.value["client"], letter.value["seq"]
        verdict = fleet.verdict(given_up={(client, seq)})
        # It arrived each time, after its worker had lost it.
        assert verdict.sunk[client, seq] <= verdict.starts[client, seq]
        assert verdict.misordered == []
