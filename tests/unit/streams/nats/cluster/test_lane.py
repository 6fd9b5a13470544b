"""A partition and its pipeline alone, on virtual time: whatever gets lost, order is kept.

Messages hold one event or several. Duplicates within the window in messages of several events are
processed once, whichever worker owns the partition.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from orjson import dumps

from penstock import adaptive_flat_map, for_each, from_iterable, group_by, retry, route, spread
from penstock.streams.nats.cluster.deliveries import Deliveries
from penstock.streams.nats.cluster.layout import Layout, token
from penstock.streams.nats.cluster.lease_entry import LeaseEntry
from penstock.streams.nats.partition.batches import body_of, header_of
from penstock.streams.nats.partition.floors import Floors
from penstock.streams.nats.partition.partition import Partition
from penstock.streams.pipelines.pipeline import Engine
from penstock.streams.pipelines.running import Running
from penstock.streams.testing import MemorySink, VirtualTimeLoop
from tests.helpers.nats.model import Client, Server, Table
from tests.helpers.walks import some_of

T = TypeVar("T")
_EPOCHS = count()
LAGS = st.sampled_from([0, 3])
KEYS = st.sampled_from("abc")
WINDOW = 2.0
# The time of a write, and less, and more.
PAUSES = st.sampled_from([0.0, 0.0005, 0.0015, 0.0025, 0.01])


class Book:
    """The record of the handlers of all owners."""

    def __init__(self, table: Table) -> None:
        self._table = table
        # Which events are not duplicates, and which of them have ended, by message and place.
        self.expected: set[tuple[int, int]] = set()
        self.ended: set[tuple[int, int]] = set()
        self.over: set[tuple[str, int]] = set()
        self.working: Counter[str] = Counter()
        self.wrong: list[str] = []

    def begin(self, key: str, n: int, sequence: int, place: int) -> None:
        if (sequence, place) < self._table.reached:
            self.wrong.append(f"{key} {n} began although the floor is above it")
        if (sequence, place) not in self.expected:
            self.wrong.append(f"{key} {n} is a duplicate")
        self.working[key] += 1
        if self.working[key] > 1:
            self.wrong.append(f"{key} has two events at work, {n} is one")
        if n > 1 and (key, n - 1) not in self.over:
            self.wrong.append(f"{key} {n} began before {n - 1} had ended")

    def end(self, key: str) -> None:
        self.working[key] -= 1


class Owner:
    """A worker that has the partition."""

    def __init__(self, server: Server, book: Book) -> None:
        self.client: Any = Client(server)
        self._book = book
        loop = asyncio.get_running_loop()
        table: Any = None
        self.lease = LeaseEntry(table, "p.0", b"me", next(_EPOCHS), math.inf, loop.time)
        self.letters = MemorySink()
        self.deliveries = Deliveries("stream", self.letters)
        layout = Layout("lane", "id", "key", WINDOW, partitions=1, batch=6)
        floors: Any = server.table
        self.floors = Floors(floors, "a", "today")
        self.floors.start()
        self.partition = Partition(
            0,
            self.lease,
            self.client,
            layout,
            self.deliveries,
            self.floors,
            # Owners are lost more often than events may cost one.
            attempts=1_000,
        )
        self.pipeline = (
            from_iterable(list[dict[str, Any]]())
            .pipe(group_by("key"), spread(), adaptive_flat_map(self._handle))
            .to(for_each(self._done))
        )
        self.running = self._run()

    def _run(self) -> Running:
        policy = retry(2, then=route(self.letters))
        return self.pipeline.start(
            engine=Engine(self.deliveries.flowable, policy), drain_deadline=1
        )

    async def begin_anew(self) -> None:
        """As after the loss of another lease."""
        self.running.cancel()
        await self.running.wait()
        self.running = self._run()
        self.partition.begin_anew()

    async def _handle(self, event: dict[str, Any]) -> dict[str, Any]:
        key, n = event["key"], event["n"]
        self._book.begin(key, n, *event["where"])
        try:
            await asyncio.sleep(event["seconds"])
            if event["poison"]:
                self._book.over.add((key, n))
                self._book.ended.add(tuple(event["where"]))
                raise ValueError("poison")
        finally:
            self._book.end(key)
        return event

    def _done(self, event: dict[str, Any]) -> None:
        self._book.over.add((event["key"], event["n"]))
        self._book.ended.add(tuple(event["where"]))

    async def leave(self) -> None:
        """Hand the partition over."""
        await self.partition.stop()
        await self.gone()

    async def gone(self) -> None:
        """Disappear, as if killed."""
        await self.lose()
        await self.end()

    async def lose(self) -> None:
        """The lease is over; a write of the floor may still be in progress."""
        self.lease.until = -math.inf
        self.running.cancel()
        await self.running.wait()
        await self.partition.abandon()

    async def end(self) -> None:
        await self.floors.stop()
        await self.client.close()


class Lane(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.server = Server()
        self.book = Book(self.server.table)
        self.sent: Counter[str] = Counter()
        self.highest = 0
        # When the first of each identity in a batch was stored, and its event.
        self.first: dict[str, float] = {}
        self.events: dict[str, dict[str, Any]] = {}
        self.owner = self.do(self._new_owner())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def _new_owner(self) -> Owner:
        owner = Owner(self.server, self.book)
        with suppress(TimeoutError):
            await owner.partition.look()
        return owner

    @rule(
        key=KEYS,
        count=st.integers(1, 5),
        seconds=st.sampled_from([0.0, 0.01, 1.0]),
        poison=st.sampled_from([False, False, False, True]),
    )
    def publish(self, key: str, count: int, seconds: float, poison: bool) -> None:
        async def publish() -> None:
            for _ in range(count):
                event = self._new_event(key, seconds, poison)
                where = len(self.server.stored) + 1, 0
                self.book.expected.add(where)
                event["where"] = where
                self.server.publish(token(key), dumps(event))

        self.do(publish())

    def _new_event(self, key: str, seconds: float, poison: bool) -> dict[str, Any]:
        self.sent[key] += 1
        n = self.sent[key]
        return {"id": f"{key}{n}", "key": key, "n": n, "seconds": seconds, "poison": poison}

    @rule(
        keys=st.lists(KEYS, max_size=3),
        again=st.lists(st.integers(1, 6), max_size=3),
        seconds=st.sampled_from([0.0, 0.01, 1.0]),
        poison=st.sampled_from([False, False, False, True]),
    )
    def publish_a_batch(
        self, keys: list[str], again: list[int], seconds: float, poison: bool
    ) -> None:
        before = list(self.events)
        events = [self._new_event(key, seconds, poison) for key in keys]
        ids = sorted({before[-back:][0] for back in again if before})
        events += [dict(self.events[id]) for id in ids]
        self.events |= {event["id"]: event for event in events}
        if events:
            self.do(self._publish_together(events))

    async def _publish_together(self, events: list[dict[str, Any]]) -> None:
        # As servers report it: whole nanoseconds.
        now = round(asyncio.get_running_loop().time() * 1e9) / 1e9
        for place, event in enumerate(events):
            event["where"] = where = len(self.server.stored) + 1, place
            if now >= self.first.get(event["id"], -math.inf) + WINDOW:
                self.first[event["id"]] = now
                self.book.expected.add(where)
        body = body_of([dumps(event) for event in events], [event["id"] for event in events])
        self.server.publish("batch", body, header_of(len(events)))

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.02, 0.5, 1.5, 3.0, 15.0]))
    def time_passes(self, seconds: float) -> None:
        self.do(asyncio.sleep(seconds))

    @rule(count=st.integers(1, 3))
    def deliveries_get_lost(self, count: int) -> None:
        self.server.lose_deliveries += count

    @rule(count=st.integers(1, 3))
    def writings_of_the_floor_get_lost(self, count: int) -> None:
        self.server.table.lose_writings += count

    @rule()
    def the_answer_to_a_writing_gets_lost(self) -> None:
        self.server.table.lose_answers += 1

    @rule()
    def a_writing_arrives_late(self) -> None:
        self.server.table.arrives_late()

    @rule()
    def the_owner_looks(self) -> None:
        self.server.beat()
        self.do(self._look())

    async def _look(self) -> None:
        with suppress(TimeoutError):
            await self.owner.partition.look()

    @rule()
    def the_pipeline_begins_anew(self) -> None:
        async def change() -> None:
            await self.owner.begin_anew()
            await self._look()

        self.do(change())

    @rule(lags=LAGS)
    def another_worker_is_given_the_partition(self, lags: int) -> None:
        self.server.lags = lags

        async def change() -> Owner:
            await self.owner.leave()
            return await self._new_owner()

        self.owner = self.do(change())

    @rule(lags=LAGS)
    def the_owner_dies(self, lags: int) -> None:
        self.server.lags = lags

        async def change() -> Owner:
            await self.owner.gone()
            return await self._new_owner()

        self.owner = self.do(change())

    @rule(lags=LAGS, before=PAUSES, after=PAUSES)
    def another_worker_takes_over_before_the_owner_has_said_its_last(
        self, lags: int, before: float, after: float
    ) -> None:
        self.server.lags = lags

        async def change() -> Owner:
            old = self.owner
            await old.lose()
            await asyncio.sleep(before)
            new, _ = await asyncio.gather(self._new_owner(), self._say(old, after))
            await old.end()
            return new

        self.owner = self.do(change())

    async def _say(self, old: Owner, after: float) -> None:
        """Act as a worker that wakes up and hands over a partition it no longer owns."""
        await asyncio.sleep(after)
        await old.partition.stop()

    @invariant()
    def the_floor_does_not_fall(self) -> None:
        assert self.server.table.floor >= self.highest
        self.highest = self.server.table.floor

    @invariant()
    def order_is_kept(self) -> None:
        assert self.book.wrong == []

    def teardown(self) -> None:
        table = self.server.table
        self.server.lose_deliveries = table.lose_writings = table.lose_answers = 0
        try:
            self.do(self._to_the_end())
            assert self.book.ended == self.book.expected
            assert self.server.table.floor == len(self.server.stored)
            assert self.book.wrong == []
        finally:
            self.do(self.end_all())
            self.loop.close()

    async def _to_the_end(self) -> None:
        for _ in range(200):
            if self.server.table.floor == len(self.server.stored):
                break
            await asyncio.sleep(1)
            self.server.beat()
            await self.owner.partition.look()
        await self.owner.leave()

    async def end_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


TestLane = Lane.TestCase
TestLane.settings = settings(
    max_examples=some_of(100),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_what_identifies_duplicates_is_kept_as_long_as_they_may_be_read_again() -> None:
    lane = Lane()
    lane.publish_a_batch(["a"], [], 0.0, False)
    lane.time_passes(1.0)
    # What is above the slow event, a duplicate, is read again by the next owner.
    lane.publish_a_batch(["b"], [1], 60.0, False)
    for _ in range(40):
        lane.time_passes(1.0)
        lane.the_owner_looks()
    lane.the_owner_dies(0)
    lane.time_passes(70.0)
    lane.teardown()


def test_an_identity_that_never_pauses_is_new_again_at_the_same_times_for_every_owner() -> None:
    lane = Lane()
    lane.publish_a_batch(["a"], [], 0.0, False)
    for pause in (1.5, 1.5, 1.5, 1.0):
        lane.time_passes(pause)
        lane.publish_a_batch([], [1], 0.0, False)
    # Stored after 0, 1.5, 3, 4.5 and 5.5 s: new at 0, 3 and 5.5.
    lane.time_passes(0.5)
    for _ in range(2):
        lane.the_owner_dies(0)
    # Is there no note of the one at 5.5, then 4.5 seems to be new, and so does this.
    lane.time_passes(0.9)
    lane.publish_a_batch([], [1], 0.0, False)
    assert len(lane.book.expected) == 3
    lane.teardown()


def test_nothing_older_than_two_windows_is_kept_when_all_is_done() -> None:
    lane = Lane()
    for _ in range(3):
        lane.publish_a_batch(["a"], [], 0.0, False)
        lane.time_passes(0.1)
    for _ in range(20):
        lane.time_passes(1.0)
        lane.the_owner_looks()
    assert lane.server.deleted == 3
    lane.teardown()


def test_a_partition_holds_no_more_than_a_few_full_messages() -> None:
    lane = Lane()
    for _ in range(200):
        lane.publish_a_batch(["a", "b", "c"], [], 60.0, False)
    lane.time_passes(1.0)
    # 128 events, of which a message may hold five, and these hold three.
    assert 25 <= lane.server.delivery <= 43
    lane.do(lane.owner.gone())
    lane.do(lane.end_all())
    lane.loop.close()


@pytest.mark.walks
def test_long_walks_keep_the_laws_too() -> None:
    """Hypothesis finds short stories; some faults need long ones, with few repetitions."""
    for seed in range(some_of(100)):
        try:
            _walk(Random(seed))
        except BaseException as error:
            error.add_note(f"walk with seed {seed}")
            raise


def _walk(random: Random) -> None:
    pick = random.choice
    lane = Lane()

    def lags() -> int:
        return pick([0, 0, 3])

    def seconds() -> float:
        return pick([0.0, 0.01, 1.0])

    def poison() -> bool:
        return pick([False, False, False, True])

    steps: list[Callable[[], None]] = [
        *[lambda: lane.publish(pick("abc"), pick([1, 2, 5]), seconds(), poison())] * 2,
        *[lambda: lane.publish_a_batch(some("abc", 3), some(range(1, 7), 3), seconds(), poison())]
        * 4,
        *[lambda: lane.time_passes(pick([0.001, 0.02, 0.5, 1.5, 1.5, 3.0, 15.0]))] * 5,
        lambda: lane.deliveries_get_lost(pick([1, 3])),
        lambda: lane.writings_of_the_floor_get_lost(pick([1, 3])),
        lane.the_answer_to_a_writing_gets_lost,
        lane.a_writing_arrives_late,
        lane.the_owner_looks,
        lane.the_pipeline_begins_anew,
        lambda: lane.another_worker_is_given_the_partition(lags()),
        lambda: lane.the_owner_dies(lags()),
        lambda: lane.another_worker_takes_over_before_the_owner_has_said_its_last(
            lags(), pick([0.0, 0.0015]), pick([0.0, 0.0025])
        ),
    ]

    def some(things: Sequence[T], most: int) -> list[T]:
        return random.choices(things, k=random.randint(0, most))

    for _ in range(40):
        pick(steps)()
        lane.the_floor_does_not_fall()
        lane.order_is_kept()
    lane.teardown()
