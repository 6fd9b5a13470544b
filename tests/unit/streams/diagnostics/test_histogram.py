from __future__ import annotations

import io
import math
from collections import Counter
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]  # it has no type information
from hdrh.log import HistogramLogReader  # type: ignore[import-untyped]  # likewise
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.diagnostics.histogram import IntervalLog, LatencyHistogram, Summary, render

PERCENTILES = {"median": 50, "p75": 75, "p95": 95, "p98": 98, "p99": 99, "p999": 99.9}
LATENCIES = st.lists(st.floats(0, 3600) | st.floats(0, 0.01) | st.just(0.25), max_size=200)
LAYOUT = HdrHistogram(1, 3_600_000_000, 3)


def recorded(*seconds: float) -> LatencyHistogram:
    histogram = LatencyHistogram()
    histogram.record(*seconds)
    return histogram


def test_nothing_recorded_is_all_zeros() -> None:
    assert LatencyHistogram().snapshot() == Summary(0, *[0.0] * 10, 0, 0)  # type: ignore[arg-type, call-arg]  # the stars stand for ten fields


def test_values_under_two_milliseconds_are_kept_to_the_microsecond() -> None:
    summary = recorded(0.000_003, 0.000_003, 0.001_999).snapshot()
    assert (summary.count, summary.min, summary.median, summary.max) == (3, 3e-6, 3e-6, 1.999e-3)
    assert summary.mean == pytest.approx(2005e-6 / 3)


def test_a_value_that_is_rounded_up_to_a_power_of_two_is_in_the_cell_of_those_that_are_not() -> (
    None
):
    fractions = [2.0**n * (1 + part) for n in range(13) for part in (-(2.0**-11), 0.0)]
    cells = recorded(*[value / 1e6 for value in fractions]).cells()
    assert cells == sorted(dict(cells).items())


def test_a_small_spread_on_a_long_latency_is_not_lost_to_rounding() -> None:
    # 1,000,000 and 1,000,512 microseconds are neighbouring cells of 512.
    summary = recorded(*[1.0, 1.000_512] * 500).snapshot()
    assert summary.stddev == pytest.approx(256e-6)


def test_a_value_above_an_hour_is_clamped_and_counted() -> None:
    summary = recorded(1.0, 4000.0, 1e30, math.inf, math.nan).snapshot()
    assert (summary.count, summary.beyond) == (5, 4)
    assert summary.max == pytest.approx(3600, rel=1e-3)


def test_a_value_below_zero_is_clamped_and_counted() -> None:
    summary = recorded(-1.0, -1e-4, 0.0, -0.0, 1.0).snapshot()
    assert (summary.count, summary.negative, summary.min) == (5, 2, 0.0)


def test_looking_twice_counts_nothing_twice() -> None:
    histogram = recorded(-1.0, 0.5, 5000.0)
    assert histogram.snapshot() == histogram.snapshot()


def test_reset_forgets_everything() -> None:
    histogram = recorded(-1.0, 0.5, 5000.0)
    histogram.snapshot()
    histogram.record(0.5)
    histogram.reset()
    assert histogram.snapshot() == LatencyHistogram().snapshot()


def test_adding_is_as_if_all_had_been_recorded_in_one() -> None:
    total, interval = recorded(0.1, -1.0), recorded(0.1, 9999.0)
    total.add(interval)
    assert total.snapshot() == recorded(0.1, -1.0, 0.1, 9999.0).snapshot()
    assert interval.snapshot() == recorded(0.1, 9999.0).snapshot()


def test_memory_stays_bounded_under_values_that_share_no_cell() -> None:
    histogram = LatencyHistogram()
    for start in range(20):
        far_apart = [2.0**start * 1e-3 * i for i in range(4096)]
        histogram.record(*[math.nan] * 4096, *far_apart)
        assert len(histogram._recent) < 16_384
        cells = sum(len(block.cells) for block in histogram._blocks.values())
        assert cells <= 23_221
        assert len(histogram._fresh) + cells <= 49_152
    assert histogram.snapshot().count == 20 * 8192
    assert histogram.snapshot().beyond > 20 * 4096


# Few, because one summary by the Python port takes a tenth of a second.
@pytest.mark.parametrize(
    "microseconds",
    [
        [0, 0],
        [int(1.2**i) for i in range(120)],
        [10_000 + 7 * i for i in range(300)] + [2_000_000],
    ],
    ids=["zeros", "all magnitudes", "a peak and an outlier"],
)
def test_the_summary_is_the_one_of_hdr_histogram(microseconds: list[int]) -> None:
    summary = recorded(*[value / 1e6 for value in microseconds]).snapshot()
    expected = HdrHistogram(1, 3_600_000_000, 3)
    for value in microseconds:
        expected.record_value(value)
    assert summary.count == expected.get_total_count()
    assert summary.min == expected.get_min_value() / 1e6
    assert summary.max == expected.get_max_value() / 1e6
    for name, percent in PERCENTILES.items():
        assert getattr(summary, name) == expected.get_value_at_percentile(percent) / 1e6
    assert summary.mean == pytest.approx(expected.get_mean_value() / 1e6)
    assert summary.stddev == pytest.approx(expected.get_stddev() / 1e6)


