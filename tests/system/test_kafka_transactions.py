"""Exactly once from topic to topic, on real brokers, while readers are killed, frozen and join."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from penstock import adaptive_flat_map, group_by, read_kafka, spread, write_kafka
from penstock.streams.base.errors import PayloadTooLarge, StreamMissing
from tests.helpers.kafka.broker import HAS_KAFKA, Brokers
from tests.helpers.kafka.readers import PATIENCE, TRANSACTIONAL, Readers

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")

GROUP = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500}
CLIENTS, RATE = 100, 500.0


async def story(readers: Readers, seed: int, disturb: str, seconds: float = 0) -> None:
    drawn = random.Random(seed)
    readers.start("a", "b")
    await readers.until(lambda: {"a", "b"} <= {e.process for e in readers.entries()})
    writing = asyncio.create_task(readers.write(CLIENTS, RATE, 6))
    await readers.until(lambda: readers.begun("a") and readers.begun("b"))
    await asyncio.sleep(drawn.random() * 2)
    match disturb:
        case "kill":
            readers.kill("a")
            readers.start("c")
            await asyncio.sleep(2 + drawn.random())
            readers.kill("b")
        case "freeze":
            await readers.freeze_for("a", 5)
        case "storm":
            await readers.storm(drawn)
        case "broker":
            await readers.without_broker(drawn.randrange(readers.brokers.count), seconds)
        case other:
            raise AssertionError(other)
    await writing
    expected = expected_of(readers)
    async with asyncio.timeout(PATIENCE):
        while True:
            found, order = await asyncio.to_thread(results_of, readers)
            assert not found - expected, f"written more than once: {found - expected}"
            if found == expected:
                break
            await asyncio.sleep(1)
    left = ("c",) if disturb == "kill" else ("a", "b")
    for name in left:
        assert readers.is_there(name), readers.errors(name)
    assert all(seqs == sorted(seqs) for seqs in order.values())


def expected_of(readers: Readers) -> Counter[tuple[str, int, int]]:
    return Counter(
        (client, seq, part)
        for client, count in readers.sent.items()
        for seq in range(1, count + 1)
        for part in range(0 if seq % 5 == 0 else 1 + (seq % 7 == 0))
    )


def results_of(readers: Readers) -> tuple[Counter[tuple[str, int, int]], dict[str, list[int]]]:
    """What a reader of what is committed sees: how often each result, and those of a key in
    order."""
    found: Counter[tuple[str, int, int]] = Counter()
    order: dict[str, list[int]] = defaultdict(list)
    for record in readers.brokers.read(readers.results, 2):
        value = json.loads(record.value())
        found[value["client"], value["seq"], value["part"]] += 1
        order[value["client"]].append(value["seq"])
    return found, order


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("disturb", ["kill", "freeze", "storm"])
def test_every_result_is_committed_exactly_once_and_in_the_order_of_its_key(
    disturb: str, protocol: str, kafka_brokers: Brokers, tmp_path: Path, run_seed: int
) -> None:
    with Readers(kafka_brokers, tmp_path, pipeline=TRANSACTIONAL, protocol=protocol) as readers:
        asyncio.run(story(readers, run_seed, disturb))


# The brokers miss a dead one after 9 seconds, and abort a transaction after 3.
@pytest.mark.parametrize("seconds", [2, 15])
def test_nobody_ends_and_results_are_committed_exactly_once_when_a_broker_of_three_is_killed(
    seconds: float, three_kafka_brokers: Brokers, tmp_path: Path, run_seed: int
) -> None:
    with Readers(three_kafka_brokers, tmp_path, pipeline=TRANSACTIONAL) as readers:
        asyncio.run(story(readers, run_seed, "broker", seconds))


def test_results_are_committed_exactly_once_when_the_broker_is_away_for_half_a_minute(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, run_seed: int
) -> None:
    with (
        Brokers(tmp_path_factory.mktemp("kafka-away")) as brokers,
        Readers(brokers, tmp_path, pipeline=TRANSACTIONAL) as readers,
    ):
        asyncio.run(story(readers, run_seed, "broker", 30))


def numbers(count: int) -> list[bytes | None]:
    return [b'{"k": %d, "n": %d}' % (n % 7, n) for n in range(count)]


async def test_results_and_offsets_of_a_topic_are_committed(kafka_brokers: Brokers) -> None:
    source, target = kafka_brokers.topic(), kafka_brokers.topic(2)
    kafka_brokers.write(source, numbers(1000))

    async def work(value: dict[str, int]) -> dict[str, int]:
        await asyncio.sleep(0.001)
        return value

    sink = write_kafka(target, kafka_brokers.servers, key="k", transactional=True)
    report = await (
        read_kafka(source, "copy", kafka_brokers.servers, follow=False, config=GROUP)
        .pipe(group_by("k"), spread(), adaptive_flat_map(work))
        .to(sink)
        .run()
    )
    found = [json.loads(record.value())["n"] for record in kafka_brokers.read(target, 2)]
    assert sorted(found) == list(range(1000))
    assert kafka_brokers.committed(source, "copy") == (1000, "")
    assert report.statistics["stages"][-1]["aborted"] == 0


async def test_a_result_that_is_too_large_is_found_among_the_others(
    kafka_brokers: Brokers,
) -> None:
    source, target = kafka_brokers.topic(), kafka_brokers.topic(1, **{"max.message.bytes": "2000"})
    kafka_brokers.write(source, numbers(20))

    def work(value: dict[str, int]) -> dict[str, object]:
        return {**value, "more": "x" * 3000 * (value["n"] == 13)}

    def source_of(group: str, policy: object) -> object:
        sink = write_kafka(
            target,
            kafka_brokers.servers,
            transactional=True,
            on_error=policy,  # type: ignore[arg-type]
        )
        return (
            read_kafka(source, group, kafka_brokers.servers, follow=False, config=GROUP)
            .pipe(adaptive_flat_map(work))
            .to(sink)
            .run()
        )

    await source_of("skips", "skip")  # type: ignore[misc]
    found = [json.loads(record.value())["n"] for record in kafka_brokers.read(target, 1)]
    assert found == [n for n in range(20) if n != 13]
    assert kafka_brokers.committed(source, "skips") == (20, "")
    with pytest.raises(PayloadTooLarge):
        await source_of("stops", "stop")  # type: ignore[misc]
    assert kafka_brokers.committed(source, "stops")[0] <= 13


async def test_a_topic_to_write_to_that_is_not_there_is_named(kafka_brokers: Brokers) -> None:
    source = kafka_brokers.topic()
    kafka_brokers.write(source, numbers(5))
    sink = write_kafka("nowhere", kafka_brokers.servers, transactional=True)
    with pytest.raises(StreamMissing, match="nowhere"):
        await read_kafka(source, "g1", kafka_brokers.servers, config=GROUP).to(sink).run()
