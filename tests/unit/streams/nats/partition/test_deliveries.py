from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from reactivex import operators as ops

from penstock import (
    Fixed,
    Flowable,
    adaptive_flat_map,
    batch,
    chunk,
    for_each,
    from_iterable,
    group_by,
    spread,
)
from penstock.streams.delivery.ranges import finished_in
from penstock.streams.delivery.text import text_of
from penstock.streams.delivery.trial import NOTE, doubt_in
from penstock.streams.nats.cluster.deliveries import Deliveries
from penstock.streams.nats.cluster.layout import Layout
from penstock.streams.nats.cluster.lease_entry import LeaseEntry
from penstock.streams.nats.partition.batches import body_of, header_of
from penstock.streams.nats.partition.floors import Floors
from penstock.streams.nats.partition.partition import Partition
from penstock.streams.pipelines.pipeline import Engine
from penstock.streams.testing import MemorySink, VirtualTimeLoop
from tests.helpers.nats.model import Client, Server

ABOUT = ("a", 0, "today")
LAYOUT = Layout("a", None, None, batch=8)
FLOOR = '{"floor":2,"stored":0,"owner":"x"}'


def parity(number: int) -> int:
    """The key of an event."""
    return number % 2


@asynccontextmanager
async def owned(
    server: Server,
    handle: Callable[[Any], Any],
    done: list[int],
    letters: MemorySink | None = None,
    layout: Layout | None = None,
    stage: Any = None,
    operators: Sequence[Any] = (),
) -> AsyncGenerator[Partition]:
    """A partition with a pipeline that reverts failed events, or has these operators."""
    # Of which the first reads ahead.
    in_order = (
        group_by(parity),
        spread(),
        stage or adaptive_flat_map(handle, on_error="revert"),
    )
    table: Any = server.table
    unused: Any = None
    client: Any = Client(server)
    lease = LeaseEntry(unused, "p.0", b"me", 1, math.inf, asyncio.get_running_loop().time)
    deliveries = Deliveries("stream", letters or MemorySink())
    floors = Floors(table, "a", "today")
    floors.start()
    partition = Partition(0, lease, client, layout or LAYOUT, deliveries, floors)
    source: Any = from_iterable(list[int]())
    results = cast(Flowable[Any], source.pipe(*(operators or in_order)))
    running = results.to(for_each(done.append)).start(
        engine=Engine(deliveries.flowable, "stop"), drain_deadline=1
    )
    try:
        await partition.look()
        yield partition
    finally:
        running.cancel()
        await running.wait()
        await partition.abandon()
        await floors.stop()
        await client.close()


def test_a_reverted_event_is_given_again_a_second_later_until_it_is_done() -> None:
    loop = VirtualTimeLoop()
    tried: list[float] = []
    done: list[int] = []

    def handle(number: int) -> int:
        if number == 1:
            tried.append(round(loop.time(), 1))
            if len(tried) < 3:
                raise ValueError("not yet")
        return number

    async def story() -> None:
        server = Server()
        for number in (1, 2, 3):
            server.publish("key", b"%d" % number)
        async with owned(server, handle, done):
            await asyncio.sleep(1.5)
            assert done == [2, 3]
            assert server.table.floor == 0
            await asyncio.sleep(1)
            assert done == [2, 3, 1]
            assert server.table.floor == 3
            assert tried == [tried[0], tried[0] + 1, tried[0] + 2]

    loop.run_until_complete(story())
    loop.close()


def test_a_reverted_event_is_left_to_the_next_owner_of_its_partition() -> None:
    loop = VirtualTimeLoop()
    tried: list[int] = []

    def handle(number: int) -> int:
        tried.append(number)
        raise ValueError("never")

    async def story() -> None:
        server = Server()
        server.publish("key", b"1")
        async with owned(server, handle, []) as partition:
            await asyncio.sleep(0.5)
            await partition.stop()
            await asyncio.sleep(5)
            assert tried == [1]
            assert server.table.floor == 0

    loop.run_until_complete(story())
    loop.close()


def test_a_flood_of_messages_that_are_not_json_waits_for_the_dead_letters() -> None:
    loop = VirtualTimeLoop()
    done: list[int] = []
    dead = MemorySink(seconds=0.02)

    async def story() -> None:
        server = Server()
        for _ in range(500):
            server.publish("key", b"garbage")
        server.publish("key", b"1")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("penstock.streams.failures.dead_letters.MOST_LETTERS", 8)
            async with owned(server, lambda number: number, done, dead):
                await asyncio.sleep(15)
                assert (len(dead.values), done) == (500, [1])
                assert server.table.floor == 501

    loop.run_until_complete(story())
    loop.close()


