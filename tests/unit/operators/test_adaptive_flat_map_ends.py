"""A stage ends, and nothing in it waits for what cannot come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest
import uvloop

from penstock import Fixed, adaptive_flat_map, from_iterable, group_by, spread
from penstock.streams.failures.backoff import Backoff
from penstock.streams.failures.policy import retry
from penstock.streams.testing import MemorySink
from penstock.streams.testing.plugin import Run

T = TypeVar("T")


def grouped(keys: int) -> Callable[[Any], Any]:
    return lambda source: source.pipe(group_by(lambda n: n % keys), spread())


async def within(waiting: Awaitable[T]) -> T:
    """A block that would otherwise wait for ever fails, in virtual time at once."""
    async with asyncio.timeout(100):
        return await waiting


async def fails_at_the_end(value: int) -> int:
    await asyncio.sleep(0)
    if value >= 7:
        raise ValueError(value)
    return value


async def brings_two(value: int) -> AsyncIterator[int]:
    for part in (value, value):
        yield part


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("keys", [1, 3, 20])
@pytest.mark.parametrize(("handler", "results"), [(fails_at_the_end, 7), (brings_two, 20)])
def test_the_stream_ends_however_its_last_calls_do(
    run: Run, handler: Any, results: int, keys: int, limit: int
) -> None:
    sink = MemorySink()
    stage: Any = adaptive_flat_map(handler, Fixed(limit), on_error="skip")
    run(within(grouped(keys)(from_iterable(range(10))).pipe(stage).to(sink).run()))
    assert len(sink.values) == results


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("keys", [1, 3, 20])
def test_the_stream_ends_for_a_reader_who_takes_one_at_a_time(
    run: Run, keys: int, limit: int
) -> None:
    async def work(value: int) -> int:
        await asyncio.sleep(0)
        return value

    async def story() -> list[int]:
        flow = grouped(keys)(from_iterable(range(10)))
        return [v async for v in flow.pipe(adaptive_flat_map(work, Fixed(limit), window=1))]

    assert sorted(run(within(story()))) == list(range(10))


@pytest.mark.parametrize("keys", [1, 3])
def test_the_stream_ends_under_a_limit_that_came_with_its_last_events(run: Run, keys: int) -> None:
    sink = MemorySink()

    async def work(value: int) -> int:
        if value == 8:
            running.retune(Fixed(2))
        return value

    async def story() -> None:
        nonlocal running
        flow = grouped(keys)(from_iterable(range(10)))
        running = flow.pipe(adaptive_flat_map(work, Fixed(1))).to(sink).start()
        await running.wait()

    running: Any = None
    run(within(story()))
    assert sink.values == list(range(10))


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("keys", [0, 2])
def test_a_call_that_cancels_its_own_task_and_returns_stops_nothing(
    run: Run, keys: int, limit: int
) -> None:
    async def work(value: int) -> int:
        if value == 3:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        return value

    sink = MemorySink()
    source = from_iterable(range(10))
    flow: Any = grouped(keys)(source) if keys else source
    run(within(flow.pipe(adaptive_flat_map(work, Fixed(limit), on_error="skip")).to(sink).run()))
    assert sorted(sink.values) == list(range(10))


@pytest.mark.parametrize("first_to_fail", [0, 1])
@pytest.mark.parametrize("shrinks", [False, True])
@pytest.mark.parametrize("is_plain", [False, True])
def test_the_next_in_order_is_tried_again_though_others_wait_in_every_slot_for_it(
    run: Run, first_to_fail: int, shrinks: bool, is_plain: bool
) -> None:
    tried: set[int] = set()

    async def results(value: int) -> AsyncIterator[tuple[int, int]]:
        for part in range(5):
            yield value, part

    def plain(value: int) -> AsyncIterator[tuple[int, int]]:
        if value == first_to_fail and value not in tried:
            tried.add(value)
            raise ValueError(value)
        return results(value)

    async def work(value: int) -> AsyncIterator[tuple[int, int]]:
        return plain(value)

    stage: Any = adaptive_flat_map(
        plain if is_plain else work,
        Fixed(4),
        ordered=True,
        window=16,
        on_error=retry(3, Backoff(0.05, jitter=0)),
    )
    sink = MemorySink()

    async def story() -> None:
        running = from_iterable(range(12)).pipe(stage).to(sink).start()
        await asyncio.sleep(0.03)
        if shrinks:
            running.retune(Fixed(1))
        await running.wait()

    run(within(story()))
    assert sink.values == [(value, part) for value in range(12) for part in range(5)]


class RaisesOnArrival:
    limit = ceiling = 3
    floor = 1

    def __init__(self) -> None:
        self._arrivals = 0

    def on_arrive(self) -> None:
        self._arrivals += 1
        if self._arrivals == 5:
            raise RuntimeError("arrival")

    def on_depart(self, *_: Any) -> None:
        """Nothing is learnt."""

    def on_complete(self, *_: Any) -> None:
        """Nothing is learnt."""


def test_the_arrival_at_which_a_limiter_raises_begins_nothing(run: Run) -> None:
    begun: list[int] = []

    async def work(value: int) -> int:
        begun.append(value)
        await asyncio.sleep(1)
        return value

    flow = from_iterable(range(20)).pipe(adaptive_flat_map(work, RaisesOnArrival()))
    with pytest.raises(RuntimeError, match="arrival"):
        run(within(flow.to(MemorySink()).run()))
    assert begun == [0, 1, 2]


@pytest.mark.parametrize("keys", [0, 100])
def test_calls_that_never_wait_let_the_loop_have_its_turn_however_many_there_may_be(
    keys: int,
) -> None:
    calls = 0
    most = before = 0

    async def work(value: int) -> int:
        nonlocal calls
        calls += 1
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            pass
        return value

    async def story() -> None:
        nonlocal most, before
        source = from_iterable(range(200))
        flow: Any = grouped(keys)(source) if keys else source
        running = flow.pipe(adaptive_flat_map(work, Fixed(64))).to(MemorySink()).start()
        while calls < 200:
            await asyncio.sleep(0)
            most = max(most, calls - before)
            before = calls
        await running.wait()

    uvloop.run(story())
    # A slice of 5 ms holds at most 6 of them, however slow the machine is.
    assert most <= 6
