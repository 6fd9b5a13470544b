"""One key with more events than its share of the buffer, in front of operators inside groups."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops

from penstock import (
    Fixed,
    adaptive_flat_map,
    batch,
    chunk,
    collect,
    distinct_within,
    for_each,
    from_async_iterable,
    group_by,
    rate_limit,
    route,
    spread,
)
from penstock.streams.base.errors import KeyOverShare
from penstock.streams.protocol.event import Ending
from penstock.streams.testing import MemorySource, run_virtual
from tests.unit.streams.keyed.test_overflow import HOT, Load, of_group_by


def sums() -> Any:
    """The events themselves, from an operator with a state."""
    return ops.scan(lambda _, event: event, None)


INSIDE: dict[str, Callable[[], Any]] = {
    "scan": sums,
    "pairwise": ops.pairwise,
    "lists": lambda: ops.buffer_with_count(10),
    "chunks": lambda: chunk(10),
}


def flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


class LoadInside(Load):
    """The same load through operators inside groups; a value of theirs is worked on at once."""

    def __init__(self, burst: int, inside: Callable[[], Any], **options: Any) -> None:
        each = lambda group: group.pipe(inside(), ops.map(flat))  # noqa: E731
        super().__init__(burst, each=each, idle=60, **options)

    async def work(self, values: Any) -> None:
        if values[-1]["client"] == HOT:
            self.hot += [value["place"] for value in values]
        else:
            self.latencies.append(asyncio.get_running_loop().time() - values[-1]["at"])
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("name", INSIDE)
def test_a_burst_of_one_key_holds_up_no_other(name: str, caplog: pytest.LogCaptureFixture) -> None:
    burst = 3_000
    load = LoadInside(burst, INSIDE[name], buffer=1024)
    statistics = run_virtual(load.run())
    assert load.p99() < 0.05
    if name == "pairwise":
        load.hot = load.hot[::2] + load.hot[-1:]
    assert load.hot == list(range(burst))
    # The last event of a group is in no pair of its own, and dropped.
    assert statistics["finished"] + sum(statistics["dropped"].values()) == 3_000 + burst
    assert load.peak_on_disk > burst // 2
    assert statistics["closed_early"] == {}
    (warning,) = (one for one in caplog.messages if "group_by" in one)
    assert "320 events of the key 'hot' wait" in warning


def test_with_route_what_is_over_the_share_goes_to_the_sink() -> None:
    letters: list[Any] = []
    load = LoadInside(3_000, sums, buffer=1024, overflow=route(for_each(letters.append)))
    statistics = run_virtual(load.run())
    assert load.p99() < 0.05
    assert 256 <= len(load.hot) <= 600
    assert load.hot == sorted(load.hot)
    routed = [letter.value["place"] for letter in letters]
    assert sorted(routed + load.hot) == list(range(3_000))
    assert isinstance(letters[0].error, KeyOverShare)
    assert statistics["failed"] == len(letters)


def test_many_slow_keys_hold_up_no_other() -> None:
    """Each of them has less than a share, and together they fill the buffer."""

    async def story() -> list[float]:
        loop = asyncio.get_running_loop()
        latencies: list[float] = []

        async def events() -> AsyncIterator[tuple[int, float]]:
            for n in range(1000):
                await asyncio.sleep(0.001)
                yield n % 50, loop.time()
                if n == 100:
                    for slow in range(1000):
                        yield 100 + slow % 20, 0.0

        async def work(event: tuple[int, float]) -> None:
            if event[0] < 100:
                latencies.append(loop.time() - event[1])
            await asyncio.sleep(0.01 if event[0] < 100 else 1)

        each = lambda group: group.pipe(sums())  # noqa: E731
        stream: Any = from_async_iterable(events).pipe(
            group_by(0, 256, each=each, idle=60, share=128),
            spread(),
            adaptive_flat_map(work, Fixed(100)),
        )
        await stream.to(collect([])).run()
        return latencies

    latencies = sorted(run_virtual(story()))
    assert len(latencies) == 1000
    assert latencies[980] < 0.05


def stopped_by(
    how: str,
    *inside: Any,
    make: Callable[[int], Any] = lambda n: (HOT, n),
    **options: Any,
) -> tuple[list[Any], list[dict[str, Any]], MemorySource[Any]]:
    """100 events of one key, of which the first takes until the end comes."""
    done: list[Any] = []

    async def story() -> tuple[list[dict[str, Any]], MemorySource[Any]]:
        source: MemorySource[Any] = MemorySource([make(n) for n in range(100)])
        released = asyncio.Event()

        async def work(events: Any) -> None:
            await released.wait()
            done.extend(event[1] for event in events)

        each = lambda group: group.pipe(  # noqa: E731
            *inside, ops.map(lambda value: value if isinstance(value, list) else [value])
        )
        chosen = {"buffer": 16, "share": 4, "spill_events": 1000} | options
        stream: Any = source.pipe(
            group_by(0, each=each, idle=60, **chosen),
            spread(),
            adaptive_flat_map(work, Fixed(4)),
        )
        running = stream.to(collect([])).start()
        await asyncio.sleep(1)
        numbers = [of_group_by(running)]
        if how == "cancel":
            running.cancel()
            await running.wait()
        else:
            draining = asyncio.create_task(running.drain(100))
            await asyncio.sleep(1)
            released.set()
            await draining
        return [*numbers, of_group_by(running)], source

    numbers, source = run_virtual(story())
    return done, numbers, source


def test_a_drain_finishes_what_is_on_the_disk() -> None:
    done, (numbers, _), source = stopped_by("drain", sums())
    # One is worked on, one is the next value, and four wait.
    assert numbers["on_disk"] == 94
    assert numbers["waiting"] == 5
    assert numbers["hottest_keys"][0]["waiting"] == 99
    assert done == list(range(100))
    assert source.ledger.unsettled == []


def test_a_cancel_returns_what_is_on_the_disk_in_order() -> None:
    done, (numbers, _), source = stopped_by("cancel", sums())
    assert numbers["on_disk"] > 80
    assert done == []
    # The first was being worked on.
    assert [value[1] for value in source.ledger.ended(Ending.RETURNED)] == [*range(1, 100), 0]


def test_operators_that_have_ended_early_drop_what_is_on_the_disk_too() -> None:
    done, (numbers, _), source = stopped_by("drain", ops.take(3))
    assert numbers["on_disk"] > 80
    assert done == [0, 1, 2]
    assert source.ledger.ended(Ending.DROPPED) == [(HOT, n) for n in range(3, 100)]


@pytest.mark.parametrize("count", [3, 10])
def test_operators_that_hold_more_than_a_share_get_what_is_on_the_disk(count: int) -> None:
    done, (before, after), source = stopped_by("drain", ops.buffer_with_count(count), buffer=40)
    assert before["on_disk"] > 60
    assert after["closed_early"] == {}
    assert done == list(range(100))
    assert source.ledger.unsettled == []


def test_operators_for_which_there_is_no_room_are_closed_early_and_lose_nothing() -> None:
    """They have had lists of one event, and want more than fits for the next."""
    sizes: list[int] = []

    def each(group: Any) -> Any:
        opening = ops.filter_indexed(lambda _, n: n == 0 or n % 30 == 29)
        return group.pipe(ops.publish(lambda events: events.pipe(ops.buffer(events.pipe(opening)))))

    source: MemorySource[Any] = MemorySource([(HOT, n) for n in range(100)])
    done: list[int] = []

    async def story() -> None:
        async def work(events: list[Any]) -> None:
            sizes.append(len(events))
            await asyncio.sleep(1)
            done.extend(event[1] for event in events)

        stream: Any = source.pipe(
            group_by(0, 16, each=each, idle=60, share=2),
            spread(),
            adaptive_flat_map(work, Fixed(4)),
        )
        report = await stream.to(collect([])).run()
        assert report.statistics["closed_early"]["buffer"] == sizes.count(16)

    run_virtual(story())
    assert done == list(range(100))
    assert source.ledger.unsettled == []
    assert max(sizes) == 16


def test_values_that_cannot_be_pickled_wait_in_the_buffer_which_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done, (numbers, _), _ = stopped_by("drain", sums(), make=lambda n: (HOT, n, lambda: n))
    assert numbers["on_disk"] == 0
    assert numbers["waiting"] <= 16
    assert done == list(range(len(done)))
    assert len([one for one in caplog.messages if "cannot be pickled" in one]) == 1


def test_a_source_that_loses_events_gets_back_those_that_wait_on_disk_or_not() -> None:
    source: MemorySource[Any] = MemorySource([(HOT, n) for n in range(100)])
    done: list[int] = []

    async def story() -> None:
        async def work(event: Any) -> None:
            await asyncio.sleep(1)
            done.append(event[1])

        each = lambda group: group.pipe(sums())  # noqa: E731
        stream: Any = source.pipe(
            group_by(0, 16, each=each, idle=60, share=4),
            spread(),
            adaptive_flat_map(work, Fixed(4)),
        )
        running = stream.to(collect([])).start()
        await asyncio.sleep(0.5)
        running._run.withdraw(lambda event: event.value[1] % 10)
        await running.wait()

    run_virtual(story())
    # The first was being worked on, the second was the next value of the operators.
    assert done == [0, *range(10, 100, 10)]
    assert sorted(source.ledger.ended(Ending.RETURNED)) == [(HOT, n) for n in range(100) if n % 10]
    assert source.ledger.unsettled == []


def _inside(name: str, count: int) -> Any:
    return {
        "nothing": (),
        "scan": (sums(),),
        "lists": (ops.buffer_with_count(count),),
        "chunks": (chunk(count, 0.3),),
        "delay": (ops.delay(0.2),),
        "rate": (rate_limit(20),),
        "distinct": (distinct_within(5, by=1),),
        "take": (ops.take(count),),
        "groups": (group_by(0, count), spread()),
    }[name]


@given(
    keys=st.lists(st.sampled_from("aaaabbc"), max_size=60),
    buffer=st.integers(1, 12),
    share=st.integers(1, 12),
    spill_events=st.integers(1, 40),
    inside=st.sampled_from(
        ["nothing", "scan", "lists", "chunks", "delay", "rate", "distinct", "take", "groups"]
    ),
    count=st.integers(1, 15),
    idle=st.sampled_from([0.05, 60]),
    max_groups=st.sampled_from([None, 1]),
    limit=st.integers(1, 4),
    cut=st.none() | st.floats(0, 5),
    batches=st.booleans(),
    pause=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_whatever_is_spilled_nothing_is_lost_doubled_or_overtaken(
    keys: list[str],
    buffer: int,
    share: int,
    spill_events: int,
    inside: str,
    count: int,
    idle: float,
    max_groups: int | None,
    limit: int,
    cut: float | None,
    batches: bool,
    pause: bool,
    seed: int,
) -> None:
    events = [(key, n) for n, key in enumerate(keys)]
    source: MemorySource[Any] = MemorySource(events)
    rng = random.Random(seed)
    started: list[Any] = []

    async def story() -> None:
        async def work(event: Any) -> Any:
            started.extend(event if isinstance(event, list) else [event])
            await asyncio.sleep(rng.choice([0, 0.1, rng.random()]))
            return event

        async def work_on_list(values: list[Any]) -> list[Any]:
            for value in values:
                started.extend(value if isinstance(value, list) else [value])
            await asyncio.sleep(rng.random() / 10)
            return values

        stage: Any = batch(work_on_list, 5) if batches else adaptive_flat_map(work, Fixed(limit))
        grouped = group_by(
            0,
            buffer,
            each=lambda group: group.pipe(*_inside(inside, count)),
            idle=idle,
            max_groups=max_groups,
            share=min(share, buffer),
            spill_events=spill_events,
        )
        start: Any = source.pipe(rate_limit(50)) if pause else source
        stream = start.pipe(grouped, spread(), stage)
        running = stream.to(collect([])).start()
        for _ in range(10_000):
            await asyncio.sleep(0.01)
            numbers = of_group_by(running)
            assert numbers["waiting"] <= numbers["peak"] <= buffer
            assert numbers["on_disk"] <= spill_events
            if running.statistics()["state"] == "closed":
                break
            if cut is not None and asyncio.get_running_loop().time() > cut:
                running.cancel()
                break
        else:
            raise AssertionError(running.statistics())
        await running.wait()

    logging.getLogger("penstock").disabled = True
    try:
        run_virtual(story())
    finally:
        logging.getLogger("penstock").disabled = False
    of_key: dict[str, list[int]] = defaultdict(list)
    for key, n in started:
        of_key[key].append(n)
    assert all(numbers == sorted(set(numbers)) for numbers in of_key.values())
    assert source.ledger.unsettled == []
    assert len(source.ledger.endings) == len(events) or cut is not None
    if cut is None and inside != "take":
        assert sorted(source.ledger.ended(Ending.FINISHED)) == sorted(events)
        assert len(started) == len(events)
