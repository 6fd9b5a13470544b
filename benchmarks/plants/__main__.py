"""Sweep fixed limits over real plants, and let the default limiter find its own.

The best fixed limit is the smallest with at least 98 % of the highest throughput. Wanted of the
default: at least 95 % of its throughput, and a p99 at most 1.3 times its own. Each round has all
limits, so that a slow minute of the machine hits every one of them; the figures are the means of
the rounds. A default is a fresh one in each round.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import defaultdict
from typing import Any

from benchmarks.plants.http import HTTP
from benchmarks.plants.plant import Figures, Plant, average, measure
from benchmarks.plants.postgres import POSTGRES
from benchmarks.plants.processes import PROCESSES
from streams import Fixed
from streams.limits import default
from streams.pipeline import new_event_loop

PLANTS = (HTTP, POSTGRES, PROCESSES)

# Seconds: a fixed limit has no more to do than to fill the plant, the default has to be found.
_FIXED = (0.5, 2.0)
_DEFAULT = (3.0, 5.0)


async def _figures(plant: Plant, rounds: int) -> tuple[dict[Any, Figures], list[Figures]]:
    """Of each phase's name and fixed limit, and of the default in each phase."""
    fixed: defaultdict[Any, list[Figures]] = defaultdict(list)
    found: list[list[Figures]] = []
    async with plant.opened() as handler:
        for _ in range(rounds):
            for phase in dict.fromkeys(plant.phases):
                for level in phase.levels:
                    fixed[phase.name, level] += await measure(
                        handler, Fixed(level), (phase,), *_FIXED
                    )
            found.append(await measure(handler, default(), plant.phases, *_DEFAULT))
    means = {name: average(figures) for name, figures in fixed.items()}
    return means, [average(figures) for figures in zip(*found, strict=True)]


def _print(plant: Plant, fixed: dict[Any, Figures], found: list[Figures]) -> None:
    for phase in dict.fromkeys(plant.phases):
        for level in phase.levels:
            _line(plant, phase.name, f"fixed {level}", fixed[phase.name, level])
    for phase, figures in zip(plant.phases, found, strict=True):
        swept = {level: fixed[phase.name, level] for level in phase.levels}
        highest = max(one.rate for one in swept.values())
        best = min(level for level, one in swept.items() if one.rate >= 0.98 * highest)
        share, ratio = figures.rate / swept[best].rate, figures.p99 / swept[best].p99
        verdict = f"{share:.0%} of the throughput of {best}, p99 x {ratio:.2f}"
        _line(plant, phase.name, f"default {figures.limit:.1f}", figures, verdict)


def _line(plant: Plant, phase: str, limit: str, figures: Figures, verdict: str = "") -> None:
    numbers = f"{figures.rate:9.1f} {figures.p99 * 1000:8.1f}"
    print(f"{plant.name:10} {phase:11} {limit:>13} {numbers}  {verdict}".rstrip(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plants", description=__doc__)
    parser.add_argument("plants", nargs="*", help=", ".join(plant.name for plant in PLANTS))
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    known = {plant.name: plant for plant in PLANTS}
    if unknown := set(arguments.plants) - set(known):
        sys.exit(f"no such plant: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    print(f"{'plant':10} {'phase':11} {'limit':>13} {'calls/s':>9} {'p99 ms':>8}")
    for name in arguments.plants or known:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            _print(known[name], *runner.run(_figures(known[name], arguments.rounds)))


if __name__ == "__main__":
    main()
