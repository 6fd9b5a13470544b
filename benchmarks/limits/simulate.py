"""One limiter on one plant, in virtual time."""

from __future__ import annotations

import math
import random
from functools import lru_cache
from typing import Any, NamedTuple, cast

from benchmarks.limits.scenarios import Scenario
from penstock.streams.limits import ArrivalLimiter, Fixed, Limiter, Outcome

__all__ = ["Completion", "simulate"]


# More than twice what any plant can finish: beyond that there is only a storm of refusals.
_STORM = 100_000


class Completion(NamedTuple):
    """The end of one job, and the state right after it."""

    time: float
    latency: float
    success: bool
    limit: int
    in_flight: int
    waiting: int


class _Drawn(list[Any]):
    """The jobs of a seed, in order, drawn only once for all limiters."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._random, self._draw = random.Random(seed), scenario.draw

    def more(self, number: int) -> Any:
        """Draw up to this number and some more; return the job with this number."""
        while len(self) <= number + 100:
            self.append(self._draw(self._random))
        return self[number]


_drawn = lru_cache(maxsize=8)(_Drawn)


def simulate(scenario: Scenario, limiter: Limiter, size: float, seed: int) -> list[Completion]:
    """Every completion in order. The k-th job has the same demand whatever the limiter."""
    plant = scenario.plant(size, seed)
    drawn, coming = _drawn(scenario, seed), random.Random(f"arrivals {seed}")
    seconds_at, arrivals, seconds = scenario.seconds_at, scenario.arrivals, scenario.seconds
    start, due, finish, on_complete = plant.start, plant.due, plant.finish, limiter.on_complete
    fixed, limit = isinstance(limiter, Fixed), limiter.limit
    # Twice as fast as the NamedTuple's constructor, and there are millions.
    record = cast(Any, tuple).__new__
    from_arrival, success = scenario.from_arrival, Outcome.SUCCESS
    # Without arrivals all work waits from the start, and a limiter that measures from the arrival
    # would measure the length of the run.
    hears = limiter if isinstance(limiter, ArrivalLimiter) and arrivals is not None else None
    # By number: when it started, when it arrived, how many were in flight with it.
    jobs: dict[int, tuple[float, float, int]] = {}
    arrived: list[float] = []
    now, number = 0.0, 0
    arrival = math.inf if arrivals is None else 0.0
    completions: list[Completion] = []
    while True:
        while len(jobs) < limit and (arrivals is None or number < len(arrived)):
            jobs[number] = now, arrived[number] if from_arrival else now, len(jobs) + 1
            job = drawn[number] if number < len(drawn) else drawn.more(number)
            start(now, number, job if seconds_at is None else seconds_at(job, now))
            number += 1
        ends = due()
        if arrival <= ends:
            if arrival > seconds:
                return completions
            now = arrival
            assert arrivals is not None
            gap, some = arrivals(coming, size)
            arrival += gap
            arrived += [now] * some
            if hears is not None:
                for _ in range(some):
                    hears.on_arrive()
                limit = limiter.limit
            continue
        now = ends
        if now > seconds or len(completions) >= _STORM:
            return completions
        ended, outcome = finish(now)
        began, since, in_flight = jobs.pop(ended)
        if not fixed:
            if hears is None:
                on_complete(now, began, in_flight, outcome)
            else:
                hears.on_depart(now, arrived[ended], len(jobs) + 1, outcome)
            limit = limiter.limit
        waiting = 0 if arrivals is None else len(arrived) - number
        completions.append(
            record(Completion, (now, now - since, outcome is success, limit, len(jobs), waiting))
        )
