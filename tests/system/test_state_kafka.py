"""A pipeline with states that reads topics, on a real broker: killed at any instant, and beside
others of its group."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock import Store, collect, read_kafka, stateful
from penstock.streams.base.errors import CannotOpen
from penstock.streams.kafka.offsets.stored import Done, done_in
from penstock.streams.state.sqlite import SQLite
from tests.helpers.kafka.broker import HAS_KAFKA, Brokers
from tests.helpers.kafka.mock import until
from tests.system.test_state import KEYS, Job

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")

RECORDS, PARTITIONS, STOPS = 3_000, 3, 4

CLASSIC = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500}
PROTOCOLS: list[dict[str, Any]] = [CLASSIC, {"group.protocol": "consumer"}]


def write(kafka: Brokers, topic: str, first: int, end: int) -> None:
    """Numbers, those of one key in one partition."""
    for key in range(KEYS):
        values = [b"%d" % number for number in range(first, end) if number % KEYS == key]
        kafka.write(topic, values, partition=key % PARTITIONS)


def marks(store: Path) -> int:
    """The records that a store says are done, of all partitions."""
    backend = SQLite(str(store))
    backend.open_to_read()
    try:
        done = [done_in(mark) for _, mark in backend.marks()]
    finally:
        backend.close()
    assert all(isinstance(one, Done) and not one.finished for one in done), done
    return sum(one.floor for one in done if isinstance(one, Done))


def committed(kafka: Brokers, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": group, "log_level": 0})
    try:
        places = [TopicPartition(group, number) for number in range(PARTITIONS)]
        return sum(max(0, place.offset) for place in consumer.committed(places, timeout=30))
    finally:
        consumer.close()


def test_kills_leave_each_record_in_the_states_once(
    tmp_path: Path, run_seed: int, kafka_brokers: Brokers
) -> None:
    draw = random.Random(run_seed)
    topic = kafka_brokers.topic(PARTITIONS)
    config = draw.choice(PROTOCOLS)
    job = Job(
        *(tmp_path, draw),
        follow=False,
        topic=topic,
        servers=kafka_brokers.servers,
        config=config,
    )
    write(kafka_brokers, topic, 0, RECORDS)
    for _ in range(STOPS):
        job.start()
        # A killed reader keeps its partitions for a while.
        job.wait_for_lines(draw.randrange(1, RECORDS // STOPS), patience=15)
        job.stop(drained=draw.random() < 0.25)
    job.start()
    assert job.running is not None
    assert job.running.wait(120) == 0, job
    job.check(drained=True)
    job.check_end(RECORDS)
    assert marks(tmp_path / "some.state") == committed(kafka_brokers, topic) == RECORDS


@pytest.mark.parametrize("config", PROTOCOLS, ids=["classic", "consumer"])
@pytest.mark.parametrize("partitions", [1, PARTITIONS])
def test_a_second_reader_is_refused_and_the_first_loses_nothing(
    tmp_path: Path, kafka_brokers: Brokers, config: dict[str, Any], partitions: int
) -> None:
    topic = kafka_brokers.topic(partitions)

    def reader(name: str, into: list[Any]) -> Any:
        store = Store(tmp_path / name)

        def seen(count: int, event: Any) -> tuple[int, list[Any]]:
            return count + 1, [count + 1]

        stage = stateful(seen, lambda _: "all", start=0, name="all", store=store)
        source: Any = read_kafka(
            topic, topic, kafka_brokers.servers, config=config, handover=5, offsets=store
        )
        return source.pipe(stage).to(collect(into)).start()

    def sources(running: Any) -> list[dict[str, Any]]:
        return [one for one in running.statistics()["stages"] if one["name"] == "read_kafka"]

    async def story() -> None:
        first: list[int] = []
        others: list[int] = []
        running = reader("first.state", first)
        await until(lambda: [one["partitions"] for one in sources(running)] == [partitions])
        other = reader("other.state", others)
        for number in range(30):
            at = number % partitions
            await asyncio.to_thread(kafka_brokers.write, topic, [b'{"n": 1}'], partition=at)
        with pytest.raises(CannotOpen, match="give this reader a group of its own"):
            await asyncio.wait_for(other.wait(), 120)
        await until(lambda: len(first) == 30)
        assert (first, others) == (list(range(1, 31)), [])
        await running.drain(10)

    asyncio.run(story())
