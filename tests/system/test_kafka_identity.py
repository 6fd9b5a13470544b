"""A record of Kafka is the same event for each reader, and none of a topic made again is."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from itertools import groupby, pairwise

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock import read_kafka
from tests.helpers.identified import Found, identified
from tests.helpers.kafka.broker import HAS_KAFKA, Brokers

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")

GROUP = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500}

KILLED = """
import asyncio, sys
from penstock import adaptive_flat_map, Fixed, read_kafka
from tests.helpers.identified import identified

class Printed(list):
    def append(self, found):
        print(f"{found[0]} {found[1]}\\n", end="", flush=True)

async def handler(record):
    await asyncio.sleep(0.002)
    return record["n"]

topic, servers = sys.argv[1:]
group = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500}
records = read_kafka(topic, "readers", servers, follow=False, config=group)
asyncio.run(records.pipe(adaptive_flat_map(handler, Fixed(4))).to(identified(Printed())).run())
"""


def test_a_record_has_one_identity_whenever_its_reader_is_killed(kafka_brokers: Brokers) -> None:
    topic = kafka_brokers.topic()
    kafka_brokers.write(topic, [b'{"n": %d}' % n for n in range(60)])
    seen: dict[int, set[str]] = {}
    for until in (5, 11, 1000):
        command = [sys.executable, "-c", KILLED, topic, kafka_brokers.servers]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            for count, entry in enumerate(reader.stdout):
                number, identity = entry.split()
                seen.setdefault(int(number), set()).add(identity)
                if count == until:
                    reader.kill()
    generation = next(iter(seen[0])).rpartition(":")[0]
    assert generation.startswith(f"{topic}/0@")
    assert seen == {n: {f"{generation}:{n}"} for n in range(60)}


async def read(brokers: Brokers, topic: str, group: str) -> Found:
    found: Found = []
    records = read_kafka(topic, group, brokers.servers, follow=False, config=GROUP)
    await records.to(identified(found)).run()
    return found


async def test_records_are_in_order_and_those_of_a_topic_that_was_made_again_are_others(
    kafka_brokers: Brokers,
) -> None:
    topic = kafka_brokers.topic(2)

    def fill() -> None:
        for partition in range(2):
            values = [b'{"n": %d}' % n for n in range(9)]
            kafka_brokers.write(topic, values, partition=partition)

    def again() -> None:
        admin = AdminClient({"bootstrap.servers": kafka_brokers.servers, "log_level": 0})
        admin.delete_topics([topic])[topic].result(30)
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)

    await asyncio.to_thread(fill)
    first = await read(kafka_brokers, topic, "one")
    await asyncio.to_thread(again)
    await asyncio.to_thread(fill)
    second = await read(kafka_brokers, topic, "other")
    for found in (first, second):
        assert len({one for _, one in found}) == 18
        ordered = sorted(found, key=lambda each: each[1].partition)
        for _, part in groupby(ordered, lambda each: each[1].partition):
            assert all(one < other for (_, one), (_, other) in pairwise(part))
    assert {(one.partition, one.sequence) for _, one in first} == {
        (one.partition, one.sequence) for _, one in second
    }
    assert not {one for _, one in first} & {one for _, one in second}
