"""Score every limiter on every plant against an oracle, and draw what the default does.

Two tables: the plants with which the default was developed, and others that came later. A figure is
the mean score of runs of several sizes and seeds, 1 at best (see score.py); `worst` is the worst
single run of the default, and at the bottom its worst plant.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import fmean

from benchmarks.limits.aimd import AIMD
from benchmarks.limits.gradient import Gradient
from benchmarks.limits.plots import draw, require_matplotlib
from benchmarks.limits.scenarios import EXTRAS, PLANTS, Scenario
from benchmarks.limits.score import score
from benchmarks.limits.simulate import simulate
from benchmarks.limits.vegas import Vegas
from penstock.streams.base.errors import MissingExtra
from penstock.streams.limits import Fixed, HillClimb, Limiter, default

LIMITERS: dict[str, Callable[[], Limiter]] = {
    "fixed 4": lambda: Fixed(4),
    "fixed 16": lambda: Fixed(16),
    "fixed 64": lambda: Fixed(64),
    "hill climb": HillClimb,
    "AIMD": AIMD,
    "Vegas": Vegas,
    "Gradient": Gradient,
    "default": default,
}

RUNS = ((1.0, 1), (0.4, 2), (2.5, 3), (1.0, 4), (0.4, 5), (2.5, 6))
"""Sizes and seeds. The other limiters get the first three: their failures are not subtle."""

EVERYTHING = (*PLANTS, *EXTRAS)

Scores = dict[str, list[float]]


def judge(task: tuple[int, float], runs: int, folder: Path) -> tuple[Scores, list[Path]]:
    """The scores of each limiter on one plant of EVERYTHING in one size, and the paths of plots."""
    number, size = task
    scenario = EVERYTHING[number]
    scores = {
        name: [
            _run(scenario, make(), *run)
            for run in RUNS[: runs if name == "default" else 3]
            if run[0] == size
        ]
        for name, make in LIMITERS.items()
    }
    return scores, draw(scenario, folder) if size == 1 else []


def _run(scenario: Scenario, limiter: Limiter, size: float, seed: int) -> float:
    initial = limiter.limit
    return score(scenario, size, seed, simulate(scenario, limiter, size, seed), initial)


def table(title: str, names: Sequence[str], results: Sequence[Scores]) -> str:
    """One line per plant with the means, and one line with the means of those."""
    width = max(len(name) for name in names)
    heading = f"{title:{width}}" + "".join(f"{name:>12}" for name in LIMITERS) + f"{'worst':>9}"
    lines = [heading, "-" * len(heading)]
    for name, result in zip(names, results, strict=True):
        means = "".join(f"{fmean(result[limiter]):12.2f}" for limiter in LIMITERS)
        lines.append(f"{name:{width}}{means}{min(result['default']):9.2f}")
    means = "".join(
        f"{fmean(fmean(result[limiter]) for result in results):12.2f}" for limiter in LIMITERS
    )
    worst = min(fmean(result["default"]) for result in results)
    return "\n".join([*lines, f"{'mean':{width}}{means}{worst:9.2f}"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("--plots", type=Path, default=Path("build/limits"), metavar="FOLDER")
    parser.add_argument("--runs", type=int, default=len(RUNS), choices=range(1, len(RUNS) + 1))
    arguments = parser.parse_args()
    try:
        require_matplotlib()
    except MissingExtra as error:
        print(error, file=sys.stderr)
        return 2
    results = [Scores() for _ in EVERYTHING]
    plots = 0
    # The large ones first, which take longest, so that all cores are busy until the end.
    sizes = sorted({size for size, _ in RUNS[: arguments.runs]}, reverse=True)
    tasks = [(number, size) for size in sizes for number in range(len(EVERYTHING))]
    # There are no cycles for the collector to find in some hundred thousand completions.
    with ProcessPoolExecutor(initializer=gc.disable) as pool:
        judged = pool.map(partial(judge, runs=arguments.runs, folder=arguments.plots), tasks)
        for (number, _), (scores, paths) in zip(tasks, judged, strict=True):
            plots += len(paths)
            for name, some in scores.items():
                results[number].setdefault(name, []).extend(some)
    names = [scenario.name for scenario in EVERYTHING]
    first = len(PLANTS)
    print(table("plant", names[:first], results[:first]), end="\n\n")
    print(table("others", names[first:], results[first:]), end="\n\n")
    print(f"{plots} plots in {arguments.plots}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
