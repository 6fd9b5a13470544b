"""The default limiter when all calls hang for a time."""

from __future__ import annotations

import pytest

from benchmarks.limits.__main__ import RUNS
from benchmarks.limits.scenarios import EXTRAS
from benchmarks.limits.score import score
from benchmarks.limits.simulate import simulate
from penstock.streams.limits import default

OUTAGE = next(scenario for scenario in EXTRAS if scenario.name == "outage")


@pytest.mark.parametrize(("size", "seed"), RUNS)
def test_an_outage_is_noticed_soon_whatever_was_known_or_tried_before_it(
    size: float, seed: int
) -> None:
    run = simulate(OUTAGE, default(), size, seed)
    assert score(OUTAGE, size, seed, run, 1) >= 0.95
