"""Sweep fixed limits over real plants, and let the default limiter find its own.

The best fixed limit is the smallest with at least 98 % of the highest throughput. The default
should have at least 95 % of its throughput, and a p99 of at most 1.3 times its own. Because the
machine may be busy, limits run in short alternating slices, first all fixed ones, then the default
and the best one; the figures are the medians of the slices, and of the ratios of each slice of the
default to the slice of the best one next to it. Each is idle while the other one works.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from statistics import median

from benchmarks.plants.http import HTTP
from benchmarks.plants.plant import Contestant, Figures, Phase, Plant, contest, typical
from benchmarks.plants.postgres import POSTGRES
from benchmarks.plants.processes import PROCESSES
from penstock import Fixed
from penstock.streams.limits import default
from penstock.streams.pipelines.pipeline import new_event_loop

PLANTS = (HTTP, POSTGRES, PROCESSES)

# Seconds to settle and to measure: a fixed limit only needs to fill the plant.
_SWEEP = (0.3, 1.0)
_DUEL = (0.3, 2.2)
# Seconds in which the default must find the level of a phase.
_LEARNING = 3.0


async def _judge(plant: Plant, rounds: int) -> None:
    async with plant.opened() as handler, AsyncExitStack() as stack:
        found = await stack.enter_async_context(Contestant(handler, default()).opened())
        for phase in plant.phases:
            await phase.begin()
            async with AsyncExitStack() as others:
                fixed = {
                    level: await others.enter_async_context(
                        Contestant(handler, Fixed(level)).opened()
                    )
                    for level in phase.levels
                }
                slices = await contest(list(fixed.values()), max(1, rounds // 2), *_SWEEP)
                swept = dict(zip(fixed, map(typical, slices), strict=True))
                for level, figures in swept.items():
                    _line(plant, phase, f"fixed {level}", figures)
                highest = max(figures.rate for figures in swept.values())
                best = min(n for n, figures in swept.items() if figures.rate >= 0.98 * highest)
                await found.work(_LEARNING, 0.1)
                _print(plant, phase, best, *await contest([found, fixed[best]], rounds, *_DUEL))


def _print(
    plant: Plant, phase: Phase, best: int, ours: list[Figures], theirs: list[Figures]
) -> None:
    pairs = list(zip(ours, theirs, strict=True))
    share = median(one.rate / other.rate for one, other in pairs)
    ratio = median(one.p99 / other.p99 for one, other in pairs)
    figures = typical(ours)
    verdict = f"{share:.0%} of the throughput of {best}, p99 x {ratio:.2f}"
    _line(plant, phase, f"default {figures.limit:.1f}", figures, verdict)


def _line(plant: Plant, phase: Phase, limit: str, figures: Figures, verdict: str = "") -> None:
    numbers = f"{figures.rate:9.1f} {figures.p99 * 1000:8.1f}"
    print(f"{plant.name:10} {phase.name:11} {limit:>13} {numbers}  {verdict}".rstrip(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plants", description=__doc__)
    parser.add_argument("plants", nargs="*", help=", ".join(plant.name for plant in PLANTS))
    parser.add_argument("--rounds", type=int, default=8)
    arguments = parser.parse_args()
    known = {plant.name: plant for plant in PLANTS}
    if unknown := set(arguments.plants) - set(known):
        sys.exit(f"no such plant: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    print(f"{'plant':10} {'phase':11} {'limit':>13} {'calls/s':>9} {'p99 ms':>8}")
    for name in arguments.plants or known:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_judge(known[name], arguments.rounds))


if __name__ == "__main__":
    main()
