"""What a store keeps of partitions: the mark of what is done, together with the states."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    Fixed,
    Pipeline,
    Store,
    adaptive_flat_map,
    collect,
    group_by,
    ops,
    read_jsonl,
    read_kafka,
    spread,
    stateful,
    write_kafka,
)
from penstock.streams.base.errors import BuildError, CannotOpen
from penstock.streams.delivery.text import Unusable, text_of
from penstock.streams.kafka.offsets.partition import Partition
from penstock.streams.kafka.offsets.stored import Done, _mark, done_in
from penstock.streams.state.backend import Unit
from penstock.streams.state.codec import key_in
from penstock.streams.state.memory import Memory
from penstock.streams.testing import run_virtual
from penstock.streams.testing.crash import run_until_crash
from penstock.streams.testing.plugin import Run
from tests.helpers.kafka.metadata import metadata_of
from tests.helpers.kafka.model import CLUSTER, Broker, model_of, numbers
from tests.helpers.walks import seeds

MARK = f"kafka {CLUSTER}/t/0"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with model_of(Broker()) as made:
        yield made


@pytest.fixture
def two() -> Iterator[Broker]:
    with model_of(Broker(partitions=2)) as made:
        yield made


def source(store: Store, **options: Any) -> Any:
    read: Any = read_kafka
    return read("t", "g", offsets=store, **options)


def counting(store: Store, into: list[Any], *behind: Any, **options: Any) -> Pipeline:
    """Keeps the numbers that were seen, in order, as the state of one key."""

    def seen(before: list[int], event: dict[str, int]) -> tuple[list[int], list[int]]:
        return [*before, event["n"]], [event["n"]]

    stage = stateful(seen, lambda _: "all", start=list[int](), name="seen", store=store)
    pipeline: Pipeline = source(store, **options).pipe(stage, *behind).to(collect(into))
    return pipeline


def state(store: Store) -> list[int]:
    (row,) = store._open().scan("seen")
    found: list[int] = json.loads(row.state)
    return found


def mark(store: Store, name: str = MARK) -> Done:
    content = store._open().mark(name)
    assert content is not None
    done = done_in(content)
    assert isinstance(done, Done)
    return done


# What decides.


def test_the_next_run_goes_on_where_the_store_says_and_not_where_the_group_does(
    broker: Broker, run: Run
) -> None:
    store, found = Store.memory(), list[int]()
    broker.write(*numbers(0, 5))
    run(counting(store, found, follow=False).run())
    assert (mark(store).floor, broker.committed["t", 0]) == (5, (5, ""))
    broker.write(*numbers(5, 8))
    for moved in (0, 7):
        broker.committed["t", 0] = moved, ""
    run(counting(store, found, follow=False).run())
    assert found == state(store) == list(range(8))


def test_a_store_that_is_asked_where_a_partition_begins_does_not_block_the_loop(
    broker: Broker,
) -> None:
    broker.write(*numbers(0, 5))
    found, answered = list[int](), list[bool]()

    async def story() -> None:
        loop, goes_on = asyncio.get_running_loop(), Event()

        class Slow(Memory):
            in_thread = reads_in_thread = True

            def mark(self, partition: str) -> bytes | None:
                loop.call_soon_threadsafe(goes_on.set)
                answered.append(goes_on.wait(5))
                return super().mark(partition)

        await counting(Store.of(Slow(), "slow"), found, follow=False).run()

    # In real time, which a thread takes.
    asyncio.run(story())
    assert answered == [True]
    assert found == [0, 1, 2, 3, 4]


def test_the_group_is_told_only_after_the_store(broker: Broker, run: Run) -> None:
    store = Store.memory(every=5)
    broker.write(*numbers(0, 5))

    async def story() -> None:
        running = counting(store, []).start()
        await asyncio.sleep(4)
        assert broker.committed["t", 0] == (0, "")
        await asyncio.sleep(4)
        assert (mark(store).floor, broker.committed["t", 0][0]) == (5, 5)
        await running.drain(5)

    run(story())


def test_a_group_that_was_not_told_is_told_by_the_next_run(broker: Broker, run: Run) -> None:
    store = Store.memory()
    broker.write(*numbers(0, 5))
    run(counting(store, [], follow=False).run())
    for left in ((2, ""), None):
        broker.committed.clear()
        if left is not None:
            broker.committed["t", 0] = left
        run(counting(store, [], follow=False).run())
        assert broker.committed["t", 0] == (5, "")


def test_a_new_store_begins_with_the_first_record_and_says_that_the_group_was_further(
    broker: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    store, found = Store.memory(), list[int]()
    broker.write(*numbers(0, 5))
    broker.committed["t", 0] = 3, ""
    run(counting(store, found, follow=False).run())
    assert found == state(store) == [0, 1, 2, 3, 4]
    assert "it begins with the first record" in caplog.text


def test_a_new_store_with_new_records_only_begins_where_the_group_is(
    broker: Broker, run: Run
) -> None:
    found: list[int] = []
    broker.write(*numbers(0, 8))
    broker.committed["t", 0] = 3, metadata_of(3, [(5, 7)])
    run(counting(Store.memory(), found, follow=False, since="new").run())
    assert found == [3, 4, 7]


def test_where_new_records_begin_is_kept_before_there_is_one(broker: Broker) -> None:
    store, found = Store.memory(), list[int]()
    broker.write(*numbers(0, 3))

    async def crashes() -> None:
        counting(store, [], since="new").start()
        await asyncio.sleep(0.5)

    assert run_until_crash(crashes(), 60) is None
    broker.clients[-1].kill()
    assert mark(store).floor == 3
    broker.committed.clear()
    broker.write(*numbers(3, 5))
    run_virtual(counting(store, found, follow=False, since="new").run())
    assert found == [3, 4]


def test_all_that_is_done_above_the_floor_is_in_the_mark(broker: Broker, run: Run) -> None:
    store, found = Store.memory(), list[int]()
    count = 6_000
    broker.most_metadata = 100
    # Every second one is a tombstone, and the first takes long.
    drawn = random.Random(1)
    lost = {n for n in range(count) if drawn.random() < 0.5} - {0}
    broker.write(*(None if n in lost else b'{"n": %d}' % n for n in range(count)))

    async def slow(n: int) -> int:
        await asyncio.sleep(50 if drawn.random() < 0.3 or not n else 0)
        return n

    async def story() -> None:
        pipeline = source(store).pipe(
            ops.map(lambda event: event["n"]), adaptive_flat_map(slow, Fixed(count))
        )
        running = pipeline.to(collect(found)).start()
        await asyncio.sleep(20)
        done, early = mark(store), list(found)
        assert done.floor == 0
        known = {n for begin, end in done.finished for n in range(begin, end)}
        assert set(early) | {n for n in lost if n < max(early)} <= known
        assert known <= set(early) | lost
        assert len(done.finished) > 800
        await running.drain(60)

    run(story())


@given(
    st.integers(0, 1 << 40),
    st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), max_size=50),
    st.sets(st.integers(0, 300)),
)
def test_a_mark_says_what_is_done_and_what_is_about_to_be(
    floor: int, gaps: list[tuple[int, int]], stored: set[int]
) -> None:
    ranges: list[tuple[int, int]] = []
    at = floor
    for gap, size in gaps:
        ranges.append((at + gap, at + gap + size))
        at += gap + size
    partition = Partition(CLUSTER, "t", 0, floor, ranges)
    partition.generation = "an id"
    read = [offset for offset in range(floor, floor + 300) if partition.ledger.read(offset, None)]
    partition.stored = {floor + one for one in stored} & set(read)
    content = _mark(partition)
    half = set(sorted(partition.stored)[::2])
    partition.stored -= half
    assert _mark(partition, half) == content
    partition.stored |= half
    assert content is not None
    done = done_in(content)
    assert isinstance(done, Done)
    known = {n for begin, end in ranges for n in range(begin, end)} | partition.stored
    said = set(range(floor, done.floor))
    said |= {n for begin, end in done.finished for n in range(begin, end)}
    assert (said, done.generation) == (known, "an id")


def test_a_mark_has_more_ranges_than_fit_beside_an_offset() -> None:
    ranges = [(1000 * n, 1000 * n + 500) for n in range(1, 4000)]
    content = _mark(Partition(CLUSTER, "t", 0, 0, ranges))
    assert content is not None
    assert done_in(content) == Done(0, ranges, "")


def test_what_changes_no_state_is_marked_too(broker: Broker, run: Run) -> None:
    store = Store.memory()

    async def story() -> None:
        nothing: Any = source(store).pipe(ops.filter(lambda event: False))
        running = nothing.to(collect([])).start()
        await asyncio.sleep(3)
        broker.write(*numbers(0, 4), None, b"not json")
        await asyncio.sleep(0.5)
        assert mark(store).floor == 6
        await running.drain(5)

    run(story())


def test_a_record_that_is_reverted_comes_again_in_the_next_run_with_later_ones_of_its_key(
    broker: Broker, run: Run
) -> None:
    store, found, tried = Store.memory(), list[int](), list[int]()
    broker.write(*numbers(0, 9))

    async def fails_once(n: int) -> int:
        await asyncio.sleep(0.1)
        tried.append(n)
        if tried.count(3) == 1 and n == 3:
            raise ValueError(n)
        return n

    def seen(before: list[int], event: dict[str, int]) -> tuple[list[int], list[int]]:
        return [*before, event["n"]], [event["n"]]

    def pipeline() -> Pipeline:
        by: Any = lambda event: event["n"] % 2  # noqa: E731
        stage = stateful(seen, by, start=list[int](), name="seen", store=store)
        handler = adaptive_flat_map(fails_once, Fixed(1), on_error="revert")
        flow: Pipeline = source(store).pipe(stage, handler).to(collect(found))
        return flow

    def states() -> dict[Any, list[int]]:
        return {key_in(row.key): json.loads(row.state) for row in store._open().scan("seen")}

    async def story() -> None:
        running = pipeline().start()
        await asyncio.sleep(30)
        await running.drain(5)

    run(story())
    assert states() == {0: [0, 2, 4, 6, 8], 1: [1]}
    assert tried == list(range(9))
    assert mark(store) == Done(3, [(4, 5), (6, 7), (8, 9)], "")
    run(story())
    assert states() == {0: [0, 2, 4, 6, 8], 1: [1, 3, 5, 7]}


# Crashes.


class Story:
    """One random pipeline over a topic, with a store."""

    def __init__(self, seed: int) -> None:
        self.random = draw = random.Random(seed)
        self.store = Store.memory(every=draw.choice([0.0, 0.02, 0.3]))
        self.broker = Broker(partitions=draw.randint(1, 3))
        self.keys = draw.randint(1, 5)
        self.count = draw.randint(1, 60)
        self.filters, self.groups, self.second = (draw.random() < 0.5 for _ in range(3))
        for n in range(self.count):
            body = b'{"n": %d, "key": "k%d"}' % (n, n % self.keys)
            value = draw.choices([body, None, b"not json"], [9, 1, 1])[0]
            self.broker.write(value, partition=draw.randrange(len(self.broker.logs)))

    def pipeline(self, seed: int) -> Pipeline:
        moods = random.Random(seed)

        def seen(before: list[int], event: Any) -> tuple[list[int], list[Any]]:
            return [*before, event["n"]], [event] * (event["n"] % 3)

        def total(before: int, event: Any) -> tuple[int, list[Any]]:
            return before + 1, [event]

        async def work(event: Any) -> Any:
            await asyncio.sleep(moods.choice([0, 0, 0.001, 0.03, 0.4]))
            return event

        stages: list[Any] = [stateful(seen, "key", start=[], name="seen", store=self.store)]
        if self.filters:
            stages.insert(0, ops.filter(lambda event: event["n"] % 4 != 1))
        if self.groups:
            stages += [group_by("key"), spread()]
        stages.append(adaptive_flat_map(work, Fixed(4)))
        if self.second:
            by: Any = lambda event: event["n"] % 2  # noqa: E731
            stages.append(stateful(total, by, start=0, name="total", store=self.store))
        pipeline: Pipeline = source(self.store, follow=False).pipe(*stages).to(collect([]))
        return pipeline

    def states(self) -> dict[str, dict[Any, Any]]:
        backend = self.store._open()
        found = {
            stage.name: {key_in(row.key): json.loads(row.state) for row in backend.scan(stage.name)}
            for stage in backend.stages()
        }
        # Of keys in several partitions the order may be any.
        for key, seen in found.get("seen", {}).items():
            found["seen"][key] = Counter(seen)
        return found


@seeds(60)
def test_states_are_those_of_a_run_without_a_crash(seed: int) -> None:
    whole, story = Story(seed), Story(seed)
    with model_of(whole.broker):
        run_virtual(whole.pipeline(seed).run())
    crashes = random.Random(seed)
    with model_of(story.broker):
        for crashed in range(200):
            length = crashes.randint(1, 100 + 10 * crashed)
            if run_until_crash(story.pipeline(seed + crashed).run(), length) is not None:
                break
            for member in story.broker.clients:
                member.kill()
            if crashes.random() < 0.3:
                # By a tool, which is not believed.
                story.broker.committed.clear()
    assert story.states() == whole.states()


def test_the_mark_is_written_with_the_states(broker: Broker) -> None:
    """A crash between any two transactions leaves both or none."""

    class Watched(type(Store.memory()._open())):  # type: ignore[misc]
        def commit(self, unit: Unit) -> None:
            super().commit(unit)
            done = done_in(self.mark(MARK) or b"")
            floor = done.floor if isinstance(done, Done) else 0
            assert [len(json.loads(row.state)) for row in self.scan("seen")] == [floor] * bool(
                floor
            )

    broker.write(*numbers(0, 50))
    store, found = Store.of(Watched(), "watched", every=0.0), list[int]()

    async def slow(n: int) -> int:
        await asyncio.sleep(0.01)
        return n

    run_virtual(counting(store, found, adaptive_flat_map(slow, Fixed(1)), follow=False).run())
    assert found == list(range(50))


# Other members.


def test_a_member_beside_another_is_refused_and_has_begun_nothing(
    two: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Store.memory(), Store.memory()
    seen, others = list[int](), list[int]()

    async def story() -> None:
        running = counting(first, seen).start()
        await asyncio.sleep(2)
        other = counting(second, others).start()
        await asyncio.sleep(2)
        two.write(*numbers(0, 3), partition=0)
        two.write(*numbers(3, 6), partition=1)
        await asyncio.sleep(2)
        assert len(seen) == 3
        assert "another member of the group 'g' has got t/" in caplog.text
        with pytest.raises(CannotOpen, match=r"another member of the group 'g' has t/\d, and"):
            await other.wait()
        await asyncio.sleep(2)
        assert (sorted(seen), others) == ([0, 1, 2, 3, 4, 5], [])
        await running.drain(5)

    run(story())
    assert sorted(state(first)) == [0, 1, 2, 3, 4, 5]


def test_a_member_that_gets_no_partition_is_refused(broker: Broker, run: Run) -> None:
    async def story() -> None:
        running = counting(Store.memory(), []).start()
        await asyncio.sleep(2)
        other = counting(Store.memory(), []).start()
        await asyncio.sleep(59)
        assert other.statistics()["state"] == "running"
        with pytest.raises(CannotOpen, match=r"has t/0, and .* a group of its own"):
            await asyncio.wait_for(other.wait(), 5)
        await running.drain(5)

    run(story())


async def member_of(broker: Broker) -> Any:
    """A member that takes its share of the partitions, and nothing more."""
    other = broker.consumer({"enable.partition.eof": False})
    nothing: Any = lambda *_: asyncio.sleep(0)  # noqa: E731
    await other.subscribe(["t"], on_assign=nothing, on_revoke=nothing, on_lost=nothing)
    await asyncio.sleep(2)
    await other.poll(0.1)
    return other


def test_a_killed_member_is_waited_for(two: Broker, run: Run) -> None:
    store, seen = Store.memory(), list[int]()
    two.write(*numbers(0, 3), partition=0)
    two.write(*numbers(3, 6), partition=1)

    async def story() -> None:
        killed = await member_of(two)
        running = counting(store, seen).start()
        await asyncio.sleep(1)
        await killed.poll(0.1)
        await asyncio.sleep(40)
        assert two.owner["t", 0] is not two.owner["t", 1]
        assert seen == []
        killed.kill()
        await asyncio.sleep(3)
        await running.drain(5)

    run(story())
    assert sorted(state(store)) == list(range(6))


@pytest.mark.parametrize("silent", [False, True])
def test_what_ends_after_its_partition_went_and_came_back_is_in_the_state_once(
    two: Broker, run: Run, silent: bool
) -> None:
    store, seen = Store.memory(), list[int]()
    two.write(*numbers(0, 4), partition=0)
    two.write(*numbers(4, 8), partition=1)
    may_end = asyncio.Event()

    async def waits(n: int) -> int:
        await may_end.wait()
        return n

    async def story() -> None:
        running = counting(store, seen, adaptive_flat_map(waits, Fixed(5))).start()
        await asyncio.sleep(2)
        if silent:
            two.expire(two.clients[0])
        else:
            other = await member_of(two)
            await other.close()
        await asyncio.sleep(3)
        may_end.set()
        two.write(*numbers(8, 10))
        await asyncio.sleep(3)
        assert sum(one[0] for one in two.committed.values()) == 10
        await running.drain(5)

    run(story())
    assert sorted(seen) == sorted(state(store)) == list(range(10))


def test_brokers_that_are_away_do_not_stop_what_was_read(broker: Broker, run: Run) -> None:
    store, seen = Store.memory(), list[int]()
    broker.write(*numbers(0, 100))

    async def slow(n: int) -> int:
        await asyncio.sleep(1)
        return n

    async def story() -> None:
        running = counting(store, seen, adaptive_flat_map(slow, Fixed(1))).start()
        await asyncio.sleep(2)
        broker.answering.clear()
        broker.refuse = lambda: KafkaError(KafkaError._ALL_BROKERS_DOWN)
        await asyncio.sleep(90)
        assert len(state(store)) > 80
        broker.answering.set()
        broker.refuse = lambda: None
        await asyncio.sleep(30)
        await running.drain(5)

    run(story())
    assert seen == state(store) == list(range(100))


# Topics that are others now, and marks that say nothing.


def test_a_topic_that_was_created_again_is_read_from_its_start(
    broker: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    store, found = Store.memory(), list[int]()
    body = json.dumps({"floor": 3, "finished": "", "generation": "of before"})
    unit = Unit(marks={MARK: text_of(("kafka",), body).encode()})
    store._open().commit(unit)
    broker.write(*numbers(0, 5))
    read = "penstock.streams.kafka.beginnings.Beginnings.identify"

    async def identify(self: Any, topics: set[str]) -> None:
        self._ids |= dict.fromkeys(topics, "of now")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, identify)
        run(counting(store, found, follow=False).run())
        assert "t, partition 0, was created again" in caplog.text
        assert mark(store).generation == "of now"
        broker.write(*numbers(5, 6))
        run(counting(store, found, follow=False).run())
    assert found == [0, 1, 2, 3, 4, 5]


def test_what_ends_of_a_topic_that_was_created_again_meanwhile_changes_no_mark_of_the_new_one(
    broker: Broker, run: Run
) -> None:
    store, seen = Store.memory(), list[int]()
    broker.write(*numbers(0, 5))
    may_end = asyncio.Event()

    async def waits(n: int) -> int:
        if n < 5:
            await may_end.wait()
        return n

    def pipeline(**options: Any) -> Pipeline:
        return counting(store, seen, adaptive_flat_map(waits, Fixed(9)), **options)

    async def story() -> None:
        running = pipeline().start()
        await asyncio.sleep(2)
        broker.logs["t", 0].clear()
        broker.clients[0].news.set()
        await asyncio.sleep(2)
        broker.write(*numbers(5, 7))
        await asyncio.sleep(2)
        may_end.set()
        await asyncio.sleep(2)
        assert mark(store).floor == broker.committed["t", 0][0] == 2
        await running.drain(5)

    run(story())
    broker.write(*numbers(7, 8))
    run(pipeline(follow=False).run())
    assert sorted(seen) == state(store) == list(range(8))


def test_a_mark_that_is_damaged_is_refused(broker: Broker, run: Run) -> None:
    store = Store.memory()
    store._open().commit(Unit(marks={MARK: b"x"}))
    with pytest.raises(CannotOpen, match="the mark of kafka cluster/t/0 cannot be used: penstock"):
        run(counting(store, [], follow=False).run())
    assert isinstance(done_in(text_of(("kafka",), "{}").encode()), Unusable)


def test_records_that_are_deleted_are_reported_and_passed_over(
    broker: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    store, found = Store.memory(), list[int]()
    broker.write(*numbers(0, 5))
    run(counting(store, found, follow=False).run())
    broker.write(*numbers(5, 10))
    broker.delete(8)
    run(counting(store, found, follow=False).run())
    assert "offsets 5 to 7 of t, partition 0, were deleted" in caplog.text
    assert found == state(store) == [0, 1, 2, 3, 4, 8, 9]


# What is refused.


def test_wrong_options_are_refused() -> None:
    read: Any = read_kafka
    with pytest.raises(BuildError, match="give a Store"):
        read("t", "g", offsets="store")
    with pytest.raises(BuildError, match="name the topics"):
        read("^t", "g", offsets=Store.memory())


def test_a_sink_that_commits_in_transactions_of_its_own_is_refused(
    broker: Broker, run: Run
) -> None:
    pipeline = source(Store.memory()).to(write_kafka("out", transactional=True))
    with pytest.raises(BuildError, match="keeps in a store what is done"):
        run(pipeline.run())


def test_one_file_that_is_read_twice_into_one_store_is_refused(tmp_path: Any) -> None:
    path, store = tmp_path / "a.jsonl", Store.memory()
    path.write_text("{}\n")
    both = read_jsonl(path, position=store).pipe(ops.merge(read_jsonl(path, position=store)))
    with pytest.raises(CannotOpen, match="Two sources of the pipeline read file"):
        run_virtual(both.to(collect([])).run())
