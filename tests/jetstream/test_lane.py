"""A partition and its pipeline alone, on virtual time: whatever gets lost, order is kept."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from orjson import dumps

from operators import adaptive_flat_map, group_by, spread
from sinks import for_each
from streams import from_iterable, retry, route
from streams.engine import Engine
from streams.jetstream.deliveries import Deliveries
from streams.jetstream.floors import Floors
from streams.jetstream.layout import Layout
from streams.jetstream.lease import Lease
from streams.jetstream.partition import Partition
from streams.running import Running
from streams.testing import MemorySink, VirtualTimeLoop
from tests.jetstream.model import Client, Server, Table

T = TypeVar("T")
_EPOCHS = count()
LAGS = st.sampled_from([0, 3])
KEYS = st.sampled_from("abc")
# What a writing takes, and less, and more.
PAUSES = st.sampled_from([0.0, 0.0005, 0.0015, 0.0025, 0.01])


class Book:
    """What the handlers did, whoever owned the partition."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.over: set[tuple[str, int]] = set()
        self.working: Counter[str] = Counter()
        self.wrong: list[str] = []

    def begin(self, key: str, n: int, sequence: int) -> None:
        if sequence <= self._table.floor:
            self.wrong.append(f"{key} {n} began although the floor is above it")
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
        self.lease = Lease(table, "p.0", b"me", next(_EPOCHS), math.inf, loop.time)
        self.letters = MemorySink()
        self.deliveries = Deliveries("stream", self.letters)
        layout = Layout("lane", None, "key", partitions=1)
        floors: Any = server.table
        self.floors = Floors(floors, "today")
        self.floors.start()
        self.partition = Partition(0, self.lease, self.client, layout, self.deliveries, self.floors)
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
        self._book.begin(key, n, event["sequence"])
        try:
            await asyncio.sleep(event["seconds"])
            if event["poison"]:
                self._book.over.add((key, n))
                raise ValueError("poison")
        finally:
            self._book.end(key)
        return event

    def _done(self, event: dict[str, Any]) -> None:
        self._book.over.add((event["key"], event["n"]))

    async def leave(self) -> None:
        """Hand the partition over."""
        await self.partition.stop()
        await self.gone()

    async def gone(self) -> None:
        """Without a word, as if killed."""
        await self.lose()
        await self.end()

    async def lose(self) -> None:
        """The lease is over; what is written of the floor may still be under way."""
        self.lease.deadline = -math.inf
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
                self.sent[key] += 1
                event = {"key": key, "n": self.sent[key], "seconds": seconds, "poison": poison}
                event["sequence"] = len(self.server.stored) + 1
                self.server.publish(key, dumps(event))

        self.do(publish())

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.02, 0.5, 3.0]))
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
        """As a worker does that wakes up and hands over what is not its own any more."""
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
            everything = {(key, n) for key, last in self.sent.items() for n in range(1, last + 1)}
            assert everything == self.book.over
            assert self.server.table.floor == len(self.server.stored)
            assert self.book.wrong == []
        finally:
            self.do(self._end_all())
            self.loop.close()

    async def _to_the_end(self) -> None:
        for _ in range(200):
            if self.server.table.floor == len(self.server.stored):
                break
            await asyncio.sleep(1)
            self.server.beat()
            await self.owner.partition.look()
        await self.owner.leave()

    async def _end_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


TestLane = Lane.TestCase
TestLane.settings = settings(
    max_examples=100,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
