"""The default limiter next to the best constant limit, on the plants that it was made with.

The figures of `docs/limits.md` are of more runs. One run in a hundred is unlucky, and which one
depends on the seeds and the limiter, so the bounds are on means and on all runs but the worst.
"""

from __future__ import annotations

from functools import cache
from statistics import fmean

import pytest

from benchmarks.limits.scenarios import PLANTS, Scenario
from benchmarks.limits.score import score
from benchmarks.limits.simulate import simulate
from penstock.streams.limits import default

SIZES = (0.4, 1.0)
SEEDS = range(11, 15)


@cache
def scores(scenario: Scenario) -> list[float]:
    return [scored(scenario, size, seed) for size in SIZES for seed in SEEDS]


def scored(scenario: Scenario, size: float, seed: int) -> float:
    limiter = default()
    initial = limiter.limit
    return score(scenario, size, seed, simulate(scenario, limiter, size, seed), initial)


@pytest.mark.parametrize("scenario", PLANTS, ids=lambda scenario: scenario.name)
def test_the_default_is_near_the_best_constant_limit(scenario: Scenario) -> None:
    # Of 120 runs each the worst plant has 0.934, and a mean of eight varies by some 0.015.
    assert fmean(scores(scenario)) >= 0.90


def test_on_all_plants_together_the_default_is_nearer_still() -> None:
    # Of those 960 it is 0.965, and of so few it varies by 0.003; four were below 0.85.
    everything = sorted(one for scenario in PLANTS for one in scores(scenario))
    assert fmean(everything) >= 0.955
    assert everything[1] >= 0.85
