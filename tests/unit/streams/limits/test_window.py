from __future__ import annotations

from math import exp, log, sqrt

import pytest

from penstock.streams.limits.tally import Tally
from penstock.streams.limits.window import Spread, Usual, Window, elasticity


def steady(limit: int, goodput: float, failed_busy: float = 0.0) -> Window:
    """A window of 100 successes of equal length at a goodput (per second, by Little's law)."""
    tally = Tally()
    for _ in range(100):
        tally.add(limit / goodput, success=True)
    if failed_busy:
        tally.add(failed_busy, success=False)
    tally.seconds = 100 / goodput
    return Window.measure(limit, tally, Spread())


@pytest.mark.parametrize(
    ("goodputs", "expected"),
    [
        ((10.0, 20.0), 1.0),  # twice the limit, twice the goodput
        ((10.0, 10.0), 0.0),
        ((10.0, 5.0), -1.0),
        ((10.0, 10.0 * sqrt(2)), 0.5),
    ],
)
def test_elasticity_is_the_slope_of_goodput_over_limit_in_logarithms(
    goodputs: tuple[float, float], expected: float
) -> None:
    low, high = steady(4, goodputs[0]), steady(8, goodputs[1])
    assert elasticity(low, high)[0] == pytest.approx(expected)
    assert elasticity(high, low)[0] == pytest.approx(expected)


def test_a_closer_pair_of_limits_is_less_certain() -> None:
    far = elasticity(steady(4, 10.0), steady(8, 10.0))[1]
    near = elasticity(steady(4, 10.0), steady(5, 10.0))[1]
    assert near == pytest.approx(far * log(2) / log(1.25))


def test_only_successes_are_goodput_and_failures_are_part_of_what_they_cost() -> None:
    # Of 8 slots the failures took half of the time.
    window = steady(4, 10.0, failed_busy=100 * 0.4)
    assert exp(window.goodput) == pytest.approx(10.0)
    assert exp(window.latency) == pytest.approx(0.8)
    assert (window.calls, window.failed) == (101, 1)


def test_a_higher_limit_that_brings_only_failures_pays_nothing() -> None:
    low, high = steady(4, 10.0), steady(4, 10.0, failed_busy=100 * 0.4)._replace(limit=8)
    assert elasticity(low, high)[0] == pytest.approx(0.0)


def test_a_calm_window_is_no_surer_than_the_ones_before_it() -> None:
    spread = Spread()
    spread.pool(1.0, 2.0)
    assert spread.pool(0.0, 0.0) == pytest.approx((0.16, 0.32))


def test_joined_windows_are_their_mean_with_a_smaller_error() -> None:
    one = Window(4, 1.0, 0.2, 3.0, 0.4, calls=10, failed=1)
    two = Window(4, 2.0, 0.2, 5.0, 0.4, calls=20, failed=0)
    both = one.join(two, 1)
    assert (both.goodput, both.latency, both.calls, both.failed) == (1.5, 4.0, 30, 1)
    assert both.goodput_error == pytest.approx(0.2 / sqrt(2))
    assert both.latency_error == pytest.approx(0.4 / sqrt(2))


def window(goodput: float, error: float = 0.05) -> Window:
    return Window(8, goodput, error, 0.0, error)


def usual(*goodputs: float) -> Usual:
    made = Usual(Spread())
    for goodput in goodputs:
        made.add(window(goodput))
    return made


def test_where_nothing_is_known_nothing_is_odd() -> None:
    assert not usual().odd(window(9.0), 0.0)


def test_two_windows_in_a_row_that_are_far_off_are_a_change() -> None:
    known = usual(1.0, 1.0, 1.0)
    assert known.odd(window(2.0), 0.0)
    assert not known.changed
    assert known.odd(window(2.0), 0.0)
    assert known.changed


def test_one_window_that_is_far_off_is_none() -> None:
    known = usual(1.0, 1.0, 1.0)
    assert known.odd(window(2.0), 0.0)
    assert not known.odd(window(1.0), 0.0)
    assert known.odd(window(2.0), 0.0)
    assert not known.changed


def test_what_the_limit_explains_is_not_odd() -> None:
    assert usual(1.0, 1.0).odd(window(1.5), 0.0)
    assert not usual(1.0, 1.0).odd(window(1.5), 0.25)


def test_where_goodput_goes_up_and_down_by_itself_more_is_usual() -> None:
    spread = Spread()
    known = Usual(spread)
    for goodput in (1.0, 1.6, 0.9, 1.7, 1.0, 1.6):
        known.add(window(goodput))
    calm = window(1.95)
    assert not known.odd(calm._replace(wobble=spread.wobble), 0.0)
    assert known.odd(calm, 0.0)


def test_two_windows_a_little_off_the_same_way_are_a_drift() -> None:
    known = usual(1.0, 1.0, 1.0)
    assert [known.drifts(window(goodput)) for goodput in (1.2, 1.2)] == [0, 1]
    assert [known.drifts(window(goodput)) for goodput in (1.2, 0.8)] == [1, 0]
    assert [known.drifts(window(goodput)) for goodput in (0.8, 1.0, 0.8)] == [-1, 0, 0]


def test_what_was_usual_can_be_forgotten() -> None:
    known = usual(1.0, 1.0)
    known.odd(window(2.0), 0.0)
    known.clear()
    assert known.goodput is None
    assert not known.odd(window(2.0), 0.0)
