from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.recording.recorder import Sample
from penstock.streams.telemetry.report.history import POINTS, History


def sample(second: int, events: int = 1) -> Sample:
    calls = {2: (second, 10, "fixed")}
    return Sample(second, events, events, 0, 0, second % 7, 0, calls, {}, {}, None, {})


@given(st.lists(st.integers(0, 50), max_size=3 * POINTS))
def test_a_history_of_any_length_is_bounded_and_keeps_the_sums(counts: list[int]) -> None:
    history = History()
    for second, count in enumerate(counts, 1):
        history.add(sample(second, count))
    history.end()
    assert len(history.points) <= POINTS
    assert sum(point.finished for point in history.points) == sum(counts)
    assert [point.at for point in history.points] == sorted({point.at for point in history.points})
    assert not counts or history.points[-1].at == len(counts)


def test_points_are_equally_far_apart_however_long_the_run_is() -> None:
    history = History()
    for second in range(1, 2 * POINTS + 101):
        history.add(sample(second))
    times = [point.at for point in history.points]
    assert {after - before for before, after in pairwise(times)} == {4}


def test_of_joined_seconds_the_most_that_waited_and_the_last_limit_are_kept() -> None:
    history = History()
    for second in range(1, POINTS + 1):
        history.add(sample(second))
    first = history.points[0]
    assert (first.at, first.waiting, first.calls) == (2, 2, {2: (2, 10)})
