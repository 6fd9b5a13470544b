"""Streams that others own, as an ordinary source and an ordinary sink."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from nats.js.errors import NotFoundError
from orjson import dumps, loads

from penstock import (
    Fixed,
    Pipeline,
    Running,
    adaptive_flat_map,
    chunk,
    collect,
    dead_letters,
    for_each,
    from_async_iterable,
    from_iterable,
    group_by,
    latency_histogram,
    read_jetstream,
    route,
    spread,
    write_jetstream,
)
from penstock.streams.base.errors import (
    BadLine,
    BuildError,
    CannotConnect,
    PayloadTooLarge,
    StreamDiffers,
    StreamMissing,
)
from penstock.streams.nats.client.client import Client
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.outbox import Outbox
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.streams import standstill
from tests.helpers.spans import Spans, identity, parent
from tests.helpers.until import until


class Stream:
    """A stream on a server, seen from outside."""

    def __init__(self, client: Client, name: str, servers: Servers) -> None:
        self.client = client
        self.name = name
        self.urls = servers.urls
        self.js: Any = jetstream(client)

    async def publish(self, *values: bytes, subject: str = "new") -> None:
        for value in values:
            await self.js.publish(f"{self.name}.{subject}", value)

    async def numbers(self, count: int) -> None:
        await self.publish(*(b'{"n": %d}' % n for n in range(count)))

    async def unfinished(self, durable: str) -> tuple[int, int]:
        """Messages that were not delivered, and those that are not acknowledged."""
        info = await self.js.consumer_info(self.name, durable)
        return info.num_pending, info.num_ack_pending

    async def messages(self) -> int:
        return int((await self.js.stream_info(self.name)).state.messages)


_used: Counter[tuple[str, str]] = Counter()


@asynccontextmanager
async def stream(server: Servers, name: str, **settings: Any) -> AsyncIterator[Stream]:
    """A stream that is deleted at the end; its `name` has a number if another had it before.

    A server may forget to delete the files of a stream, and the next one of its name has its
    messages and its consumers.
    """
    place = (server.urls[0], name)
    _used[place] += 1
    if _used[place] > 1:
        name = f"{name}-{_used[place]}"
    client = await connect(server.urls)
    made = Stream(client, name, server)
    await made.js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], **settings))
    try:
        yield made
    finally:
        await made.js.delete_stream(name)
        await client.close()


def read(it: Stream, into: list[Any], **options: Any) -> Pipeline:
    return read_jetstream(it.name, "reader", it.urls, **options).to(collect(into))


def test_a_stream_is_read_in_order_and_acknowledged_after_the_sinks(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "ordered") as it:
            await it.numbers(1_000)
            seen: list[Any] = []
            report = await read(it, seen, follow=False).run()
            assert [value["n"] for value in seen] == list(range(1_000))
            assert report.statistics["finished"] == 1_000
            assert await it.unfinished("reader") == (0, 0)

    asyncio.run(story())


def test_the_context_of_a_trace_goes_with_a_message_to_who_reads_it(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "traced") as it:
            spans, seen = Spans(), list[Any]()
            values = from_iterable([{"n": 1}, {"n": 2}])
            written = values.to(write_jetstream(lambda _: "traced.all", it.urls)).start()
            written.trace(spans.provider)
            await written.wait()
            again = read(it, seen, follow=False).start()
            again.trace(spans.provider, sample=0)
            await again.wait()
            assert len(seen) == 2
            sent, came = spans.named("event of from_iterable"), spans.named("event of read_")
            assert {parent(span) for span in came} == {identity(span) for span in sent}
            assert [parent(span) for span in sent] == [None, None]
            called = [parent(span) for span in spans.named("write_jetstream <lambda>")]
            assert called == [identity(span) for span in sent]

    asyncio.run(story())


def test_what_is_not_acknowledged_comes_again_to_the_next_running(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "again") as it:
            await it.numbers(10)

            async def hang(value: Any) -> None:
                await asyncio.Event().wait()

            flow = read_jetstream("again.*", "reader", it.urls, lease=60)
            running = flow.pipe(adaptive_flat_map(hang, Fixed(4))).to(collect([])).start()
            await asyncio.sleep(0)
            assert not running.is_ready
            await until(lambda: running.statistics()["in"] == 4)
            assert running.is_ready
            assert running.statistics()["stages"][0]["pending"] == 6
            running.cancel()
            report = await running.wait()
            assert report.statistics["returned"] == report.statistics["in"] == 4
            seen: list[Any] = []
            async with read(it, seen).start() as running:
                await until(lambda: len(seen) == 10)
                running.begin_drain()
            assert sorted(value["n"] for value in seen) == list(range(10))

    asyncio.run(story())


def test_no_more_messages_are_delivered_than_were_asked_for(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "demand") as it:
            await it.numbers(100)
            release = asyncio.Event()

            async def hold(value: Any) -> None:
                await release.wait()

            flow = read_jetstream("demand", "reader", it.urls)
            async with flow.to(for_each(hold)).start() as running:
                await until(lambda: running.statistics()["in"] == 1)
                await asyncio.sleep(0.05)
                assert await it.unfinished("reader") == (99, 1)
                release.set()
                await until(lambda: running.statistics()["finished"] == 100)
                running.begin_drain()

    asyncio.run(story())


def test_a_paused_reader_goes_on_with_what_it_had_asked_for(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "paused") as it:
            seen: list[Any] = []
            async with read(it, seen).start() as running:
                await it.numbers(1)
                await until(lambda: len(seen) == 1)
                running.pause()
                await it.numbers(5)
                await asyncio.sleep(0.05)
                assert len(seen) == 1
                running.resume()
                await until(lambda: len(seen) == 6)
                running.begin_drain()
            assert await it.unfinished("reader") == (0, 0)

    asyncio.run(story())


def test_a_failed_event_comes_again_later_and_a_routed_one_does_not(
    server: Servers, tmp_path: Path
) -> None:
    async def story() -> None:
        async with stream(server, "failing") as it:
            await it.numbers(3)
            tried: list[int] = []

            def fail_at_one(value: Any) -> None:
                tried.append(value["n"])
                if value["n"] == 1:
                    raise ValueError("one")

            async def run(**options: Any) -> None:
                flow = read_jetstream("failing", "reader", it.urls, retry_after=0.2, follow=False)
                await flow.to(for_each(fail_at_one, **options)).run()

            with pytest.raises(ValueError, match="one"):
                await run()
            assert tried == [0, 1]
            await until(lambda: _delivered(it, 0))
            letters = route(dead_letters(tmp_path / "letters.jsonl"))
            flow = read_jetstream("failing", "reader", it.urls)
            async with flow.to(for_each(fail_at_one, on_error=letters)).start() as running:
                await until(lambda: running.statistics()["finished"] == 1)
                await until(lambda: running.statistics()["failed"] == 1)
                running.begin_drain()
            assert sorted(tried) == [0, 1, 1, 2]
            assert await it.unfinished("reader") == (0, 0)
            letter = loads((tmp_path / "letters.jsonl").read_text())
            assert letter["token"] == "message 2, 'failing.new'"

    asyncio.run(story())


@pytest.mark.parametrize("failing", [0, 2])
def test_a_reader_that_does_not_follow_waits_for_a_message_that_comes_again(
    server: Servers, failing: int
) -> None:
    async def story() -> None:
        async with stream(server, "late") as it:
            await it.numbers(3)
            tried: list[int] = []

            def fails_once(value: Any) -> None:
                tried.append(value["n"])
                if tried.count(failing) == 1 and value["n"] == failing:
                    raise ValueError("not yet")

            flow = read_jetstream(it.name, "reader", it.urls, retry_after=0.3, follow=False)
            report = await flow.to(for_each(fails_once, on_error="revert")).run()
            assert (report.outcome, report.statistics["finished"]) == ("completed", 3)
            assert sorted(tried) == sorted([0, 1, 2, failing])

    asyncio.run(story())


@pytest.mark.parametrize("lose", ["purge", "expire", "delete"])
def test_a_reader_that_does_not_follow_ends_although_the_last_messages_vanish(
    server: Servers, lose: str
) -> None:
    async def story() -> None:
        async with stream(server, "vanish", max_age=0.5 if lose == "expire" else None) as it:
            await it.numbers(5)
            seen: list[Any] = []
            goes_on = asyncio.Event()

            async def wait(value: Any) -> Any:
                await goes_on.wait()
                return value

            flow = read_jetstream(it.name, "reader", it.urls, follow=False)
            running = flow.pipe(adaptive_flat_map(wait, Fixed(2))).to(collect(seen)).start()
            await until(lambda: running.statistics()["in"] == 2)
            if lose == "purge":
                await it.js.purge_stream(it.name)
            elif lose == "delete":
                for number in (3, 4, 5):
                    await it.js.delete_msg(it.name, number)
            else:
                await until(lambda: _has_expired(it))
            goes_on.set()
            report = await running.wait()
            assert (report.outcome, [one["n"] for one in seen]) == ("completed", [0, 1])
            assert await it.unfinished("reader") == (0, 0)

    asyncio.run(story())


async def _has_expired(it: Stream) -> bool:
    return await it.messages() == 0


def test_a_reader_that_does_not_follow_waits_for_the_leases_of_one_that_died(
    server: Servers,
) -> None:
    async def story() -> None:
        async with stream(server, "died") as it:
            await it.numbers(3)
            config = ConsumerConfig(
                durable_name="reader", ack_policy=AckPolicy.EXPLICIT, ack_wait=0.6
            )
            await it.js.add_consumer("died", config)
            # It never says anything again.
            dead = await it.js.pull_subscribe_bind("reader", "died")
            assert len(await dead.fetch(3)) == 3
            seen: list[Any] = []
            report = await read(it, seen, follow=False).run()
            assert report.outcome == "completed"
            assert sorted(value["n"] for value in seen) == [0, 1, 2]

    asyncio.run(story())


def test_a_reader_that_holds_what_only_its_end_finishes_does_not_wait_for_readers_that_live(
    server: Servers,
) -> None:
    async def story() -> None:
        async with stream(server, "both") as it:
            await it.numbers(3)
            config = ConsumerConfig(
                durable_name="reader", ack_policy=AckPolicy.EXPLICIT, ack_wait=0.3
            )
            await it.js.add_consumer("both", config)
            other = await it.js.pull_subscribe_bind("reader", "both")
            (held,) = await other.fetch(1)

            async def work() -> None:
                while True:
                    await held.in_progress()
                    await asyncio.sleep(0.05)

            working = asyncio.create_task(work())
            seen: list[Any] = []
            flow = read_jetstream("both", "reader", it.urls, retry_after=0.1, follow=False)
            report = await flow.pipe(chunk(10)).to(collect(seen)).run()
            assert (report.outcome, seen) == ("completed", [[{"n": 1}, {"n": 2}]])
            working.cancel()

    asyncio.run(story())


def test_a_message_whose_lease_was_over_before_it_began_is_left_to_the_next_reader(
    server: Servers,
) -> None:
    async def story() -> None:
        async with stream(server, "over") as it:
            await it.numbers(3)
            goes_on = asyncio.Event()
            begun: list[int] = []

            async def handle(value: Any) -> None:
                begun.append(value["n"])
                await goes_on.wait()

            flow = read_jetstream("over", "reader", it.urls, lease=1)
            stages = group_by(lambda _: 0), spread(), adaptive_flat_map(handle, Fixed(1))
            running = flow.pipe(*stages).to(collect([])).start()
            await until(lambda: running.statistics()["in"] == 3)
            # As after a freeze: another reader may have all of them.
            for message in reading(running)._leases.held.values():
                message.lease.until = 0.0
            goes_on.set()
            await until(lambda: running.statistics()["finished"] == 3)
            await running.drain()
            report = running.report()
            assert begun == [0, 1, 2]
            assert report.statistics["returned"] == 2
            assert report.statistics["stages"][0]["lost_leases"] == 3
            assert await it.unfinished("reader") == (0, 0)

    asyncio.run(story())


def test_a_message_that_is_in_work_and_is_delivered_here_again_is_not_begun_again(
    server: Servers,
) -> None:
    async def story() -> None:
        async with stream(server, "twice") as it:
            await it.numbers(1)
            goes_on = asyncio.Event()
            begun: list[int] = []

            async def handle(value: Any) -> None:
                begun.append(value["n"])
                await goes_on.wait()

            flow = read_jetstream("twice", "reader", it.urls)
            stage = adaptive_flat_map(handle, Fixed(2))
            running = flow.pipe(stage).to(collect([])).start()
            await until(lambda: begun == [0])
            (message,) = reading(running)._leases.held.values()
            before = message.reply
            await it.client.publish(before, b"-NAK")
            await until(lambda: message.reply != before)
            goes_on.set()
            await until(lambda: running.statistics()["finished"] == 1)
            await running.drain()
            assert begun == [0]

    asyncio.run(story())


def test_what_is_over_is_not_taken_from_the_reader_that_has_it_by_now(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "taken") as it:
            await it.numbers(1)
            goes_on = asyncio.Event()

            async def fails(value: Any) -> None:
                await goes_on.wait()
                raise ValueError("late")

            flow = read_jetstream("taken", "reader", it.urls, lease=30, retry_after=0.001)
            stage = adaptive_flat_map(fails, on_error="revert")
            running = flow.pipe(stage).to(collect([])).start()
            await until(lambda: running.statistics()["in"] == 1)
            for message in reading(running)._leases.held.values():
                message.lease.until = 0.0
            goes_on.set()
            await until(lambda: running.statistics()["returned"] == 1)
            await running.drain()
            info = await it.js.consumer_info("taken", "reader")
            assert (info.num_ack_pending, info.delivered.consumer_seq) == (1, 1)

    asyncio.run(story())


def reading(running: Running) -> Any:
    """The source of a run."""
    (source,) = running._run.nesting.sources  # pyright: ignore[reportPrivateUsage]
    return source


def test_what_a_consumer_never_delivers_again_is_counted_as_failed(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "spent") as it:
            await it.numbers(2)
            config = ConsumerConfig(
                durable_name="reader", ack_policy=AckPolicy.EXPLICIT, max_deliver=2
            )
            await it.js.add_consumer("spent", config)
            tried: list[int] = []

            def fails(value: Any) -> None:
                tried.append(value["n"])
                if value["n"] == 1:
                    raise ValueError("never")

            flow = read_jetstream("spent", "reader", it.urls, retry_after=0.1, follow=False)
            report = await flow.to(for_each(fails, on_error="revert")).run()
            assert tried == [0, 1, 1]
            assert report.statistics["failed"] == 1
            assert report.exit_status == 3
            assert await it.unfinished("reader") == (0, 0)

    asyncio.run(story())


def test_a_bound_of_the_consumer_that_stops_the_pipeline_is_said(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "bound") as it:
            await it.numbers(8)
            config = ConsumerConfig(
                durable_name="reader", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=2
            )
            await it.js.add_consumer("bound", config)
            warnings: list[str] = []
            flow = read_jetstream("bound", "reader", it.urls)
            async with flow.pipe(chunk(3)).to(collect([])).start() as running:
                errors = running._run.errors  # pyright: ignore[reportPrivateUsage]
                errors.on_warning = lambda text, *_: warnings.append(text)
                await until(lambda: bool(warnings))
                running.cancel()
            (warning,) = warnings
            assert "at most 2 unacknowledged ones (max_ack_pending), and the pipeline holds 2" in (
                warning
            )

    asyncio.run(story())


def test_a_bound_of_the_consumer_that_leaves_a_slow_key_no_room_for_others_is_said(
    server: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standstill, "_STARVED", 0.0)

    async def story() -> None:
        async with stream(server, "hot") as it:
            await it.numbers(12)
            config = ConsumerConfig(
                durable_name="reader", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=5
            )
            await it.js.add_consumer("hot", config)
            warnings: list[str] = []

            async def slow(value: Any) -> None:
                await asyncio.sleep(0.4)

            flow = read_jetstream("hot", "reader", it.urls).pipe(
                group_by(lambda value: "hot"), spread(), adaptive_flat_map(slow, Fixed(4))
            )
            async with flow.to(collect([])).start() as running:
                errors = running._run.errors  # pyright: ignore[reportPrivateUsage]
                errors.on_warning = lambda text, *_: warnings.append(text)
                await until(lambda: bool(warnings))
                running.cancel()
            assert (
                "at most 5 unacknowledged ones (max_ack_pending), and the pipeline holds 5"
                in (warnings[0])
            )

    asyncio.run(story())


def test_a_lease_that_others_shorten_is_kept(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "shorter") as it:
            await it.numbers(1)
            begun: list[int] = []

            async def slow(value: Any) -> None:
                begun.append(value["n"])
                config = (await it.js.consumer_info("shorter", "reader")).config
                config.ack_wait = 0.4
                await it.js.add_consumer("shorter", config)
                await until(lambda: reading(running)._leases.length == 0.4)
                await asyncio.sleep(1)

            flow = read_jetstream("shorter", "reader", it.urls, lease=0.9)
            running = flow.pipe(adaptive_flat_map(slow)).to(collect([])).start()
            await until(lambda: running.statistics()["finished"] == 1)
            await running.drain()
            assert begun == [0]

    asyncio.run(story())


async def _asked(it: Stream, requests: int) -> bool:
    """Whether at least `count` requests for messages wait at the server."""
    try:
        info = await it.js.consumer_info(it.name, "reader")
    except NotFoundError:
        return False
    return bool(info.num_waiting >= requests)


async def _delivered(it: Stream, redelivered: int) -> bool:
    return (await it.unfinished("reader"))[1] >= redelivered


def test_an_event_that_takes_longer_than_the_lease_is_delivered_once(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "long") as it:
            await it.numbers(1)
            begun: list[int] = []

            async def slow(value: Any) -> None:
                begun.append(value["n"])
                await asyncio.sleep(2)

            flow = read_jetstream("long", "reader", it.urls, lease=1)
            async with flow.pipe(adaptive_flat_map(slow)).to(collect([])).start() as running:
                await until(lambda: running.statistics()["finished"] == 1)
                running.begin_drain()
            assert begun == [0]

    asyncio.run(story())


def test_a_message_that_is_not_an_object_is_reported_routed_or_the_end(
    server: Servers, tmp_path: Path
) -> None:
    async def story() -> None:
        async with stream(server, "bad") as it:
            await it.publish(b'{"n": 1}', b"[2]", b"{", b'{"n": 4}')
            seen: list[Any] = []
            report = (
                await read_jetstream("bad", None, it.urls, follow=False).to(collect(seen)).run()
            )
            assert [value["n"] for value in seen] == [1, 4]
            assert report.statistics["bad_lines"] == 2
            letters = tmp_path / "letters.jsonl"
            flow = read_jetstream(
                "bad", None, it.urls, follow=False, on_bad_message=route(dead_letters(letters))
            )
            await flow.to(collect(seen)).run()
            assert letters.read_text(encoding="utf-8").count("\n") == 2
            seen.clear()
            flow = read_jetstream("bad", None, it.urls, on_bad_message="stop")
            with pytest.raises(BadLine, match=r"message 2, 'bad.new' is JSON, but not an object"):
                await flow.to(collect(seen)).run()
            assert [value["n"] for value in seen] == [1]
            raw: list[bytes] = []
            await (
                read_jetstream("bad", None, it.urls, raw=True, follow=False).to(collect(raw)).run()
            )
            assert raw[1:3] == [b"[2]", b"{"]

    asyncio.run(story())


def test_readers_with_one_durable_share_the_messages(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "shared") as it:
            seen: list[list[Any]] = [[], []]
            runnings = [read(it, into).start() for into in seen]
            # One reader has two at most.
            await until(lambda: _asked(it, 3))
            await it.numbers(200)
            await until(lambda: len(seen[0]) + len(seen[1]) == 200)
            for running in runnings:
                await running.drain()
            assert sorted(value["n"] for value in [*seen[0], *seen[1]]) == list(range(200))
            assert seen[0]
            assert seen[1]

    asyncio.run(story())


@pytest.mark.parametrize("limit", [{"max_batch": 3}, {"max_expires": 1_000_000_000}])
def test_a_consumer_of_others_may_limit_what_is_requested_at_a_time(
    limit: dict[str, int], server: Servers
) -> None:
    (name,) = limit

    async def story() -> None:
        async with stream(server, name) as it:
            await it.numbers(20)
            config = {"durable_name": "reader", "ack_policy": "explicit", **limit}
            await it.client.request(
                f"$JS.API.CONSUMER.DURABLE.CREATE.{name}.reader",
                dumps({"stream_name": name, "config": config}),
            )
            seen: list[Any] = []
            async with asyncio.timeout(30), read(it, seen).start() as running:
                await until(lambda: len(seen) == 20)
                running.begin_drain()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"headers_only": True}, "headers of messages only"),
        ({"priority_policy": "overflow", "priority_groups": ["a"]}, "priority groups only"),
        ({"filter_subjects": ["kind.a", "kind.b"]}, "reads 'kind.a' and 'kind.b', not 'kind.a'"),
        ({}, "reads 'kind.>', not 'kind.a'"),
        ({"ack_policy": "none"}, "acknowledgements are 'none'"),
        ({"ack_policy": "all"}, "acknowledgements are 'all'"),
        ({"deliver_subject": "somewhere"}, "pushes its messages"),
    ],
)
def test_a_consumer_that_would_deliver_something_else_is_refused(
    config: dict[str, Any], words: str, server: Servers
) -> None:
    async def story() -> None:
        async with stream(server, "kind") as it:
            whole = {"durable_name": "reader", "ack_policy": "explicit", **config}
            whole = {"stream_name": "kind", "config": whole}
            answer = await it.client.request(
                f"$JS.API.CONSUMER.DURABLE.CREATE.{it.name}.reader",
                dumps(whole).replace(b"kind", it.name.encode()),
            )
            assert b'"error"' not in answer.data
            with pytest.raises(StreamDiffers, match=words.replace("kind", it.name)):
                await read_jetstream(f"{it.name}.a", "reader", it.urls).to(collect([])).run()

    asyncio.run(story())


def test_a_consumer_that_somebody_deletes_ends_the_stream(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "deleted") as it:
            running = read(it, []).start()
            await until(lambda: _asked(it, 1))
            await it.js.delete_consumer("deleted", "reader")
            with pytest.raises(
                StreamMissing, match="'reader' of the stream 'deleted' has been deleted"
            ):
                await running.wait()

    asyncio.run(story())


def test_a_consumer_that_somebody_deletes_and_makes_again_ends_the_stream(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "anew") as it:
            running = read(it, [], lease=0.3).start()
            await until(lambda: _asked(it, 1))
            config = (await it.js.consumer_info("anew", "reader")).config
            await it.js.delete_consumer("anew", "reader")
            await it.js.add_consumer("anew", config)
            with pytest.raises(StreamMissing, match="'reader' of the stream 'anew' has been delet"):
                await running.wait()

    asyncio.run(story())


def test_a_reader_survives_a_server_that_is_started_again(tmp_path: Path) -> None:
    async def story(servers: Servers) -> None:
        seen: list[Any] = []
        async with stream(servers, "restarted") as it, read(it, seen).start() as running:
            await it.numbers(2)
            await until(lambda: len(seen) == 2)
            await asyncio.to_thread(servers.stop, 0)
            servers.start(0)
            await asyncio.to_thread(servers.wait)
            sink = write_jetstream("restarted.new", it.urls)
            await from_iterable([{"n": 3}]).to(sink).run()
            await until(lambda: len(seen) >= 3)
            running.begin_drain()

    with Servers(tmp_path) as servers:
        asyncio.run(story(servers))


def test_an_event_is_finished_when_the_server_has_it(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "written") as it:
            values = ({"n": n} for n in range(1_000))
            sink = write_jetstream("written.new", it.urls)
            report = await from_iterable(values).to(sink).run()
            assert report.statistics["finished"] == await it.messages() == 1_000

    asyncio.run(story())


class Order(msgspec.Struct):
    n: int


def test_what_has_the_same_id_is_stored_once(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "unique") as it:
            values = [Order(n % 10) for n in range(30)]
            sink = write_jetstream("unique.new", it.urls, id="n")
            report = await from_iterable(values).to(sink).run()
            assert report.statistics["finished"] == 10
            assert report.statistics["dropped"] == {"duplicate": 20}
            assert await it.messages() == 10
            assert report.statistics["stages"][-1]["known"] == 20

    asyncio.run(story())


@pytest.mark.parametrize("others", [0, 1])
def test_what_another_sink_accepts_is_finished_although_the_stream_has_it(
    server: Servers, others: int
) -> None:
    async def story() -> None:
        async with stream(server, "beside") as it:
            seen: list[Any] = []
            sinks = [write_jetstream(f"{it.name}.new", it.urls, id="n"), latency_histogram(every=9)]
            sinks[others:others] = [collect(seen)]
            report = await from_iterable([{"n": 1}, {"n": 1}]).to(*sinks).run()
            assert (report.statistics["finished"], report.statistics["dropped"]) == (2, {})
            assert len(seen) == 2
            assert await it.messages() == 1

    asyncio.run(story())


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, {None: 1}, [float("nan")], 1 << 64])
def test_a_value_that_json_does_not_have_is_an_error_of_the_sink(
    server: Servers, value: Any
) -> None:
    async def story() -> None:
        async with stream(server, "unwritten") as it:
            sink = write_jetstream(f"{it.name}.new", it.urls, on_error="skip")
            report = await from_iterable([value, {"n": 1}]).to(sink).run()
            assert (report.statistics["finished"], report.statistics["failed"]) == (1, 1)
            assert await it.messages() == 1

    asyncio.run(story())


@pytest.mark.parametrize("id", [None, "", " ", " 1", float("nan")])
def test_what_would_be_one_id_of_many_values_is_refused(server: Servers, id: Any) -> None:
    async def story() -> None:
        async with stream(server, "nameless") as it:
            values = [{"id": id}, {"id": 7}, {"id": id}]
            sink = write_jetstream(f"{it.name}.new", it.urls, id="id", on_error="skip")
            report = await from_iterable(values).to(sink).run()
            assert (report.statistics["finished"], report.statistics["failed"]) == (1, 2)
            assert await it.messages() == 1
            with pytest.raises(ValueError, match="id"):
                await (
                    from_iterable(values).to(write_jetstream(f"{it.name}.new", it.urls, "id")).run()
                )

    asyncio.run(story())


def test_a_message_whose_own_first_attempt_the_stream_has_is_no_duplicate(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "answers") as it:
            outbox = Outbox(it.client)
            await outbox.start()
            outcomes: list[bool] = []
            outbox.send("answers.new", b"1", "one", lambda _, known: outcomes.append(known))
            (letter,) = outbox._open.values()  # pyright: ignore[reportPrivateUsage]
            # The answer to its first attempt was lost.
            await it.js.publish("answers.new", b"1", headers={"Nats-Msg-Id": "one"})
            letter.doubt("no answer")
            await until(lambda: outcomes == [False])
            outbox.send("answers.new", b"1", "one", lambda _, known: outcomes.append(known))
            await until(lambda: outcomes == [False, True])
            await outbox.stop()

    asyncio.run(story())


def test_the_subject_may_come_of_the_value(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "routed") as it:
            sink = write_jetstream(lambda value: f"routed.{value['to']}", it.urls)
            await from_iterable([{"to": "a"}, {"to": "b"}]).to(sink).run()
            seen: list[Any] = []
            await read_jetstream("routed.b", None, it.urls, follow=False).to(collect(seen)).run()
            assert seen == [{"to": "b"}]

    asyncio.run(story())


def test_what_is_written_while_no_server_is_there_is_written_when_one_is(tmp_path: Path) -> None:
    async def story(servers: Servers) -> None:
        async with stream(servers, "away") as it:

            async def numbers() -> AsyncIterator[dict[str, int]]:
                for n in range(20):
                    if n == 10:
                        await asyncio.to_thread(servers.stop, 0)
                    if n == 15:
                        servers.start(0)
                        await asyncio.to_thread(servers.wait)
                    yield {"n": n}

            sink = write_jetstream("away.new", it.urls, id="n")
            report = await from_async_iterable(numbers).to(sink).run()
            assert report.statistics["finished"] == await it.messages() == 20

    with Servers(tmp_path) as servers:
        asyncio.run(story(servers))


def test_what_is_as_large_as_a_server_takes_is_written_and_a_byte_more_is_reported(
    server: Servers,
) -> None:
    async def story() -> None:
        async with stream(server, "large") as it:
            header = len(b"NATS/1.0\r\nNats-Msg-Id: name\r\n\r\n")
            largest = b"x" * (it.client.max_payload - header)

            async def writing(body: bytes) -> None:
                sink = write_jetstream("large.new", it.urls, id=lambda _: "name")
                await from_iterable([body]).to(sink).run()

            with pytest.raises(PayloadTooLarge, match="1,048,577 bytes"):
                await writing(largest + b"x")
            await writing(largest)
            assert await it.messages() == 1

    asyncio.run(story())


def test_mistakes_have_names(server: Servers) -> None:
    async def story() -> None:
        async with stream(server, "named") as it:
            await it.js.add_consumer(
                "named", ConsumerConfig(durable_name="reader", filter_subject="named.a")
            )

            async def reading(*arguments: Any, **options: Any) -> None:
                await read_jetstream(*arguments, **options).to(collect([])).run()

            async def writing(value: Any, subject: Any = "named.new", **options: Any) -> None:
                await from_iterable([value]).to(write_jetstream(subject, it.urls, **options)).run()

            with pytest.raises(StreamMissing, match="'nothing'"):
                await reading("nothing", None, it.urls)
            with pytest.raises(StreamDiffers, match=r"reads 'named.a', not 'named.b'"):
                await reading("named.b", "reader", it.urls)
            with pytest.raises(StreamMissing, match=r"no stream takes 'nobody.reads'"):
                await writing({}, "nobody.reads", patience=0.3)
            with pytest.raises(PayloadTooLarge, match=r"2,000,0.. bytes.*1,048,576"):
                await writing({"a": "x" * 2_000_000})
            with pytest.raises(TypeError, match="not JSON serializable"):
                await writing({"a": object()})
            for words in ("a b", "named.*", "named.>", "named..a", "", "a 4\r\nname\r\nPUB b"):
                with pytest.raises(ValueError, match="nothing can be published to the subject"):
                    await writing({"to": words}, lambda value: value["to"])
            with pytest.raises(ValueError, match="an identity one line"):
                await writing({"id": "1\r\nNats-Rollup: all"}, id="id")

    asyncio.run(story())


def test_where_no_server_is_the_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "penstock.streams.nats.streams.reading.connect", partial(connect, patience=0.2)
    )
    monkeypatch.setattr(
        "penstock.streams.nats.streams.writing.connect", partial(connect, patience=0.2)
    )
    nowhere = "nats://somebody:secret@127.0.0.1:1"
    reading = read_jetstream("a", None, nowhere).to(collect([]))
    writing = from_iterable([{}]).to(write_jetstream("a", nowhere))
    for pipeline in (reading, writing):
        with pytest.raises(CannotConnect, match=r"No NATS server answered at nats://.*127") as told:
            asyncio.run(pipeline.run())
        assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: read_jetstream(""), "a stream or a subject"),
        (lambda: read_jetstream("a", "b.c"), "must not contain dots"),
        (lambda: read_jetstream("a", servers="http://a"), "addresses of NATS servers"),
        (lambda: read_jetstream("a", servers=""), "addresses of NATS servers"),
        (lambda: read_jetstream("a", lease=0), "positive"),
        (lambda: read_jetstream("a", on_bad_message="skip"), "route"),  # type: ignore[call-overload]
        (lambda: write_jetstream("a.*"), "without blanks"),
        (lambda: write_jetstream("a", window=0), "positive"),
        (lambda: write_jetstream("a", on_error="ignore"), "skip"),  # type: ignore[arg-type]
    ],
)
def test_options_that_make_no_sense_are_refused(build: Callable[[], Any], words: str) -> None:
    with pytest.raises(BuildError, match=words):
        build()


def test_letters_are_messages_of_json(server: Servers) -> None:
    def fail(value: int) -> int:
        raise ValueError(f"no {value}")

    async def story() -> None:
        async with stream(server, "letters") as it:
            refused = route(write_jetstream("letters.all", it.urls))
            failing = from_iterable([7]).pipe(adaptive_flat_map(fail, on_error=refused))
            await failing.to(collect([])).run()
            seen: list[Any] = []
            await read(it, seen, follow=False).run()
            found = [(one["value"], one["error"], one["message"]) for one in seen]
            assert found == [(7, "ValueError", "no 7")]

    asyncio.run(story())
