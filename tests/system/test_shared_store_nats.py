"""Workers of a pipeline on NATS with one store in PostgreSQL: whatever happens to one of them, each
event changes its state once, and each timer fires once."""

from __future__ import annotations

import asyncio
import json
import random
from functools import partial
from pathlib import Path

import psycopg
import pytest

from penstock.streams.nats.client.server import Servers
from penstock.streams.state.codec import key_in
from tests.system.test_state_nats import PIPELINE, check_counts, fleet_of, published, wait


def counts(url: str) -> dict[str, list[int]]:
    with psycopg.connect(url) as db:
        if db.execute("SELECT to_regclass('penstock_state')").fetchone() == (None,):
            return {}
        found = db.execute("SELECT key, state::text FROM penstock_state").fetchall()
    assert len(found) == len({key for key, _ in found}), found
    return {key_in(key.encode()): json.loads(state) for key, state in found}


@pytest.mark.parametrize("disturb", ["kill", "freeze", "leave", "cut", "connections"])
async def test_each_event_counts_once(
    server: Servers, postgres: str, tmp_path: Path, run_seed: int, disturb: str
) -> None:
    draw = random.Random(run_seed)
    pipeline = PIPELINE.replace(
        'Store("{url}", local={local}, cache=20)', f'Store("{postgres}", shared=True, cache=20)'
    )
    with fleet_of(server, tmp_path, draw, pipeline=pipeline) as fleet:
        await fleet.prepare()
        await fleet.lay_wire()
        assert fleet.wire is not None
        fleet.start("one", urls=[fleet.wire.url])
        fleet.start("two")
        await fleet.settled("one", "two")
        async with published(fleet, seconds=8):
            await wait(draw)
            match disturb:
                case "kill":
                    fleet.kill("one")
                    await wait(draw)
                    fleet.start("one")
                case "freeze":
                    fleet.freeze("one")
                    # Longer than its lease: the other one has its partitions.
                    await asyncio.sleep(draw.uniform(2.5, 5))
                    fleet.wake("one")
                case "leave":
                    fleet.start("three")
                    await fleet.settled("one", "two", "three")
                    fleet.drain("one")
                case "cut":
                    # From the servers of the events, not from the database.
                    fleet.wire.cut()
                    await asyncio.sleep(draw.uniform(2.5, 5))
                    fleet.wire.mend()
                case "connections":
                    for _ in range(5):
                        await asyncio.sleep(draw.random() / 2)
                        await asyncio.to_thread(end_connections, postgres)
                case other:
                    raise AssertionError(other)
        await check_counts(fleet, server, tmp_path, partial(counts, postgres))
        await fleet.wire.remove()


def end_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'penstock' AND random() < 0.5"
        )
