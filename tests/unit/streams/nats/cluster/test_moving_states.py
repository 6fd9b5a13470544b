"""States of a pipeline on many machines that move with the partitions of its events."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, cast

import pytest

from penstock import (
    Fixed,
    Flowable,
    Store,
    adaptive_flat_map,
    agg,
    collect,
    distinct_within,
    event_time,
    from_iterable,
    group_by,
    join,
    ops,
    spread,
    stateful,
    tumbling,
    window,
)
from penstock.streams.nats.cluster.deliveries import Deliveries
from penstock.streams.nats.cluster.layout import Layout
from penstock.streams.nats.cluster.lease_entry import LeaseEntry
from penstock.streams.nats.partition.batches import body_of, header_of
from penstock.streams.nats.partition.floors import Floors
from penstock.streams.nats.partition.partition import Partition
from penstock.streams.pipelines.pipeline import Engine
from penstock.streams.pipelines.running import Running
from penstock.streams.state.codec import key_in
from penstock.streams.testing import MemorySink, run_virtual
from penstock.streams.testing.fleet import Fleet, FleetMember
from penstock.streams.testing.plugin import Run
from tests.helpers.nats.model import Client, Server
from tests.helpers.walks import seeds

Make = Callable[[Store], Any]


class _Tables:
    """The floors of all partitions; each partition has a table of its own."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers

    def _of(self, key: str) -> Any:
        return self._servers[int(key.removeprefix("p."))].table

    async def get(self, key: str) -> Any:
        return await self._of(key).get("p.0")

    async def update(self, key: str, value: bytes, last: int) -> int:
        return cast(int, await self._of(key).update("p.0", value, last))


class Machines:
    """What all workers share: the events of the partitions, the states, and who has what."""

    def __init__(self, partitions: int) -> None:
        self.servers = [Server() for _ in range(partitions)]
        self.table: Any = _Tables(self.servers)
        self.layout = Layout("a", None, "key", partitions=partitions, batch=4)
        self.fleet = Fleet()
        self.owners: dict[int, Worker] = {}
        self._taken = 0

    def write(self, number: int, *events: Mapping[str, Any]) -> None:
        """Publish events in one message."""
        bodies = [json.dumps(event).encode() for event in events]
        if len(bodies) == 1:
            self.servers[number].publish("key", bodies[0])
        else:
            self.servers[number].publish("batch", body_of(bodies, []), header_of(len(bodies)))

    def lease(self) -> LeaseEntry:
        self._taken += 1
        unused: Any = None
        now = asyncio.get_running_loop().time
        return LeaseEntry(unused, "p", b"a worker", self._taken, inf, now)

    def states(self, stage: str) -> dict[Any, Any]:
        found = self.fleet.states(stage)
        return {key_in(key): json.loads(state) for key, state in found.items()}


