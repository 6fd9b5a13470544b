from __future__ import annotations

from itertools import accumulate
from math import exp, log
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.limits.tally import Rounds, Tally
from penstock.streams.limits.window import Spread, Window, elasticity

times = st.floats(0.01, 100)


@given(st.lists(st.tuples(times, times), min_size=1, max_size=20), st.integers(1, 5))
def test_deviations_are_those_of_the_means_of_rounds(
    rounds: list[tuple[float, float]], size: int
) -> None:
    """Each round: seconds per success, and the mean of ln W."""
    seconds, logs = [s for s, _ in rounds], [log(w) for _, w in rounds]
    told = Rounds()
    for number, (so_far, logged) in enumerate(
        zip(accumulate(size * s for s in seconds), accumulate(size * x for x in logs), strict=True)
    ):
        told.add((number + 1) * size, so_far, logged)
    mean, mean_log = fmean(seconds), fmean(logs)
    goodputs, latencies, both = told.deviations()
    assert goodputs == pytest.approx(sum(size * (s / mean - 1) ** 2 for s in seconds), abs=1e-6)
    assert latencies == pytest.approx(sum(size * (x - mean_log) ** 2 for x in logs), abs=1e-6)
    products = (size * (s / mean - 1) * (x - mean_log) for s, x in rounds_of(seconds, logs))
    assert both == pytest.approx(sum(products), abs=1e-6)


def rounds_of(seconds: list[float], logs: list[float]) -> list[tuple[float, float]]:
    return list(zip(seconds, logs, strict=True))


def test_a_round_that_took_no_time_deviates_in_nothing() -> None:
    rounds = Rounds()
    rounds.add(4, 0.0, 1.0)
    assert rounds.deviations() == (0.0, 0.0, 0.0)


def window(limit: int, rounds: list[tuple[float, float]]) -> Window:
    """Rounds of `limit` calls: the seconds between two ends, and how long each call took."""
    tally = Tally()
    for gap, took in rounds:
        for _ in range(limit):
            tally.add(took, success=True)
            tally.seconds += gap
            tally.end_round(limit)
    return Window.measure(limit, tally, Spread())


def test_behind_a_queue_goodput_and_latency_are_no_surer_together_than_alone() -> None:
    # Two in flight before one server: each waited for as long as the server took.
    queued = window(2, [(gap, 2 * gap) for gap in (0.1, 0.2, 0.1, 0.2, 0.1, 0.2)])
    assert queued.correlation == pytest.approx(1.0)
    assert queued.error >= 0.99 * min(queued.goodput_error, queued.latency_error)


def test_where_they_err_by_chances_of_their_own_both_are_surer_together() -> None:
    rounds = [(0.1, 0.2), (0.2, 0.2), (0.1, 0.4), (0.2, 0.4)]
    free = window(2, rounds)
    assert free.correlation == 0.0
    assert free.error < 0.9 * min(free.goodput_error, free.latency_error)


def test_rounds_that_differ_make_goodput_as_unsure_as_they_are() -> None:
    # All calls took the same time, so they alone show no spread.
    uneven = window(2, [(gap, 0.3) for gap in (0.1, 0.3) * 4])
    even = window(2, [(gap, 0.3) for gap in (0.2, 0.2) * 4])
    assert exp(uneven.goodput) == pytest.approx(exp(even.goodput))
    assert uneven.goodput_error > 5 * even.goodput_error
    assert (
        elasticity(uneven, uneven._replace(limit=4))[1]
        > elasticity(even, even._replace(limit=4))[1]
    )
