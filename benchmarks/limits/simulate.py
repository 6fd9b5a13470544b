"""One limiter on one plant, in virtual time."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from benchmarks.limits.scenarios import Scenario
from streams.limits import ArrivalLimiter, Limiter, Outcome

__all__ = ["Completion", "simulate"]


# More than twice what any plant can finish: all else is a storm of refusals, and no use to go on.
_STORM = 100_000


class Completion(NamedTuple):
    """The end of one job, and the state right after it."""

    time: float
    latency: float
    success: bool
    limit: int
    in_flight: int
    waiting: int


def simulate(scenario: Scenario, limiter: Limiter, size: float, seed: int) -> list[Completion]:
    """Every completion in order. The k-th job demands the same whatever the limiter."""
    plant = scenario.plant(size, seed)
    demands, coming = random.Random(seed), random.Random(f"arrivals {seed}")
    demand, arrivals, seconds = scenario.demand, scenario.arrivals, scenario.seconds
    start, due, finish, on_complete = plant.start, plant.due, plant.finish, limiter.on_complete
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
        while len(jobs) < limiter.limit and (arrivals is None or number < len(arrived)):
            jobs[number] = now, arrived[number] if from_arrival else now, len(jobs) + 1
            start(now, number, demand(demands, now))
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
            continue
        now = ends
        if now > seconds or len(completions) >= _STORM:
            return completions
        ended, outcome = finish(now)
        began, since, in_flight = jobs.pop(ended)
        if hears is None:
            on_complete(now, began, in_flight, outcome)
        else:
            hears.on_depart(now, arrived[ended], len(jobs) + 1, outcome)
        completions.append(
            Completion(
                now,
                now - since,
                outcome is success,
                limiter.limit,
                len(jobs),
                len(arrived) - number if arrivals is not None else 0,
            )
        )
