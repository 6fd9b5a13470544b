"""The time of events from several partitions: which partitions the watermark waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import (
    Fixed,
    Running,
    Store,
    Window,
    adaptive_flat_map,
    agg,
    collect,
    event_time,
    read_kafka,
    tumbling,
    window,
)
from penstock.streams.event_time import line
from penstock.streams.testing.plugin import Run
from tests.helpers.kafka.model import Broker, model_of

LEAD = 20


@pytest.fixture
def four() -> Iterator[Broker]:
    with model_of(Broker(partitions=4)) as made:
        yield made


def put(broker: Broker, partition: int, *times: float) -> None:
    broker.write(*(b'{"at": %r}' % time for time in times), partition=partition)


def counting(
    into: list[Window[int]], *between: Any, idle: float | None = 30, **options: Any
) -> Running:
    """Windows of ten seconds, each with a key of its own."""
    read: Any = read_kafka
    timed = event_time("at", idle=idle, max_ahead=None)
    store = Store.memory()
    windows = window(tumbling(10), agg.count(), by=lambda event: event["at"] // 10, store=store)
    source = read("t", "g", offsets=store, **options)
    running: Running = source.pipe(timed, *between, windows).to(collect(into)).start()
    return running


def starts(found: list[Window[int]]) -> list[float]:
    return [one.start for one in found]


def of_windows(running: Running, name: str) -> Any:
    return running.statistics()["stages"][-2][name]


async def member_of(broker: Broker) -> Any:
    """A member that takes its share of the partitions, and nothing more."""
    other = broker.consumer({"enable.partition.eof": False})
    nothing: Any = lambda *_: asyncio.sleep(0)  # noqa: E731
    await other.subscribe(["t"], on_assign=nothing, on_revoke=nothing, on_lost=nothing)
    await asyncio.sleep(2)
    await other.poll(0.1)
    return other


def test_the_partition_that_is_furthest_behind_counts(two: Broker, run: Run) -> None:
    found: list[Window[int]] = []
    put(two, 0, 101, 125)
    put(two, 1, 50)

    async def story() -> None:
        running = counting(found)
        await asyncio.sleep(20)
        assert found == []
        put(two, 1, 112)
        await asyncio.sleep(1)
        assert starts(found) == [50, 100]
        await running.drain(5)

    run(story())


def test_what_is_late_is_late_in_its_own_partition(two: Broker, run: Run) -> None:
    found: list[Window[int]] = []
    put(two, 0, 125, 101)
    put(two, 1, 50, 102, 103)

    async def story() -> None:
        running = counting(found, idle=None)
        await asyncio.sleep(3)
        put(two, 1, 140)
        put(two, 0, 141)
        await asyncio.sleep(1)
        lates = [one["late"] for one in running.statistics()["stages"][1]["watermarks"]]
        assert lates == [1, 0]
        await running.drain(5)

    run(story())
    assert [(one.start, one.value) for one in found] == [(50, 1), (100, 2), (120, 1)]


def test_a_partition_with_nothing_is_left_out_after_a_while(two: Broker, run: Run) -> None:
    found: list[Window[int]] = []
    put(two, 1, 101)

    async def story() -> None:
        running = counting(found)
        for at in range(102, 140):
            put(two, 0, at)
            await asyncio.sleep(1)
            # It joined soon after the start, and then was empty.
            assert bool(found) == (at >= 132)
        # Partition 1 speaks again: what it has is late for what has closed, and for no more.
        put(two, 1, 105, 131, 138)
        await asyncio.sleep(1)
        assert of_windows(running, "late") == 1
        await running.drain(5)

    run(story())
    assert [(one.start, one.value) for one in found] == [(100, 9), (110, 10), (120, 10)]


def test_a_partition_that_is_paused_is_not_silent(two: Broker, run: Run) -> None:
    found: list[Window[int]] = []
    put(two, 0, 101)
    put(two, 1, 101)

    async def story() -> None:
        running = counting(found)
        await asyncio.sleep(2)
        running.pause()
        put(two, 0, *range(102, 200))
        await asyncio.sleep(100)
        put(two, 1, *range(102, 200))
        running.resume()
        await asyncio.sleep(2)
        await running.drain(5)

    run(story())
    assert [one.value for one in found] == [18, *[20] * 8]


def test_a_silent_partition_is_asked_again_after_a_pause(two: Broker, run: Run) -> None:
    found: list[Window[int]] = []
    put(two, 0, 101)

    async def story() -> None:
        running = counting(found)
        for at in range(102, 140):
            put(two, 0, at)
            await asyncio.sleep(1)
        assert starts(found) == [100, 110, 120]
        running.pause()
        await asyncio.sleep(1)
        # The one that was silent has events from the pause, as the other does.
        put(two, 0, *range(140, 2000))
        put(two, 1, *range(140, 2000))
        await asyncio.sleep(10)
        running.resume()
        await asyncio.sleep(2)
        assert of_windows(running, "late") == 0
        await running.drain(5)

    run(story())


def test_brokers_that_are_away_make_no_partition_silent(two: Broker, run: Run) -> None:
    found: list[Window[int]] = []
    for partition in range(2):
        put(two, partition, 101)

    async def story() -> None:
        running = counting(found, idle=60)
        await asyncio.sleep(2)
        two.answering.clear()
        await asyncio.sleep(200)
        assert found == []
        two.answering.set()
        # There was something all the time.
        put(two, 0, *range(102, 400))
        await asyncio.sleep(1)
        assert found == []
        put(two, 1, *range(102, 400))
        await asyncio.sleep(1)
        assert of_windows(running, "late") == 0
        assert len(found) == 29
        # And then there is nothing.
        await asyncio.sleep(75)
        assert len(found) == 30
        await running.drain(5)

    run(story())


def test_slow_handlers_make_no_partition_silent(two: Broker, run: Run) -> None:
    found: list[Window[int]] = []
    put(two, 0, *range(101, 140, 5))
    put(two, 1, *range(101, 140, 5))

    async def slow(event: Any) -> Any:
        await asyncio.sleep(7)
        return event

    async def story() -> None:
        running = counting(found, adaptive_flat_map(slow, Fixed(1)))
        await asyncio.sleep(16 * 7 + 20)
        assert of_windows(running, "late") == 0
        await running.drain(5)

    run(story())
    assert [one.value for one in found] == [4, 4, 4]


def lines(running: Running) -> dict[str, Any]:
    watermarks = running.statistics()["stages"][1]["watermarks"]
    return {one["partition"]: one["watermark"] for one in watermarks}


def test_a_partition_that_goes_to_another_reader_has_no_line_any_more(
    two: Broker, run: Run
) -> None:
    put(two, 0, 101, 125)
    put(two, 1, 101, 125)

    async def story() -> None:
        read: Any = read_kafka
        running = read("t", "g").pipe(event_time("at", max_ahead=None)).to(collect([])).start()
        await asyncio.sleep(3)
        assert lines(running) == {"t/0": 125, "t/1": 125}
        other = await member_of(two)
        await asyncio.sleep(2)
        ((own, _),) = [key for key, one in two.owner.items() if one is not other]
        assert own == "t"
        assert len(lines(running)) == 1
        await other.close()
        await asyncio.sleep(2)
        # It begins anew: its next record may be any.
        assert sorted(lines(running).values(), key=str) == [125, None]
        await running.drain(5)

    run(story())


def test_a_partition_that_must_come_back_is_waited_for(two: Broker, run: Run) -> None:
    found: list[Window[int]] = []
    put(two, 0, 101, 105)
    put(two, 1, 101, 105)

    async def story() -> None:
        running = counting(found)
        await asyncio.sleep(3)
        other = await member_of(two)
        for partition in range(2):
            put(two, partition, *range(106, 140))
        await asyncio.sleep(20)
        assert found == []
        await other.close()
        await asyncio.sleep(3)
        assert of_windows(running, "late") == 0
        assert [(one.start, one.value) for one in found] == [(100, 12), (110, 20), (120, 20)]
        await running.drain(5)

    run(story())


@pytest.mark.parametrize("quick", [1, 3])
def test_a_partition_that_is_ahead_waits_for_the_others(
    four: Broker, run: Run, monkeypatch: pytest.MonkeyPatch, quick: int
) -> None:
    """A day is read again, from partitions of which some are read before others."""
    monkeypatch.setattr(line, "_LEAD", LEAD)
    found: list[Window[int]] = []
    events = 2000
    for partition in range(4):
        # One has a tenth of the events of others.
        put(four, partition, *range(0, events, 10 if partition == quick else 1))

    async def story() -> None:
        running = counting(found, idle=None, follow=False)
        most = 0
        while running.state != "closed":
            await asyncio.sleep(0.01)
            most = max(most, of_windows(running, "open_windows"))
        # Each of the others may be ahead by twice so many, and by one list that was read.
        assert most <= (2 * LEAD + 500) / 10 + 2

    run(story())
    assert [one.value for one in found] == [31] * (events // 10)
