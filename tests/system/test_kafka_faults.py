"""Faults of readers and brokers while five hundred events per second come for 100 keys."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.helpers.kafka.broker import HAS_KAFKA, Brokers
from tests.helpers.kafka.readers import Readers
from tests.helpers.system.checker import Verdict

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")

CLIENTS, RATE = 100, 500.0


async def story(readers: Readers, seed: int, disturb: str) -> Verdict:
    drawn = random.Random(seed)
    readers.start("a", "b")
    await readers.until(lambda: {"a", "b"} <= {e.process for e in readers.entries()})
    writing = asyncio.create_task(readers.write(CLIENTS, RATE, 6))
    await readers.until(lambda: readers.begun("a") or readers.begun("b"))
    await asyncio.sleep(drawn.random() * 2)
    match disturb:
        case "kill":
            readers.kill("a")
        case "leave":
            readers.drain("a")
        case "join":
            readers.start("c")
        case "freeze":
            readers.freeze("a")
            await asyncio.sleep(5)
            readers.wake("a")
        case "storm":
            for number in range(3):
                readers.start(f"m{number}")
                await asyncio.sleep(1 + drawn.random())
                if drawn.random() < 0.5:
                    readers.kill(f"m{number}")
                else:
                    readers.drain(f"m{number}")
        case "broker":
            victim = drawn.randrange(3)
            readers.brokers.stop(victim, signal.SIGKILL)
            await asyncio.sleep(2)
            readers.brokers.start(victim)
        case "away":
            readers.brokers.stop(0, signal.SIGKILL)
            await asyncio.sleep(drawn.random() * 5)
            readers.brokers.start(0)
        case "grow":
            admin = AdminClient({"bootstrap.servers": readers.brokers.servers, "log_level": 0})
            admin.create_partitions([NewPartitions(readers.topic, 9)])[readers.topic].result(30)
        case other:
            raise AssertionError(other)
    await writing
    return await readers.until_all_arrived()


@pytest.mark.parametrize("disturb", ["kill", "leave", "join", "storm"])
def test_nothing_is_lost_or_misordered_when_readers_come_and_go(
    disturb: str, kafka_brokers: Brokers, tmp_path: Path, run_seed: int
) -> None:
    with Readers(kafka_brokers, tmp_path) as readers:
        verdict = asyncio.run(story(readers, run_seed, disturb))
        assert (verdict.misordered, verdict.overlaps) == ([], [])
        if disturb in ("leave", "join"):
            assert verdict.repeated == 0
        else:
            # What a killed reader had in flight, and finished since its last commit.
            assert verdict.repeated <= 2 * RATE * (3 if disturb == "storm" else 1)
        if disturb == "leave":
            assert readers.status("a") == 4


def test_a_frozen_reader_begins_nothing_of_what_it_has_lost(
    kafka_brokers: Brokers, tmp_path: Path, run_seed: int
) -> None:
    with Readers(kafka_brokers, tmp_path) as readers:
        verdict = asyncio.run(story(readers, run_seed, "freeze"))
        assert verdict.overlaps_awake() == []


def test_a_broker_of_three_is_killed_and_nothing_is_lost(
    three_kafka_brokers: Brokers, tmp_path: Path, run_seed: int
) -> None:
    with Readers(three_kafka_brokers, tmp_path) as readers:
        verdict = asyncio.run(story(readers, run_seed, "broker"))
        assert (verdict.misordered, verdict.overlaps_awake()) == ([], [])


def test_a_broker_that_is_away_for_a_while_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, run_seed: int
) -> None:
    with (
        Brokers(tmp_path_factory.mktemp("kafka-away")) as brokers,
        Readers(brokers, tmp_path) as readers,
    ):
        verdict = asyncio.run(story(readers, run_seed, "away"))
        assert (verdict.misordered, verdict.overlaps_awake()) == ([], [])


def test_a_topic_that_gets_more_partitions_is_read_to_its_end(
    kafka_brokers: Brokers, tmp_path: Path, run_seed: int
) -> None:
    with Readers(kafka_brokers, tmp_path) as readers:
        verdict = asyncio.run(story(readers, run_seed, "grow"))
        # A key may be in two partitions from then on, and each keeps its own order.
        assert verdict.lost == set()
