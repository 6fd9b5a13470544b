"""Print what the default limiter makes of each plant, the mean of some seeds."""

from __future__ import annotations

import argparse
import math
import random
from statistics import mean

from benchmarks.limits.plants import PLANTS, Scenario
from streams.limits import Limiter, Outcome, default


def simulate(scenario: Scenario, limiter: Limiter, seed: int) -> tuple[float, float, float, float]:
    """Goodput, latency from start to end, share of drops, and the mean limit of the second half.

    The first twentieth of the time is not counted, except in the limits.
    """
    plant, demands, coming = (
        scenario.plant(),
        random.Random(seed),
        random.Random(f"arrivals {seed}"),
    )
    arrivals = scenario.arrivals
    started: dict[int, tuple[float, int]] = {}
    now, waiting, number, drops = 0.0, 0, 0, 0
    arrival = math.inf if arrivals is None else 0.0
    latencies: list[float] = []
    limits: list[int] = []
    while True:
        while len(started) < limiter.limit and (arrivals is None or waiting):
            waiting -= 1
            number += 1
            started[number] = now, len(started) + 1
            plant.start(now, number, scenario.demand(demands))
        now = min(arrival, plant.due())
        if now > scenario.seconds:
            break
        if arrivals is not None and now == arrival:
            gap, jobs = arrivals(coming)
            arrival += gap
            waiting += jobs
            continue
        finished, outcome = plant.finish(now)
        began, in_flight = started.pop(finished)
        limiter.on_complete(now, began, in_flight, outcome)
        limits.append(limiter.limit)
        if now > 0.05 * scenario.seconds:
            if outcome is Outcome.SUCCESS:
                latencies.append(now - began)
            else:
                drops += 1
    goodput = len(latencies) / (0.95 * scenario.seconds)
    share = drops / (drops + len(latencies))
    return goodput, mean(latencies), share, mean(limits[len(limits) // 2 :])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    print(f"{'plant':14} {'goodput/s':>9} {'latency s':>9} {'dropped':>8} {'limit':>6}")
    for scenario in PLANTS:
        runs = [simulate(scenario, default(), seed) for seed in range(1, seeds + 1)]
        goodput, latency, share, limit = map(mean, zip(*runs, strict=True))
        print(f"{scenario.name:14} {goodput:9.2f} {latency:9.4f} {share:8.3f} {limit:6.1f}")


if __name__ == "__main__":
    main()
