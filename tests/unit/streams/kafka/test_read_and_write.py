"""Topics as an ordinary source and an ordinary sink, on a cluster that speaks Kafka's protocol."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock import (
    KafkaRecord,
    Pipeline,
    adaptive_flat_map,
    collect,
    from_iterable,
    read_kafka,
    route,
    write_kafka,
)
from penstock.streams.base.errors import (
    BuildError,
    PayloadTooLarge,
    ProducerFailed,
    StreamMissing,
)
from tests.helpers.kafka.mock import Cluster, until
from tests.helpers.spans import Spans, identity, parent

# This cluster lets a member wait 3 seconds to join, and gives it up if its session is shorter.
GROUP = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}


def numbers(count: int, first: int = 0) -> list[bytes | None]:
    return [b'{"n": %d}' % n for n in range(first, first + count)]


def read(kafka: Cluster, topic: str, into: list[Any], **options: Any) -> Pipeline:
    return read_kafka(
        topic, f"of {topic}", kafka.servers, follow=False, config=GROUP, **options
    ).to(collect(into))


class Order(msgspec.Struct):
    n: int


# Building.


def test_options_that_cannot_be_meant_are_refused() -> None:
    for wrong in (
        lambda: read_kafka("", "g"),
        lambda: read_kafka([], "g"),
        lambda: read_kafka("t", ""),
        lambda: read_kafka("t", "g", "http://a b"),
        lambda: read_kafka("t", "g", ""),
        lambda: read_kafka("t", "g", handover=0),
        lambda: read_kafka("t", "g", since="last"),  # type: ignore[call-overload]
        lambda: read_kafka("t", "g", on_bad_record="drop"),  # type: ignore[call-overload]
        lambda: read_kafka("t", "g", config={"group.id": "other"}),
        lambda: write_kafka(""),
        lambda: write_kafka("t", window=0),
        lambda: write_kafka("t", config={"enable.idempotence": False}),
    ):
        with pytest.raises(BuildError):
            wrong()


@pytest.mark.parametrize(
    "name",
    [
        "auto.commit.enable",
        "auto.offset.reset",
        "bootstrap.servers",
        "delivery.report.only.error",
        "delivery.timeout.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "max.poll.interval.ms",
        "message.timeout.ms",
        "metadata.broker.list",
        "on_commit",
        "on_delivery",
        "partition.assignment.strategy",
        "transactional.id",
    ],
)
def test_settings_on_which_the_promises_depend_are_refused(name: str) -> None:
    for end in (
        lambda: read_kafka("t", "g", config={name: "1"}),
        lambda: write_kafka("t", config={name: "1"}),
        lambda: write_kafka("t", config={name: "1"}, transactional=True),
    ):
        with pytest.raises(BuildError, match="penstock sets this itself"):
            end()


@pytest.mark.parametrize("chosen", ["consistent_random", None])
async def test_keys_are_placed_by_the_partitioner_of_the_config(
    chosen: str | None, kafka: Cluster
) -> None:
    ours, others = kafka.topic(), kafka.topic()
    keys = [f"key {n}" for n in range(20)]
    config = {"partitioner": chosen} if chosen else {}
    writer = write_kafka(ours, kafka.servers, key="key", config=config)
    await from_iterable([{"key": key} for key in keys]).to(writer).run()
    for key in keys:
        # The client's own default.
        kafka.write(others, [b""], key=key.encode(), partition=-1)
    places = [
        {record.key(): record.partition() for record in kafka.read(topic)}
        for topic in (ours, others)
    ]
    assert places[0].keys() == places[1].keys() == {key.encode() for key in keys}
    assert (places[0] == places[1]) == (chosen is not None)


async def test_callbacks_of_the_client_may_be_plain_or_async(kafka: Cluster) -> None:
    topic = kafka.topic()
    kafka.write(topic, [b"{}"])
    plain: list[str] = []
    awaited: list[str] = []

    async def note(text: str) -> None:
        awaited.append(text)

    for callback, noted in ((plain.append, plain), (note, awaited)):
        config = {**GROUP, "stats_cb": callback, "statistics.interval.ms": 10}
        running = read_kafka(topic, "g", kafka.servers, config=config).to(collect([])).start()
        await until(lambda noted=noted: len(noted) >= 2)  # type: ignore[misc]
        await running.drain()


async def test_a_compression_to_write_that_the_client_does_not_know_is_named() -> None:
    sink = write_kafka("t", config={"compression.type": "brotli"})
    with pytest.raises(BuildError, match="brotli"):
        await from_iterable([1]).to(sink).run()


@pytest.mark.parametrize("end", ["source", "sink"])
async def test_a_setting_that_the_client_does_not_know_is_named(end: str) -> None:
    wrong = {"no.such.setting": 1}
    if end == "source":
        pipeline = read_kafka("t", "g", config=wrong).to(collect([]))
    else:
        pipeline = from_iterable([1]).to(write_kafka("t", config=wrong))
    with pytest.raises(BuildError, match=r"no\.such\.setting"):
        await pipeline.run()


# The sink.


async def test_events_are_finished_when_the_brokers_have_them(kafka: Cluster) -> None:
    topic = kafka.topic()
    values = [{"id": n % 7, "n": n} for n in range(3000)]
    sink = write_kafka(topic, kafka.servers, key="id", window=100)
    report = await from_iterable(values).to(sink).run()
    assert report.statistics["finished"] == 3000
    records = kafka.read(topic)
    assert sorted(json.loads(record.value())["n"] for record in records) == list(range(3000))
    places: dict[bytes, set[int]] = {}
    last: dict[bytes, int] = {}
    for record in records:
        places.setdefault(record.key(), set()).add(record.partition())
        n = json.loads(record.value())["n"]
        assert last.get(record.key(), -1) < n
        last[record.key()] = n
    assert set(places) == {b"%d" % n for n in range(7)}
    assert all(len(one) == 1 for one in places.values())


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, {None: 1}, [float("nan")], 1 << 64])
async def test_a_value_that_json_does_not_have_is_an_error_of_the_sink(
    kafka: Cluster, value: Any
) -> None:
    topic = kafka.topic()
    sink = write_kafka(topic, kafka.servers, on_error="skip")
    report = await from_iterable([value, {"n": 1}]).to(sink).run()
    assert (report.statistics["finished"], report.statistics["failed"]) == (1, 1)
    assert [record.value() for record in kafka.read(topic)] == [b'{"n":1}']


async def test_a_record_that_was_read_is_written_with_its_key_and_headers(kafka: Cluster) -> None:
    into = kafka.topic()
    record = KafkaRecord({"n": 1}, b"k", (("trace", b"1"),))
    tombstone = KafkaRecord(None, b"k")
    await from_iterable([record, tombstone]).to(write_kafka(into, kafka.servers)).run()
    first, second = kafka.read(into)
    assert (first.key(), first.value(), first.headers()) == (b"k", b'{"n":1}', [("trace", b"1")])
    assert (second.key(), second.value()) == (b"k", None)


async def test_the_context_of_a_trace_goes_with_a_record_to_who_reads_it(kafka: Cluster) -> None:
    topic, spans, seen = kafka.topic(), Spans(), list[Any]()
    sink = write_kafka(topic, kafka.servers, key=lambda value: str(value["n"]))
    written = from_iterable([{"n": 1}, {"n": 2}]).to(sink).start()
    written.trace(spans.provider)
    await written.wait()
    again = read(kafka, topic, seen).start()
    again.trace(spans.provider, sample=0)
    await again.wait()
    assert len(seen) == 2
    sent, came = spans.named("event of from_iterable"), spans.named("event of read_kafka")
    assert {parent(span) for span in came} == {identity(span) for span in sent}
    assert [parent(span) for span in sent] == [None, None]
    called = [parent(span) for span in spans.named("write_kafka <lambda>")]
    assert called == [identity(span) for span in sent]


async def test_bytes_are_written_as_they_are_to_a_topic_by_the_value(kafka: Cluster) -> None:
    one, two = kafka.topic(), kafka.topic()
    sink = write_kafka(lambda value: one if value < b"m" else two, kafka.servers)
    await from_iterable([b"a", b"z"]).to(sink).run()
    assert [record.value() for record in kafka.read(one)] == [b"a"]
    assert [record.value() for record in kafka.read(two)] == [b"z"]


async def test_a_topic_to_write_to_that_is_not_there_ends_the_pipeline(kafka: Cluster) -> None:
    sink = write_kafka("nowhere", kafka.servers)
    with pytest.raises(StreamMissing, match=r"write_kafka\('nowhere'\): there is no such topic"):
        await from_iterable(range(3)).to(sink).run()


async def test_a_record_that_is_too_large_fails_its_event_only(kafka: Cluster) -> None:
    topic = kafka.topic()
    sink = write_kafka(topic, kafka.servers, on_error="skip", config={"message.max.bytes": 2000})
    report = await from_iterable([b"a", b"b" * 3000, b"c"]).to(sink).run()
    assert sorted(record.value() for record in kafka.read(topic)) == [b"a", b"c"]
    assert report.statistics["failed"] == 1
    with pytest.raises(PayloadTooLarge, match=r"raise message\.max\.bytes"):
        await (
            from_iterable([b"b" * 3000])
            .to(write_kafka(topic, kafka.servers, config={"message.max.bytes": 2000}))
            .run()
        )


@pytest.mark.parametrize("when", ["in the answer", "at once"])
async def test_a_producer_that_can_write_nothing_more_ends_the_pipeline(when: str) -> None:
    class Broken:
        answers: ClassVar[list[Any]] = []

        def produce(self, *_: Any, on_delivery: Any, **__: Any) -> None:
            fault = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order", True)
            if when == "at once":
                raise KafkaException(KafkaError(KafkaError._FATAL, "out of order"))
            self.answers.append(partial(on_delivery, fault, None))

        def poll(self, timeout: float) -> int:
            while self.answers:
                self.answers.pop()()
            return 0

        def list_topics(self, **_: Any) -> Any:
            return SimpleNamespace(topics={})

        def purge(self) -> None: ...

    letters: list[Any] = []
    with patch("penstock.sinks.kafka.producer_of", lambda *_, **__: Broken()):
        sink = write_kafka("out", on_error=route(collect(letters)))
        running = from_iterable(range(100)).to(sink).start()
        with pytest.raises(ProducerFailed, match="Start the pipeline again"):
            await running.wait()
    assert letters == []
    assert running.statistics()["returned"] + running.statistics()["failed"] >= 1


async def test_what_is_not_stored_yet_is_returned_on_a_cancel(kafka: Cluster) -> None:
    topic = kafka.topic()
    slow = {"linger.ms": 30_000, "batch.num.messages": 100_000}
    running = from_iterable(range(10)).to(write_kafka(topic, kafka.servers, config=slow)).start()
    await asyncio.sleep(0.05)
    running.cancel()
    report = await running.wait()
    assert report.statistics["returned"] == 10


# The source.


async def test_a_topic_without_a_single_object_is_read_to_its_end(kafka: Cluster) -> None:
    topic, seen = kafka.topic(), list[Any]()
    kafka.write(topic, [b"3", b"[]", b"no JSON"])
    report = await read(kafka, topic, seen).run()
    assert (report.outcome, seen) == ("completed", [])
    assert report.statistics["bad_lines"] == 3
    assert kafka.committed(topic, f"of {topic}") == (3, "")


async def test_letters_are_records_of_json(kafka: Cluster) -> None:
    def fail(value: int) -> int:
        raise ValueError(f"no {value}")

    topic = kafka.topic()
    refused = route(write_kafka(topic, kafka.servers))
    stream = from_iterable([7]).pipe(adaptive_flat_map(fail, on_error=refused))
    await stream.to(collect([])).run()
    letters: list[dict[str, Any]] = []
    await read(kafka, topic, letters).run()
    found = [(one["value"], one["error"], one["message"]) for one in letters]
    assert found == [(7, "ValueError", "no 7")]