@pytest.mark.parametrize(
    "entry",
    [
        *(b"garbage", b"", b"[]", b"{}", b"\xff", b'{"floor": 2, "stored": 0, "owner": ""}'),
        # A whole one that says nothing, of another partition, stream and time, and a damaged one.
        text_of(ABOUT, "{}").encode(),
        text_of(("a", 1, "today"), FLOOR).encode(),
        text_of(("b", 0, "today"), FLOOR).encode(),
        text_of(("a", 0, "yesterday"), FLOOR).encode(),
        text_of(ABOUT, FLOOR).replace('"floor":2', '"floor":3').encode(),
        text_of(ABOUT, FLOOR).replace("penstock2", "penstock3").encode(),
    ],
)
def test_a_floor_that_was_not_written_for_this_partition_is_none(
    entry: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    loop = VirtualTimeLoop()
    done: list[int] = []

    async def story() -> None:
        server = Server()
        for number in (1, 2, 3):
            server.publish("key", b"%d" % number)
        await server.table.update("p.0", entry, 0)
        async with owned(server, lambda number: number, done):
            await asyncio.sleep(2)
            assert done == [1, 2, 3]
            assert server.table.floor == 3

    loop.run_until_complete(story())
    loop.close()
    assert caplog.text.count("the floor of partition 0 is not used") == 1


@pytest.mark.parametrize("deleted", [0, 2])
def test_a_floor_that_is_ahead_of_what_the_stream_has_skips_nothing(
    deleted: int, caplog: pytest.LogCaptureFixture
) -> None:
    loop = VirtualTimeLoop()
    done: list[int] = []

    async def story() -> None:
        server = Server()
        # The stream has lost its end, and has new messages since.
        entry = text_of(ABOUT, '{"floor":4,"stored":1000.0,"owner":""}')
        await server.table.update("p.0", entry.encode(), 0)
        await asyncio.sleep(2)
        for number in (1, 2, 3) if deleted else (1, 2, 3, 4, 5):
            server.publish("key", b"%d" % number)
        server.deleted = deleted
        async with owned(server, lambda number: number, done):
            await asyncio.sleep(2)
            assert done == ([3] if deleted else [1, 2, 3, 4, 5])

    loop.run_until_complete(story())
    loop.close()
    assert "it is ahead of what the stream has" in caplog.text


@pytest.mark.parametrize("deleted", [0, 2, 3])
def test_a_floor_whose_message_is_as_it_was_or_long_deleted_is_gone_on_from(deleted: int) -> None:
    loop = VirtualTimeLoop()
    done: list[int] = []

    async def story() -> None:
        server = Server()
        for number in (1, 2, 3, 4):
            server.publish("key", b"%d" % number)
        (_, _, (stored, _), _) = server.stored
        entry = text_of(ABOUT, f'{{"floor":3,"stored":{stored!r},"owner":""}}')
        await server.table.update("p.0", entry.encode(), 0)
        server.deleted = deleted
        async with owned(server, lambda number: number, done):
            await asyncio.sleep(2)
            assert done == [4]

    loop.run_until_complete(story())
    loop.close()


def test_a_batch_with_identities_that_are_none_goes_to_the_dead_letters() -> None:
    loop = VirtualTimeLoop()
    dead = MemorySink()
    done: list[int] = []

    async def story() -> None:
        server = Server()
        body = body_of([b"1", b"2"], ["a", "b"]).replace(b'"b"', b"[]")
        server.publish("batch", body, header_of(2))
        server.publish("key", b"3")
        layout = Layout("a", "id", None, batch=8)
        async with owned(server, lambda number: number, done, dead, layout):
            await asyncio.sleep(2)
            assert [letter.value for letter in dead.values] == [body]
            assert done == [3]
            assert server.table.floor == 2

    loop.run_until_complete(story())
    loop.close()


def test_a_message_that_cannot_be_read_is_reported_and_not_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = VirtualTimeLoop()
    done: list[int] = []
    broken = True

    def identities(message: object) -> None:
        if broken:
            raise RuntimeError("a mistake of ours")

    async def story() -> None:
        nonlocal broken
        server = Server()
        monkeypatch.setattr("penstock.streams.nats.partition.partition.identities_of", identities)
        server.publish("key", b"1")
        async with owned(server, lambda number: number, done) as partition:
            for _ in range(3):
                await asyncio.sleep(1)
                with pytest.raises(RuntimeError, match="a mistake of ours"):
                    await partition.look()
                await partition.look()
            assert done == []
            await asyncio.sleep(1)
            with pytest.raises(RuntimeError, match="a mistake of ours"):
                await partition.look()
            broken = False
            await partition.look()
            await asyncio.sleep(1)
            assert done == [1]

    loop.run_until_complete(story())
    loop.close()


def test_nothing_begins_that_was_in_the_pipeline_when_the_lease_ran_out() -> None:
    loop = VirtualTimeLoop()
    begun: list[int] = []
    owners: list[Partition] = []

    async def handle(number: int) -> int:
        begun.append(number)
        await asyncio.sleep(1)
        # As if the loop had been blocked for longer than that.
        owners[0].lease.until = loop.time()
        return number

    async def story() -> None:
        server = Server()
        for number in range(20):
            server.publish("key", b"%d" % number)
        async with owned(server, handle, []) as partition:
            owners.append(partition)
            await asyncio.sleep(9)
            assert begun == [0]

    loop.run_until_complete(story())
    loop.close()


def filled(count: int) -> Server:
    """A server with the numbers from 0 on, one in each message."""
    server = Server()
    for number in range(count):
        server.publish("key", b"%d" % number)
    return server


async def look_for(partition: Partition, seconds: int) -> None:
    """Let so many seconds pass, and look through a partition in each, as its worker does."""
    for _ in range(seconds):
        await asyncio.sleep(1)
        await partition.look()


async def own_and_hand_over(server: Server, stage: Any, done: list[int], after: float) -> None:
    """Work on a partition with this stage, and hand it over so many seconds later."""
    async with owned(server, int, done, stage=stage) as partition:
        await asyncio.sleep(after)
        await partition.stop()


def test_a_partition_is_handed_over_when_what_has_begun_has_ended() -> None:
    loop = VirtualTimeLoop()
    done: list[int] = []

    async def handle(number: int) -> int:
        await asyncio.sleep(1)
        return number

    async def story() -> None:
        server, stage = filled(100), adaptive_flat_map(handle, Fixed(2))
        await own_and_hand_over(server, stage, done, after=2.5)
        assert loop.time() < 4
        # Two keys.
        assert done == [0, 1, 2, 3, 4, 5]
        assert server.table.floor == 6
        async with owned(server, handle, done, stage=stage):
            await asyncio.sleep(60)
        assert done == list(range(100))

    loop.run_until_complete(story())
    loop.close()


def test_a_batch_that_has_begun_is_all_that_a_partition_waits_for_when_it_is_handed_over() -> None:
    loop = VirtualTimeLoop()
    done: list[int] = []

    async def handle(numbers: list[int]) -> list[int]:
        await asyncio.sleep(1)
        return numbers

    async def story() -> None:
        server = filled(100)
        await own_and_hand_over(server, batch(handle, max_size=2), done, after=2.5)
        assert loop.time() < 4
        assert done == list(range(server.table.floor))

    loop.run_until_complete(story())
    loop.close()


def test_what_comes_before_others_that_have_begun_is_left_to_the_next_owner_too() -> None:
    loop = VirtualTimeLoop()
    done: list[int] = []

    async def handle(number: int) -> int:
        await asyncio.sleep(1 if number % 2 else 10)
        return number

    async def story() -> None:
        server, stage = filled(20), adaptive_flat_map(handle, Fixed(2))
        # The first of one key has begun, and the fifth of the other.
        await own_and_hand_over(server, stage, done, after=4.5)
        assert 10 < loop.time() < 11
        assert done == [1, 3, 5, 7, 9, 0]
        assert server.table.floor == 2
        async with owned(server, handle, done, stage=stage):
            await asyncio.sleep(95)
        assert sorted(done) == list(range(20))
        assert server.table.floor == 20

    loop.run_until_complete(story())
    loop.close()


@pytest.mark.parametrize("in_batches", [False, True])
def test_what_is_done_above_a_slow_event_is_not_repeated_after_a_loss(*, in_batches: bool) -> None:
    loop = VirtualTimeLoop()
    done: list[int] = []
    begun: list[int] = []

    async def handle(number: int) -> int:
        begun.append(number)
        await asyncio.sleep(0.001 if number % 2 else 100)
        return number

    async def story() -> None:
        # Every second event is of the slow key.
        server, stage = Server(), adaptive_flat_map(handle, Fixed(4))
        layout = replace(LAYOUT, batch=8 if in_batches else None)
        for first in range(0, 2_000, 8):
            numbers = [b"%d" % number for number in range(first, first + 8)]
            if in_batches:
                server.publish("batch", body_of(numbers, []), header_of(8))
            else:
                for number in numbers:
                    server.publish("key", number)
        async with owned(server, handle, done, layout=layout, stage=stage) as partition:
            await look_for(partition, 20)
            # They are not held up, although 128 events of the slow key wait soon.
            assert done == list(range(1, 2_000, 2))
        begun.clear()
        # It was killed, so what it may have begun is begun one by one, behind the slow one.
        async with owned(server, handle, done, layout=layout, stage=stage):
            await asyncio.sleep(250)
        assert begun == [0, 2, 4]

    loop.run_until_complete(story())
    loop.close()


def test_what_was_done_above_a_floor_says_nothing_of_a_stream_that_has_lost_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = VirtualTimeLoop()
    done: list[int] = []

    async def handle(number: int) -> int:
        await asyncio.sleep(0.001 if number % 2 else 100)
        return number

    async def story() -> None:
        server, stage = filled(10), adaptive_flat_map(handle, Fixed(4))
        async with owned(server, handle, done, stage=stage):
            await asyncio.sleep(1)
            assert done == [1, 3, 5, 7, 9]
        del server.stored[5:]
        for number in range(11, 20):
            server.publish("key", b"%d" % number)
        async with owned(server, lambda number: number, done):
            await asyncio.sleep(10)
        assert sorted({*done}) == [0, 1, 2, 3, 4, 5, 7, 9, *range(11, 20)]

    loop.run_until_complete(story())
    loop.close()
    assert "what is done above it is ahead of the stream" in caplog.text


def test_what_is_done_above_a_floor_and_has_no_room_in_its_entry_is_said_and_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The room ends inside a range of messages that are done.
    monkeypatch.setattr("penstock.streams.nats.partition.partition._TEXT", 45)
    loop = VirtualTimeLoop()
    done: list[int] = []
    begun: list[int] = []
    # The even ones are of the slow key.
    numbers = [2 * n + (n % 5 > 0) for n in range(400)]
    quick = [number for number in numbers if number % 2]

    async def handle(number: int) -> int:
        await asyncio.sleep(0.001 if number % 2 else 100)
        return number

    async def story() -> None:
        server, stage = Server(), adaptive_flat_map(handle, Fixed(4))
        for number in numbers:
            server.publish("key", b"%d" % number)
        layout = replace(LAYOUT, batch=None)
        async with owned(server, handle, done, layout=layout, stage=stage) as partition:
            await look_for(partition, 20)
            assert done == quick
        base, text, sequence, _ = server.table.said["above"]
        # By the last of these messages it is seen whether the stream is still the same.
        assert finished_in(base, text)[-1][1] == sequence + 1
        async with owned(server, begun.append, done, layout=layout):
            await asyncio.sleep(10)

    loop.run_until_complete(story())
    loop.close()
    assert caplog.text.count("cannot be noted") == 1
    repeated = [number for number in begun if number % 2]
    assert 1 < len(repeated) < len(quick)
    assert repeated == quick[-len(repeated) :]
    assert [number for number in begun if not number % 2] == numbers[::5]


@pytest.mark.parametrize("size", [200, 1_000])
def test_an_operator_that_holds_more_than_a_partition_reads_ahead_gets_more(size: int) -> None:
    loop = VirtualTimeLoop()
    done: list[Any] = []

    async def story() -> None:
        server = filled(2 * size)
        async with owned(server, int, done, operators=[chunk(size)]) as partition:
            await look_for(partition, 5)
            assert [len(one) for one in done] == [size, size]
            assert server.table.floor == 2 * size
            # What the next owner would suspect is as little as before when that is over.
            await look_for(partition, 5)
            assert server.table.entries["p.0"][0].count(b'"!0,0,0,0,128"') == 1

    loop.run_until_complete(story())
    loop.close()


def test_a_partition_reads_no_further_ahead_while_handlers_are_busy() -> None:
    loop = VirtualTimeLoop()

    async def handle(number: int) -> int:
        await asyncio.sleep(0.05)
        return number

    async def story() -> None:
        server = filled(1_000)
        stage = adaptive_flat_map(handle, Fixed(2))
        async with owned(server, handle, [], stage=stage) as partition:
            for _ in range(15):
                await look_for(partition, 1)
                assert b'"!0,0,0,0,128"' in server.table.entries["p.0"][0]

    loop.run_until_complete(story())
    loop.close()


def test_a_partition_that_needs_more_than_it_may_hold_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.streams.nats.partition.partition._MOST", 512)
    loop = VirtualTimeLoop()

    async def story() -> None:
        async with owned(filled(2_000), int, [], operators=[chunk(1_000)]) as partition:
            await look_for(partition, 10)

    loop.run_until_complete(story())
    loop.close()
    assert caplog.text.count("nothing more of partition 0 is read") == 1
    assert "at most 512 of each" in caplog.text


@pytest.mark.parametrize("handed_over", [True, False])
def test_the_next_owner_continues_inside_a_message(handed_over: bool) -> None:
    loop = VirtualTimeLoop()
    done: list[int] = []

    async def handle(number: int) -> int:
        await asyncio.sleep(0.01)
        return number

    async def story() -> None:
        server = Server()
        # More events than the pipeline takes in.
        numbers, layout = list(range(3_000)), replace(LAYOUT, batch=3_000)
        body = body_of([b"%d" % number for number in numbers], [])
        server.publish("batch", body, header_of(len(numbers)))
        async with owned(server, handle, done, layout=layout) as partition:
            await asyncio.sleep(1.05)
            if handed_over:
                await partition.stop()
            finished = len(done)
        assert 0 < finished < 3_000
        sequence, place = server.table.reached
        assert sequence == 1
        assert place == finished if handed_over else finished - 60 <= place <= finished
        async with owned(server, handle, done, layout=layout):
            await asyncio.sleep(60)
            assert server.table.floor == 1
        repeated = [number for number in numbers if done.count(number) > 1]
        assert sorted({*done}) == numbers
        assert repeated == numbers[place:finished]

    loop.run_until_complete(story())
    loop.close()


def test_an_event_that_hangs_holds_the_floor_inside_its_message() -> None:
    loop = VirtualTimeLoop()
    done: list[int] = []
    begun: list[int] = []

    async def handle(number: int) -> int:
        begun.append(number)
        await asyncio.sleep(100 if number == 3 else 0.01)
        return number

    async def story() -> None:
        server = Server()
        # Even and odd numbers are two keys.
        server.publish("batch", body_of([b"0", b"2", b"3", b"4", b"5"], []), header_of(5))
        async with owned(server, handle, done):
            await asyncio.sleep(1)
            assert (done, server.table.reached) == ([0, 2, 4], (1, 2))
        begun.clear()
        async with owned(server, handle, done):
            await asyncio.sleep(150)
            assert server.table.floor == 1
        # What is done is not begun again, before the one that hangs and behind it.
        assert sorted(begun) == [3, 5]

    loop.run_until_complete(story())
    loop.close()


def test_an_event_of_a_message_that_fails_is_given_again_alone() -> None:
    loop = VirtualTimeLoop()
    done: list[int] = []
    tried: list[int] = []

    def handle(number: int) -> int:
        tried.append(number)
        if tried.count(2) < 3 and number == 2:
            raise ValueError("not yet")
        return number

    async def story() -> None:
        server = Server()
        server.publish("batch", body_of([b"1", b"2", b"3"], []), header_of(3))
        async with owned(server, handle, done):
            await asyncio.sleep(0.5)
            assert (done, server.table.reached) == ([1, 3], (1, 1))
            await asyncio.sleep(5)
            assert (done, server.table.floor) == ([1, 3, 2], 1)
            assert tried == [1, 2, 3, 2, 2]

    loop.run_until_complete(story())
    loop.close()


def test_a_floor_inside_a_message_that_is_deleted_says_nothing_of_the_next() -> None:
    loop = VirtualTimeLoop()
    done: list[int] = []

    async def story() -> None:
        server = Server()
        entry = text_of(ABOUT, '{"floor":0,"stored":0,"after":1,"begun":2,"owner":""}')
        await server.table.update("p.0", entry.encode(), 0)
        for _ in range(2):
            server.publish("batch", body_of([b"1", b"2", b"3"], []), header_of(3))
        server.deleted = 1
        async with owned(server, lambda number: number, done):
            await asyncio.sleep(1)
        assert (done, server.table.floor) == ([1, 2, 3], 2)

    loop.run_until_complete(story())
    loop.close()


def of_four_in_doubt(stage: Callable[[Flowable[int]], Flowable[Any]]) -> list[Any]:
    """The results of four events of one key, of which the first was lost with its owner."""
    loop = VirtualTimeLoop()
    done: list[Any] = []

    async def story() -> None:
        server = Server()
        for number in range(1, 5):
            server.publish("key", b"%d" % number)
        lost = Floors(cast(Any, server.table), "a", "today")
        lost.start()
        await lost.claim(0, "lost 1", 4)
        await lost.stop()
        async with owned(server, str, done, stage=stage):
            await asyncio.sleep(60)

    loop.run_until_complete(story())
    loop.close()
    return done


def test_an_event_that_outlasts_the_lease_stays_noted_for_the_next_owner() -> None:
    loop = VirtualTimeLoop()
    server, is_over = Server(), asyncio.Event()
    owners: list[Partition] = []
    notes: list[str] = []

    def write(number: int) -> None:
        notes.append(server.table.said["note"])
        if number == 3:
            # As if it had blocked the loop for so long.
            owners[0].lease.until = loop.time()
            is_over.set()

    async def story() -> None:
        for number in range(1, 5):
            server.publish("key", b"%d" % number)
        lost = Floors(cast(Any, server.table), "a", "today")
        await lost.claim(0, "lost 1", 4)
        sink: Any = SimpleNamespace(append=write)
        async with owned(server, int, sink) as partition:
            owners.append(partition)
            await is_over.wait()
            # Until the worker notices it.
            await asyncio.sleep(0.01)
            await partition.abandon()
            await asyncio.sleep(1)
        assert len(notes) == 3
        assert server.table.said["note"] == notes[-1]

    loop.run_until_complete(story())
    loop.close()


@pytest.mark.parametrize("seed", range(20))
def test_an_event_is_a_dead_letter_only_if_three_owners_in_a_row_were_lost_with_it_alone(
    seed: int,
) -> None:
    loop = VirtualTimeLoop()
    drawn = Random(seed)
    guilty = drawn.randrange(40)
    letters = MemorySink()
    done: list[int] = []
    # The events that were noted when an owner was lost, if each is one.
    alone: list[int] = []

    async def story() -> None:
        server, is_lost = filled(40), asyncio.Event()

        async def handle(number: int) -> int:
            await asyncio.sleep(0.02)
            if number == guilty:
                is_lost.set()
                await asyncio.sleep(math.inf)
            return number

        async def live() -> None:
            async with owned(server, handle, done, letters) as partition:
                is_lost.clear()
                # Half of them are lost for another reason, at some time.
                patience = drawn.choice([60, drawn.random()])
                with suppress(TimeoutError):
                    await asyncio.wait_for(is_lost.wait(), patience)
                partition.lease.until = -math.inf

        while server.table.floor < 40:
            seen = len(letters.values)
            await live()
            if len(letters.values) > seen:
                assert len(letters.values) == seen + 1
                assert alone[-3:] == [letters.values[-1].value] * 3
            doubt = doubt_in(server.table.said["note"].removeprefix(NOTE))
            assert doubt is not None
            if doubt.reach >= 0:
                alone.append((doubt.reach - 1) // 8 - 1 if doubt.begun == 1 else -1)
        assert sorted({*done, *(letter.value for letter in letters.values)}) == list(range(40))

    loop.run_until_complete(story())
    loop.close()


def test_an_event_in_doubt_that_an_operator_holds_lets_the_next_one_in() -> None:
    def pairs(source: Flowable[int]) -> Flowable[list[str]]:
        return source.pipe(adaptive_flat_map(str), ops.buffer_with_count(2))

    done = of_four_in_doubt(pairs)
    assert done == [["1", "2"], ["3", "4"]]


def test_what_an_operator_lets_go_brings_no_event_in_doubt_beside_another_one() -> None:
    working: set[int] = set()
    together: list[int] = []

    async def handle(number: int) -> int:
        working.add(number)
        together.append(len(working))
        await asyncio.sleep(8 if number == 2 else 0)
        working.remove(number)
        return number

    def lists(source: Flowable[int]) -> Flowable[list[int]]:
        return source.pipe(
            adaptive_flat_map(handle, limit=Fixed(4)), ops.buffer_with_time_or_count(5, 100)
        )

    done = of_four_in_doubt(lists)
    assert sorted(number for numbers in done for number in numbers) == [1, 2, 3, 4]
    # The last two begin at once, since the first was held for long.
    assert together == [1, 1, 1, 2]
