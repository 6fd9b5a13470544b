from __future__ import annotations

from math import log

import pytest

from penstock.streams.limits import Outcome
from penstock.streams.limits.default import Elastic
from penstock.streams.limits.window import Window


def window(limit: int, goodput: float) -> Window:
    return Window(limit, log(goodput), 0.02, log(limit / goodput), 0.02)


def ramp() -> Elastic:
    limiter = Elastic(4, 64)
    limiter.mode = "ramp"
    limiter.decide(window(4, 10.0))
    assert limiter.limit == 8
    return limiter


def holding(limit: int, goodput: float = 10.0) -> Elastic:
    """At a limit on hold after one window there, which a probe upwards follows."""
    limiter = Elastic(1, 64)
    limiter.limit = limit
    limiter.mode = "hold"
    limiter._slow_start = None  # pyright: ignore[reportPrivateUsage]
    limiter._level = float(limit)  # pyright: ignore[reportPrivateUsage]
    limiter.decide(window(limit, goodput))
    return limiter


def test_a_doubling_that_brings_nothing_is_taken_back() -> None:
    limiter = ramp()
    limiter.decide(window(8, 10.0))
    assert (limiter.limit, limiter.mode) == (4, "hold")


def test_a_doubling_that_doubles_goodput_is_followed_by_another() -> None:
    limiter = ramp()
    limiter.decide(window(8, 20.0))
    assert (limiter.limit, limiter.mode) == (16, "ramp")


def test_a_doubling_that_pays_in_part_leaves_the_part() -> None:
    limiter = ramp()
    limiter.decide(window(8, 12.0))
    assert (limiter.limit, limiter.mode) == (5, "hold")
    assert limiter.elasticity == pytest.approx(log(1.2) / log(2))


def test_a_probe_upwards_that_pays_leads_to_doubling() -> None:
    limiter = holding(16)
    assert (limiter.limit, limiter.mode) == (20, "probe")
    limiter.decide(window(20, 12.5))
    assert (limiter.limit, limiter.mode, limiter.reason) == (40, "ramp", "more pays")


def test_a_probe_upwards_that_brings_nothing_gives_a_little_back() -> None:
    limiter = holding(16)
    limiter.decide(window(20, 10.0))
    # 16 x e^(gain x -0.15); the gain is 0.5 less a little for the error.
    assert limiter.mode == "hold"
    assert limiter.limit == 15


def test_where_less_does_as_well_it_goes_down_until_less_does_harm() -> None:
    limiter = holding(16)
    limiter.decide(window(20, 10.0))
    limiter.decide(window(15, 10.0))
    seen: list[tuple[int, str]] = []
    while limiter.mode != "hold":
        limiter.decide(window(limiter.limit, min(10.0, float(limiter.limit))))
        seen.append((limiter.limit, limiter.mode))
    assert seen == [(10, "sink"), (8, "sink"), (10, "hold")]


def test_a_loss_of_goodput_is_followed_after_two_windows_by_a_new_start() -> None:
    limiter = holding(16)
    limiter.decide(window(20, 10.0))
    limiter.decide(window(limiter.limit, 2.5))
    assert limiter.limit == 15
    limiter.decide(window(limiter.limit, 2.5))
    assert (limiter.limit, limiter.mode) == (4, "slow start")


def test_a_few_refusals_that_cost_no_time_do_not_move_the_limit_and_many_do() -> None:
    limiter = holding(16)
    limiter.mode = "hold"
    limiter.limit = 16
    limiter.give_way(0.98, often=False)
    assert limiter.limit == 16
    limiter.give_way(0.75, often=False)
    assert (limiter.limit, limiter.reason) == (12, "work was dropped")
    limiter.give_way(0.98, often=True)
    assert limiter.limit == 11


def test_a_rise_after_which_more_calls_fail_is_taken_back_to_where_they_began_to_fail() -> None:
    limiter = holding(16)
    assert limiter.limit == 20
    for number, in_flight in enumerate((20, 19, 18), 1):
        now = number / 100
        limiter.on_complete(now, now, in_flight, Outcome.IGNORED)
    assert (limiter.limit, limiter.mode, limiter.reason) == (17, "hold", "more calls failed")


def test_a_rise_after_which_more_calls_fail_and_not_clearly_more_succeed_is_taken_back() -> None:
    limiter = holding(16)
    limiter.decide(window(20, 11.0)._replace(calls=60, failed=20))
    assert (limiter.limit, limiter.mode, limiter.reason) == (16, "hold", "more calls failed")


def test_a_rise_that_brings_clearly_more_successes_stays_though_more_calls_fail() -> None:
    limiter = holding(16)
    limiter.decide(window(20, 12.5)._replace(calls=60, failed=20))
    assert (limiter.mode, limiter.reason) == ("ramp", "more pays")


def test_where_nothing_succeeds_any_more_it_falls_to_the_floor() -> None:
    limiter = holding(16)
    limiter.give_way(0.0, often=True)
    assert (limiter.limit, limiter.mode) == (1, "slow start")


def test_a_clock_that_is_set_back_or_forth_stops_nothing() -> None:
    limiter = Elastic(1, 64)
    now = 1000.0
    for number in range(3000):
        now += 0.1 / limiter.limit
        if number == 1000:
            now -= 500.0
        if number == 2000:
            now += 5000.0
        limiter.on_complete(now, now - 0.1, limiter.limit, Outcome.SUCCESS)
    assert limiter.limit >= 32


def test_completions_that_end_before_they_start_teach_nothing() -> None:
    limiter = Elastic(1, 64)
    for number in range(500):
        limiter.on_complete(float(number), number + 1.0, 1, Outcome.SUCCESS)
    assert limiter.limit == 1
