"""The reports to a limiter, and the use of its limit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Fixed, HillClimb, adaptive_flat_map
from penstock.streams.limits import Outcome
from penstock.streams.testing import CountedSource, MemorySink
from penstock.streams.testing.plugin import Run
from tests.helpers.gauge import Gauge, declared, later


class Recorder:
    """A limiter that records its completions."""

    def __init__(self, limit: int = 2) -> None:
        self.limit = limit
        self.told: list[tuple[float, float, int, Outcome]] = []

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        self.told.append((now, started, in_flight_at_start, outcome))


class Arrivals(Recorder):
    """A limiter that measures from arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = 0

    def on_arrive(self) -> None:
        self.arrived += 1

    def on_depart(self, now: float, arrived: float, in_flight: int, outcome: Outcome) -> None:
        self.told.append((now, arrived, in_flight, outcome))


@pytest.mark.parametrize("handler", [later, declared], ids=["def", "async def"])
def test_the_limiter_gets_each_completion(run: Run, handler: Any) -> None:
    limiter = Recorder()
    run(CountedSource(range(3)).pipe(adaptive_flat_map(handler, limiter)).to(MemorySink()).run())
    success = Outcome.SUCCESS
    assert [told[:2] for told in limiter.told] == [(1, 0), (1, 0), (2, 1)]
    assert sorted(told[2] for told in limiter.told[:2]) == [1, 2]
    assert {told[3] for told in limiter.told} == {success}


def test_a_limiter_of_arrivals_gets_each_arrival_with_its_time(run: Run) -> None:
    limiter = Arrivals()
    run(CountedSource(range(3)).pipe(adaptive_flat_map(declared, limiter)).to(MemorySink()).run())
    assert limiter.arrived == 3
    assert limiter.told == [
        (1, 0, 2, Outcome.SUCCESS),
        (1, 0, 2, Outcome.SUCCESS),
        (2, 1, 1, Outcome.SUCCESS),
    ]


def test_a_limit_that_grows_at_an_arrival_is_used_at_once(run: Run) -> None:
    class Growing(Arrivals):
        def on_arrive(self) -> None:
            super().on_arrive()
            self.limit += 1

    gauge = Gauge()
    run(CountedSource(range(8)).pipe(adaptive_flat_map(gauge, Growing())).to(MemorySink()).run())
    assert gauge.peak == 8


@pytest.mark.parametrize("handler", [later, declared], ids=["def", "async def"])
def test_the_default_limit_rises_for_any_kind_of_handler(run: Run, handler: Any) -> None:
    async def story() -> None:
        flow = CountedSource(range(400)).pipe(adaptive_flat_map(handler))
        async with flow.to(MemorySink()).start() as running:
            pass
        assert running.statistics()["stages"][1]["peak_in_flight"] > 10

    run(story())


def test_each_running_begins_with_a_fresh_limiter(run: Run) -> None:
    limiter = HillClimb(exploration_rate=1.0, seed=3)
    pipeline = CountedSource(range(50)).pipe(adaptive_flat_map(declared, limiter)).to(MemorySink())

    async def limit_at_the_end() -> tuple[int, float]:
        report = await pipeline.run()
        return report.statistics["limit"], report.statistics["seconds"]

    async def story() -> None:
        first = await limit_at_the_end()
        assert await limit_at_the_end() == first
        assert limiter.limit == first[0]

    run(story())


@pytest.mark.parametrize("handler", [later, declared], ids=["def", "async def"])
def test_an_adaptive_limit_may_take_the_place_of_a_fixed_one(run: Run, handler: Any) -> None:
    limiter = Recorder(7)

    async def story() -> None:
        flow = CountedSource(range(20)).pipe(adaptive_flat_map(handler, Fixed(1)))
        async with flow.to(MemorySink()).start() as running:
            await asyncio.sleep(1.5)
            running.retune(limiter)
            await asyncio.sleep(0.1)
            assert running.statistics()["in_flight"] == 7

    run(story())
    assert len(limiter.told) == 19
