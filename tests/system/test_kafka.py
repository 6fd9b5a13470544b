"""Topics as an ordinary source and an ordinary sink, on a real broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock import (
    Fixed,
    KafkaRecord,
    Pipeline,
    Running,
    adaptive_flat_map,
    collect,
    dead_letters,
    group_by,
    read_kafka,
    retry,
    route,
    spread,
    write_kafka,
)
from penstock.streams.base.errors import (
    BadLine,
    CannotConnect,
    StreamMissing,
)
from tests.helpers.kafka.broker import HAS_KAFKA, Brokers
from tests.helpers.kafka.metadata import finished_beside
from tests.helpers.kafka.mock import until

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")

# Members that do not answer are given up soon.
GROUP = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500}


@pytest.fixture
def kafka(kafka_brokers: Brokers) -> Brokers:
    return kafka_brokers


def numbers(count: int, first: int = 0) -> list[bytes | None]:
    return [b'{"n": %d}' % n for n in range(first, first + count)]


def read(kafka: Brokers, topic: str, into: list[Any], **options: Any) -> Pipeline:
    return read_kafka(
        topic, f"of {topic}", kafka.servers, follow=False, config=GROUP, **options
    ).to(collect(into))


class Order(msgspec.Struct):
    n: int


async def test_the_next_reader_begins_behind_what_is_finished(kafka: Brokers) -> None:
    topic = kafka.topic()
    seen: list[Any] = []
    kafka.write(topic, numbers(5))
    await read(kafka, topic, seen).run()
    kafka.write(topic, numbers(2, 5))
    await read(kafka, topic, seen).run()
    assert [value["n"] for value in seen] == list(range(7))
    assert kafka.committed(topic, f"of {topic}") == (7, "")


async def test_partitions_are_read_in_the_order_of_each(kafka: Brokers) -> None:
    topic = kafka.topic(3)
    for partition in range(3):
        kafka.write(topic, numbers(50, 100 * partition), partition=partition)
    seen: list[Any] = []
    await read(kafka, topic, seen).run()
    found = [value["n"] for value in seen]
    assert sorted(found) == [100 * p + n for p in range(3) for n in range(50)]
    for partition in range(3):
        part = [n for n in found if n // 100 == partition]
        assert part == sorted(part)


async def test_a_restart_repeats_only_what_was_in_flight(kafka: Brokers) -> None:
    topic = kafka.topic()
    kafka.write(topic, numbers(100))
    stuck = asyncio.Event()

    async def work(value: dict[str, int]) -> int:
        if value["n"] in (3, 50):
            await stuck.wait()
        return value["n"]

    def pipeline(into: list[int]) -> Pipeline:
        return (
            read_kafka(topic, "restarts", kafka.servers, follow=False, config=GROUP)
            .pipe(group_by("n"), spread(), adaptive_flat_map(work, limit=Fixed(8)))
            .to(collect(into))
        )

    first: list[int] = []
    running = pipeline(first).start()
    await until(lambda: len(first) == 98)
    await until(lambda: kafka.committed(topic, "restarts")[0] == 3)
    running.cancel()
    await running.wait()
    floor, text = kafka.committed(topic, "restarts")
    assert (floor, finished_beside(floor, text)) == (3, [(4, 50), (51, 100)])
    stuck.set()
    second: list[int] = []
    report = await pipeline(second).run()
    assert sorted(second) == [3, 50]
    assert report.statistics["stages"][0]["known"] == 95
    assert kafka.committed(topic, "restarts") == (100, "")


async def test_an_event_that_fails_for_good_does_not_hold_the_floor(
    kafka: Brokers, tmp_path: Path
) -> None:
    topic = kafka.topic()
    kafka.write(topic, numbers(20))

    def work(value: dict[str, int]) -> int:
        if value["n"] == 4:
            raise ValueError("poison")
        return value["n"]

    letters = tmp_path / "letters.jsonl"
    policy = retry(2, then=route(dead_letters(str(letters))))
    seen: list[int] = []
    report = await (
        read_kafka(topic, "poison", kafka.servers, follow=False, config=GROUP)
        .pipe(adaptive_flat_map(work, on_error=policy))
        .to(collect(seen))
        .run()
    )
    assert seen == [n for n in range(20) if n != 4]
    assert json.loads(letters.read_text())["value"] == {"n": 4}
    assert kafka.committed(topic, "poison") == (20, "")
    assert report.exit_status == 3


async def test_records_have_their_key_their_headers_and_their_place(kafka: Brokers) -> None:
    topic = kafka.topic(2)
    kafka.write(topic, [b'{"n": 1}'], partition=1, key=b"k", headers=[("a", b"1"), ("a", None)])
    seen: list[Any] = []
    await read(kafka, topic, seen, records=True).run()
    (found,) = seen
    assert found.timestamp > 1e9
    place = KafkaRecord({"n": 1}, b"k", (("a", b"1"), ("a", None)), topic, 1, 0, found.timestamp)
    assert found == place


async def test_a_tombstone_is_a_record_without_a_value_or_else_dropped_and_counted(
    kafka: Brokers,
) -> None:
    topic = kafka.topic()
    kafka.write(topic, [b'{"n": 1}', None], key=b"k")
    records: list[Any] = []
    values: list[Any] = []
    await read(kafka, topic, records, records=True).run()
    report = await (
        read_kafka(topic, "values", kafka.servers, follow=False, config=GROUP)
        .to(collect(values))
        .run()
    )
    assert [record.value for record in records] == [{"n": 1}, None]
    assert values == [{"n": 1}]
    assert report.statistics["dropped"] == {"tombstone": 1}
    assert kafka.committed(topic, "values") == (2, "")


async def test_values_are_decoded_as_the_user_says(kafka: Brokers) -> None:
    topic = kafka.topic()
    kafka.write(topic, [b'{"n": 1}', b"x"])
    seen: list[Any] = []
    report = await read(kafka, topic, seen, decode=Order).run()
    assert (seen, report.statistics["bad_lines"]) == ([Order(1)], 1)


@pytest.mark.parametrize(
    ("value", "what"), [(b"nonsense", "is not valid JSON"), (b"[1]", "is JSON, but not an object")]
)
async def test_a_bad_record_ends_the_stream_only_if_that_is_asked_for(
    kafka: Brokers, value: bytes, what: str
) -> None:
    topic = kafka.topic()
    kafka.write(topic, [*numbers(1), value, *numbers(1, 1)])
    seen: list[Any] = []
    with pytest.raises(BadLine, match=f"record 1 of {topic}, partition 0 {what}"):
        await read(kafka, topic, seen, on_bad_record="stop").run()
    assert seen == [{"n": 0}]
    # It is read again by the next reader, which reports it.
    report = await read(kafka, topic, seen).run()
    assert (seen, report.statistics["bad_lines"]) == ([{"n": 0}, {"n": 1}], 1)


async def test_a_bad_record_may_go_to_the_dead_letters(kafka: Brokers, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.write(topic, [*numbers(1), b"nonsense", *numbers(1, 1)])
    letters = tmp_path / "letters.jsonl"
    seen: list[Any] = []
    sink = dead_letters(str(letters))
    await read(kafka, topic, seen, on_bad_record=route(sink)).run()
    assert seen == [{"n": 0}, {"n": 1}]
    assert json.loads(letters.read_text())["value"] == "nonsense"
    assert kafka.committed(topic, f"of {topic}") == (3, "")


async def test_only_as_many_records_are_taken_as_there_is_demand_for(kafka: Brokers) -> None:
    topic = kafka.topic()
    kafka.write(topic, numbers(500))
    begun = 0
    stuck = asyncio.Event()

    async def work(value: dict[str, int]) -> None:
        nonlocal begun
        begun += 1
        await stuck.wait()

    running = (
        read_kafka(topic, "demand", kafka.servers, config=GROUP)
        .pipe(adaptive_flat_map(work, limit=Fixed(3)))
        .to(collect([]))
        .start()
    )
    await until(lambda: begun == 3)
    # Longer than partitions stay unpaused without demand.
    await asyncio.sleep(1)
    assert running.statistics()["in"] == 3
    stuck.set()
    await until(lambda: begun == 500)
    await running.drain(5)
    assert kafka.committed(topic, "demand") == (500, "")


async def test_a_topic_that_is_not_there_is_named(kafka: Brokers) -> None:
    with pytest.raises(StreamMissing, match=r"read_kafka\('nowhere'\): there is no such topic on"):
        await read_kafka("nowhere", "g", kafka.servers, config=GROUP).to(collect([])).run()


async def test_brokers_that_do_not_answer_are_named() -> None:
    quick = {"socket.connection.setup.timeout.ms": 1000}
    with pytest.raises(CannotConnect, match=r"no Kafka broker answers at 127\.0\.0\.1:1"):
        await read_kafka("t", "g", "127.0.0.1:1", config=quick).to(collect([])).run()


async def test_a_pipeline_from_topic_to_topic_keeps_the_order_of_keys(kafka: Brokers) -> None:
    source, target = kafka.topic(2), kafka.topic(2)
    for n in range(300):
        kafka.write(
            source, [b'{"k": %d, "n": %d}' % (n % 5, n)], partition=n % 5 % 2, key=b"%d" % (n % 5)
        )

    async def work(value: dict[str, int]) -> dict[str, int]:
        await asyncio.sleep(0.0001 * (value["n"] % 3))
        return value

    await (
        read_kafka(source, "copy", kafka.servers, follow=False, config=GROUP)
        .pipe(group_by("k"), spread(), adaptive_flat_map(work))
        .to(write_kafka(target, kafka.servers, key="k"))
        .run()
    )
    found: dict[int, list[int]] = {}
    for record in kafka.read(target, 2):
        value = json.loads(record.value())
        found.setdefault(value["k"], []).append(value["n"])
    assert {k: sorted(v) for k, v in found.items()} == found
    assert sum(map(len, found.values())) == 300


async def test_a_group_changes_its_protocol_while_no_reader_of_it_runs(kafka: Brokers) -> None:
    topic = kafka.topic()
    seen: list[Any] = []
    for number, protocol in enumerate(["classic", "consumer", "classic"]):
        kafka.write(topic, numbers(3, 3 * number))
        config = {**(GROUP if protocol == "classic" else {}), "group.protocol": protocol}
        source = read_kafka(topic, f"of {topic}", kafka.servers, follow=False, config=config)
        await asyncio.wait_for(source.to(collect(seen)).run(), 60)
    assert [value["n"] for value in seen] == list(range(9))


async def test_a_reader_begins_where_an_administrator_has_put_its_group(kafka: Brokers) -> None:
    topic = kafka.topic()
    seen: list[Any] = []
    kafka.write(topic, numbers(5))
    await read(kafka, topic, seen).run()
    admin: Any = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
    place = ConsumerGroupTopicPartitions(f"of {topic}", [TopicPartition(topic, 0, 2)])
    for answer in admin.alter_consumer_group_offsets([place]).values():
        await asyncio.wrap_future(answer)
    await read(kafka, topic, seen).run()
    assert [value["n"] for value in seen] == [0, 1, 2, 3, 4, 2, 3, 4]


async def test_a_static_member_keeps_its_partitions_while_it_restarts(kafka: Brokers) -> None:
    topic = kafka.topic(2)

    def start(name: str) -> tuple[Running, list[Any]]:
        seen: list[Any] = []
        config = {"group.instance.id": name, "session.timeout.ms": 20_000}
        source = read_kafka(topic, f"of {topic}", kafka.servers, config=config)
        return source.to(collect(seen)).start(), seen

    def partitions(running: Running) -> int:
        return sum(stage["partitions"] for stage in running.statistics()["stages"][:1])

    (one, _), (two, _) = start("one"), start("two")
    await until(lambda: partitions(one) == partitions(two) == 1)
    await one.drain(10)
    await asyncio.sleep(3)
    assert partitions(two) == 1
    one, seen = start("one")
    await until(lambda: partitions(one) == 1)
    for partition in (0, 1):
        kafka.write(topic, numbers(3), partition=partition)
    await until(lambda: len(seen) == 3)
    for running in (one, two):
        await running.drain(10)
