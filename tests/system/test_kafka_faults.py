"""Faults of readers and brokers while five hundred events per second come for 100 keys."""

from __future__ import annotations

import asyncio
import json
import random
from math import inf
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from penstock import (
    Fixed,
    KafkaRecord,
    Running,
    adaptive_flat_map,
    collect,
    from_iterable,
    group_by,
    read_kafka,
    spread,
    write_kafka,
)
from penstock.streams.base.errors import StreamMissing
from tests.helpers.kafka.broker import HAS_KAFKA, Brokers
from tests.helpers.kafka.metadata import finished_beside
from tests.helpers.kafka.mock import until
from tests.helpers.kafka.readers import SLOW, Readers
from tests.helpers.system.checker import Verdict
from tests.helpers.system.log import Entry

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")

CLIENTS, RATE = 100, 500.0
GROUP = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500}


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
            await readers.freeze_for("a", 5)
        case "storm":
            await readers.storm(drawn)
        case "broker":
            await readers.without_broker(drawn.randrange(3), 2)
        case "away":
            await readers.without_broker(0, 30)
        case "grow":
            admin: Any = AdminClient({"bootstrap.servers": readers.brokers.servers, "log_level": 0})
            admin.create_partitions([NewPartitions(readers.topic, 9)])[readers.topic].result(30)
        case other:
            raise AssertionError(other)
    await writing
    return await readers.until_all_arrived()