class Worker:
    """One of several workers of a pipeline, as `nats.cluster.worker`, with leases as it is told."""

    def __init__(self, machines: Machines, *stages: Make, every: float = 0.02) -> None:
        self.machines = machines
        self.found: list[Any] = []
        self.partitions: dict[int, Partition] = {}
        self.is_dead = False
        self._backend = FleetMember(machines.fleet)
        self._store = Store.of(self._backend, "fleet", every=every)
        self._deliveries = Deliveries("stream", MemorySink())
        self._floors = Floors(machines.table, "a", "today")
        self._floors.start()
        source: Any = from_iterable(list[Any]())
        made: Any = source.pipe(*(make(self._store) for make in stages))
        self._pipeline = cast("Flowable[Any]", made).to(collect(self.found))
        self._clients: list[Client] = []
        self._work: dict[Partition, asyncio.Task[None]] = {}
        self._start()
        self._looking = asyncio.create_task(self._look())

    def _start(self) -> None:
        engine = Engine(self._deliveries.flowable, "stop", moves_states=True)
        self.running: Running = self._pipeline.start(engine=engine, drain_deadline=1)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(1)
            if any(not one.lease.held for one in self.partitions.values()):
                await self._lose()
            for partition in list(self.partitions.values()):
                self._attend(partition)

    def _attend(self, partition: Partition) -> None:
        under_way = self._work.get(partition)
        if under_way is None or under_way.done():
            self._work[partition] = asyncio.create_task(self._look_at(partition))

    async def _look_at(self, partition: Partition) -> None:
        # Another look follows.
        with suppress(Exception):
            await partition.look()

    async def _lose(self) -> None:
        """Leases are lost: begin anew with the others."""
        for number, partition in list(self.partitions.items()):
            if not partition.lease.held:
                del self.partitions[number]
                self._stop_work_on(partition)
                await partition.abandon()
        self.running.cancel()
        await self.running.wait()
        if self.is_dead:
            return
        self._start()
        for partition in self.partitions.values():
            partition.begin_anew()
            self._attend(partition)

    def _stop_work_on(self, partition: Partition) -> None:
        if (work := self._work.pop(partition, None)) is not None:
            work.cancel()

    def take(self, number: int) -> None:
        """Own a partition, whoever has it."""
        machines = self.machines
        machines.owners[number] = self
        client: Any = Client(machines.servers[number])
        self._clients.append(client)
        partition = self.partitions[number] = Partition(
            *(number, machines.lease(), client, machines.layout, self._deliveries),
            *(self._floors, self._attend),
            attempts=10**6,
        )
        self._attend(partition)

    async def hand_over(self, number: int) -> None:
        partition = self.partitions.get(number)
        if partition is None:
            # It was lost meanwhile.
            return
        self._stop_work_on(partition)
        await partition.stop()
        if self.partitions.pop(number, None) is not None:
            partition.lease.lose()

    async def end(self) -> None:
        """Hand all over, and end."""
        for number in list(self.partitions):
            await self.hand_over(number)
        await self._close()

    async def kill(self) -> None:
        self.is_dead = True
        for partition in self.partitions.values():
            partition.lease.lose()
        await self._close()

    async def _close(self) -> None:
        self._looking.cancel()
        for partition in list(self._work):
            self._stop_work_on(partition)
        self.running.cancel()
        await self.running.wait()
        for partition in self.partitions.values():
            await partition.abandon()
        self.partitions.clear()
        await self._floors.stop()
        for client in self._clients:
            await client.close()


async def until(true: Callable[[], bool], patience: float = 600) -> None:
    async with asyncio.timeout(patience):
        while not true():  # noqa: ASYNC110 - many things may make it true
            await asyncio.sleep(0.05)


def counting(store: Store) -> Any:
    def seen(before: list[int], event: dict[str, Any]) -> tuple[list[int], list[Any]]:
        return [*before, event["n"]], [event]

    return stateful(seen, "key", start=list[int](), name="seen", store=store)


def timed(idle: float | None = None) -> Make:
    made: Any = event_time
    return lambda _: made("at", lateness=0, idle=idle, max_ahead=None)


def counted(store: Store) -> Any:
    made: Any = window
    return made(tumbling(10), agg.count(), by="key", name="counts", store=store)


def of(key: int, *times: int) -> list[dict[str, int]]:
    return [{"key": key, "at": time} for time in times]


def windows(*workers: Worker) -> dict[tuple[int, float], int]:
    return {(one.key, one.start): one.value for worker in workers for one in worker.found}


def test_states_are_left_to_the_next_owner_where_the_lease_is_lost_before_they_are_adopted(
    run: Run,
) -> None:
    async def story() -> None:
        machines = Machines(2)
        worker = Worker(machines, counting)
        floors: Any = worker._floors
        claim = floors.claim

        async def claimed(number: int, *rest: Any) -> Any:
            kept = await claim(number, *rest)
            if number == 0:
                # Another worker has taken it over, and adopted it.
                worker.partitions[0].lease.lose()
            return kept

        floors.claim = claimed
        for number in range(2):
            worker.take(number)
        await until(lambda: 1 in machines.fleet.partitions)
        await asyncio.sleep(0.5)
        # To adopt it now would take its states from the worker that has it.
        assert set(machines.fleet.partitions) == {1}
        await worker.end()

    run(story())


