"""The oracle and the scores where the answer is known."""

from __future__ import annotations

import pytest

from benchmarks.limits.scenarios import PLANTS, Scenario
from benchmarks.limits.score import oracle, score
from benchmarks.limits.simulate import simulate
from penstock.streams.limits import Fixed, Limiter

SMALL = 0.4
NAMED = {scenario.name.split()[0]: scenario for scenario in PLANTS}


def scored(scenario: Scenario, limiter: Limiter, seed: int) -> float:
    initial = limiter.limit
    return score(scenario, SMALL, seed, simulate(scenario, limiter, SMALL, seed), initial)


def test_the_oracle_finds_the_level_of_a_plant_and_its_equals() -> None:
    (best,) = oracle(NAMED["P1"], 1.0)
    assert best is not None
    assert best.level == best.low == 8
    assert 11 <= best.high <= 14


def test_every_job_demands_the_same_whatever_the_limiter() -> None:
    # With one at a time latency is the demand.
    one, again = (simulate(NAMED["P3"], Fixed(1), 1.0, 5) for _ in range(2))
    assert one == again
    four = simulate(NAMED["P3"], Fixed(4), 1.0, 5)
    assert sum(c.latency for c in one[:60]) == pytest.approx(
        sum(c.latency for c in four[:60]), rel=0.1
    )


def test_the_best_constant_level_scores_one() -> None:
    for name in ("P1", "P7"):
        (best,) = oracle(NAMED[name], SMALL)
        assert best is not None
        assert scored(NAMED[name], Fixed(best.level), 3) > 0.99


def test_half_the_level_and_three_times_the_level_score_about_half() -> None:
    assert 0.3 < scored(NAMED["P3"], Fixed(8), 3) < 0.6
    assert 0.3 < scored(NAMED["P3"], Fixed(48), 3) < 0.6


def test_what_drifts_scores_what_it_may_have_over_what_it_has() -> None:
    assert scored(NAMED["P8"], Fixed(1000), 3) == 1.0  # It began there.
    run = simulate(NAMED["P8"], Fixed(1000), SMALL, 3)
    peak = max(completion.in_flight for completion in run) + 1
    assert score(NAMED["P8"], SMALL, 3, run, initial=1) == pytest.approx(2 * peak / 1000)
