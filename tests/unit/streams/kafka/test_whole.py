"""A table that every member of a group holds whole, on virtual time and a model of the brokers."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest.mock import patch

import pytest

from penstock import (
    Fixed,
    Store,
    adaptive_flat_map,
    chunk,
    collect,
    event_time,
    lookup,
    ops,
    read_kafka,
    stateful,
    table,
)
from penstock.streams.base.errors import BuildError, StreamMissing
from penstock.streams.testing.fleet import Fleet
from penstock.streams.testing.plugin import Run
from tests.helpers.kafka.fleet import Process, until
from tests.helpers.kafka.model import Broker, Member, model_of

_read: Any = read_kafka


def row(key: int, name: str) -> bytes:
    return json.dumps({"key": key, "name": name}).encode()


def click(key: int, n: int = 0) -> bytes:
    return b'{"key": %d, "n": %d}' % (key, n)


def named(pair: tuple[Any, Any]) -> tuple[int, str | None]:
    event, found = pair
    return event["key"], None if found is None else found["name"]


def names(*stages: Any, **options: Any) -> Any:
    """What a process of the fleet does: its clicks with the names of the keys, read whole."""

    def build(store: Store, config: dict[str, Any]) -> Any:
        rows = _read("names", "g", config=config, **options)
        found = table(rows.pipe(*stages) if stages else rows, "key", whole=True)
        clicks = _read("t", "g", offsets=store, config=config)
        return clicks.pipe(lookup(found, "key"), ops.map(named))

    return build


def finding(into: list[Any], *stages: Any) -> Any:
    rows = _read("names", "g")
    found = table(rows.pipe(*stages) if stages else rows, "key", whole=True)
    return _read("t", "g").pipe(lookup(found, "key"), ops.map(named)).to(collect(into))


def test_every_member_has_all_rows_whatever_partitions_of_the_events_it_has(run: Run) -> None:
    # A store that moves with the partitions of the clicks, of which there are fewer.
    broker, fleet = Broker(2, names=3), Fleet()
    for key in range(6):
        broker.write(row(key, f"name {key}"), topic="names", partition=key % 3)

    async def story() -> None:
        members = [Process(broker, fleet, names()) for _ in range(2)]
        await until(lambda: len(set(broker.owner.values())) == 2)
        assert {topic for topic, _ in broker.owner} == {"t"}
        for key in range(6):
            for partition in range(2):
                broker.write(click(key), partition=partition)
        every = [(key, f"name {key}") for key in range(6)]
        await until(lambda: [sorted(one.found) for one in members] == [every, every])
        # The next one reads the table anew.
        await members.pop().running.drain(10)
        members.append(Process(broker, fleet, names()))
        await until(lambda: len(set(broker.owner.values())) == 2)
        broker.write(*(click(key) for key in range(6)), partition=0)
        broker.write(*(click(key) for key in range(6)), partition=1)
        await until(lambda: sorted(members[1].found) == every)
        for one in members:
            await one.running.drain(10)
        assert {topic for topic, _ in broker.committed} == {"t"}

    with model_of(broker):
        run(story())


def test_events_wait_for_the_rows_that_were_there_at_the_start(run: Run) -> None:
    broker = Broker(names=2)
    broker.write(click(0), click(1))
    broker.write(row(0, "old"), *(row(9, "other") for _ in range(3_000)), topic="names")
    broker.write(*(row(9, "other") for _ in range(3_000)), topic="names", partition=1)
    broker.write(row(0, "new"), topic="names")
    broker.write(row(1, "last"), topic="names", partition=1)
    found: list[Any] = []

    async def slowly(value: Any) -> Any:
        await asyncio.sleep(1 if value["name"] in ("new", "last") else 0)
        return value

    async def story() -> None:
        running = finding(found, adaptive_flat_map(slowly, Fixed(2))).start()
        await until(lambda: len(found) == 2)
        assert found == [(0, "new"), (1, "last")]
        await running.drain(10)

    with model_of(broker):
        run(story())


def test_rows_that_come_later_are_found_at_once_also_in_partitions_that_are_added(
    run: Run,
) -> None:
    broker = Broker(names=1)
    found: list[Any] = []

    async def story() -> None:
        running = finding(found).start()
        broker.write(click(1))
        await until(lambda: found == [(1, None)])
        broker.write(row(1, "new"), topic="names")
        await asyncio.sleep(1)
        broker.write(click(1))
        await until(lambda: found[1:] == [(1, "new")])
        broker.topics["names"], broker.logs["names", 1] = 2, []
        broker.write(row(2, "added"), topic="names", partition=1)
        await asyncio.sleep(60)
        broker.write(click(2))
        await until(lambda: found[2:] == [(2, "added")])
        (numbers,) = (one for one in running.statistics()["stages"] if one["name"] == "lookup")
        counts = {name: numbers[name] for name in ("found", "missing", "rows", "is_whole")}
        assert counts == {"found": 2, "missing": 1, "rows": 2, "is_whole": True}
        await running.drain(10)

    with model_of(broker):
        run(story())


@pytest.mark.parametrize("last", [None, b"no row"])
def test_what_makes_no_row_at_the_end_of_the_table_is_not_waited_for(
    run: Run, last: bytes | None
) -> None:
    broker = Broker(names=1)
    broker.write(row(1, "one"), last, topic="names")
    broker.write(click(1))
    found: list[Any] = []

    async def story() -> None:
        running = finding(found).start()
        await until(lambda: found == [(1, "one")])
        await running.drain(10)

    with model_of(broker):
        run(story())


def test_marks_of_transactions_at_the_end_of_the_table_are_not_waited_for(run: Run) -> None:
    broker = Broker(names=2)
    broker.write(row(1, "one"), topic="names")
    broker.write(click(1))
    found: list[Any] = []
    bounds = Member.get_watermark_offsets

    async def with_mark(member: Member, place: Any, **options: Any) -> Any:
        first, end = await bounds(member, place, **options) or (0, 0)
        return first, end + 1

    async def story() -> None:
        running = finding(found).start()
        await until(lambda: found == [(1, "one")])
        await running.drain(10)

    with model_of(broker), patch.object(Member, "get_watermark_offsets", with_mark):
        run(story())


def test_a_drain_before_the_table_is_there_looks_nothing_up(run: Run) -> None:
    broker = Broker(names=1)
    broker.write(row(1, "one"), topic="names")
    broker.write(click(1))
    found: list[Any] = []

    async def slowly(value: Any) -> Any:
        await asyncio.sleep(5)
        return value

    async def story() -> None:
        running = finding(found, adaptive_flat_map(slowly, Fixed(1))).start()
        await asyncio.sleep(2)
        await running.drain(20)
        assert not found
        assert not broker.committed

    with model_of(broker):
        run(story())


def test_the_rows_of_a_table_that_is_missing_end_the_run(run: Run) -> None:
    broker = Broker()
    with model_of(broker), pytest.raises(StreamMissing, match="'names'"):
        run(finding([]).run())


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (lambda: _read("names", "g", offsets=Store("a.state")), r"leave out offsets="),
        (lambda: _read("names", "g", since="new"), r"leave out since="),
        (lambda: _read("^names", "g"), r"name the topics"),
        (lambda: _read("names", "g").pipe(ops.share()), r"a source of its own"),
        (lambda: _read("names", "g").pipe(ops.merge(_read("u", "g"))), r"a source of its own"),
        (lambda: _read("names", "g").pipe(chunk(2)), r"behind stage 2 'chunk'"),
    ],
)
def test_a_table_of_which_the_start_cannot_be_told_is_refused(rows: Any, match: str) -> None:
    with pytest.raises(BuildError, match=match):
        table(rows(), "key", whole=True)


def test_the_state_behind_it_counts_each_event_once(run: Run) -> None:
    broker, fleet = Broker(1, names=2), Fleet()
    broker.write(row(1, "one"), topic="names", partition=1)

    def build(store: Store, config: dict[str, Any]) -> Any:
        found = table(_read("names", "g", config=config), "key", whole=True)

        def count(n: int, pair: Any) -> tuple[int, list[Any]]:
            return n + 1, [(named(pair), n + 1)]

        return _read("t", "g", offsets=store, config=config).pipe(
            event_time("n", idle=None, max_ahead=None),
            lookup(found, "key"),
            stateful(count, lambda pair: pair[0]["key"], start=0, name="counts", store=store),
        )

    async def story() -> None:
        results: list[Any] = []
        for n in range(3):
            member = Process(broker, fleet, build)
            broker.write(click(1, n))
            await until(lambda member=member: member.found)
            results += member.found
            await member.running.drain(10)
        assert results == [((1, "one"), n) for n in (1, 2, 3)]

    with model_of(broker):
        run(story())