def test_windows_move_with_their_partition_and_its_watermark(run: Run) -> None:
    async def story() -> None:
        machines = Machines(2)
        first, second = (Worker(machines, timed(), counted) for _ in range(2))
        for number in (0, 1):
            first.take(number)
        machines.write(0, *of(0, 1, 2, 11, 12))
        machines.write(1, *of(1, 1, 3, 13))
        await until(lambda: len(first.found) == 2)
        await first.hand_over(1)
        second.take(1)
        # One that is late for the window that its partition has closed elsewhere.
        machines.write(0, *of(0, 5, 14, 21))
        machines.write(1, *of(1, 4, 15, 16, 22))
        await until(lambda: len(first.found) + len(second.found) == 4)
        assert windows(first, second) == {(0, 0): 2, (1, 0): 2, (0, 10): 3, (1, 10): 3}
        await first.end()
        await second.end()

    run(story())


def test_windows_of_a_partition_that_is_behind_wait_for_it_where_others_are_ahead(
    run: Run,
) -> None:
    async def story() -> None:
        machines = Machines(2)
        first, second = (Worker(machines, timed(), counted) for _ in range(2))
        first.take(0)
        second.take(1)
        machines.write(0, *of(0, 1, 101, 201))
        machines.write(1, *of(1, 1, 2))
        await until(lambda: len(first.found) == 2 and 1 in machines.states("counts"))
        await second.kill()
        first.take(1)
        await asyncio.sleep(1)
        machines.write(1, *of(1, 3, 11))
        await asyncio.sleep(1)
        machines.write(1, *of(1, 12, 13, 21))
        await until(lambda: len(first.found) == 4)
        assert windows(first) == {(0, 0): 1, (0, 100): 1, (1, 0): 3, (1, 10): 3}
        await first.end()

    run(story())


def test_a_partition_without_events_closes_its_windows_after_a_silence(run: Run) -> None:
    async def story() -> None:
        machines = Machines(2)
        worker = Worker(machines, timed(idle=5), counted)
        for number in (0, 1):
            worker.take(number)
        machines.write(0, *of(0, 1, 2))
        # Nobody says that there is nothing more.
        await asyncio.sleep(60)
        for second in range(20):
            for server in machines.servers:
                server.beat()
            assert worker.found == [] or second > 4
            await asyncio.sleep(1)
        assert windows(worker) == {(0, 0): 2}
        await worker.end()

    run(story())


def test_a_partition_that_is_ahead_waits_until_others_have_come_as_far(run: Run) -> None:
    async def story() -> None:
        machines = Machines(2)
        worker = Worker(machines, timed(), counted)
        for number in (0, 1):
            worker.take(number)
        machines.write(1, *of(1, 1))
        for at in range(0, 30_000, 10):
            machines.write(0, *of(0, at))
        await asyncio.sleep(60)
        partition = worker.partitions[0]
        assert partition.is_held
        assert len(machines.states("counts")[0][2]) < 2_000
        machines.write(1, *of(1, 100_000))
        await until(lambda: len(windows(worker)) == 3_000)
        await worker.end()

    run(story())


