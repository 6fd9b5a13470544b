from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Backoff, Fixed, adaptive_flat_map, retry
from penstock.streams.testing import CountedSource, MemorySink, MemorySource, run_virtual
from penstock.streams.testing.plugin import Run


async def sleeps(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


def test_results_come_in_the_order_of_their_starts(run: Run) -> None:
    sink = MemorySink()
    operator = adaptive_flat_map(sleeps, Fixed(3), ordered=True)
    run(CountedSource([3, 1, 2, 0.5]).pipe(operator).to(sink).run())
    assert sink.accepted == [(3, 3), (3, 1), (3, 2), (3, 0.5)]


def test_without_order_results_come_as_they_are_ready(run: Run) -> None:
    sink = MemorySink()
    run(CountedSource([3, 1, 2, 0.5]).pipe(adaptive_flat_map(sleeps, Fixed(3))).to(sink).run())
    assert sink.accepted == [(1, 1), (1.5, 0.5), (2, 2), (3, 3)]


def test_a_slow_head_does_not_idle_the_other_slots(run: Run) -> None:
    started: list[tuple[float, float]] = []

    async def handler(seconds: float) -> float:
        started.append((asyncio.get_running_loop().time(), seconds))
        return await sleeps(seconds)

    sink = MemorySink()
    operator = adaptive_flat_map(handler, Fixed(2), ordered=True)
    run(CountedSource([10, 1, 1, 1, 1]).pipe(operator).to(sink).run())
    assert started == [(0, 10), (0, 1), (1, 1), (2, 1), (3, 1)]
    assert sink.accepted == [(10, 10), (10, 1), (10, 1), (10, 1), (10, 1)]


def test_a_slow_head_holds_no_more_results_than_the_window(run: Run) -> None:
    async def story() -> None:
        source = CountedSource([100, *[1] * 50])
        operator = adaptive_flat_map(sleeps, Fixed(2), ordered=True, window=5)
        async with source.pipe(operator).to(MemorySink()).start() as running:
            await asyncio.sleep(50)
            stage = running.statistics()["stages"][1]
            assert stage["undelivered"] + stage["in_flight"] == 2 + 5
            assert source.emitted == 2 + 5

    run(story())


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_failure_leaves_no_gap(run: Run, failing: int) -> None:
    async def handler(value: int) -> int:
        await asyncio.sleep([3, 2, 1, 1][value])
        if value == failing:
            raise ValueError
        return value

    sink = MemorySink()
    operator = adaptive_flat_map(handler, Fixed(4), ordered=True, on_error="skip")
    run(CountedSource(range(4)).pipe(operator).to(sink).run())
    assert sink.values == [value for value in range(4) if value != failing]


@given(
    st.lists(st.tuples(st.floats(0, 5), st.booleans(), st.integers(0, 3)), max_size=25),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.7]),
)
def test_order_is_that_of_the_starts_whatever_happens(
    plan: list[tuple[float, bool, int]], limit: int, window: int, sink_seconds: float
) -> None:
    async def several(value: int) -> Any:
        seconds, fails, results = plan[value]
        for n in range(results):
            await asyncio.sleep(seconds)
            yield (value, n)
        if fails:
            raise ValueError

    source, sink = MemorySource(range(len(plan))), MemorySink(seconds=sink_seconds)
    operator = adaptive_flat_map(
        several, Fixed(limit), ordered=True, window=window, on_error="skip"
    )
    run_virtual(source.pipe(operator).to(sink).run())
    assert sink.values == [(v, n) for v, (_, _, results) in enumerate(plan) for n in range(results)]
    assert sorted(source.acked) == list(range(len(plan)))


def test_the_results_of_later_iterators_wait_one_each_for_the_head(run: Run) -> None:
    produced: list[tuple[float, int, int]] = []

    async def several(value: int) -> Any:
        for n in range(3):
            await asyncio.sleep(5 if value == 0 else 1)
            produced.append((asyncio.get_running_loop().time(), value, n))
            yield (value, n)

    sink = MemorySink()
    operator = adaptive_flat_map(several, Fixed(2), ordered=True)
    run(CountedSource(range(2)).pipe(operator).to(sink).run())
    assert sink.values == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    # The second is suspended with one result delivered to the window and one in hand.
    assert produced[:3] == [(1, 1, 0), (2, 1, 1), (5, 0, 0)]


def test_plain_results_are_in_order_by_nature() -> None:
    seen: list[int] = []
    flow = CountedSource(range(600)).pipe(adaptive_flat_map(lambda n: n, ordered=True))
    flow.subscribe(seen.append)
    assert seen == list(range(600))


def test_the_head_is_tried_again_within_the_limit_when_nobody_waits_for_room(run: Run) -> None:
    """Beyond the limit it may begin only while all calls in flight wait for room."""
    at_once = peak = attempts = 0

    async def handler(value: int) -> Any:
        nonlocal at_once, peak, attempts
        at_once += 1
        peak = max(peak, at_once)
        try:
            if value == 1:
                attempts += 1
                if attempts == 1:
                    raise ValueError(value)
            if value == 0:
                # The sink is slow, so that this waits for room in between.
                for part in range(6):
                    yield part
            else:
                await asyncio.sleep(10 if value > 1 else 0)
                yield value
        finally:
            at_once -= 1

    sink = MemorySink(seconds=0.1)
    again = retry(2, Backoff(2, jitter=0))
    operator = adaptive_flat_map(handler, Fixed(2), ordered=True, window=1, on_error=again)
    run(CountedSource(range(4)).pipe(operator).to(sink).run())
    assert (peak, attempts) == (2, 2)
    assert [value for _, value in sink.accepted] == [*range(6), 1, 2, 3]
