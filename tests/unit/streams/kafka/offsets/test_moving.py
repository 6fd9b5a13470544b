"""States that move with the partitions of a topic from member to member of its group."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock import (
    Fixed,
    Flowable,
    Store,
    adaptive_flat_map,
    agg,
    collect,
    event_time,
    monitor,
    ops,
    read_kafka,
    stateful,
    tumbling,
    window,
)
from penstock.streams.base.errors import BuildError, CannotOpen, PenstockError
from penstock.streams.state.backend import Moved, Restoring
from penstock.streams.state.codec import key_in
from penstock.streams.state.commits import Commits
from penstock.streams.testing import run_virtual
from penstock.streams.testing.fleet import Fleet, FleetMember
from penstock.streams.testing.plugin import Run
from tests.helpers.kafka import fleet as fleets
from tests.helpers.kafka.fleet import Mortal, floors, until
from tests.helpers.kafka.metadata import said_in
from tests.helpers.kafka.model import Broker, model_of
from tests.helpers.walks import seeds


@pytest.fixture
def two() -> Iterator[Broker]:
    with model_of(Broker(partitions=2)) as made:
        yield made


class Process(fleets.Process):
    """A member of the group that reads the topic `t`, with stages that get its store."""

    def __init__(
        self,
        broker: Broker,
        fleet: Fleet,
        *stages: Any,
        every: float = 0.02,
        backend: type[Mortal] = Mortal,
    ) -> None:
        build = partial(read_through, stages)
        super().__init__(broker, fleet, build, every=every, backend=backend)


def read_through(
    stages: Sequence[Any], store: Store, config: dict[str, Any] | None = None
) -> Flowable[Any]:
    read: Any = read_kafka
    source: Flowable[Any] = read("t", "g", offsets=store, retry_after=0.1, config=config)
    return source.pipe(*(stage(store) for stage in stages))


def counting(store: Store) -> Any:
    def seen(before: list[int], event: dict[str, Any]) -> tuple[list[int], list[Any]]:
        return [*before, event["n"]], [event]

    return stateful(seen, "key", start=list[int](), name="seen", store=store)


def numbered(n: int, keys: int) -> bytes:
    return b'{"n": %d, "key": %d}' % (n, n % keys)


def states(fleet: Fleet, stage: str = "seen") -> dict[Any, Any]:
    return {key_in(key): json.loads(state) for key, state in fleet.states(stage).items()}


def test_a_topic_that_gets_more_partitions_ends_the_run_with_both_numbers(
    two: Broker, run: Run
) -> None:
    fleet = Fleet()

    async def story() -> None:
        one = Process(two, fleet, counting)
        await until(lambda: len(two.owner) == 2)
        two.grow("t", 4)
        two.write(numbered(1, 2), partition=3)
        with pytest.raises(
            PenstockError, match=r"'t' had 2 partitions, and has 4 now.* place of 't', "
        ):
            await one.running.wait()
        assert fleet.partitions.keys() == {0, 1}
        assert not one.found

    run(story())


def test_a_store_with_other_partitions_is_refused_once_with_the_way_to_more(
    two: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = Fleet()

    async def story() -> None:
        two.write(numbered(1, 2))
        before = Process(two, fleet, counting)
        await until(lambda: floors(fleet) == 1)
        await before.running.drain(5)
        two.grow("t", 4)
        after = Process(two, fleet, counting)
        way = "with 2 partitions .* it has 4: .* new topic or pipeline with 4 partitions"
        with pytest.raises(CannotOpen, match=way):
            await after.running.wait()

    run(story())
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_nothing_is_said_of_a_loss_without_partitions(
    two: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = Fleet()

    async def story() -> None:
        members = [Process(two, fleet, counting) for _ in range(3)]
        await until(lambda: len(two.members) == 3 and len(set(two.owner.values())) == 2)
        idle = next(one for one in two.members if one not in two.owner.values())
        two.expire(idle)
        await until(lambda: idle in two.members)
        for one in members:
            await one.running.drain(5)

    run(story())
    assert "lost 0 partitions" not in caplog.text


def test_a_partition_takes_its_states_to_the_member_that_gets_it(two: Broker, run: Run) -> None:
    fleet = Fleet()

    async def story() -> None:
        first = Process(two, fleet, counting)
        for n in range(10):
            two.write(numbered(n, 2), partition=n % 2)
        await until(lambda: floors(fleet) == 10)
        second = Process(two, fleet, counting)
        await until(lambda: len(set(two.owner.values())) == 2)
        for n in range(10, 20):
            two.write(numbered(n, 2), partition=n % 2)
        await until(lambda: floors(fleet) == 20)
        assert (len(first.found), len(second.found)) == (15, 5)
        for one in (first, second):
            await one.running.drain(10)

    run(story())
    assert states(fleet) == {key: list(range(key, 20, 2)) for key in range(2)}


def test_a_partition_is_read_on_where_its_states_end_however_late_brokers_answer(
    two: Broker, run: Run
) -> None:
    fleet = Fleet()

    def slowly(_: Store) -> Any:
        async def work(event: Any) -> Any:
            await asyncio.sleep(0.05)
            return event

        return adaptive_flat_map(work, Fixed(1))

    async def story() -> None:
        first = Process(two, fleet, counting, slowly)
        await until(lambda: len(two.owner) == 2)
        second = Process(two, fleet, counting, slowly)
        await until(lambda: len(set(two.owner.values())) == 2)
        for n in range(10):
            two.write(numbered(n, 2), partition=n % 2)
        await until(lambda: floors(fleet) == 10)
        two.naming = lambda: 0.5
        second.kill()
        for n in range(10, 300):
            two.write(numbered(n, 2), partition=n % 2)
        await until(lambda: floors(fleet) == 300)
        await first.running.drain(10)

    run(story())
    assert states(fleet) == {key: list(range(key, 300, 2)) for key in range(2)}


def test_a_partition_that_comes_back_is_not_read_again_when_brokers_answer_late(
    two: Broker, run: Run
) -> None:
    fleet = Fleet()

    async def story() -> None:
        two.naming = lambda: 20.0
        first = Process(two, fleet, counting)
        await until(lambda: len(two.owner) == 2)
        await asyncio.sleep(1)
        two.naming = lambda: 0.0
        second = Process(two, fleet, counting)
        await until(lambda: len(set(two.owner.values())) == 2)
        for n in range(10):
            two.write(numbered(n, 2), partition=n % 2)
        await until(lambda: floors(fleet) == 5)
        second.kill()
        await until(lambda: floors(fleet) == 10)
        await asyncio.sleep(20)
        assert len(first.found) == 5
        await first.running.drain(10)

    run(story())
    assert states(fleet) == {key: list(range(key, 10, 2)) for key in range(2)}


def test_a_key_in_two_partitions_is_an_error_that_names_both(two: Broker, run: Run) -> None:
    async def story() -> None:
        one = Process(two, Fleet(), counting)
        two.write(b'{"n": 1, "key": "a"}', partition=0)
        two.write(b'{"n": 2, "key": "a"}', partition=1)
        with pytest.raises(
            PenstockError, match=r"'a' of 'seen' .* partition 1 of 't' and in partition 0 of 't'"
        ):
            await one.running.wait()

    run(story())


def test_a_commit_that_cannot_be_made_now_is_made_later(two: Broker, run: Run) -> None:
    fleet = Fleet()
    refusals = iter([True] * 20)
    fleet.refuse = lambda: next(refusals, False)

    async def story() -> None:
        one = Process(two, fleet, counting)
        for n in range(10):
            two.write(numbered(n, 2), partition=n % 2)
        await until(lambda: floors(fleet) == 10)
        await one.running.drain(10)
        assert len(one.found) == 10

    run(story())
    assert states(fleet) == {key: list(range(key, 10, 2)) for key in range(2)}


def test_a_member_that_ends_asks_nothing_about_partitions_that_come(two: Broker, run: Run) -> None:
    async def away(_: Any, patience: float) -> None:
        await asyncio.sleep(patience)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    async def story() -> None:
        first, second = (Process(two, Fleet(), counting) for _ in range(2))
        await until(lambda: len(set(two.owner.values())) == 2)
        await asyncio.sleep(1)
        second.kill()
        two.stable = away  # type: ignore[method-assign]
        began = asyncio.get_running_loop().time()
        await first.running.drain(10)
        assert asyncio.get_running_loop().time() - began < 5

    run(story())


def test_commits_are_made_while_many_partitions_are_restored() -> None:
    broker, fleet, gate = Broker(partitions=40), Fleet(), threading.Event()

    class Slow(Mortal):
        in_thread = True

        def adopt(self, partition: int, count: int) -> None:
            if partition:
                assert gate.wait(60)
            super().adopt(partition, count)

    async def story() -> None:
        one = Process(broker, fleet, counting, backend=Slow)
        broker.write(numbered(0, 1), partition=0)
        try:
            # On real time: threads do not wait for another one.
            await until(lambda: floors(fleet) == 1, 20)
        finally:
            gate.set()
        await one.running.drain(10)

    with model_of(broker):
        asyncio.run(story())


class Walk(fleets.Walk):
    """Random members that count the events of each key in a list."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.partitions = draw.randint(1, 4)
        self.keys = self.partitions * draw.randint(1, 3)
        self.count = draw.randint(10, 150)
        self.timers, self.slow = draw.random() < 0.5, draw.random() < 0.7
        self.is_behind = draw.random() < 0.3
        """Whether the states are behind a stage that changes the order."""
        super().__init__(draw, Broker(partitions=self.partitions))

    def body(self, n: int) -> bytes:
        return numbered(n, self.keys)

    def _stage(self, store: Store) -> Any:
        def seen(before: list[int], event: Any, ctx: Any) -> tuple[list[int], list[Any]]:
            if self.timers:
                ctx.timer(f"t{event['n']}", after=0.3)
            return [*before, event["n"]], [event]

        def fired(before: list[int], timer: str, ctx: Any) -> tuple[list[int], list[Any]]:
            return [*before, -1 - int(timer[1:])], []

        on_timer = fired if self.timers else None
        return stateful(
            *(seen, "key"), start=list[int](), on_timer=on_timer, name="seen", store=store
        )

    def _work(self, store: Store) -> Any:
        async def work(event: Any) -> Any:
            if self.slow:
                await asyncio.sleep(self.draw.choice([0, 0.001, 0.03, 0.4, 2.0]))
            return event

        return adaptive_flat_map(work, Fixed(4))

    def stages(self) -> list[Any]:
        stages = [self._stage, self._work]
        return stages[::-1] if self.is_behind else stages

    def build(self, store: Store, config: dict[str, Any]) -> Flowable[Any]:
        return read_through(self.stages(), store, config)

    async def story(self) -> None:
        def write(n: int) -> None:
            self.broker.write(self.body(n), partition=n % self.partitions)

        writes = [partial(write, n) for n in range(self.count)]
        await self.run(writes, lambda _: None, self._has_all)

    def _has_all(self) -> bool:
        return floors(self.fleet) == self.count and self.is_done()

    def is_done(self) -> bool:
        """Whether all has happened that the events bring about."""
        events = sum(map(len, states(self.fleet).values()))
        return not self.timers or events >= 2 * self.count

    def check(self) -> None:
        seen = states(self.fleet)
        for key in range(min(self.keys, self.count)):
            events = list(range(key, self.count, self.keys))
            found = [n for n in seen[key] if n >= 0]
            assert (sorted(found) if self.is_behind else found) == events
            fired = sorted(-1 - n for n in seen[key] if n < 0)
            assert fired == (events if self.timers else [])