def test_two_streams_of_one_source_are_joined_where_their_partition_is(run: Run) -> None:
    def joined(store: Store) -> Any:
        def operator(events: Any) -> Any:
            shared = timed()(store)(events).pipe(ops.share())
            orders, payments = (
                shared.pipe(ops.filter(lambda event, kind=kind: event["kind"] == kind))
                for kind in ("order", "payment")
            )
            made: Any = join
            return orders.pipe(made(payments, by="key", within=5, how="left", store=store))

        return operator

    async def story() -> None:
        machines = Machines(2)
        first, second = (Worker(machines, joined) for _ in range(2))
        first.take(0)
        second.take(1)
        for key in (0, 1):
            machines.write(key, {"kind": "order", "key": key, "at": 1})
        await asyncio.sleep(1)
        await first.kill()
        second.take(0)
        await asyncio.sleep(1)
        machines.write(0, {"kind": "payment", "key": 0, "at": 3})
        for number in (0, 1):
            machines.write(number, {"kind": "order", "key": number, "at": 100})
        await until(lambda: len(second.found) == 2)
        pairs = {pair[0]["key"]: pair[1] and pair[1]["at"] for pair in second.found}
        assert pairs == {0: 3, 1: None}
        await second.end()

    run(story())


def test_events_that_depend_on_one_that_was_reverted_come_again_on_this_worker(run: Run) -> None:
    failures = iter([True, True])

    def handled(_: Store) -> Any:
        async def handle(event: dict[str, Any]) -> dict[str, Any]:
            if event["n"] == 0 and next(failures, False):
                # The others are done by then, and wait for it.
                await asyncio.sleep(0.5)
                raise ValueError("not yet")
            return event

        return adaptive_flat_map(handle, Fixed(4), on_error="revert")

    async def story() -> None:
        machines = Machines(1)
        worker = Worker(machines, counting, handled)
        worker.take(0)
        machines.write(0, *({"key": 0, "n": n} for n in range(3)))
        await until(lambda: len(machines.states("seen").get(0, ())) == 3, patience=30)
        assert sorted(machines.states("seen")[0]) == [0, 1, 2]
        await worker.end()

    run(story())


class Walk:
    """Workers that come, go, are killed, and lose partitions while they go on."""

    stages: Sequence[Make] = (counting,)

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.count = draw.randint(10, 150)
        self.every = draw.choice([0.0, 0.02, 0.3])
        self.slow = draw.random() < 0.7
        self.machines = Machines(draw.randint(1, 4))
        self.keys = len(self.machines.servers) * draw.randint(1, 3)
        refuses = draw.choice([0.0, 0.0, 0.1, 0.5])
        self.machines.fleet.refuse = lambda: draw.random() < refuses
        self.workers: list[Worker] = []
        self.found: list[list[Any]] = []

    def event(self, n: int) -> dict[str, int]:
        return {"n": n, "key": n % self.keys}

    def _worked(self, _: Store) -> Any:
        async def work(event: Any) -> Any:
            if self.slow:
                await asyncio.sleep(self.draw.choice([0, 0.001, 0.03, 0.4, 2.0]))
            return event

        return adaptive_flat_map(work, Fixed(4))

    def start(self) -> None:
        worker = Worker(self.machines, *self.stages, self._worked, every=self.every)
        self.workers.append(worker)
        self.found.append(worker.found)

    async def _share(self) -> None:
        """Move a partition, in order or while its owner goes on."""
        number = self.draw.randrange(len(self.machines.servers))
        new, owner = self.draw.choice(self.workers), self.machines.owners.get(number)
        if new is owner and number in new.partitions:
            return
        if owner in self.workers and number in owner.partitions and self.draw.random() < 0.7:
            await owner.hand_over(number)
        if number not in new.partitions:
            new.take(number)

    def _take_free(self) -> None:
        for number in range(len(self.machines.servers)):
            owner = self.machines.owners.get(number)
            if owner not in self.workers or number not in owner.partitions:
                new = self.draw.choice(self.workers)
                if number not in new.partitions:
                    new.take(number)

    async def story(self) -> None:
        draw, n = self.draw, 0
        self.start()
        while n < self.count or draw.random() < 0.5:
            self._take_free()
            for _ in range(draw.randint(0, 8)):
                if n < self.count:
                    event = self.event(n)
                    self.machines.write(n % len(self.machines.servers), event)
                    n += 1
            await asyncio.sleep(draw.choice([0, 0.01, 0.1, 1, 5]))
            for server in self.machines.servers:
                server.beat()
            step = draw.random()
            if step < 0.25 and len(self.workers) < 4:
                self.start()
            elif step < 0.4 and len(self.workers) > 1:
                await self.workers.pop(draw.randrange(len(self.workers))).kill()
            elif step < 0.5 and len(self.workers) > 1:
                await self.workers.pop(draw.randrange(len(self.workers))).end()
            elif step < 0.75:
                await self._share()
        try:
            async with asyncio.timeout(600):
                while not self.is_done():
                    self._take_free()
                    await asyncio.sleep(1)
        finally:
            for worker in self.workers:
                await worker.kill()

    def is_done(self) -> bool:
        return sum(map(len, self.machines.states("seen").values())) >= self.count

    def check(self) -> None:
        seen = self.machines.states("seen")
        for key in range(min(self.keys, self.count)):
            assert seen[key] == list(range(key, self.count, self.keys))


