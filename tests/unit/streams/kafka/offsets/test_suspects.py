"""A record that ends its process is found, however many others are processed beside it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    DeadLetter,
    Fixed,
    Running,
    adaptive_flat_map,
    collect,
    for_each,
    group_by,
    ops,
    read_kafka,
    route,
    spread,
    write_kafka,
)
from penstock.streams.base.errors import WorkerLost
from penstock.streams.delivery.trial import HELD, Doubt
from penstock.streams.kafka.offsets.metadata import Metadata
from penstock.streams.testing import VirtualTimeLoop
from penstock.streams.testing.plugin import Run
from tests.helpers.kafka.metadata import metadata_of, said_in
from tests.helpers.kafka.model import Broker, model_of, numbers


class Group:
    """Processes that follow each other, each of which is killed by a record that is poison."""

    def __init__(
        self,
        broker: Broker,
        poison: Callable[[int], bool],
        *,
        attempts: int = 3,
        transactional: bool = False,
        limit: int = 8,
    ) -> None:
        self.broker = broker
        self.begun: Counter[int] = Counter()
        self.done: Counter[int] = Counter()
        self.letters: list[DeadLetter] = []
        self.lost = 0
        self._poison = poison
        self._attempts = attempts
        self._transactional = transactional
        self._limit = limit
        self.killed = asyncio.Event()

    async def work(self, value: dict[str, int]) -> Any:
        n = value["n"]
        self.begun[n] += 1
        await asyncio.sleep(0.01)
        if self._poison(n):
            self.killed.set()
            await asyncio.Event().wait()
        self.done[n] += 1
        return value

    def start(self) -> Running:
        source = read_kafka(
            "t", "g", on_bad_record=route(collect(self.letters)), attempts=self._attempts
        )
        sink: Any = collect(list[Any]())
        if self._transactional:
            sink = write_kafka("out", transactional=True)
        call = adaptive_flat_map(self.work, limit=Fixed(self._limit))
        return source.pipe(group_by("n"), spread(), call).to(sink).start()

    @property
    def is_done(self) -> bool:
        ends = {key: self.broker.end(key) for key in self.broker.logs}
        floors = {key: self.broker.committed.get(key, (0, ""))[0] for key in ends}
        return ends == floors

    async def live(self) -> bool:
        """One process, until it is killed, or everything is finished."""
        self.killed.clear()
        running = self.start()
        for _ in range(5000):
            if self.killed.is_set():
                await self.kill(running)
                return False
            if self.is_done:
                await running.drain(5)
                return True
            await asyncio.sleep(0.1)
        raise AssertionError(f"not done: {self.broker.committed}")

    async def kill(self, running: Running) -> None:
        self.lost += 1
        for member in list(self.broker.members):
            member.kill()
        running.cancel()
        await running.wait()

    async def until_done(self) -> None:
        while not await self.live():
            assert self.lost < 40, "it is killed without end"


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("place", [0, 7, 40, 1000])
def test_a_record_that_ends_its_process_becomes_a_dead_letter_after_its_attempts(
    place: int, transactional: bool, broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 1500))

    async def story() -> None:
        group = Group(broker, lambda n: n == place, transactional=transactional, limit=1024)
        await group.until_done()
        (letter,) = group.letters
        assert letter.value == {"n": place}
        assert isinstance(letter.error, WorkerLost)
        assert letter.attempts == 3
        # Two more until it is alone, or three if there were many suspects.
        assert group.lost == group.begun[place]
        assert group.lost in ((5,) if place < 40 else (5, 6))
        assert set(group.done) == set(range(1500)) - {place}
        assert broker.committed["t", 0] == (1500, "")

    run(story())


def test_several_such_records_in_several_partitions_are_all_found(run: Run) -> None:
    broker = Broker(4)
    for partition in range(4):
        broker.write(*numbers(1000 * partition, 1000 * partition + 200), partition=partition)
    poison = {3, 1100, 1101, 3199}

    async def story() -> None:
        group = Group(broker, poison.__contains__)
        await group.until_done()
        assert {letter.value["n"] for letter in group.letters} == poison
        every = {1000 * partition + n for partition in range(4) for n in range(200)}
        assert set(group.done) == every - poison
        assert group.lost <= 4 * 6

    with model_of(broker):
        run(story())


def test_processes_that_are_killed_for_another_reason_cost_no_record(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 2000))

    async def story() -> None:
        group = Group(broker, lambda n: False)
        for _ in range(10):
            running = group.start()
            await asyncio.sleep(0.7)
            await group.kill(running)
        await group.until_done()
        assert group.letters == []
        assert set(group.done) == set(range(2000))

    run(story())


def test_after_a_loss_records_begin_in_parts_each_alone_and_then_as_before(
    two: Broker, run: Run
) -> None:
    for partition in (0, 1):
        two.write(*numbers(1000 * partition, 1000 * partition + 100), partition=partition)

    async def story() -> None:
        group = Group(two, lambda n: False)
        running = group.start()
        await asyncio.sleep(0.001)
        await group.kill(running)
        group.begun.clear()
        running = group.start()
        parts: list[set[int]] = []
        while not group.is_done:
            began = {n // 1000 for n in group.begun}
            if len(parts) < len(began):
                parts.append(set(group.begun))
            await asyncio.sleep(0.001)
        # All of one partition before any of the other.
        assert [len({n // 1000 for n in part}) for part in parts] == [1, 2]
        assert len([n for n in parts[1] if n < 1000]) in (100, 1)
        await running.drain(5)

    run(story())


def test_who_gives_a_partition_up_leaves_no_doubt(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 100))

    async def story() -> None:
        group = Group(broker, lambda n: False, limit=100)
        running = group.start()
        await asyncio.sleep(1.5)
        assert said_in(broker.committed["t", 0][1]).doubt == HELD
        await running.drain(5)
        assert broker.committed["t", 0] == (100, "")
        broker.write(*numbers(100, 200))
        running = group.start()
        await asyncio.sleep(0.005)
        # All at once.
        assert sum(group.begun.values()) == 200
        await running.drain(5)

    run(story())


def test_nothing_begins_before_it_is_noted_who_holds_the_partition(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 10))

    async def story() -> None:
        group = Group(broker, lambda n: said_in(broker.committed["t", 0][1]).doubt is None)
        running = group.start()
        await asyncio.sleep(5)
        assert not group.killed.is_set()
        assert len(group.done) == 10
        await running.drain(5)

    run(story())


def test_a_note_is_read_as_it_was_written() -> None:
    doubt = Doubt(2, 100, 3, 50, 1)
    assert said_in(metadata_of(7, [(8, 9)], doubt)) == Metadata([(8, 9)], doubt)


def test_nothing_else_is_in_the_pipeline_while_records_are_in_doubt(two: Broker, run: Run) -> None:
    for partition in (0, 1):
        two.write(*numbers(1000 * partition, 1000 * partition + 300), partition=partition)

    async def story() -> None:
        group = Group(two, lambda n: False)
        at_work: list[int] = []
        mixed: list[list[int]] = []
        lost = None
        began: list[float] = []

        async def work(value: dict[str, int]) -> None:
            partition = value["n"] // 1000
            at_work.append(partition)
            if partition == lost:
                began.append(asyncio.get_running_loop().time())
            if lost in at_work and len(set(at_work)) > 1:
                mixed.append(list(at_work))
            try:
                # Not all at the same time.
                await asyncio.sleep(0.05 + value["n"] % 7 * 0.02)
            finally:
                at_work.remove(partition)

        def start() -> Running:
            source = read_kafka("t", "g", on_bad_record=route(collect(group.letters)))
            call = adaptive_flat_map(work, limit=Fixed(8))
            return source.pipe(group_by("n"), spread(), call).to(collect(list[Any]())).start()

        first = start()
        await asyncio.sleep(0.5)
        second = start()
        await asyncio.sleep(1)
        _, other = two.members
        assert len(set(two.owner.values())) == 2
        key = next(key for key, owner in two.owner.items() if owner is other)
        other.kill()
        second.cancel()
        await second.wait()
        lost, killed = key[1], asyncio.get_running_loop().time()
        more = 300 + 1000 * (1 - lost)
        while two.committed[key][0] < 300:
            two.write(*numbers(more, more + 1), partition=1 - lost)
            more += 1
            await asyncio.sleep(0.1)
        assert mixed == []
        # It waits for what is at work, and not for what is only in the pipeline.
        assert began[0] < killed + 0.5
        await first.drain(5)

    run(story())


def test_records_of_other_partitions_go_on_when_the_one_in_doubt_goes_to_another_member(
    two: Broker, run: Run
) -> None:
    for partition in (0, 1):
        two.write(*numbers(1000 * partition, 1000 * partition + 40), partition=partition)

    async def story() -> None:
        group = Group(two, lambda n: False)
        at_work: list[int] = []

        async def work(value: dict[str, int]) -> None:
            at_work.append(value["n"] // 1000)
            try:
                await asyncio.sleep(2)
            finally:
                at_work.remove(value["n"] // 1000)

        def start() -> Running:
            source = read_kafka("t", "g", on_bad_record=route(collect(group.letters)))
            call = adaptive_flat_map(work, limit=Fixed(8))
            return source.pipe(group_by("n"), spread(), call).to(collect(list[Any]())).start()

        first = start()
        await asyncio.sleep(0.5)
        second = start()
        await asyncio.sleep(5)
        mine, other = two.members
        key = next(key for key, owner in two.owner.items() if owner is other)
        other.kill()
        second.cancel()
        await second.wait()
        # The first begins those that may have ended the second, and then they go to a third.
        for _ in range(100):
            if two.owner.get(key) is mine and set(at_work) == {key[1]}:
                break
            await asyncio.sleep(0.1)
        assert set(at_work) == {key[1]}
        third = start()
        # No record comes that would wake the first.
        for _ in range(100):
            if group.is_done:
                break
            await asyncio.sleep(1)
        assert two.owner[key] is not mine
        assert group.is_done, two.committed
        for running in (first, third):
            await running.drain(5)

    run(story())


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("operator", [ops.to_list(), ops.buffer_with_count(7)])
@pytest.mark.parametrize("note", [HELD, Doubt(1, 4, 3, 3, 3)])
def test_suspects_that_an_operator_holds_do_not_keep_the_others_waiting(
    note: Doubt, operator: Any, partitions: int, run: Run
) -> None:
    broker = Broker(partitions)
    for partition in range(partitions):
        broker.write(*numbers(10 * partition, 10 * partition + 5), partition=partition)
        broker.committed["t", partition] = 0, metadata_of(0, [], note, partition=partition)
    lists: list[list[dict[str, int]]] = []

    async def story() -> None:
        letters = route(collect(list[DeadLetter]()))
        source = read_kafka("t", "g", on_bad_record=letters, follow=False)
        # In less than one `handover`, for which records in a call would be waited for.
        async with asyncio.timeout(60):
            await source.pipe(operator).to(collect(lists)).run()

    with model_of(broker):
        run(story())
    found = sorted(value["n"] for values in lists for value in values)
    assert found == [10 * partition + n for partition in range(partitions) for n in range(5)]


def test_time_in_which_the_loop_was_blocked_does_not_say_that_suspects_are_held(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 5))
    broker.committed["t", 0] = 0, metadata_of(0, [], HELD)
    begun: list[int] = []
    at_ends: list[int] = []

    def work(value: dict[str, int]) -> None:
        begun.append(value["n"])
        if value["n"] == 0:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop)
            loop.advance(4)

    def end(value: object) -> None:
        at_ends.append(len(begun))

    async def story() -> None:
        letters = route(collect(list[DeadLetter]()))
        source = read_kafka("t", "g", on_bad_record=letters, follow=False)
        await source.pipe(ops.map(work), ops.delay(1.0)).to(for_each(end)).run()

    run(story())
    # There is room for one, which has ended before the next begins.
    assert begun == list(range(5))
    assert at_ends == list(range(1, 6))
