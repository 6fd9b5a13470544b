from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kata import Latencies, Latency


def test_nothing_recorded_is_all_zero() -> None:
    assert Latencies().summary() == Latency(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def test_the_percentiles_of_one_to_a_thousand_milliseconds_are_what_they_say() -> None:
    latencies = Latencies()
    for milliseconds in range(1, 1001):
        latencies.record(milliseconds / 1000)
    summary = latencies.summary()
    assert summary.count == 1000
    assert [
        summary.min,
        summary.max,
        summary.mean,
        summary.median,
        summary.p75,
        summary.p95,
        summary.p98,
        summary.p99,
        summary.p999,
    ] == pytest.approx([0.001, 1, 0.5005, 0.5, 0.75, 0.95, 0.98, 0.99, 0.999], rel=0.001)


@given(st.lists(st.floats(1e-4, 3000), min_size=1, max_size=20))
def test_a_value_is_kept_to_three_digits(values: list[float]) -> None:
    latencies = Latencies()
    for value in values:
        latencies.record(value)
    summary = latencies.summary()
    # Half a microsecond is lost in rounding before the histogram sees the value.
    assert summary.max == pytest.approx(max(values), rel=0.001, abs=1e-6)
    assert summary.min == pytest.approx(min(values), rel=0.001, abs=1e-6)


@pytest.mark.parametrize(("value", "counted"), [(-1.0, 0.0), (10_000.0, 3600.0)])
def test_a_value_out_of_range_is_counted_at_the_nearer_end(value: float, counted: float) -> None:
    latencies = Latencies()
    latencies.record(value)
    summary = latencies.summary()
    assert summary.count == 1
    assert summary.max == pytest.approx(counted, rel=0.001)
