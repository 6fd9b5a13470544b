"""Faults of servers and workers while a thousand events per second come for 200 keys."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.letters import Letter
from tests.helpers.system.checker import Verdict
from tests.helpers.system.fleet import Fleet

CLIENTS, RATE, SECONDS = 200, 1000.0, 2.0

Disturb = Callable[[Fleet, Servers], Coroutine[Any, Any, None]]


async def kill(fleet: Fleet, servers: Servers) -> None:
    fleet.kill("a")


async def leave(fleet: Fleet, servers: Servers) -> None:
    fleet.drain("a")


async def join(fleet: Fleet, servers: Servers) -> None:
    fleet.start("d")


@pytest.mark.parametrize("disturb", [kill, leave, join])
def test_nothing_is_lost_misordered_or_overlapped_when_a_worker_comes_or_goes(
    disturb: Disturb, three_servers: Servers, tmp_path: Path, run_seed: int
) -> None:
    # Long where no test waits for it: a slow machine loses no lease by itself.
    lease = 3.0 if disturb is kill else 8.0
    name = f"workers-{disturb.__name__}-{run_seed}"
    with Fleet(three_servers.urls, tmp_path, name, lease=lease) as fleet:
        verdict = asyncio.run(story(fleet, three_servers, disturb, run_seed))
        assert (verdict.misordered, verdict.overlaps) == ([], [])
        if disturb is not kill:
            assert verdict.repeated == 0


@pytest.mark.parametrize("disturb", [kill, leave])
def test_batches_are_in_order_and_without_duplicates_when_a_worker_goes(
    disturb: Disturb, three_servers: Servers, tmp_path: Path, run_seed: int
) -> None:
    lease = 3.0 if disturb is kill else 8.0
    name = f"batches-{disturb.__name__}-{run_seed}"
    with Fleet(three_servers.urls, tmp_path, name, lease=lease, batch=16) as fleet:
        verdict = asyncio.run(story(fleet, three_servers, disturb, run_seed, times=2))
        assert (verdict.misordered, verdict.overlaps) == ([], [])
        # Each event was published twice.
        assert verdict.repeated < 500 if disturb is kill else verdict.repeated == 0


async def sleep(fleet: Fleet, servers: Servers) -> None:
    fleet.freeze("a")
    # Its share of the events waits until the others have its leases.
    await fleet.until(lambda: len(fleet.sent) == CLIENTS and not fleet.missing())
    await fleet.publish(CLIENTS, RATE, 0.2)
    await fleet.until_all_arrived()
    fleet.wake("a")
    await fleet.until(lambda: "lost the lease" in fleet.errors("a"))


def test_a_worker_that_slept_past_its_leases_gives_them_up(
    three_servers: Servers, tmp_path: Path, run_seed: int
) -> None:
    with Fleet(three_servers.urls, tmp_path, f"workers-sleep-{run_seed}") as fleet:
        verdict = asyncio.run(story(fleet, three_servers, sleep, run_seed))
        assert verdict.misordered == []
        # Work in progress when it fell asleep ends when it wakes, and nothing new begins.
        assert verdict.overlaps_awake() == []
        assert "lost the lease" in fleet.errors("a")


async def cut(fleet: Fleet, servers: Servers) -> None:
    assert fleet.wire is not None
    fleet.wire.cut()
    await fleet.until(lambda: "lost the lease" in fleet.errors("a"))
    fleet.wire.mend()


def test_a_worker_that_is_cut_off_stops_before_others_take_over(
    three_servers: Servers, tmp_path: Path, run_seed: int
) -> None:
    with Fleet(three_servers.urls, tmp_path, f"workers-cut-{run_seed}") as fleet:
        verdict = asyncio.run(story(fleet, three_servers, cut, run_seed, wired=True))
        assert (verdict.misordered, verdict.overlaps) == ([], [])


async def kill_the_leader(fleet: Fleet, servers: Servers) -> None:
    servers.stop(await fleet.leader(), signal.SIGKILL)


async def restart_all(fleet: Fleet, servers: Servers) -> None:
    for number in range(3):
        servers.stop(number)
        servers.start(number)
        await asyncio.to_thread(servers.wait)
        await fleet.replicated()


@pytest.mark.parametrize("disturb", [kill_the_leader, restart_all])
def test_nothing_is_lost_or_misordered_when_servers_go(
    disturb: Disturb, cluster: Servers, tmp_path: Path, run_seed: int
) -> None:
    name = f"servers-{disturb.__name__}-{run_seed}"
    # A window in which even a slow machine can elect leaders, after an answer was lost.
    with Fleet(cluster.urls, tmp_path, name, lease=10.0, partitions=6, window=60.0) as fleet:
        verdict = asyncio.run(story(fleet, cluster, disturb, run_seed))
        assert (verdict.misordered, verdict.overlaps) == ([], [])


def test_a_poisonous_event_goes_to_the_dead_letters_once_and_holds_nothing_up(
    three_servers: Servers, tmp_path: Path, run_seed: int
) -> None:
    poison = (f"client {run_seed % 20}", 1 + run_seed % 5)
    with Fleet(three_servers.urls, tmp_path, f"poison-{run_seed}") as fleet:

        async def dead() -> list[Letter]:
            await fleet.prepare()
            fleet.start("a")
            await fleet.publish(20, RATE, 0.1, poison)
            await fleet.until_all_arrived(but=frozenset({poison}))
            return await fleet.letters(1)

        (letter,) = asyncio.run(dead())
        assert (letter.value["client"], letter.value["seq"]) == poison
        assert (letter.error, letter.message, letter.attempts) == ("ValueError", "poison", 3)
        assert fleet.verdict(given_up={poison}).misordered == []


async def story(
    fleet: Fleet,
    servers: Servers,
    disturb: Disturb,
    run_seed: int,
    *,
    wired: bool = False,
    times: int = 1,
) -> Verdict:
    share = random.Random(run_seed).uniform(0.1, 0.8)
    await fleet.prepare()
    if wired:
        await fleet.lay_wire()
        assert fleet.wire is not None
        fleet.start("a", urls=[fleet.wire.url])
        fleet.start("b", "c")
    else:
        fleet.start("a", "b", "c")

    await fleet.settled("a", "b", "c")

    async def disturbing() -> None:
        await fleet.until(lambda: fleet.sent.total() > share * RATE * SECONDS)
        await disturb(fleet, servers)

    await asyncio.gather(fleet.publish(CLIENTS, RATE, SECONDS, times=times), disturbing())
    await fleet.until_all_arrived()
    if fleet.wire is not None:
        await fleet.wire.remove()
    verdict = fleet.verdict()
    print(
        f"{disturb.__name__}: {verdict.repeated} repeated, {len(verdict.overlaps)} overlapped, "
        f"longest silence {verdict.longest_silence:.2f} s"
    )
    return verdict
