"""Score every limiter on every plant against an oracle, and draw what the default does.

Two tables: the plants by which limiters are judged, and others that nobody had in mind when the
default was made. A figure is the mean of runs of several sizes and seeds, 1 at best (score.py says
of what); `worst` is the worst single run of the default, and at the bottom its worst plant.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean

from benchmarks.limits.plots import draw, require_matplotlib
from benchmarks.limits.scenarios import EXTRAS, PLANTS, Scenario
from benchmarks.limits.score import score
from benchmarks.limits.simulate import simulate
from streams.errors import MissingExtra
from streams.limits import AIMD, Fixed, Gradient, HillClimb, Limiter, Vegas, default

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
"""Sizes and seeds. The others get the first three: their failures are not subtle."""

EVERYTHING = (*PLANTS, *EXTRAS)

Scores = dict[str, list[float]]


def judge(number: int, runs: int, folder: Path) -> tuple[Scores, list[Path]]:
    """The scores of each limiter on one plant of EVERYTHING, and the paths of its plots."""
    scenario = EVERYTHING[number]
    scores = {
        name: [_run(scenario, make(), *run) for run in RUNS[: runs if name == "default" else 3]]
        for name, make in LIMITERS.items()
    }
    return scores, draw(scenario, folder)


def _run(scenario: Scenario, limiter: Limiter, size: float, seed: int) -> float:
    initial = limiter.limit
    return score(scenario, size, seed, simulate(scenario, limiter, size, seed), initial)


def table(title: str, names: Sequence[str], results: Sequence[Scores]) -> str:
    """One line a plant, with the means, and one line for the means of those."""
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
    size = len(EVERYTHING)
    with ProcessPoolExecutor() as pool:
        judged = pool.map(judge, range(size), [arguments.runs] * size, [arguments.plots] * size)
        results, paths = zip(*judged, strict=True)
    names = [scenario.name for scenario in EVERYTHING]
    first = len(PLANTS)
    print(table("plant", names[:first], results[:first]), end="\n\n")
    print(table("others", names[first:], results[first:]), end="\n\n")
    print(f"{sum(map(len, paths))} plots in {arguments.plots}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
