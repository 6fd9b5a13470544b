from __future__ import annotations

from math import exp, log, sqrt

import pytest

from streams.limits.window import Spread, Window, elasticity


def steady(limit: int, goodput: float, drops: int = 0) -> Window:
    """A window of 100 successes of equal length at a goodput (per second, by Little's law)."""
    took = limit / goodput
    sums = (100 * took, 100 * took * took, 100 * log(took), 100 * log(took) ** 2)
    return Window.measure(limit, (100 - drops) / goodput, 100, drops, sums, Spread())


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


def test_drops_are_taken_off_goodput() -> None:
    sums = (10.0, 10.0, 0.0, 0.0)
    window = Window.measure(2, 4.0, 10, 2, sums, Spread())
    assert exp(window.goodput) == pytest.approx((10 - 2) / 4.0)


def test_after_a_drop_only_goodput_counts() -> None:
    # Latency halves with the refusals, goodput stays: the latency would read as elasticity 2.
    low = steady(4, 10.0)
    high = Window(8, low.goodput, 0.02, low.latency - log(2), 0.02, dropped=True)
    assert elasticity(low, high)[0] == pytest.approx(0.0)


def test_a_calm_window_is_no_surer_than_the_ones_before_it() -> None:
    spread = Spread()
    spread.pool(1.0, 2.0)
    assert spread.pool(0.0, 0.0) == pytest.approx((0.16, 0.32))


def test_joined_windows_are_their_mean_with_a_smaller_error() -> None:
    one = Window(4, 1.0, 0.2, 3.0, 0.4, dropped=False)
    two = Window(4, 2.0, 0.2, 5.0, 0.4, dropped=True)
    both = one.join(two, 1)
    assert (both.goodput, both.latency, both.dropped) == (1.5, 4.0, True)
    assert both.goodput_error == pytest.approx(0.2 / sqrt(2))
    assert both.latency_error == pytest.approx(0.4 / sqrt(2))
