"""A table that every process holds whole, of a stream on a real server."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import StreamConfig

from penstock import (
    Fixed,
    Running,
    adaptive_flat_map,
    chunk,
    collect,
    dead_letters,
    inbox,
    lookup,
    ops,
    read_jetstream,
    route,
    table,
)
from penstock.streams.base.errors import BuildError, StreamDiffers, StreamMissing
from penstock.streams.nats.client import ordered
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.message import Message
from penstock.streams.nats.client.server import Servers
from tests.helpers.until import until

_read: Any = read_jetstream


class Names:
    """A stream of rows on a server."""

    def __init__(self, client: Any, name: str, urls: list[str]) -> None:
        self.js: Any = jetstream(client)
        self.name = name
        self.urls = urls
        self._written = 0

    async def write(self, *rows: tuple[int, str], subject: str = "new") -> None:
        for key, name in rows:
            self._written += 1
            row = b'{"key": %d, "name": "%s"}' % (key, name.encode())
            # Once, however often it is sent to a server that is not there yet.
            once = {"Nats-Msg-Id": str(self._written)}
            while True:
                with suppress(NatsTimeout):
                    await self.js.publish(f"{self.name}.{subject}", row, headers=once)
                    break

    async def consumers(self) -> list[str]:
        return [one.name for one in await self.js.consumers_info(self.name)]


@asynccontextmanager
async def names(servers: Servers, name: str, **settings: Any) -> AsyncGenerator[Names]:
    client = await connect(servers.urls)
    made = Names(client, name, servers.urls)
    await made.js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], **settings))
    try:
        yield made
    finally:
        await client.close()


class Finding:
    """A running that finds the names of the keys which are put into its inbox."""

    def __init__(self, rows: Any, *stages: Any) -> None:
        self.box: Any = inbox(1_000)
        self.found: list[Any] = []
        found = table(rows.pipe(*stages) if stages else rows, "key", whole=True)
        pairs = self.box.pipe(lookup(found, "key"), ops.map(_named))
        self.running: Running = pairs.to(collect(self.found)).start()

    @property
    def numbers(self) -> dict[str, Any]:
        return self._numbers_of("lookup")

    @property
    def source(self) -> dict[str, Any]:
        return self._numbers_of("read_jetstream")

    def _numbers_of(self, name: str) -> dict[str, Any]:
        stages = self.running.statistics()["stages"]
        # It is not there before the run has begun.
        return next((one for one in stages if one["name"] == name), {"in": 0, "read_ahead": 0})

    async def find(self, *keys: int) -> list[Any]:
        """What the next events with these keys find."""
        self.found.clear()
        for key in keys:
            await self.box.put({"key": key})
        await until(lambda: len(self.found) == len(keys))
        return self.found.copy()

    async def end(self) -> None:
        await self.running.drain(10)


def _named(pair: tuple[Any, Any]) -> tuple[int, str | None]:
    event, row = pair
    return event["key"], None if row is None else row["name"]


def reading(it: Names, what: str = "", **options: Any) -> Any:
    return _read(what or it.name, servers=it.urls, **options)


def test_every_process_finds_all_rows_and_those_that_come_later(server: Servers) -> None:
    async def story() -> None:
        async with names(server, "whole-all") as it:
            await it.write(*((key % 500, f"name {key}") for key in range(1_500)))
            # A consumer of that name shares its messages; the table does not read with it.
            shared = reading(it, durable="shared", since="first")
            await shared.pipe(ops.take(100)).to(collect([])).run()
            durable = await it.js.consumer_info(it.name, "shared")
            both = [Finding(reading(it, durable="shared")) for _ in range(2)]
            for one in both:
                assert await one.find(0, 499, 500) == [
                    (0, "name 1000"),
                    (499, "name 1499"),
                    (500, None),
                ]
                assert (one.numbers["is_whole"], one.numbers["rows"]) == (True, 500)
            await it.write((500, "later"))
            for one in both:
                await until(lambda one=one: one.numbers["rows"] == 501)
                assert await one.find(500) == [(500, "later")]
                await one.end()
            after = await it.js.consumer_info(it.name, "shared")
            assert (after.delivered, after.ack_floor) == (durable.delivered, durable.ack_floor)
            await until_consumers_are(it, "shared")

    asyncio.run(story())


def test_only_the_rows_of_its_subject_are_read(server: Servers) -> None:
    async def story() -> None:
        async with names(server, "whole-subject") as it:
            await it.write((1, "one"), subject="a.x")
            # The last message of the stream is none of the table.
            await it.write((1, "other"), subject="b.x")
            it_finds = Finding(reading(it, f"{it.name}.a.*"))
            assert await it_finds.find(1) == [(1, "one")]
            await it_finds.end()

    asyncio.run(story())


def test_a_stream_without_messages_is_whole_at_once(server: Servers) -> None:
    async def story() -> None:
        async with names(server, "whole-empty") as it:
            it_finds = Finding(reading(it))
            assert await it_finds.find(1) == [(1, None)]
            await it.write((1, "one"))
            await until(lambda: it_finds.numbers["rows"] == 1)
            assert await it_finds.find(1) == [(1, "one")]
            await it_finds.end()

    asyncio.run(story())


def test_events_wait_until_the_rows_of_the_start_have_gone_through_the_stages_in_front(
    server: Servers,
) -> None:
    async def story() -> None:
        async with names(server, "whole-slow") as it:
            await it.write((1, "one"), (2, "two"))
            gate = asyncio.Event()

            async def slowly(row: Any) -> Any:
                await gate.wait()
                return row

            it_finds = Finding(reading(it), adaptive_flat_map(slowly, Fixed(2)))
            await it_finds.box.put({"key": 1})
            await until(lambda: it_finds.source["in"] == 2)
            assert not it_finds.found
            assert not it_finds.numbers["is_whole"]
            gate.set()
            await until(lambda: it_finds.found == [(1, "one")])
            await it_finds.end()

    asyncio.run(story())


def test_a_row_that_fails_comes_again_and_is_waited_for(server: Servers) -> None:
    async def story() -> None:
        async with names(server, "whole-reverted") as it:
            await it.write((1, "one"), (2, "two"))
            failures = [ValueError("once")]

            async def fails_once(row: Any) -> Any:
                if failures:
                    raise failures.pop()
                return row

            stage = adaptive_flat_map(fails_once, Fixed(1), on_error="revert")
            it_finds = Finding(reading(it, retry_after=0.3), stage)
            assert await it_finds.find(1, 2) == [(1, "one"), (2, "two")]
            await it_finds.end()

    asyncio.run(story())


def test_what_is_no_row_is_reported_and_not_waited_for(server: Servers, tmp_path: Path) -> None:
    async def story() -> None:
        async with names(server, "whole-bad") as it:
            await it.write((1, "one"))
            await it.js.publish(f"{it.name}.new", b"no row")
            letters = tmp_path / "letters.jsonl"
            for policy in ("report", route(dead_letters(letters))):
                it_finds = Finding(reading(it, on_bad_message=policy))
                assert await it_finds.find(1) == [(1, "one")]
                await it_finds.end()
            assert "no row" in letters.read_text()

    asyncio.run(story())


def test_rows_that_are_deleted_while_they_are_read_are_not_waited_for(server: Servers) -> None:
    async def story() -> None:
        async with names(server, "whole-deleted") as it:
            await it.write(*((key, f"name {key}") for key in range(3_000)))
            gate = asyncio.Event()

            async def slowly(row: Any) -> Any:
                await gate.wait()
                return row

            it_finds = Finding(reading(it), adaptive_flat_map(slowly, Fixed(1)))
            await until(lambda: it_finds.source["in"] > 0)
            await it.js.purge_stream(it.name)
            gate.set()
            (first, last) = await it_finds.find(0, 2_999)
            assert (first, last) == ((0, "name 0"), (2_999, None))
            await it_finds.end()

    asyncio.run(story())


def test_no_more_messages_arrive_than_are_requested(server: Servers) -> None:
    async def story() -> None:
        async with names(server, "whole-demand") as it:
            await it.write(*((key, "name") for key in range(3_000)))
            gate, most = asyncio.Event(), 0

            async def slowly(row: Any) -> Any:
                await gate.wait()
                return row

            it_finds = Finding(reading(it), adaptive_flat_map(slowly, Fixed(4)))
            for _ in range(20):
                await asyncio.sleep(0.05)
                most = max(most, it_finds.source["in"] + it_finds.source["read_ahead"])
            assert 0 < most < 3_000
            gate.set()
            assert await it_finds.find(2_999) == [(2_999, "name")]
            await it_finds.end()

    asyncio.run(story())


def test_a_message_that_is_lost_on_its_way_is_read_again_in_order(server: Servers) -> None:
    lost: list[Message] = []
    arrived = ordered.Ordered._has_arrived  # pyright: ignore[reportPrivateUsage]

    def loses(self: Any, message: Message) -> None:
        # One in the middle, and the last one, which no message comes after.
        is_one = re.search(rb'"name (700|1499)"', message.data) is not None
        if is_one and message.data not in [one.data for one in lost]:
            lost.append(message)
        else:
            arrived(self, message)

    async def story() -> None:
        async with names(server, "whole-lost") as it:
            await it.write(*((key % 1_000, f"name {key}") for key in range(1_500)))
            it_finds = Finding(reading(it))
            assert await it_finds.find(700, 499) == [(700, "name 700"), (499, "name 1499")]
            source = it_finds.source
            assert (source["in"], source["finished"], len(lost)) == (1_500, 1_500, 2)
            await it_finds.end()

    with patch.object(ordered.Ordered, "_has_arrived", loses):
        asyncio.run(story())


def test_rows_are_read_on_when_a_server_was_killed_and_comes_back(tmp_path: Path) -> None:
    async def story() -> None:
        with Servers(tmp_path / "killed") as servers:
            async with names(servers, "whole-killed") as it:
                await it.write(*((key, f"name {key}") for key in range(2_500)))
                seen = 0

                async def slowly(row: Any) -> Any:
                    nonlocal seen
                    seen += 1
                    await asyncio.sleep(0.001)
                    return row

                it_finds = Finding(reading(it), adaptive_flat_map(slowly, Fixed(4)))
                await until(lambda: seen > 100)
                for _ in range(2):
                    # First while it reads the rows of the start, then when it waits for others.
                    await asyncio.to_thread(servers.stop, 0, signal.SIGKILL)
                    await asyncio.sleep(0.5)
                    servers.start(0)
                    await asyncio.to_thread(servers.wait)
                    assert await it_finds.find(0, 2_499) == [(0, "name 0"), (2_499, "name 2499")]
                assert seen == 2_500
                await it.write((0, "new"))
                await until(lambda: it_finds.source["finished"] == 2_501)
                assert await it_finds.find(0) == [(0, "new")]
                await it_finds.end()

    asyncio.run(story())


def test_a_stream_that_does_not_exist_ends_the_run_with_its_name(server: Servers) -> None:
    async def story() -> None:
        rows = read_jetstream("whole-none", servers=server.urls)
        with pytest.raises(StreamMissing, match="'whole-none'"):
            await Finding(rows).running.wait()

    asyncio.run(story())


@pytest.mark.parametrize("again", [False, True])
def test_a_stream_that_is_deleted_or_made_again_ends_the_run(server: Servers, again: bool) -> None:
    api = ordered.api

    async def story() -> None:
        name = f"whole-gone-{again}".lower()
        is_changed = asyncio.Event()
        is_changed.set()

        async def asked(*what: Any) -> Any:
            await is_changed.wait()
            return await api(*what)

        async with names(server, name) as it:
            await it.write((1, "one"))
            with patch.object(ordered, "api", asked):
                it_finds = Finding(reading(it))
                assert await it_finds.find(1) == [(1, "one")]
                is_changed.clear()
                await it.js.delete_stream(name)
                if again:
                    await it.js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
                is_changed.set()
                match = "deleted and made again" if again else f"'{name}'"
                with pytest.raises(StreamMissing, match=match):
                    await it_finds.running.wait()

    asyncio.run(story())


def test_a_queue_of_work_cannot_be_read_whole(server: Servers) -> None:
    async def story() -> None:
        async with names(server, "whole-queue", retention="workqueue") as it:
            with pytest.raises(StreamDiffers, match=r"'whole-queue': .* workqueue"):
                await Finding(reading(it)).running.wait()

    asyncio.run(story())


def test_without_follow_it_ends_behind_the_rows_of_the_start(server: Servers) -> None:
    async def story() -> None:
        async with names(server, "whole-ends") as it:
            for rows in ([], [(1, "one"), (2, "two")]):
                await it.write(*rows)
                it_finds = Finding(reading(it, follow=False))
                assert await it_finds.find(1) == [(1, "one" if rows else None)]
                await it.write((1, "later"))
                assert await it_finds.find(1) == [(1, "one" if rows else None)]
                await until_consumers_are(it)
                await it_finds.end()

    asyncio.run(story())


async def until_consumers_are(it: Names, *names: str) -> None:
    found: list[str] = []
    for _ in range(200):
        if (found := await it.consumers()) == [*names]:
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"there are {found}")


def test_a_drain_before_the_rows_are_there_looks_nothing_up(server: Servers) -> None:
    async def story() -> None:
        async with names(server, "whole-drained") as it:
            await it.write((1, "one"), (2, "two"))
            gate = asyncio.Event()

            async def slowly(row: Any) -> Any:
                await gate.wait()
                return row

            it_finds = Finding(reading(it), adaptive_flat_map(slowly, Fixed(2)))
            await until(lambda: it_finds.source["in"] == 2)
            draining = asyncio.create_task(it_finds.running.drain(10))
            await asyncio.sleep(0)
            gate.set()
            await draining
            assert not it_finds.found

    asyncio.run(story())


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (lambda: read_jetstream("names", since="new"), r"leave out since="),
        (lambda: read_jetstream("names").pipe(ops.share()), r"a source of its own"),
        (lambda: read_jetstream("names").pipe(chunk(2)), r"behind stage 2 'chunk'"),
    ],
)
def test_a_table_of_which_the_start_cannot_be_told_is_refused(rows: Any, match: str) -> None:
    with pytest.raises(BuildError, match=match):
        table(rows(), "key", whole=True)