class WindowWalk(Walk):
    """The same with windows: partitions are ahead of others, and no event is late in its own."""

    stages = (timed(), counted)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._at = [0] * len(self.machines.servers)
        self._ahead = [self.draw.choice([1, 3, 30]) for _ in self._at]
        self._written: Counter[tuple[int, int]] = Counter()

    def event(self, n: int) -> dict[str, int]:
        of = n % len(self._at)
        self._at[of] += self.draw.randint(0, self._ahead[of])
        key, at = n % self.keys, self._at[of]
        self._written[key, at // 10 * 10] += 1
        return {"n": n, "key": key, "at": at}

    def is_done(self) -> bool:
        found = {(one.key, one.start) for each in self.found for one in each}
        return found >= {one for one in self._written if one[1] + 10 <= min(self._at)}

    def check(self) -> None:
        for one in (one for each in self.found for one in each):
            assert one.value == self._written[one.key, one.start], (one, self._at)


class TimerWalk(Walk):
    """The same with timers by the wall clock: each fires once."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.stages = (self._timed,)

    @staticmethod
    def _timed(store: Store) -> Any:
        def seen(before: list[int], event: Any, ctx: Any) -> tuple[list[int], list[Any]]:
            ctx.timer(f"t{event['n']}", after=0.3)
            return [*before, event["n"]], [event]

        def fired(before: list[int], timer: str, ctx: Any) -> tuple[list[int], list[Any]]:
            return [*before, -1 - int(timer[1:])], []

        return stateful(*(seen, "key"), start=list[int](), on_timer=fired, name="seen", store=store)

    def is_done(self) -> bool:
        return sum(map(len, self.machines.states("seen").values())) >= 2 * self.count

    def check(self) -> None:
        seen = self.machines.states("seen")
        for key in range(min(self.keys, self.count)):
            events = list(range(key, self.count, self.keys))
            assert [n for n in seen[key] if n >= 0] == events
            assert sorted(-1 - n for n in seen[key] if n < 0) == events


class DistinctWalk(Walk):
    """The same with events that come twice, and the second ones dropped."""

    stages = (
        lambda store: distinct_within(10**6, by="key", name="once", store=store),
        lambda _: group_by("key"),
        lambda _: spread(),
        counting,
    )

    def event(self, n: int) -> dict[str, int]:
        return {
            "n": n,
            "key": n // (2 * len(self.machines.servers)) * 10 + n % len(self.machines.servers),
        }

    def is_done(self) -> bool:
        return {self.event(n)["key"] for n in range(self.count)} == set(
            self.machines.states("seen")
        )

    def check(self) -> None:
        assert {len(one) for one in self.machines.states("seen").values()} == {1}


@pytest.mark.parametrize("kind", [Walk, WindowWalk, TimerWalk, DistinctWalk])
@seeds(100)
def test_states_are_those_of_a_run_without_moves_crashes_and_zombies(
    kind: type[Walk], seed: int
) -> None:
    async def story() -> Walk:
        walk = kind(seed)
        await walk.story()
        return walk

    run_virtual(story()).check()
