"""Compare the default limiter with completions reported one by one, and in lists.

    python -m benchmarks.limits.lists [--seeds N]

A stage reports completions when it flushes, at most a few milliseconds after the first of them, and
reads the limit then. Here they are cut into lists at random, of 1 to a quarter of the limit each,
which is later than in any stage: if a call takes a second, its end is reported up to a quarter of a
second later. For each of the plants by which limiters are judged it prints the goodput in lists
over the goodput one by one (mean of all runs and phases), and both scores. Where capacity falls to
a quarter (P5) the late reports increase latency, but do not lower goodput.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from statistics import fmean

from benchmarks.limits import simulate as simulated
from benchmarks.limits.scenarios import PLANTS, Scenario
from benchmarks.limits.score import Figures, score
from penstock.streams.limits import Completion, Limiter, ListLimiter, Outcome, default

__all__ = ["InLists", "goodputs"]

SIZES = (0.4, 1.0, 2.5)

Run = list[simulated.Completion]


class InLists:
    """Reports completions to a limiter in lists that are cut at random; its limit is read then."""

    def __init__(self, limiter: ListLimiter, seed: int) -> None:
        self.limit = limiter.limit
        self._limiter = limiter
        self._random = random.Random(f"lists {seed}")
        self._ends: list[Completion] = []
        self._size = 1

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        self._ends.append((now, started, in_flight_at_start, outcome))
        if len(self._ends) >= self._size:
            self._limiter.on_completions(self._ends)
            self._ends = []
            self.limit = self._limiter.limit
            self._size = self._random.randint(1, max(1, self.limit // 4))


def limiter(seed: int, *, in_lists: bool) -> Limiter:
    """A default limiter."""
    return InLists(default(), seed) if in_lists else default()


def goodputs(scenario: Scenario, run: Run) -> list[float]:
    """Successes per second in each phase of a run."""
    return [Figures.of(run, phase).goodput for phase in scenario.phases]


def compare(number: int, seeds: int) -> tuple[float, float, float]:
    """For one plant: goodput in lists over that one by one, and both scores."""
    scenario, ratios, scores = PLANTS[number], list[float](), (list[float](), list[float]())
    for size, seed in product(SIZES, range(1, seeds + 1)):
        runs: list[Run] = []
        for in_lists, some in zip((False, True), scores, strict=True):
            made = limiter(seed, in_lists=in_lists)
            initial = made.limit
            runs.append(simulated.simulate(scenario, made, size, seed))
            some.append(score(scenario, size, seed, runs[-1], initial))
        one, lists = (goodputs(scenario, run) for run in runs)
        ratios += [late / soon for late, soon in zip(lists, one, strict=True)]
    return fmean(ratios), fmean(scores[0]), fmean(scores[1])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.limits.lists",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=8, metavar="N", help="runs of each size")
    seeds = parser.parse_args().seeds
    print(f"{'plant':16}{'goodput':>10}{'one by one':>12}{'in lists':>10}{'change':>8}")
    results: list[tuple[float, float, float]] = []
    with ProcessPoolExecutor(initializer=gc.disable) as pool:
        compared = pool.map(partial(compare, seeds=seeds), range(len(PLANTS)))
        for scenario, result in zip(PLANTS, compared, strict=True):
            results.append(result)
            print(_row(scenario.name, *result), flush=True)
    print(_row("mean", *map(fmean, zip(*results, strict=True))))
    return 0


def _row(name: str, ratio: float, one: float, lists: float) -> str:
    return f"{name:16}{ratio:10.4f}{one:12.3f}{lists:10.3f}{lists - one:+8.3f}"


if __name__ == "__main__":
    sys.exit(main())
