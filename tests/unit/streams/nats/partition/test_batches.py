"""Several events in one message: packing, publishing and unpacking."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orjson import dumps, loads

from penstock import from_iterable
from penstock.command.cluster.nats import publishing
from penstock.streams.base.errors import BuildError, PayloadTooLarge
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.message import Message, header_with
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.layout import Layout, layout_of, token
from penstock.streams.nats.cluster.publisher import Publisher
from penstock.streams.nats.partition.batches import body_of, events_of, header_of, identities_of
from penstock.streams.testing import MemorySink
from penstock.streams.testing.plugin import Run

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=5,
)


def message(body: bytes, count: int) -> Message:
    return Message("a.p.1.batch", "", header_with(header_of(count)), body)


@given(
    st.lists(st.tuples(JSON, st.one_of(st.integers(0, 9), st.text())), min_size=1),
    st.booleans(),
)
def test_what_is_put_into_a_message_is_found_in_it(
    events: list[tuple[Any, int | str]], unique: bool
) -> None:
    said = [dumps(value) for value, _ in events]
    identities = [identity for _, identity in events] if unique else []
    body = body_of(said, identities)
    assert identities_of(message(body, len(events))) == (identities, len(events))
    assert events_of(body) == said


def test_as_many_messages_as_there_are_partitions_are_filled_at_once(run: Run) -> None:
    layout = Layout("p", "id", "id", partitions=64, batch=128)
    sizes: Counter[int] = Counter()

    class Publisher:
        def partition_of(self, value: int) -> int:
            return value % 64

        async def publish(self, value: int) -> None:
            raise AssertionError(value)

        async def publish_all(self, values: list[int]) -> None:
            sizes[len(values)] += 1
            # Less time than others wait, so that each message is full.
            await asyncio.sleep(0.001)

    untyped: Any = Publisher()
    report = run(publishing(from_iterable(range(64 * 128 * 3)), untyped, layout).run())
    assert sizes == {128: 64 * 3}
    assert report.statistics["closed_early"] == {}


@pytest.mark.parametrize("batch", [None, 16])
def test_a_warning_of_what_waits_to_be_published_names_no_stage_that_nobody_wrote(
    batch: int | None, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    layout = Layout("p", None, "id", partitions=2, batch=batch)

    class Publisher:
        def partition_of(self, value: dict[str, int]) -> int:
            return 0

        async def publish(self, value: dict[str, int]) -> None:
            await asyncio.sleep(0.01)

        async def publish_all(self, values: list[dict[str, int]]) -> None:
            await asyncio.sleep(0.1)

    untyped: Any = Publisher()
    report = run(publishing(from_iterable([{"id": 0}] * 5000), untyped, layout).run())
    assert report.statistics["finished"] == 5000
    what = "partition" if batch else "key"
    assert [text.partition(":")[0] for text in caplog.messages] == [f"stage 2 'publish by {what}'"]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{}", b"no\n{}", b'["a"]\n{}\n{}', b"3\n{}\n{}"),
        *(b"[1, %s]\n{}\n{}" % one for one in (b"[]", b"{}", b"null", b"true", b"1.5")),
    ],
)
def test_what_says_that_it_is_several_and_is_not_is_one_event(body: bytes) -> None:
    assert identities_of(message(body, 2)) is None


def test_a_batch_has_a_size_that_can_be() -> None:
    pipeline = from_iterable([1]).to(MemorySink())
    with pytest.raises(BuildError, match="at least 1"):
        layout_of(pipeline, "a", batch=0)
    with pytest.raises(BuildError, match="at most 1,024 events"):
        layout_of(pipeline, "a", batch=1025)


class Stored:
    """The content of a stream of batches: the bodies by partition, oldest first."""

    def __init__(self, servers: Servers, layout: Layout) -> None:
        self._servers = servers
        self.layout = layout

    async def publish(self, *values: Any) -> None:
        client = await connect(self._servers.urls)
        try:
            self.layout = await self.layout.prepare(client)
            async with Publisher(client, self.layout) as publisher:
                await publishing(from_iterable(values), publisher, self.layout).run()
        finally:
            await client.close()

    async def bodies(self) -> dict[int, list[bytes]]:
        client = await connect(self._servers.urls)
        js: Any = jetstream(client)
        found: defaultdict[int, list[bytes]] = defaultdict(list)
        state = (await js.stream_info(self.layout.stream)).state
        for sequence in range(1, state.last_seq + 1):
            stored = await js.get_msg(self.layout.stream, sequence)
            found[int(stored.subject.split(".")[3])].append(stored.data)
        await client.close()
        return found


def test_events_are_stored_in_the_partition_of_their_key_in_order(server: Servers) -> None:
    async def story() -> None:
        stored = Stored(server, Layout("batches-packed", "id", "key", partitions=7, batch=16))
        values = [{"id": n, "key": f"key {n % 30}", "n": n} for n in range(900)]
        await stored.publish(*values)
        bodies = await stored.bodies()
        assert sum(map(len, bodies.values())) < 200
        of_key: defaultdict[str, list[int]] = defaultdict(list)
        for partition, several in bodies.items():
            for value in (loads(one) for body in several for one in events_of(body)):
                assert partition == stored.layout.partition_of(token(value["key"]))
                of_key[value["key"]].append(value["n"])
        assert len(of_key) == 30
        assert all(numbers == list(range(numbers[0], 900, 30)) for numbers in of_key.values())

    asyncio.run(story())


def test_a_key_has_the_partition_that_the_servers_give_it(server: Servers) -> None:
    async def story() -> None:
        one_by_one = Stored(server, Layout("batches-hashed", "id", "key", partitions=7))
        keys = [1, -3, "a", "", "Zürich", None, 2.5, "a" * 50]
        await one_by_one.publish(*({"id": n, "key": key} for n, key in enumerate(keys)))
        for partition, bodies in (await one_by_one.bodies()).items():
            for body in bodies:
                key = token(loads(body)["key"])
                assert one_by_one.layout.partition_of(key) == partition

    asyncio.run(story())


def test_events_without_a_key_are_where_their_duplicates_are(server: Servers) -> None:
    async def story() -> None:
        stored = Stored(server, Layout("batches-unkeyed", "id", None, partitions=5, batch=4))
        await stored.publish(*({"id": n} for n in range(40)))
        await stored.publish(*({"id": n} for n in range(7, 40)))
        where: defaultdict[int, set[int]] = defaultdict(set)
        for partition, bodies in (await stored.bodies()).items():
            for body in bodies:
                for one in events_of(body):
                    where[loads(one)["id"]].add(partition)
        assert [len(partitions) for partitions in where.values()] == [1] * 40
        assert len(set[int]().union(*where.values())) == 5

    asyncio.run(story())


def test_an_invalid_key_is_reported_when_it_is_published(server: Servers) -> None:
    stored = Stored(server, Layout("batches-odd", None, "key", partitions=5, batch=4))
    with pytest.raises(TypeError, match="unhashable"):
        asyncio.run(stored.publish({"key": [1]}))


def test_events_without_a_key_go_to_all_partitions(server: Servers) -> None:
    async def story() -> None:
        stored = Stored(server, Layout("batches-keyless", None, None, partitions=3, batch=4))
        await stored.publish(*range(40))
        bodies = await stored.bodies()
        assert set(bodies) == {0, 1, 2}
        found = [loads(one) for each in bodies.values() for body in each for one in events_of(body)]
        assert sorted(found) == list(range(40))

    asyncio.run(story())


def test_a_batch_that_would_be_too_large_is_several_messages(server: Servers) -> None:
    async def story() -> None:
        stored = Stored(server, Layout("batches-large", None, "key", partitions=1, batch=100))
        values = [
            {"key": 1, "n": n, "text": "x" * (300_000 if n == 5 else 5_000)} for n in range(90)
        ]
        await stored.publish(*values)
        (bodies,) = (await stored.bodies()).values()
        assert [loads(one) for body in bodies for one in events_of(body)] == values
        assert max(len(body) for body in bodies if len(events_of(body)) > 1) < 140_000
        with pytest.raises(PayloadTooLarge):
            await stored.publish({"key": 1, "text": "x" * 2_000_000})

    asyncio.run(story())


def test_identities_that_are_neither_strings_nor_whole_numbers_are_kept_apart(
    server: Servers,
) -> None:
    async def story() -> None:
        stored = Stored(server, Layout("batches-ids", "id", "key", partitions=1, batch=100))
        ids: list[Any] = [1, "1", 1.5, None, [1], ["1"], {"a": 1}, False, 2**62]
        await stored.publish(*({"id": id, "key": 1} for id in ids))
        (bodies,) = (await stored.bodies()).values()
        said = [one for body in bodies for one in loads(body.split(b"\n")[0])]
        assert len(set(said)) == len(ids)
        assert said[:2] == [1, "1"]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("identity", "key", "batch"),
    [
        ("id", "id", 128),
        (None, "key", 128),
        ("id", None, 128),
        (None, None, 128),
        # The same identity may come under two keys, and so in two partitions.
        ("id", "key", 1),
    ],
)
def test_a_new_stream_is_packed_where_that_drops_the_same_duplicates(
    identity: str | None, key: str | None, batch: int
) -> None:
    assert Layout("usual", identity, key).usual_batch == batch


def test_a_stream_that_was_made_without_batches_stays_so(server: Servers) -> None:
    async def story() -> None:
        stored = Stored(server, Layout("batches-first", "id", "id", partitions=1, batch=1))
        await stored.publish({"id": 1})
        stored.layout = replace(stored.layout, batch=None)
        await stored.publish({"id": 2})
        assert stored.layout.batch == 1
        fresh = Stored(server, Layout("batches-usual", "id", "id", partitions=1))
        await fresh.publish({"id": 1}, {"id": 2})
        assert fresh.layout.batch == 128
        assert len((await fresh.bodies())[0]) == 1

    asyncio.run(story())


def test_a_layout_that_is_there_says_how_large_batches_are(server: Servers) -> None:
    async def story() -> None:
        stored = Stored(server, Layout("batches-known", "id", "key", partitions=1, batch=8))
        await stored.publish({"id": 1, "key": 1})
        stored.layout = replace(stored.layout, batch=None)
        await stored.publish({"id": 2, "key": 1})
        assert stored.layout.batch == 8

    asyncio.run(story())
