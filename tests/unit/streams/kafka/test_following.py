"""Two topics in one pipeline whose states move: the second reader has the partitions with the
numbers of the first one's. What they find at random moves is in offsets/test_moving_times.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import KafkaError

from penstock import Store, collect, event_time, join, ops, read_kafka, stateful
from penstock.streams.base.errors import BuildError, CannotOpen, PenstockError
from penstock.streams.testing.fleet import Fleet, FleetMember
from penstock.streams.testing.plugin import Run
from tests.helpers.kafka.fleet import Process, floors, until
from tests.helpers.kafka.model import Broker, model_of

_read: Any = read_kafka


def pairs(*topics: str, how: Any = "inner") -> Any:
    """A join of two topics, the first of which is that of the leader."""

    def build(store: Store, config: dict[str, Any]) -> Any:
        left, right = (
            _read(topic, "g", offsets=store, config=config).pipe(
                event_time("at", idle=None, max_ahead=None)
            )
            for topic in topics
        )
        return left.pipe(join(right, "key", within=10, how=how, store=store, name="pairs"))

    return build


def row(key: int, at: int = 1) -> bytes:
    return b'{"key": %d, "at": %d}' % (key, at)


def test_both_topics_are_read_by_the_same_member(run: Run) -> None:
    broker, fleet = Broker(2, u=2), Fleet()

    async def story() -> None:
        members = [Process(broker, fleet, pairs("t", "u")) for _ in range(2)]
        await until(lambda: len(set(broker.owner.values())) == 2)
        assert {topic for topic, _ in broker.owner} == {"t"}
        for topic in "tu":
            for partition in range(2):
                broker.write(row(partition), topic=topic, partition=partition)
        await until(lambda: [len(one.found) for one in members] == [1, 1])
        for one in members:
            await one.running.drain(10)
        # Also the group has what is done of both.
        assert {key: offset for key, (offset, _) in broker.committed.items()} == {
            (topic, number): 1 for topic in "tu" for number in range(2)
        }

    with model_of(broker):
        run(story())


def test_topics_with_other_numbers_of_partitions_are_refused_before_the_first_event(
    run: Run,
) -> None:
    broker, fleet = Broker(2, u=3), Fleet()
    broker.write(row(0), partition=0)

    async def story() -> None:
        one = Process(broker, fleet, pairs("t", "u"))
        with pytest.raises(BuildError, match=r"'t' has 2 .* 'u' has 3, .* topic with 3 partitions"):
            await one.running.wait()
        assert not broker.members
        assert not fleet.partitions

    with model_of(broker):
        run(story())


@pytest.mark.parametrize("grown", ["t", "u"])
def test_a_topic_that_gets_more_partitions_ends_the_run_before_a_partner_is_missed(
    grown: str, run: Run
) -> None:
    broker, fleet = Broker(2, u=2), Fleet()

    async def story() -> None:
        one = Process(broker, fleet, pairs("t", "u", how="left"))
        for topic in "tu":
            broker.write(row(1), topic=topic)
        await until(lambda: floors(fleet) == 2)
        broker.grow(grown, 3)
        # Its partner is where nobody looks.
        broker.write(row(7, 2), topic="t" if grown == "u" else "u")
        broker.write(row(7, 2), topic=grown, partition=2)
        await asyncio.sleep(2)
        for topic in "tu":
            for partition in range(2):
                broker.write(row(9, 100), topic=topic, partition=partition)
        other = {"t": "u", "u": "t"}[grown]
        with pytest.raises(PenstockError) as raised:
            await one.running.wait()
        assert f"'{grown}' had 2 partitions, like '{other}', and has 3 now" in str(raised.value)
        assert "new topic with 3 partitions in place of 't' and of 'u'" in str(raised.value)
        assert [found[0]["key"] for found in one.found] == [1]

    with model_of(broker):
        run(story())


def test_brokers_that_do_not_say_for_a_while_how_many_partitions_there_are_end_nothing(
    run: Run,
) -> None:
    broker, fleet = Broker(2, u=2), Fleet()
    away = KafkaError(KafkaError._TRANSPORT)

    async def story() -> None:
        one = Process(broker, fleet, pairs("t", "u"))
        await until(lambda: len(broker.owner) == 2)
        broker.refuse = lambda: away
        await asyncio.sleep(10)
        broker.refuse = lambda: None
        for topic in "tu":
            broker.write(row(1), topic=topic)
        await until(lambda: floors(fleet) == 2)
        await one.running.drain(10)
        assert len(one.found) == 1

    with model_of(broker):
        run(story())


@pytest.mark.parametrize("is_stored", [False, True])
def test_topics_whose_producers_place_a_key_differently_are_named(
    is_stored: bool, run: Run
) -> None:
    broker, fleet = Broker(2, u=2), Fleet()

    async def story() -> None:
        one = Process(broker, fleet, pairs("t", "u"), every=0.02 if is_stored else 5)
        await until(lambda: len(broker.owner) == 2)
        broker.write(row(1))
        if is_stored:
            await until(lambda: floors(fleet) == 1)
        broker.write(row(1), topic="u", partition=1)
        with pytest.raises(PenstockError) as raised:
            await one.running.wait()
        first, second = "partition 0 of 't'", "partition 1 of 'u'"
        places = f"partition 0 and in {second}" if is_stored else f"{second} and in {first}"
        said = str(raised.value)
        assert f"the key 1 of 'pairs' has events in {places}, and" in said
        assert "Events of a key in 't' and 'u' must be in partitions of one number" in said
        assert "murmur2_random" in said
        assert "consistent_random" in said

    with model_of(broker):
        run(story())


def test_topics_in_another_order_than_before_are_refused(run: Run) -> None:
    broker, fleet = Broker(u=1), Fleet()

    async def story() -> None:
        broker.write(row(0), topic="u")
        before = Process(broker, fleet, pairs("t", "u"))
        await until(lambda: fleet.states("pairs"))
        await before.running.drain(10)
        after = Process(broker, fleet, pairs("u", "t"))
        with pytest.raises(CannotOpen, match="went with those of 't', and now with what the group"):
            await after.running.wait()

    with model_of(broker):
        run(story())


def test_a_reader_that_comes_while_the_first_one_reads_is_refused(run: Run) -> None:
    broker = Broker(u=1)
    store = Store.of(FleetMember(Fleet()), "fleet")

    def count(n: int, _: Any) -> tuple[int, list[Any]]:
        return n + 1, []

    async def story() -> None:
        broker.write(row(0))
        inner: Any = ops.flat_map(lambda _: _read("u", "g", offsets=store))
        counted = stateful(count, "key", start=0, store=store)
        pipeline = _read("t", "g", offsets=store).pipe(inner, counted).to(collect([]))
        async with asyncio.timeout(60):
            with pytest.raises(BuildError, match="'t' with the same store, and has begun"):
                await pipeline.run()

    with model_of(broker):
        run(story())
