"""The published arithmetic, step by step; the expected numbers are worked out by hand."""

from __future__ import annotations

import pytest

from benchmarks.limits.gradient import Gradient
from penstock.streams.limits import Outcome


def window(limiter: Gradient, took: float, used: int = 20) -> int:
    """Ten completions that all take as long; the limit after them."""
    for _ in range(10):
        limiter.on_complete(100.0 + took, 100.0, used, Outcome.SUCCESS)
    return limiter.limit


def test_it_starts_at_twenty_or_at_the_bound_nearest_to_it() -> None:
    assert [Gradient().limit, Gradient(floor=30).limit, Gradient(ceiling=3).limit] == [20, 30, 3]


def test_nothing_happens_before_the_tenth_completion() -> None:
    limiter = Gradient()
    for _ in range(9):
        limiter.on_complete(1.0, 0.0, 20, Outcome.SUCCESS)
    assert limiter.limit == 20
    limiter.on_complete(1.0, 0.0, 20, Outcome.SUCCESS)
    # Latency as usual: 0.8 x 20 + 0.2 x (20 + 4) = 20.8, and 21.6 a window later.
    assert limiter.limit == 20
    assert window(limiter, 1.0) == 21


def test_the_usual_latency_begins_as_the_mean_of_ten_windows() -> None:
    limiter = Gradient()
    for _ in range(5):
        window(limiter, 1.0)
    # 20 + 5 x 0.8 = 24. Then the usual is (5 + 2) / 6, the gradient 7 / 12:
    # 0.8 x 24 + 0.2 x (14 + 4) = 22.8.
    assert limiter.limit == 24
    assert window(limiter, 2.0) == 22


def test_after_that_it_moves_by_two_in_six_hundred_and_one() -> None:
    limiter = Gradient()
    for _ in range(10):
        window(limiter, 1.0)
    before = 28.0
    assert limiter.limit == 28
    usual = 1 + 2 / 601 * 0.5
    assert window(limiter, 1.5) == int(0.8 * before + 0.2 * (before * usual / 1.5 + 4))


def test_the_gradient_is_at_least_a_half() -> None:
    limiter = Gradient()
    window(limiter, 1.0)
    # 20.8; the usual is 50.5, and the gradient 0.505; had it been 100 times as slow in the end:
    # 0.8 x 20.8 + 0.2 x (0.5 x 20.8 + 4) = 19.52.
    for _ in range(9):
        window(limiter, 1.0)
    assert limiter.limit == 28
    # 0.8 x 28 + 0.2 x (14 + 4) = 26.
    assert window(limiter, 1000.0) == 26


def test_a_limit_of_which_less_than_half_is_used_stays() -> None:
    limiter = Gradient()
    assert [window(limiter, 1.0, used=9) for _ in range(3)] == [20, 20, 20]
    assert window(limiter, 100.0, used=9) == 20


def test_when_latency_has_fallen_to_less_than_half_the_usual_sinks_faster() -> None:
    slow, quick = Gradient(), Gradient()
    for limiter, took in ((slow, 4.0), (quick, 1.0)):
        for _ in range(10):
            window(limiter, took)
        window(limiter, 1.0, used=1)
    usual = (4 + 2 / 601 * (1 - 4)) * 0.9
    assert slow._usual == pytest.approx(usual)  # pyright: ignore[reportPrivateUsage]
    assert quick._usual == pytest.approx(1.0)  # pyright: ignore[reportPrivateUsage]


def test_drops_do_not_count_and_ordinary_errors_are_left_out() -> None:
    told, untold = Gradient(), Gradient()
    for _ in range(50):
        told.on_complete(1.0, 0.0, 20, Outcome.DROPPED)
        told.on_complete(9.0, 0.0, 20, Outcome.IGNORED)
        untold.on_complete(1.0, 0.0, 20, Outcome.SUCCESS)
    assert told.limit == untold.limit == 24


def test_it_stays_within_its_bounds_and_says_why_it_moved() -> None:
    limiter = Gradient(18, 22)
    assert [window(limiter, 1.0) for _ in range(5)] == [20, 21, 22, 22, 22]
    assert limiter.reason == "latency is as usual"
    for _ in range(10):
        window(limiter, 1000.0)
        window(limiter, 10.0, used=1)
    assert limiter.limit >= 18
    assert limiter.reason == "latency has grown"
