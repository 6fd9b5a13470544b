"""The published arithmetic, step by step; the expected numbers are worked out by hand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.limits import HillClimb, Outcome

OK = Outcome.SUCCESS


def greedy(learning_rate: float = 0.5) -> HillClimb:
    return HillClimb(learning_rate, exploration_rate=0.0, seed=0)


def seed_whose_draws(*below_a_half: bool) -> int:
    """Find a seed whose first pairs of draws go down (True) or up (False)."""

    def directions(seed: int) -> tuple[bool, ...]:
        draws = random.Random(seed)
        return tuple((draws.random(), draws.random() < 0.5)[1] for _ in below_a_half)

    return next(seed for seed in range(1000) if directions(seed) == below_a_half)


def at_level(level: int, learning_rate: float = 0.5) -> HillClimb:
    """Return a greedy limiter that is at `level` and has learnt nothing."""
    limiter = greedy(learning_rate)
    limiter.limit = level
    return limiter


def test_it_starts_at_one() -> None:
    assert HillClimb().limit == 1


def test_the_first_estimate_of_a_level_is_in_flight_over_time_in_system() -> None:
    limiter = greedy()
    limiter.on_depart(12.0, 8.0, 3, OK)
    assert limiter.throughput == {3: 0.75}


def test_a_later_estimate_moves_by_the_learning_rate() -> None:
    limiter = greedy(learning_rate=0.25)
    limiter.on_depart(4.0, 0.0, 2, OK)  # 2 / 4 = 0.5
    limiter.on_depart(5.0, 4.0, 2, OK)  # 0.75 * 0.5 + 0.25 * 2 / 1
    assert limiter.throughput == {2: 0.875}
    limiter.on_depart(9.0, 5.0, 2, OK)  # 0.75 * 0.875 + 0.25 * 0.5
    assert limiter.throughput == {2: 0.78125}


def test_a_learning_rate_of_zero_keeps_the_first_estimate() -> None:
    limiter = greedy(learning_rate=0.0)
    limiter.on_depart(2.0, 0.0, 1, OK)
    limiter.on_depart(3.0, 2.9, 1, OK)
    assert limiter.throughput == {1: 0.5}


def test_a_learning_rate_of_one_keeps_the_last_estimate() -> None:
    limiter = greedy(learning_rate=1.0)
    limiter.on_depart(2.0, 0.0, 1, OK)
    limiter.on_depart(6.0, 2.0, 1, OK)
    assert limiter.throughput == {1: 0.25}


def test_levels_are_learnt_apart() -> None:
    limiter = greedy()
    limiter.on_depart(2.0, 0.0, 1, OK)
    limiter.on_depart(2.0, 0.0, 4, OK)
    assert limiter.throughput == {1: 0.5, 4: 2.0}


# (estimates at 4, 5 and 6 in jobs a second, the level after one step from 5)
STEPS = [
    ((None, None, None), 5),
    ((9.0, None, 9.0), 5),  # nothing known here: stay and learn
    ((None, 1.0, None), 5),
    ((None, 1.0, 2.0), 6),
    ((None, 1.0, 1.0), 5),
    ((2.0, 1.0, None), 4),
    ((1.0, 1.0, None), 5),
    ((3.0, 1.0, 2.0), 4),
    ((2.0, 1.0, 3.0), 6),
    ((2.0, 1.0, 2.0), 6),  # both as good: up
    ((2.0, 1.0, 0.5), 4),
    ((0.5, 1.0, 2.0), 6),
    ((0.5, 1.0, 0.5), 5),
]


@pytest.mark.parametrize(("estimates", "expected"), STEPS)
def test_a_greedy_step_goes_to_the_better_neighbour(
    estimates: tuple[float | None, ...], expected: int
) -> None:
    limiter = at_level(100)  # far away, so that teaching it moves nothing
    for level, estimate in zip((4, 5, 6), estimates, strict=True):
        if estimate is not None:
            limiter.on_depart(level / estimate, 0.0, level, OK)
    limiter.limit = 5
    limiter.on_arrive()
    assert limiter.limit == expected


def test_a_step_never_reaches_past_a_neighbour() -> None:
    limiter = at_level(100)
    for level, estimate in ((1, 1.0), (2, 2.0), (3, 3.0)):
        limiter.on_depart(level / estimate, 0.0, level, OK)
    limiter.limit = 1
    seen: list[int] = []
    for _ in range(3):
        limiter.on_arrive()
        seen.append(limiter.limit)
    assert seen == [2, 3, 3]


def test_arrivals_and_completions_both_make_a_step() -> None:
    limiter = HillClimb(0.5, 1.0, seed=seed_whose_draws(False, False, False))
    limiter.on_arrive()
    assert (limiter.limit, limiter.reason) == (2, "explored")
    limiter.on_depart(1.0, 0.0, 1, OK)
    assert limiter.limit == 3
    limiter.on_complete(1.0, 0.0, 1, OK)
    assert limiter.limit == 4


def test_exploring_goes_down_by_one_but_not_below_one() -> None:
    limiter = HillClimb(0.5, 1.0, seed=seed_whose_draws(True, False, False, True))
    seen: list[int] = []
    for _ in range(4):
        limiter.on_arrive()
        seen.append(limiter.limit)
    assert seen == [1, 2, 3, 2]


def test_a_job_without_duration_leaves_a_finite_estimate() -> None:
    limiter = greedy()
    limiter.on_depart(5.0, 5.0, 2, OK)
    assert limiter.throughput == {2: pytest.approx(2e7)}


def test_on_complete_is_the_same_arithmetic_from_the_start_of_the_work() -> None:
    a, b = HillClimb(0.3, 0.2, seed=7), HillClimb(0.3, 0.2, seed=7)
    for i in range(200):
        a.on_complete(i + 1.5, i, 1 + i % 5, OK)
        b.on_depart(i + 1.5, i, 1 + i % 5, OK)
    assert (a.limit, a.throughput) == (b.limit, b.throughput)


def test_a_ceiling_holds_exploration_back() -> None:
    limiter = HillClimb(0.5, 1.0, seed=3, ceiling=2)
    seen: set[int] = set()
    for _ in range(100):
        limiter.on_arrive()
        seen.add(limiter.limit)
    assert seen == {1, 2}


@given(st.integers(0, 2**32), st.lists(st.tuples(st.floats(0, 10), st.integers(1, 20))))
def test_the_same_seed_and_calls_give_the_same_limits_in_steps_of_one(
    seed: int, calls: list[tuple[float, int]]
) -> None:
    a, b = HillClimb(0.2, 0.5, seed), HillClimb(0.2, 0.5, seed)
    for took, in_flight in calls:
        before = a.limit
        a.on_depart(took, 0.0, in_flight, OK)
        b.on_depart(took, 0.0, in_flight, OK)
        assert a.limit == b.limit >= 1
        assert abs(a.limit - before) <= 1