def uncommitted(entries: list[Entry]) -> int:
    """Arrivals that readers which are gone may not have committed: those of their last seconds.

    A commit is due a second after the one before, and takes its time while members join.
    """
    gone = {entry.process: entry.at for entry in entries if entry.what == "gone"}
    return sum(
        entry.what == "sink" and entry.at > gone.get(entry.process, inf) - 3.0 for entry in entries
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("disturb", ["kill", "leave", "join", "storm"])
def test_nothing_is_lost_or_misordered_when_readers_come_and_go(
    disturb: str, protocol: str, kafka_brokers: Brokers, tmp_path: Path, run_seed: int
) -> None:
    with Readers(kafka_brokers, tmp_path, protocol=protocol) as readers:
        verdict = asyncio.run(story(readers, run_seed, disturb))
        assert (verdict.misordered, verdict.overlaps) == ([], [])
        if disturb in ("leave", "join"):
            assert verdict.repeated == 0
        else:
            assert verdict.repeated <= uncommitted(readers.entries())
        if disturb == "leave":
            assert readers.status("a") == 4


def test_a_killed_reader_has_committed_all_but_its_last_seconds_and_none_of_it_is_repeated(
    kafka_brokers: Brokers, tmp_path: Path, run_seed: int
) -> None:
    drawn = random.Random(run_seed)

    async def story(readers: Readers) -> list[tuple[int, str]]:
        """What was committed for each partition when a reader was killed."""
        readers.start("a", "b")
        await readers.until(lambda: {"a", "b"} <= {e.process for e in readers.entries()})
        writing = asyncio.create_task(readers.write(CLIENTS, RATE, 6))
        await readers.until(lambda: len(arrived_before(readers.entries())) > 100)
        await asyncio.sleep(drawn.random())
        readers.kill(starts_of(readers.entries(), "c0")[-1].process)
        # Before the brokers give up the killed one.
        committed = [readers.brokers.committed(readers.topic, readers.topic, n) for n in range(6)]
        await writing
        await readers.until_all_arrived()
        return committed

    with Readers(kafka_brokers, tmp_path, pipeline=SLOW) as readers:
        committed = asyncio.run(story(readers))
        finished: set[tuple[str, int]] = set()
        for record in kafka_brokers.read(readers.topic, 6):
            floor, text = committed[record.partition() or 0]
            offset, value = record.offset(), json.loads(record.value())
            if offset < floor or any(b <= offset < e for b, e in finished_beside(floor, text)):
                finished.add((value["client"], value["seq"]))
        entries, verdict = readers.entries(), readers.verdict()
    assert arrived_before(entries) <= finished
    assert {event for event, count in verdict.sunk.items() if count > 1} & finished == set()


def arrived_before(entries: list[Entry]) -> set[tuple[str, int]]:
    """What arrived from the reader that has the slow client more than three seconds before its end,
    or before now."""
    process = next((one.process for one in reversed(starts_of(entries, "c0"))), "")
    gone = [entry for entry in entries if entry.what == "gone"]
    if gone:
        process = gone[0].process
    end = gone[0].at if gone else entries[-1].at if entries else 0.0
    return {
        (entry.client, entry.seq)
        for entry in entries
        if (entry.what, entry.process) == ("sink", process) and entry.at < end - 3
    }


def starts_of(entries: list[Entry], client: str) -> list[Entry]:
    return [entry for entry in entries if (entry.what, entry.client) == ("start", client)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_frozen_reader_begins_nothing_of_what_it_has_lost(
    protocol: str, kafka_brokers: Brokers, tmp_path: Path, run_seed: int
) -> None:
    with Readers(kafka_brokers, tmp_path, protocol=protocol) as readers:
        verdict = asyncio.run(story(readers, run_seed, "freeze"))
        assert (verdict.misordered, verdict.overlaps_awake()) == ([], [])


def test_a_broker_of_three_is_killed_and_nothing_is_lost(
    three_kafka_brokers: Brokers, tmp_path: Path, run_seed: int
) -> None:
    with Readers(three_kafka_brokers, tmp_path) as readers:
        verdict = asyncio.run(story(readers, run_seed, "broker"))
        assert (verdict.misordered, verdict.overlaps_awake()) == ([], [])


def test_a_broker_that_is_away_for_half_a_minute_loses_nothing(
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


# Faults of what is stored, beside one reader in this process.


async def copied(brokers: Brokers, source: str, target: str, **config: object) -> list[Any]:
    """The values in `target` after a pipeline has copied `source` into it."""
    await (
        read_kafka(source, f"of {source}", brokers.servers, follow=False, config=GROUP)
        .pipe(adaptive_flat_map(lambda value: value))
        .to(write_kafka(target, brokers.servers, key="n", config=config))
        .run()
    )
    return [json.loads(record.value()) for record in brokers.read(target, 1)]


async def test_records_of_a_megabyte_are_read_and_written(kafka_brokers: Brokers) -> None:
    large = {"max.message.bytes": "3000000"}
    source, target = kafka_brokers.topic(1, **large), kafka_brokers.topic(1, **large)
    values = [{"n": n, "text": "x" * 1_000_000} for n in range(40)]
    size = {"message.max.bytes": 2_000_000}
    await from_iterable(values).to(write_kafka(source, kafka_brokers.servers, config=size)).run()
    assert await copied(kafka_brokers, source, target, **size) == values


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_records_are_read_however_they_are_compressed(
    codec: str, kafka_brokers: Brokers
) -> None:
    source, target = kafka_brokers.topic(), kafka_brokers.topic()
    values = [{"n": n, "text": "x" * 100} for n in range(1000)]
    packed = {"compression.type": codec}
    await from_iterable(values).to(write_kafka(source, kafka_brokers.servers, config=packed)).run()
    assert await copied(kafka_brokers, source, target, **packed) == values


async def test_a_topic_that_is_compacted_while_it_is_read_and_written(
    kafka_brokers: Brokers,
) -> None:
    quick = {
        "cleanup.policy": "compact",
        "segment.ms": "300",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "500",
    }
    topic = kafka_brokers.topic(1, **quick)
    written: dict[str, list[int | None]] = {}
    seen: dict[str, list[int | None]] = {}

    async def write(rounds: range) -> None:
        for number in rounds:
            for key in range(50):
                # Every tenth is deleted, and written again in the next round.
                value = None if (key + number) % 10 == 0 else number
                written.setdefault(f"k{key}", []).append(value)
                batch.append((f"k{key}", None if value is None else b'{"n": %d}' % value))
            await asyncio.to_thread(flush)
            await asyncio.sleep(0.05)

    batch: list[tuple[str, bytes | None]] = []

    def flush() -> None:
        producer = Producer({"bootstrap.servers": kafka_brokers.servers, "log_level": 0})
        for key, body in batch:
            producer.produce(topic, body, key, partition=0)
        batch.clear()
        assert producer.flush(30) == 0

    async def work(record: KafkaRecord[Any]) -> None:
        await asyncio.sleep(0.001)
        value = None if record.value is None else record.value["n"]
        seen.setdefault((record.key or b"").decode(), []).append(value)

    await write(range(40))
    # Until the first rounds are compacted away.
    async with asyncio.timeout(60):
        while len(await asyncio.to_thread(kafka_brokers.read, topic, 1)) > 1500:
            await write(range(40, 41))
            await asyncio.sleep(0.5)
    running = (
        read_kafka(topic, "compacted", kafka_brokers.servers, records=True, config=GROUP)
        .pipe(group_by("key"), spread(), adaptive_flat_map(work))
        .to(collect([]))
        .start()
    )
    await write(range(41, 81))
    await until(lambda: all(seen.get(key, [])[-1:] == [ns[-1]] for key, ns in written.items()))
    # Some are gone, and those of a key come in their order.
    assert sum(map(len, seen.values())) < sum(map(len, written.values()))
    for key, ns in seen.items():
        rest = iter(written[key])
        assert all(n in rest for n in ns), key
    report = await running.drain(5)
    assert report.statistics["finished"] == report.statistics["in"]


async def test_a_topic_that_is_deleted_while_it_is_read_is_named_and_its_events_counted(
    kafka_brokers: Brokers,
) -> None:
    topic = kafka_brokers.topic(2)
    kafka_brokers.write(topic, [b'{"n": %d}' % n for n in range(50)])
    begun = 0

    async def hang(value: Any) -> None:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()

    # A client looks for changes of topics so often.
    config = GROUP | {"topic.metadata.refresh.interval.ms": 1000}
    running = (
        read_kafka(topic, "deleted", kafka_brokers.servers, handover=5, config=config)
        .pipe(adaptive_flat_map(hang, limit=Fixed(7)))
        .to(collect([]))
        .start(drain_deadline=1)
    )
    await until(lambda: begun == 7)
    admin: Any = AdminClient({"bootstrap.servers": kafka_brokers.servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    with pytest.raises(StreamMissing, match=f"read_kafka\\('{topic}'\\): there is no such topic"):
        await asyncio.wait_for(running.wait(), 60)
    statistics = running.statistics()
    assert statistics["in"] == statistics["returned"] == 7


async def test_readers_go_on_when_one_with_the_other_protocol_joins(
    kafka_brokers: Brokers,
) -> None:
    topic = kafka_brokers.topic(6)
    seen: list[Any] = []

    def reader(name: str, protocol: str) -> Running:
        config: dict[str, Any] = {"client.id": name, "group.protocol": protocol}
        if protocol == "classic":
            config |= GROUP
        source = read_kafka(topic, "mixed", kafka_brokers.servers, config=config)
        return source.to(collect(seen)).start()

    classic = [reader("a", "classic"), reader("b", "classic")]
    await until(lambda: len(kafka_brokers.assigned("mixed")) == 2)
    other = reader("c", "consumer")
    kafka_brokers.write(topic, [b'{"n": %d}' % n for n in range(500)])
    await until(lambda: {value["n"] for value in seen} == set(range(500)))
    # Brokers take both at once, or say that they do not.
    (ended,) = await asyncio.gather(other.drain(5), return_exceptions=True)
    if isinstance(ended, BaseException):
        assert "Stop them before you change group.protocol" in str(ended)
    for running in classic:
        await running.drain(5)
