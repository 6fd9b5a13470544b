"""The published arithmetic, step by step; the expected numbers are worked out by hand."""

from __future__ import annotations

from benchmarks.limits.aimd import AIMD
from penstock.streams.limits import Outcome


def step(limiter: AIMD, outcome: Outcome, in_flight: int) -> int:
    limiter.on_complete(1.0, 0.5, in_flight, outcome)
    return limiter.limit


def test_it_starts_at_ten_or_at_the_bound_nearest_to_it() -> None:
    assert [AIMD().limit, AIMD(floor=12).limit, AIMD(ceiling=3).limit] == [10, 12, 3]


def test_each_success_adds_one_while_half_the_limit_is_in_use() -> None:
    limiter = AIMD()
    assert [step(limiter, Outcome.SUCCESS, 5) for _ in range(3)] == [11, 11, 11]
    assert [step(limiter, Outcome.SUCCESS, 6) for _ in range(3)] == [12, 13, 13]


def test_a_drop_takes_a_tenth_and_at_least_one() -> None:
    limiter = AIMD(floor=1)
    seen = [step(limiter, Outcome.DROPPED, 1) for _ in range(9)]
    assert seen == [9, 8, 7, 6, 5, 4, 3, 2, 1]
    limiter.limit = 50
    assert step(limiter, Outcome.DROPPED, 50) == 45


def test_another_backoff_takes_another_share() -> None:
    limiter = AIMD(backoff=0.5)
    assert [step(limiter, Outcome.DROPPED, 1) for _ in range(4)] == [5, 2, 1, 1]


def test_an_ordinary_error_changes_nothing() -> None:
    assert step(AIMD(), Outcome.IGNORED, 10) == 10


def test_it_stays_within_its_bounds_and_says_why_it_moved() -> None:
    limiter = AIMD(9, 11)
    assert [step(limiter, Outcome.SUCCESS, 11) for _ in range(2)] == [11, 11]
    assert limiter.reason == "nothing was dropped"
    assert [step(limiter, Outcome.DROPPED, 11) for _ in range(3)] == [9, 9, 9]
    assert limiter.reason == "work was dropped"
