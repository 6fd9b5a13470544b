"""The published arithmetic, step by step; the expected numbers are worked out by hand."""

from __future__ import annotations

import pytest

from benchmarks.limits.vegas import Vegas
from penstock.streams.limits import Outcome


def step(
    limiter: Vegas, took: float, outcome: Outcome = Outcome.SUCCESS, used: int | None = None
) -> int:
    in_flight = limiter.limit if used is None else used
    limiter.on_complete(100.0 + took, 100.0, in_flight, outcome)
    return limiter.limit


def vegas(least: float = 1.0) -> Vegas:
    """At 20, with a least latency that is known."""
    limiter = Vegas()
    step(limiter, least)
    assert limiter.limit == 20
    return limiter


def test_it_starts_at_twenty_or_at_the_bound_nearest_to_it() -> None:
    assert [Vegas().limit, Vegas(floor=30).limit, Vegas(ceiling=3).limit] == [20, 30, 3]


# At 20 the step is log10(20) = 1; the queue is 20 x (1 - 1 / latency), rounded up.
@pytest.mark.parametrize(
    ("latency", "expected"),
    [
        (1.0, 26),  # 0: no queue, six steps up
        (1.05, 26),  # 0.95 -> 1
        (1.1, 21),  # 1.8 -> 2: short, one step up
        (1.15, 20),  # 2.6 -> 3: as it should be
        (1.4, 20),  # 5.7 -> 6
        (1.45, 19),  # 6.2 -> 7: long, one step down
        (10.0, 19),
    ],
)
def test_the_queue_that_latency_shows_moves_the_limit(latency: float, expected: int) -> None:
    assert step(vegas(), latency) == expected


def test_a_hundred_makes_steps_of_two() -> None:
    limiter = Vegas(floor=100)
    step(limiter, 1.0)
    assert step(limiter, 1.0) == 112
    assert step(limiter, 2.0) == 110


def test_a_drop_is_a_step_down_even_where_the_limit_is_not_used() -> None:
    assert step(vegas(), 1.0, Outcome.DROPPED, used=1) == 19


def test_a_limit_of_which_less_than_half_is_used_stays() -> None:
    assert step(vegas(), 1.0, used=9) == 20
    assert step(vegas(), 1.0, used=10) == 26


def test_a_latency_below_the_least_only_becomes_the_least() -> None:
    limiter = vegas(2.0)
    assert step(limiter, 1.0) == 20
    assert step(limiter, 2.0) == 19


def test_the_least_latency_is_measured_again_after_15_to_30_limits_of_completions() -> None:
    limiter = vegas()
    count = 1
    while step(limiter, 1.2) == 20:
        count += 1
        assert count <= 30 * 20
    # Latency was 1.2 all the time; now that this is the least latency there is no queue.
    assert count >= 15 * 20
    assert limiter.limit == 26


def test_the_same_seed_makes_the_same_steps() -> None:
    def limits(seed: int) -> list[int]:
        limiter = Vegas(seed=seed)
        return [step(limiter, 1 + number % 7 / 10) for number in range(2000)]

    assert limits(1) == limits(1)
    assert limits(1) != limits(2)


def test_an_ordinary_error_and_work_that_took_no_time_change_nothing() -> None:
    limiter = vegas()
    assert step(limiter, 9.0, Outcome.IGNORED) == 20
    assert step(limiter, 0.0) == 20


def test_it_stays_within_its_bounds_and_says_why_it_moved() -> None:
    limiter = Vegas(19, 22)
    step(limiter, 1.0)
    assert [step(limiter, 1.0), step(limiter, 1.0)] == [22, 22]
    assert limiter.reason == "there is no queue"
    assert [step(limiter, 9.0) for _ in range(5)] == [21, 20, 19, 19, 19]
    assert limiter.reason == "the queue is long"
