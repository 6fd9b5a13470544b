"""Batches by load against fixed sizes, each at every load, on plants of known cost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from itertools import count
from math import log2
from typing import Any

import pytest

from penstock import (
    Fixed,
    Flowable,
    adaptive_flat_map,
    batch,
    chunk,
    from_async_iterable,
    from_iterable,
)
from penstock.streams.testing import MemorySink, run_virtual

Cost = Callable[[int], float]

PLANTS: dict[str, Cost] = {
    "per call and per event": lambda n: 0.05 + 0.001 * n,
    "a knee at 120": lambda n: 0.05 + 0.001 * n + 0.01 * max(0, n - 120),
    "n log n": lambda n: 0.05 + 0.0004 * n * log2(n + 1),
}
SIZES = (30, 90, 120, 150, 250, 500)


def plant(cost: Cost) -> Any:
    async def handler(values: list[float]) -> list[float]:
        await asyncio.sleep(cost(len(values)))
        return values

    return handler


def by_load(cost: Cost) -> Any:
    return batch(plant(cost), max_size=500)


def by_size(cost: Cost, size: int, wait: float | None = None, at_once: int = 1) -> Any:
    def operator(source: Flowable[float]) -> Flowable[float]:
        lists = source.pipe(chunk(size, wait), adaptive_flat_map(plant(cost), Fixed(at_once)))
        return lists.flat_map(lambda values: values)

    return operator


def rate(operator: Any, seconds: float = 30.0) -> float:
    """Events per second from an endless backlog, after a start."""

    async def story() -> float:
        sink = MemorySink()
        running = from_iterable(lambda: iter(int, 1)).pipe(operator).to(sink).start()
        await asyncio.sleep(2 * seconds)
        before = len(sink.values)
        await asyncio.sleep(seconds)
        done = len(sink.values) - before
        running.cancel()
        await running.wait()
        return done / seconds

    return float(run_virtual(story()))


def rate_of(a_second: float, operator: Any, seconds: float) -> float:
    """Events done per second of those that come, evenly, after a start."""

    async def arrivals() -> AsyncIterator[int]:
        now = asyncio.get_running_loop().time
        begin = now()
        for number in count():
            await asyncio.sleep(max(0.0, begin + number / a_second - now()))
            yield number

    async def story() -> float:
        sink = MemorySink()
        running = from_async_iterable(arrivals).pipe(operator).to(sink).start()
        await asyncio.sleep(seconds)
        before = len(sink.values)
        await asyncio.sleep(seconds)
        done = len(sink.values) - before
        running.cancel()
        await running.wait()
        return done / seconds

    return float(run_virtual(story()))


def latency(operator: Any, every: float, events: int = 600) -> float:
    """The mean latency of the later half of events that come at random."""
    came: asyncio.Queue[float] = asyncio.Queue()

    async def arrive() -> None:
        rng = random.Random(0)
        for _ in range(events):
            await asyncio.sleep(rng.expovariate(1 / every))
            came.put_nowait(asyncio.get_running_loop().time())

    async def arrivals() -> AsyncIterator[float]:
        for _ in range(events):
            yield await came.get()

    async def story() -> float:
        sink = MemorySink()
        arriving = asyncio.ensure_future(arrive())
        await from_async_iterable(arrivals).pipe(operator).to(sink).run()
        await arriving
        took: list[float] = [at - since for at, since in sink.accepted]
        assert len(took) == events
        return sum(took[events // 2 :]) / (events - events // 2)

    return float(run_virtual(story()))


@pytest.mark.parametrize("name", PLANTS)
def test_under_heavy_load_it_does_97_percent_of_what_the_best_fixed_size_does(name: str) -> None:
    cost = PLANTS[name]
    best = max(rate(by_size(cost, size)) for size in SIZES)
    assert rate(by_load(cost)) >= 0.97 * best
    # Batches pay: without them it would be a fraction.
    assert rate(by_size(cost, 1)) <= 0.2 * best


@pytest.mark.parametrize("name", PLANTS)
@pytest.mark.parametrize("every", [0.2, 1.0])
def test_at_light_load_an_event_takes_no_longer_than_with_the_best_fixed_size(
    name: str, every: float
) -> None:
    cost = PLANTS[name]
    best = min(latency(by_size(cost, size, 0.05), every) for size in (1, 2, 10))
    assert latency(by_load(cost), every) <= 1.02 * best


@pytest.mark.parametrize("a_second", [20, 100, 500])
def test_in_between_an_event_takes_no_longer_than_with_the_best_fixed_size_and_wait(
    a_second: int,
) -> None:
    cost, every = PLANTS["per call and per event"], 1 / a_second
    # One per call would not do: that is 19 events per second.
    fixed = [by_size(cost, size, wait) for size in (10, 100, 500) for wait in (0.01, 0.05)]
    events = max(1000, 8 * a_second)
    best = min(latency(operator, every, events) for operator in fixed)
    assert latency(by_load(cost), every, events) <= 1.03 * best


@pytest.mark.parametrize("parallel", [1, 10])
@pytest.mark.parametrize("a_second", [10, 50, 100])
def test_an_event_takes_no_longer_than_event_by_event_where_calls_are_free(
    parallel: int, a_second: int
) -> None:
    cost: Cost = lambda n: 0.02 + 0.001 * n  # noqa: E731
    one_by_one = latency(by_size(cost, 1, at_once=parallel), 1 / a_second)
    batches = batch(plant(cost), parallel=parallel)
    assert latency(batches, 1 / a_second) <= 1.1 * one_by_one


@pytest.mark.parametrize("parallel", [1, 10])
@pytest.mark.parametrize("load", [0.5, 0.8, 1.2])
def test_at_any_load_as_many_events_are_done_as_come_or_as_full_calls_can_do(
    load: float, parallel: int
) -> None:
    cost: Cost = lambda n: 0.02 + 0.001 * n  # noqa: E731
    capacity = parallel * 10 / cost(10)
    operator = batch(plant(cost), max_size=10, parallel=parallel)
    # As many calls with either, for its size is found by comparing calls.
    done = rate_of(load * capacity, operator, 20.0 if parallel == 1 else 5.0)
    assert done >= 0.97 * min(load, 1.0) * capacity


@pytest.mark.parametrize("seconds", [0.15, 0.4])
def test_a_latency_bounds_the_calls_and_it_does_what_it_can_within(seconds: float) -> None:
    cost = PLANTS["per call and per event"]
    sizes: list[int] = []

    async def handler(values: list[float]) -> list[float]:
        sizes.append(len(values))
        await asyncio.sleep(cost(len(values)))
        return values

    done = rate(batch(handler, latency=seconds))
    # The events that wait came when the previous call began: twice a call's time in total.
    allowed = [size for size in range(1, 501) if 2 * cost(size) <= seconds]
    assert done >= 0.8 * max(size / cost(size) for size in allowed)
    late = [size for size in sizes[len(sizes) // 2 :] if size > max(allowed)]
    assert len(late) <= 0.1 * len(sizes) / 2
