"""The default limiter where a step of one is a half, a third or all of the capacity."""

from __future__ import annotations

import pytest

from benchmarks.limits.scenarios import EXTRAS, Scenario
from benchmarks.limits.score import score
from benchmarks.limits.simulate import simulate
from penstock.streams.limits import default

SEEDS = range(1000, 1020)
NAMES = ("one server", "two servers", "three servers", "four servers")
FEW = {scenario.name: scenario for scenario in EXTRAS if scenario.name in NAMES}


def scored(scenario: Scenario, seed: int) -> float:
    limiter = default()
    initial = limiter.limit
    return score(scenario, 1.0, seed, simulate(scenario, limiter, 1.0, seed), initial)


@pytest.mark.parametrize("name", NAMES)
def test_the_limit_of_a_few_servers_without_noise_is_found_with_any_seed(name: str) -> None:
    assert min(scored(FEW[name], seed) for seed in SEEDS) >= 0.85


def test_on_average_the_limit_of_a_few_servers_is_found_nearly_as_well_as_any() -> None:
    for scenario in FEW.values():
        assert sum(scored(scenario, seed) for seed in SEEDS) / len(SEEDS) >= 0.90
