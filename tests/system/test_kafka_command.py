"""`penstock run --on kafka://...` on a real broker: members, their death, status, dead letters."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.kafka.broker import HAS_KAFKA, Brokers
from tests.helpers.kafka.readers import Readers
from tests.helpers.servers.command import Worker, command_in, event, eventually, lines
from tests.helpers.system.checker import Verdict

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")

CLIENTS, RATE = 100, 500.0


def penstock(*words: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "penstock", *words], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def test_members_share_a_topic_and_nothing_is_lost_or_misordered_when_one_is_killed(
    kafka_brokers: Brokers, tmp_path: Path
) -> None:
    async def story(readers: Readers) -> Verdict:
        readers.start("a", "b")
        writing = asyncio.create_task(readers.write(CLIENTS, RATE, 6))
        await readers.until(lambda: readers.begun("a") and readers.begun("b"))
        readers.kill("a")
        await writing
        return await readers.until_all_arrived()

    with Readers(kafka_brokers, tmp_path, on=True) as readers:
        verdict = asyncio.run(story(readers))
        assert (verdict.misordered, verdict.overlaps) == ([], [])
        # What the killed one had in flight, and finished since its last commit.
        assert verdict.repeated <= 2 * RATE
        readers.drain("b")
        assert readers.status("b") == 4
        assert "worker b of 'readers'" in readers.errors("b")
        after = penstock("status", "--on", readers.address, "--name", "readers")
    assert f"readers: 0 events unfinished, {readers.sent.total():,} kept" in after
    assert "6 partitions, 6 of them with no worker" in after


def test_the_status_shows_members_floors_and_keys_and_a_dead_letter_is_tried_again(
    kafka_brokers: Brokers, tmp_path: Path
) -> None:
    run = command_in(tmp_path)
    topic = "commanded"
    on = ("--on", f"kafka://{kafka_brokers.servers}/{topic}")
    given = lines(*(event(n, "hot" if n % 2 else f"k{n}", n) for n in range(20)))
    given += lines(event(20, "bad", -1))
    missing = run("publish", "pipe.py", *on, given=given)
    assert missing.returncode == 2
    assert "With --partitions N, publish and run create it" in missing.stderr
    fed = run("publish", "pipe.py", *on, "--partitions", "3", given=given)
    assert fed.returncode == 0, fed.stderr
    other = run("publish", "pipe.py", *on, "--partitions", "4")
    assert other.returncode == 2
    assert "has 3 partitions, not 4" in other.stderr
    assert "No group has read the topic" in penstock("status", *on)
    before = penstock("status", *on, "--name", "pipe")
    assert "pipe: 21 events unfinished, 21 kept" in before
    assert "hottest keys of 21 unfinished events: hot 10, " in before
    assert "no worker is there" in before

    with Worker(tmp_path, *on, "--worker", "first") as worker:
        eventually(lambda: "pipe: 0 events unfinished, 21 kept" in penstock("status", *on))
        during = penstock("status", *on)
        assert ", 1 dead letter\n" in during
        assert "3 partitions, 0 of them with no worker" in during
        assert re.search(r"first +\S+ +3 +0\n", during)
        letter = json.loads(penstock("dead-letters", "list", *on).splitlines()[0])
        assert letter["value"] == event(20, "bad", -1)
        again = penstock("dead-letters", "replay", *on, "--id", str(letter["sequence"]))
        assert "1 event published again" in again
        eventually(lambda: "pipe: 0 events unfinished, 22 kept" in penstock("status", *on))
        status, output, errors = worker.drain()
    assert len(output.splitlines()) == 20
    assert status == 3, errors
    config = kafka_brokers.config(f"{topic}.dead-letters")
    assert config["cleanup.policy"] == "compact"