@given(st.lists(st.integers(0, 16_000_000), max_size=100))
def test_up_to_16_seconds_every_whole_microsecond_is_in_its_exact_hdr_cell(
    microseconds: list[int],
) -> None:
    cells = recorded(*[value / 1e6 for value in microseconds]).cells()
    expected = Counter(LAYOUT.get_lowest_equivalent_value(value) for value in microseconds)
    assert cells == sorted(expected.items())


@given(st.lists(st.floats(16, 3600)))
def test_beyond_16_seconds_a_value_is_in_its_hdr_cell_or_beside_it(seconds: list[float]) -> None:
    for value in seconds:
        ((cell, _),) = recorded(value).cells()
        near = [value * 1e6 * factor for factor in (1 - 2**-23, 1, 1 + 2**-23)]
        assert cell in [LAYOUT.get_lowest_equivalent_value(int(x)) for x in near]


@given(LATENCIES.filter(bool))
def test_a_percentile_is_within_three_digits_of_the_exact_one(seconds: list[float]) -> None:
    summary = recorded(*seconds).snapshot()
    ordered = sorted(seconds)
    for name, percent in PERCENTILES.items():
        rank = max(1, int(percent * len(seconds) / 100 + 0.5))
        exact = ordered[rank - 1]
        # A microsecond is the resolution.
        assert getattr(summary, name) == pytest.approx(exact, rel=1e-3, abs=1.1e-6)
    assert summary.min == pytest.approx(ordered[0], rel=1e-3, abs=1.1e-6)
    assert summary.max == pytest.approx(ordered[-1], rel=1e-3, abs=1.1e-6)


@given(st.lists(st.floats(), max_size=100), st.integers(1, 200))
def test_many_at_once_is_the_same_as_one_by_one(seconds: list[float], repeat: int) -> None:
    at_once, one_by_one = LatencyHistogram(), LatencyHistogram()
    values = seconds * repeat
    at_once.record(*values)
    for value in values:
        one_by_one.record(value)
    assert at_once.snapshot() == one_by_one.snapshot()
    assert at_once.snapshot().count == len(values)


def test_the_interval_log_is_read_by_the_hdr_tools(tmp_path: Path) -> None:
    stream = io.StringIO()
    log = IntervalLog(stream, started=1_600_000_000.0)
    log.write(recorded(0.010, 0.020, 0.020), 0.0, 1.0, tag="waiting")
    log.write(recorded(0.5), 1.0, 2.5)
    path = tmp_path / "latency.hlog"
    path.write_text(stream.getvalue())

    reader = HistogramLogReader(str(path), HdrHistogram(1, 3_600_000_000, 3))
    first = reader.get_next_interval_histogram()
    second = reader.get_next_interval_histogram()
    end = reader.get_next_interval_histogram()
    reader.close()

    assert reader.get_start_time_sec() == 1_600_000_000.0
    assert (first.tag, first.get_total_count(), first.get_count_at_value(20_000)) == (
        "waiting",
        3,
        2,
    )
    assert first.get_start_time_stamp() == 1_600_000_000_000.0
    assert second.tag is None
    assert second.get_start_time_stamp() == 1_600_000_001_000.0
    assert second.get_end_time_stamp() == 1_600_000_002_500.0
    assert second.get_value_at_percentile(50) == pytest.approx(500_000, rel=1e-3)
    assert end is None


def test_the_interval_log_begins_with_the_standard_header() -> None:
    stream = io.StringIO()
    IntervalLog(stream, started=1.5).write(recorded(0.123), 2.0, 3.25)
    lines = stream.getvalue().splitlines()
    assert lines[1:5] == [
        "#[Histogram log format version 1.2]",
        "#[StartTime: 1.500 (seconds since epoch), 1970-01-01 00:00:01.500000+00:00]",
        "#[BaseTime: 1.500 (seconds since epoch)]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    assert lines[5].startswith("2.000000,1.250000,123.000000,HIST")


@pytest.mark.parametrize("tag", ["a,b", "a b", "a\n"])
def test_a_tag_that_would_break_the_log_is_refused(tag: str) -> None:
    stream = io.StringIO()
    log = IntervalLog(stream, started=0.0)
    before = stream.getvalue()
    with pytest.raises(ValueError, match="no commas or white space"):
        log.write(recorded(1.0), 0.0, 1.0, tag=tag)
    assert stream.getvalue() == before


def test_the_text_shows_the_katas_figures_in_milliseconds() -> None:
    summary = recorded(*[0.001] * 1200, 0.002, 0.002).snapshot()
    assert render(summary, "waiting").splitlines() == [
        "waiting (ms)",
        "   count         1,202",
        "     min         1.000",
        "     max         2.000",
        "    mean         1.002",
        "  median         1.000",
        "     p75         1.000",
        "     p95         1.000",
        "     p98         1.000",
        "     p99         1.000",
        "    p999         2.000",
    ]


def test_the_text_mentions_values_outside_the_range_only_if_there_are_any() -> None:
    lines = render(recorded(-1.0, 4000.0, 5000.0).snapshot(), "waiting").splitlines()
    assert lines[-2:] == [
        "  beyond             2  counted as one hour",
        "   below             1  counted as 0",
    ]
