"""What sources of stored events have in common: the same tests over Kafka, JetStream and tables.

Topics are topics of a broker, streams of a server, or tables of a database. In each, one key is
busy and many are idle.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from nats.js.api import StreamConfig
from orjson import dumps

from penstock import (
    Fixed,
    Flowable,
    Pipeline,
    adaptive_flat_map,
    collect,
    for_each,
    group_by,
    ops,
    read_jetstream,
    read_kafka,
    read_table,
    spread,
)
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.server import Servers
from penstock.streams.sql_queue import open_store
from tests.helpers.kafka.broker import HAS_KAFKA, Brokers
from tests.helpers.kafka.mock import until

Event = dict[str, Any]


class Stored(Protocol):
    """A place with topics. `in_order`: what was returned comes again in the order of its key."""

    in_order: bool

    async def make(self, topic: str) -> None: ...
    async def write(self, topic: str, events: Sequence[Event]) -> None: ...
    def read(self, topic: str, *, follow: bool = False) -> Flowable[Event]: ...


class InKafka:
    in_order = True

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._topics: dict[str, str] = {}

    async def make(self, topic: str) -> None:
        self._topics[topic] = await asyncio.to_thread(self._brokers.topic, 3)

    async def write(self, topic: str, events: Sequence[Event]) -> None:
        def write() -> None:
            for event in events:
                at = {"key": event["key"], "partition": -1}
                self._brokers.write(self._topics[topic], [dumps(event)], **at)

        await asyncio.to_thread(write)

    def read(self, topic: str, *, follow: bool = False) -> Flowable[Event]:
        group = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500}
        name = self._topics[topic]
        return read_kafka(name, name, self._brokers.servers, follow=follow, config=group)


class InJetStream:
    # It delivers again whatever was returned first.
    in_order = False

    def __init__(self, urls: Sequence[str], js: Any) -> None:
        self._urls, self._js = urls, js

    async def make(self, topic: str) -> None:
        await self._js.add_stream(StreamConfig(name=topic, subjects=[f"{topic}.>"]))

    async def write(self, topic: str, events: Sequence[Event]) -> None:
        for event in events:
            await self._js.publish(f"{topic}.{event['key']}", dumps(event))

    def read(self, topic: str, *, follow: bool = False) -> Flowable[Event]:
        return read_jetstream(topic, "reader", self._urls, follow=follow, lease=5)


class InTables:
    in_order = True

    def __init__(self, file: Path) -> None:
        self._url = f"sqlite:///{file}"

    async def make(self, topic: str) -> None:
        await self.write(topic, [])

    async def write(self, topic: str, events: Sequence[Event]) -> None:
        store = open_store(self._url, topic)
        await store.open()
        await store.put([dumps(event) for event in events])
        await store.close()

    def read(self, topic: str, *, follow: bool = False) -> Flowable[Event]:
        return read_table(self._url, topic, by="key", follow=follow, poll=0.05, lease=5)


@pytest.fixture(params=["kafka", "jetstream", "table"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """`async with place(...) as stored:`, with these topics."""
    if request.param == "kafka" and not HAS_KAFKA:
        pytest.skip("there is no Java 17 with Maven")
    needs = {"kafka": "kafka_brokers", "jetstream": "server"}
    server: Any = request.getfixturevalue(needs[request.param]) if request.param in needs else None

    @asynccontextmanager
    async def made(*topics: str) -> AsyncGenerator[Stored, None]:
        if not isinstance(server, Servers):
            stored = InTables(tmp_path / "work.db") if server is None else InKafka(server)
            for topic in topics:
                await stored.make(topic)
            yield stored
            return
        client = await connect(server.urls)
        try:
            streams = jetstream(client)
            stored = InJetStream(server.urls, streams)
            for topic in topics:
                await stored.make(topic)
            yield stored
            for topic in topics:
                await streams.delete_stream(topic)
        finally:
            await client.close()

    return made


def events_of(topic: str, drawn: random.Random, count: int) -> list[Event]:
    """Half of them of one busy key, the others of keys that have one, two or three."""
    keys = ["busy" if n % 2 else f"idle{drawn.randrange(count // 4)}" for n in range(count)]
    return [{"topic": topic, "key": key, "n": n} for n, key in enumerate(keys)]


def key_of(event: Event) -> tuple[str, str]:
    return event["topic"], event["key"]


def by_key(events: Sequence[Event]) -> dict[tuple[str, str], list[int]]:
    found: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for event in events:
        found[key_of(event)].append(event["n"])
    return dict(found)


def test_the_events_of_many_topics_come_once_each_and_in_the_order_of_their_key(
    place: Callable[..., Any], run_seed: int
) -> None:
    drawn = random.Random(run_seed)
    topics = [f"many{n}" for n in range(6)]

    async def story() -> None:
        async with place(*topics) as stored:
            written = {topic: events_of(topic, drawn, 100) for topic in topics}
            for topic, events in written.items():
                await stored.write(topic, events)
            at_work: Counter[tuple[str, str]] = Counter()
            seen: list[Event] = []

            async def work(event: Event) -> Event:
                key = key_of(event)
                at_work[key] += 1
                assert at_work[key] == 1, f"two of {key} at once"
                await asyncio.sleep(drawn.random() * 0.01)
                at_work[key] -= 1
                return event

            first, *others = (stored.read(topic) for topic in topics)
            flow = first.pipe(ops.merge(*others), group_by(key_of), spread())
            flow = flow.pipe(adaptive_flat_map(work))
            report = await flow.to(collect(seen)).run()
            assert report.statistics["finished"] == 600
            assert by_key(seen) == by_key([one for some in written.values() for one in some])

    asyncio.run(story())


def test_a_busy_key_that_is_stuck_holds_no_idle_one_and_only_what_is_not_finished_comes_again(
    place: Callable[..., Any], run_seed: int
) -> None:
    written = events_of("stuck", random.Random(run_seed), 100)
    idle = [event for event in written if event["key"] != "busy"]
    busy = [event for event in written if event["key"] == "busy"]

    async def story() -> None:
        async with place("stuck") as stored:
            await stored.write("stuck", written)
            is_stuck = True

            async def work(event: Event) -> Event:
                if is_stuck and event["key"] == "busy" and event["n"] >= busy[10]["n"]:
                    await asyncio.Event().wait()
                return event

            def pipeline(into: list[Event]) -> Pipeline:
                flow = stored.read("stuck", follow=True).pipe(group_by("key"), spread())
                return flow.pipe(adaptive_flat_map(work, limit=Fixed(8))).to(collect(into))

            first: list[Event] = []
            running = pipeline(first).start()
            await until(lambda: len(first) == len(idle) + 10)
            assert by_key(first) == by_key([*idle, *busy[:10]])
            # What is finished is stored as such by an end in order, or within a second.
            await asyncio.sleep(1.5)
            running.cancel()
            await running.wait()
            is_stuck = False
            second: list[Event] = []
            running = pipeline(second).start()
            await until(lambda: len(second) >= len(busy) - 10)
            # And no more.
            await asyncio.sleep(0.5)
            await running.drain(20)
            if not stored.in_order:
                second.sort(key=lambda event: int(event["n"]))
            assert second == busy[10:]

    asyncio.run(story())


def test_no_more_is_taken_than_is_requested_and_what_comes_later_is_read(
    place: Callable[..., Any],
) -> None:
    async def story() -> None:
        async with place("later") as stored:
            events = [{"topic": "later", "key": "busy", "n": n} for n in range(20)]
            await stored.write("later", events[:10])
            may_go = asyncio.Event()
            begun: list[int] = []

            async def work(event: Event) -> None:
                begun.append(event["n"])
                await may_go.wait()

            running = stored.read("later", follow=True).to(for_each(work)).start()
            await until(lambda: begun == [0])
            await asyncio.sleep(0.5)
            assert running.statistics()["in"] == 1
            may_go.set()
            await until(lambda: len(begun) == 10)
            await stored.write("later", events[10:])
            await until(lambda: len(begun) == 20)
            assert begun == list(range(20))
            report = await running.drain(20)
            assert report.statistics["finished"] == 20

    asyncio.run(story())
