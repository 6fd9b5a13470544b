"""Reading a topic of Kafka, beside a loop by hand on the same client and broker."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, Producer
from confluent_kafka.aio import AIOConsumer
from orjson import dumps, loads

from penstock import Fixed, adaptive_flat_map, for_each, group_by, read_kafka, spread, write_kafka
from penstock.streams.pipelines.pipeline import new_event_loop
from tests.helpers.kafka.broker import HAS_KAFKA, Brokers

__all__ = ["main"]

KEYS, PARTITIONS = 10_000, 6
# Calls at once, and the seconds of each.
LIMIT, SECONDS = 50, 0.01
SLOW, PLAIN = 15_000, 200_000
ROUNDS = 3


def filled(brokers: Brokers, count: int) -> str:
    """A topic with so many events, whose keys come in rotation."""
    topic = brokers.topic(PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": brokers.servers,
            "log_level": 0,
            "linger.ms": 20,
            "queue.buffering.max.messages": 2 * count,
        }
    )
    for n in range(count):
        producer.produce(topic, dumps({"key": n % KEYS, "n": n}), b"%d" % (n % KEYS))
        if n % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    return topic


def settings(brokers: Brokers) -> dict[str, Any]:
    return {
        "bootstrap.servers": brokers.servers,
        "group.id": uuid4().hex,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }


# Each returns the seconds from the first event to the last.


def in_a_blocking_loop(brokers: Brokers, topic: str, count: int) -> float:
    consumer = Consumer(settings(brokers))
    consumer.subscribe([topic])
    seen, sums, began = 0, 0, 0.0
    while seen < count:
        messages = consumer.consume(500, 1.0)
        if messages and not seen:
            began = time.perf_counter()
        for message in messages:
            sums += loads(message.value())["n"]
        seen += len(messages)
        consumer.commit()
    spent = time.perf_counter() - began
    consumer.close()
    return spent


async def in_an_asyncio_loop(brokers: Brokers, topic: str, count: int) -> float:
    consumer = AIOConsumer(settings(brokers), max_workers=3)
    await consumer.subscribe([topic])
    seen, sums, began = 0, 0, 0.0
    while seen < count:
        messages = await consumer.consume(500, timeout=1.0)
        if messages and not seen:
            began = time.perf_counter()
        for message in messages:
            sums += loads(message.value())["n"]
        seen += len(messages)
        await consumer.commit()
    spent = time.perf_counter() - began
    await consumer.close()
    return spent


async def by_penstock(
    brokers: Brokers, topic: str, count: int, pipe: Callable[[Any], Any], sink: Any
) -> float:
    seen, began, ended = 0, 0.0, asyncio.Event()

    def count_one(value: Any) -> Any:
        nonlocal seen, began
        if not seen:
            began = time.perf_counter()
        seen += 1
        if seen == count:
            ended.set()
        return value

    source = read_kafka(topic, uuid4().hex, brokers.servers)
    running = pipe(source).map(count_one).to(sink).start()
    await ended.wait()
    spent = time.perf_counter() - began
    await running.drain(20)
    return spent


async def concurrency(brokers: Brokers, topic: str, count: int, sink: Any, **limit: Any) -> float:
    """How many calls were in progress on average."""
    spent = 0.0
    first, last = 0.0, 0.0

    async def work(value: Any) -> Any:
        nonlocal spent, first, last
        began = time.perf_counter()
        first = first or began
        await asyncio.sleep(SECONDS)
        last = time.perf_counter()
        spent += last - began
        return value

    await by_penstock(
        brokers,
        topic,
        count,
        lambda source: source.pipe(group_by("key"), spread(), adaptive_flat_map(work, **limit)),
        sink,
    )
    return spent / (last - first)


def plain(value: Any) -> Any:
    return value


def run(work: Awaitable[float]) -> float:
    async def main() -> float:
        return await work

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main())


def rates(count: int, measure: Callable[[], float]) -> float:
    return median(count / measure() for _ in range(ROUNDS))


def main() -> None:
    if not HAS_KAFKA:
        sys.exit("needs Java 17 and Maven")
    with tempfile.TemporaryDirectory() as folder, Brokers(Path(folder)) as brokers:
        topic, out = filled(brokers, SLOW), brokers.topic(PARTITIONS)
        transactional = write_kafka(out, brokers.servers, key="key", transactional=True)
        sinks = {
            "to a function": for_each(plain),
            "to a topic": write_kafka(out, brokers.servers, key="key"),
            "to a topic, in transactions": transactional,
        }

        def at_once(sink: Any, **limit: Any) -> float:
            return median(
                run(concurrency(brokers, topic, SLOW, sink, **limit)) for _ in range(ROUNDS)
            )

        fixed = {name: at_once(sink, limit=Fixed(LIMIT)) for name, sink in sinks.items()}
        found = {name: at_once(sink) for name, sink in sinks.items()}
        print(f"{LIMIT} calls of {SECONDS * 1000:g} ms, {KEYS:,} keys, {PARTITIONS} partitions")
        for name, calls in fixed.items():
            print(f"  {name:<30} {calls / LIMIT:5.1%} of the calls that may run")
        print("the same with the limit that the stage finds by itself, as by default")
        for name, calls in found.items():
            print(f"  {name:<30} {calls:5.0f} calls at once, of {LIMIT} with the fixed limit")
        topic = filled(brokers, PLAIN)
        by_hand = rates(PLAIN, lambda: in_a_blocking_loop(brokers, topic, PLAIN))
        awaited = rates(PLAIN, lambda: run(in_an_asyncio_loop(brokers, topic, PLAIN)))
        ours = {
            "penstock, a plain handler": lambda source: source.pipe(adaptive_flat_map(plain)),
            "penstock, in order of the key": lambda source: source.pipe(
                group_by("key"), spread(), adaptive_flat_map(plain)
            ),
        }
        print(f"{PLAIN:,} events, plain handlers")
        print(f"  {'a blocking loop by hand':<30} {by_hand:10,.0f} events/s")
        print(f"  {'an asyncio loop by hand':<30} {awaited:10,.0f} events/s")
        for name, pipe in ours.items():
            rate = rates(
                PLAIN,
                lambda pipe=pipe: run(by_penstock(brokers, topic, PLAIN, pipe, for_each(plain))),
            )
            print(f"  {name:<30} {rate:10,.0f} events/s   {rate / awaited:.2f} of the asyncio loop")