@seeds(100)
def test_states_are_those_of_a_run_without_moves_crashes_and_zombies(seed: int) -> None:
    walk = Walk(seed)
    with model_of(walk.broker):
        run_virtual(walk.story())
    walk.check()


def timed(_: Store) -> Any:
    made: Any = event_time
    return made("at", lateness=0, idle=None, max_ahead=None)


def counted(store: Store) -> Any:
    made: Any = window
    return made(tumbling(10), agg.count(), by="key", name="counts", store=store)


class WindowWalk(Walk):
    """The same with windows: partitions are ahead of others, and no event is late in its own."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.timers = self.is_behind = False
        self._at = [0] * self.partitions
        self._ahead = [self.draw.choice([1, 3, 30]) for _ in range(self.partitions)]
        self._written: Counter[tuple[int, int]] = Counter()

    def body(self, n: int) -> bytes:
        of = n % self.partitions
        self._at[of] += self.draw.randint(0, self._ahead[of])
        key, at = n % self.keys, self._at[of]
        self._written[key, at // 10 * 10] += 1
        return b'{"key": %d, "at": %d}' % (key, at)

    def stages(self) -> list[Any]:
        return [timed, counted, self._work]

    def _closed(self) -> Counter[tuple[int, int]]:
        """The windows that each member closes, whichever partitions it has, and their counts."""
        least = min(self._at)
        return Counter({one: n for one, n in self._written.items() if one[1] + 10 <= least})

    def is_done(self) -> bool:
        found = {(one.key, one.start) for one in self.results()}
        return found >= set(self._closed())

    def check(self) -> None:
        for one in self.results():
            assert one.value == self._written[one.key, one.start], (one, self._at)


@seeds(100)
def test_windows_are_those_of_a_run_without_moves_crashes_and_zombies(seed: int) -> None:
    walk = WindowWalk(seed)
    with model_of(walk.broker):
        run_virtual(walk.story())
    walk.check()


def test_windows_move_with_their_partition_and_its_watermark(two: Broker, run: Run) -> None:
    fleet = Fleet()

    def put(partition: int, *times: int) -> None:
        bodies = (b'{"at": %d, "key": %d}' % (time, partition) for time in times)
        two.write(*bodies, partition=partition)

    async def story() -> None:
        first = Process(two, fleet, timed, counted)
        put(0, 1, 2, 11, 12)
        put(1, 1, 3, 13)
        await until(lambda: len(first.found) == 2)
        second = Process(two, fleet, timed, counted)
        await until(lambda: len(set(two.owner.values())) == 2)
        # One that is late for the window that its partition has closed elsewhere.
        put(0, 5, 14, 21)
        put(1, 4, 15, 16, 22)
        await until(lambda: len(first.found) + len(second.found) == 4)
        for one in (first, second):
            await one.running.drain(10)
        assert {(one.key, one.start): one.value for one in (*first.found, *second.found)} == {
            (0, 0): 2,
            (1, 0): 2,
            (0, 10): 3,
            (1, 10): 3,
        }

    run(story())


def test_windows_of_a_partition_that_is_behind_wait_for_it_where_others_are_ahead(
    two: Broker, run: Run
) -> None:
    fleet = Fleet()

    def put(partition: int, *times: int) -> None:
        bodies = (b'{"at": %d, "key": %d}' % (time, partition) for time in times)
        two.write(*bodies, partition=partition)

    async def story() -> None:
        first = Process(two, fleet, timed, counted)
        await until(lambda: len(two.owner) == 2)
        second = Process(two, fleet, timed, counted)
        await until(lambda: len(set(two.owner.values())) == 2)
        behind = next(n for (_, n), owner in two.owner.items() if owner is second.member)
        put(1 - behind, 1, 101, 201)
        put(behind, 1, 2)
        await until(lambda: len(first.found) == 2 and floors(fleet) == 5)
        second.kill()
        await until(lambda: set(two.owner.values()) == {first.member})
        await asyncio.sleep(1)
        put(behind, 3, 11, 12)
        await asyncio.sleep(1)
        put(behind, 13, 21)
        await until(lambda: len(first.found) == 4)
        await asyncio.sleep(5)
        await first.running.drain(10)
        counts = [(one.key, one.start, one.value) for one in first.found]
        ahead = 1 - behind
        assert counts == [(ahead, 0, 1), (ahead, 100, 1), (behind, 0, 3), (behind, 10, 3)]

    run(story())


def test_what_is_restored_is_shown_with_its_speed_and_the_time_that_is_left(
    two: Broker, run: Run
) -> None:
    async def story() -> None:
        one = Process(two, Fleet(), counting)
        one.backend.restoring = lambda: [  # type: ignore[method-assign]
            Restoring(0, 10, 40, 2.0),
            Restoring(1, 0, 40, 0.0),
        ]
        await asyncio.sleep(1)
        shown = one.running.statistics()["stages"][0]
        assert (shown["name"], shown["standby_lag"]) == ("read_kafka", None)
        assert shown["restoring"] == [
            {"partition": 0, "done": 10, "total": 40, "per_second": 5.0, "left": 6.0},
            {"partition": 1, "done": 0, "total": 40, "per_second": 0.0, "left": None},
        ]
        two.write(numbered(0, 2), partition=0)
        await asyncio.sleep(3)
        state = said_in(two.committed["t", 0][1]).state
        assert state is not None
        assert (state.finished, state.standby_lag) == (1, None)
        assert state.restoring == ((0, 10, 40, 5), (1, 0, 40, 0))
        await one.running.drain(5)

    run(story())


def test_a_partition_that_goes_before_its_states_are_there_tells_of_its_new_member_only(
    two: Broker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet()
    adopt, release = Commits.adopt, Commits.release
    restoring: dict[int, asyncio.Future[None]] = {}

    async def restore(commits: Commits, partition: int, count: int) -> None:
        if len(two.clients) == 1:
            restoring[partition] = asyncio.get_running_loop().create_future()
            await restoring[partition]
        await adopt(commits, partition, count)

    async def give_up(commits: Commits, partition: int, patience: float = 0.0) -> None:
        if partition in restoring:
            restoring.pop(partition).set_exception(Moved([partition]))
        await release(commits, partition, patience)

    monkeypatch.setattr(Commits, "adopt", restore)
    monkeypatch.setattr(Commits, "release", give_up)

    async def story() -> None:
        for number in range(2):
            two.write(numbered(number, 2), partition=number)
            two.committed["t", number] = 0, ""
        first = Process(two, fleet, counting)
        await until(lambda: len(restoring) == 2)
        await asyncio.sleep(3)
        # The group keeps for a member what it got first.
        two.owner = dict(reversed(two.owner.items()))
        second = Process(two, fleet, counting)
        await until(lambda: two.owner.get(("t", 0)) not in (None, first.member))
        await asyncio.sleep(5)
        told = said_in(two.committed["t", 0][1]).state
        assert told is not None
        assert (two.committed["t", 0][0], told.finished) == (1, 1)
        restoring.pop(1).set_result(None)
        await until(lambda: floors(fleet) == 2)
        for one in (first, second):
            await one.running.drain(10)

    run(story())


def test_states_move_with_the_partitions_of_one_topic(two: Broker, run: Run) -> None:
    store = Store.of(FleetMember(Fleet()), "fleet")
    read: Any = read_kafka
    with pytest.raises(BuildError, match="move with the partitions of one topic"):
        read(["t", "u"], "g", offsets=store)

    timed = read_through([], store).pipe(event_time("at"))
    of_all: list[Any] = [
        window(tumbling(10), agg.count(), store=store),
        monitor("G true", store=store),
    ]
    for stage in of_all:
        with pytest.raises(BuildError, match="one state for all events, so that one process"):
            timed.pipe(stage)
    timed.pipe(window(tumbling(10), agg.count(), by=lambda event: 0, store=store))

    async def story() -> None:
        other = read("t", "other", offsets=store)
        pipeline = read_through([], store).pipe(ops.merge(other), counting(store)).to(collect([]))
        with pytest.raises(BuildError, match="with the same store, in the group 'g'"):
            await pipeline.run()

    run(story())
