from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.pictures.charts import (
    Curve,
    Line,
    in_time,
    nines_of,
    over_time,
    percentiles,
    ticks,
)


def places(chart: str) -> list[tuple[float, float]]:
    """The corners of the line of a chart with steps."""
    (path,) = re.findall(r'<path class="line [a-z]+" d="([^"]+)"', chart)
    x, y = map(float, re.findall(r"M([\d.]+) ([\d.]+)", path)[0])
    found = [(x, y)]
    for along, down in re.findall(r"H([\d.]+)V([\d.]+)", path):
        found.append((float(along), float(down)))
    return found


def test_each_nine_of_a_percentile_takes_the_same_room() -> None:
    chart = percentiles(Curve("waiting", "one", [(1, 1)]), top=1.0, nines=3)
    marks = re.findall(r'x="([\d.]+)" y="222" [^>]+>([^<]+)<', chart)
    assert [text for _, text in marks] == ["0 %", "90 %", "99 %", "99.9 %"]
    x = [float(x) for x, _ in marks]
    assert x == [46.0, 146.7, 247.3, 348.0]


def test_a_curve_reaches_the_greatest_latency_at_its_right_end() -> None:
    # 90 events of 10 ms, 9 of 500 ms, 1 of 1 s.
    cells = [(10_000, 90), (500_000, 9), (1_000_000, 1)]
    corners = places(percentiles(Curve("waiting", "one", cells), top=1.0, nines=2))
    top, bottom = 10.0, 230.0 - 26.0
    assert corners[0] == (46.0, round(bottom - (bottom - top) * 0.01, 1))
    # At 90 % it rises to 500 ms, half of the height, and at 99 % to 1 s.
    assert corners[1] == (46.0 + 302 / 2, round((bottom + top) / 2, 1))
    assert corners[-1] == (348.0, top)


def test_with_a_logarithmic_axis_each_power_of_ten_takes_the_same_room() -> None:
    chart = percentiles(Curve("x", "one", [(1_000, 1)]), top=5.0, nines=2, least=0.002)
    marks = re.findall(r'y="([\d.]+)" text-anchor="end">([^<]+)<', chart)
    marks = [(float(y), text) for y, text in marks if not text.endswith("%")]
    assert [text for _, text in marks] == ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]
    steps = {round(a[0] - b[0], 1) for a, b in itertools.pairwise(marks)}
    assert steps <= {48.5, 48.4, 48.6}


def test_names_in_a_chart_are_escaped() -> None:
    assert "<script>" not in percentiles(Curve("<script>", "one", [(1, 1)]), top=1, nines=2)
    line = Line("<b>", "one", [(0, 1)])
    assert "<script>" not in over_time([line], seconds=1, label="<script>")


def test_a_run_without_samples_has_an_empty_chart() -> None:
    assert 'class="line' not in over_time([Line("a", "one", [])], seconds=0.0, label="nothing")


@given(st.floats(1e-6, 1e12))
def test_the_marks_of_an_axis_are_few_and_round(top: float) -> None:
    marks = ticks(top)
    assert marks[0] == 0
    assert 3 <= len(marks) <= 6
    assert marks[-1] <= top * (1 + 1e-9)


@given(st.integers(0, 10**9))
def test_the_marks_of_an_axis_of_counts_are_whole_numbers(most: int) -> None:
    line = Line("waiting", "one", [(0, 0), (1, most)])
    chart = over_time([line], seconds=1, label="waiting", whole=True)
    marks = re.findall(r'text-anchor="end">([^<]+)<', chart)
    sizes = {"G": 1e9, "M": 1e6, "k": 1e3}
    values = [float(mark.rstrip("GMk")) * sizes.get(mark[-1], 1) for mark in marks]
    assert values[0] == 0
    assert 2 <= len(values) <= 6
    assert all(value == pytest.approx(round(value)) for value in values)


def test_as_many_nines_are_shown_as_there_are_events_for() -> None:
    assert [nines_of(n) for n in (0, 1, 100, 101, 1_000, 9_000, 10**9)] == [2, 2, 2, 3, 3, 4, 6]


def test_times_are_written_as_people_read_them() -> None:
    times = (0.07692, 12.34, 59.94, 60, 185, 7200)
    assert [in_time(n) for n in times] == ["0.08 s", "12.3 s", "59.9 s", "1:00", "3:05", "2:00:00"]
