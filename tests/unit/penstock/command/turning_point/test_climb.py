from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count, repeat
from typing import Any

import pytest

from penstock import (
    Fixed,
    adaptive_flat_map,
    batch,
    chunk,
    distinct_within,
    from_iterable,
    ops,
    rate_limit,
)
from penstock.command.turning_point.climb import Climb, Held, Step, turning_point
from penstock.streams.base.errors import PenstockError
from penstock.streams.testing import MemorySink, run_virtual


async def serve(value: int) -> int:
    await asyncio.sleep(0.01)
    return value


def climbed(
    *operators: Any, values: Iterator[Any] | None = None, **options: Any
) -> tuple[Climb, bool, list[Any]]:
    """A climb of a pipeline, whether it reached the top, and what its sink got."""
    sink = MemorySink()
    pipeline = from_iterable([-1]).pipe(*operators).to(sink)
    climb = Climb(pipeline, count() if values is None else values, **options)

    async def story() -> bool:
        running = climb.start()
        try:
            reached = await climb.climb(running, lambda light: None, lambda step: None)
        except PenstockError:
            running.cancel()
            await running.wait()
            raise
        await running.wait()
        return reached

    return climb, run_virtual(story()), sink.values


def test_the_rate_rises_by_a_quarter_until_the_response_time_is_five_times_that_of_light_load() -> (
    None
):
    climb, reached, _ = climbed(adaptive_flat_map(serve, Fixed(4)))
    assert reached
    assert climb.light == pytest.approx(0.01)
    assert climb.steps[0].rate == pytest.approx(25.0)
    rates = [step.rate for step in climb.steps]
    assert rates == [pytest.approx(25.0 * 1.25**n) for n in range(len(rates))]
    assert [step.mean > 0.05 for step in climb.steps] == [False] * (len(rates) - 1) + [True]


def test_it_ends_at_five_times_where_the_response_time_grows_slowly() -> None:
    at_work: set[int] = set()

    async def slower(value: int) -> int:
        at_work.add(value)
        await asyncio.sleep(0.01 + 0.01 * (len(at_work) - 1) ** 0.5)
        at_work.discard(value)
        return value

    climb, reached, _ = climbed(adaptive_flat_map(slower, Fixed(1000)), seconds=10.0)
    *before, last = (step.mean / climb.light for step in climb.steps)
    assert reached
    assert max(before) <= 5.0 < last < 7.0


def test_it_turns_up_before_the_capacity_is_reached() -> None:
    climb, _, _ = climbed(adaptive_flat_map(serve, Fixed(4)), seconds=10.0)
    turning = turning_point(climb.steps)
    # Four calls of 10 ms make 400 events per second.
    assert 200 < turning.rate < 400 < climb.steps[-1].rate < 400 * 1.25**2
    assert turning.mean < 0.02
    assert turning.utilisation == pytest.approx(turning.rate / 400, abs=0.1)
    assert climb.steps[-1].utilisation > 0.95
    assert turning.limit == 4


def test_the_wait_for_demand_belongs_to_the_response_time() -> None:
    # Events that find no room wait in line before the pipeline, whose stage lets 100 pass per
    # second. The rate is tried twice for 2 s. Then there are some 200 in line, so of those that
    # come meanwhile none ends: they count as long as they have waited.
    climb, _, _ = climbed(
        rate_limit(100), adaptive_flat_map(serve, Fixed(9)), first=200.0, seconds=2.0
    )
    (step,) = climb.steps
    assert step.mean == pytest.approx(1.0, abs=0.1)
    assert step.p95 == pytest.approx(1.9, abs=0.1)
    assert step.done == pytest.approx(100.0, rel=0.1)


def test_an_event_that_waited_in_line_counts_from_its_arrival() -> None:
    climb, _, _ = climbed(
        rate_limit(100), adaptive_flat_map(serve, Fixed(9)), first=95.0, seconds=9.0
    )
    # In the mean, a line with one server of 10 ms and this load is some 10 ms x 0.95 / 0.1 long.
    assert climb.steps[0].mean > 0.04


def test_the_load_is_the_same_at_each_run() -> None:
    one, other = (climbed(adaptive_flat_map(serve, Fixed(2))) for _ in range(2))
    assert one[0].steps == other[0].steps


def test_where_the_values_end_the_climb_ends_and_all_of_them_are_processed() -> None:
    climb, reached, seen = climbed(adaptive_flat_map(serve, Fixed(4)), values=iter(range(500)))
    assert not reached
    assert climb.steps
    assert sorted(seen) == list(range(500))


def test_batches_grow_with_the_rate() -> None:
    async def save(values: list[int]) -> list[int]:
        await asyncio.sleep(0.01 + 0.0001 * len(values))
        return values

    climb, reached, _ = climbed(batch(save, max_size=50), seconds=2.0)
    sizes = [step.batch for step in climb.steps if step.batch is not None]
    assert reached
    assert len(sizes) == len(climb.steps)
    assert sizes[0] < 1.5
    assert sizes[-1] > 30
    assert all(step.limit is None for step in climb.steps)


def test_a_stage_that_holds_events_until_more_come_has_no_response_time() -> None:
    with pytest.raises(Held, match="has not ended after 10 s"):
        climbed(chunk(10, None))


def test_events_that_are_all_dropped_have_no_response_time() -> None:
    with pytest.raises(Held, match="were all dropped"):
        climbed(ops.filter(lambda value: False))


def test_an_error_of_the_pipeline_ends_the_climb() -> None:
    async def fail(value: int) -> int:
        if value == 400:
            raise ValueError("Boom")
        return await serve(value)

    with pytest.raises(ValueError, match="Boom"):
        climbed(adaptive_flat_map(fail, Fixed(4)))


def test_the_turning_point_has_the_largest_rate_per_response_time() -> None:
    steps = [
        Step(rate, rate, mean, mean, None, 1, 0.5)
        for rate, mean in ((100, 1.0), (125, 1.1), (156, 1.2), (195, 1.9), (244, 9.0))
    ]
    assert turning_point(steps).rate == 156


def test_duplicates_of_a_repeated_file_do_not_count() -> None:
    climb, reached, seen = climbed(
        distinct_within(1e9, by=lambda value: value),
        adaptive_flat_map(serve, Fixed(1)),
        values=(value for n in count() for value in repeat(n, 2)),
    )
    assert reached
    assert climb.light == pytest.approx(0.01)
    assert len(seen) == len(set(seen))
