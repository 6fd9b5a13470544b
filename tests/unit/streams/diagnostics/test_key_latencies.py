"""Latencies by key, next to counts of all keys."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.diagnostics.key_latencies import KEPT, KeyLatencies

# Few others, so that some are forgotten and come again.
KEYS = st.one_of(st.integers(0, 3), st.integers(0, 30))
BATCHES = st.lists(st.lists(KEYS, min_size=1, max_size=40), min_size=1, max_size=40)


def counted(shown: int, batches: list[list[int]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    latencies = KeyLatencies(shown)
    for batch in batches:
        times = {key: ([1.0] * n, [2.0] * n) for key, n in Counter(batch).items()}
        latencies.count(times)
    return latencies.statistics()


@given(batches=BATCHES, shown=st.integers(1, 4))
def test_a_key_with_many_events_is_known_and_no_event_is_lost(
    batches: list[list[int]], shown: int
) -> None:
    everything = Counter(key for batch in batches for key in batch)
    hottest, others = counted(shown, batches)
    total = everything.total()
    assert sum(one["count"] for one in hottest) + others["count"] == total
    assert len(hottest) == min(shown, len(everything))
    for one in hottest:
        # What was counted is a part of what there was, and `before` bounds the rest.
        assert one["count"] <= everything[one["key"]] <= one["count"] + one["before"]
        assert one["before"] <= total / (KEPT * shown)
    if len(everything) <= 2 * KEPT * shown:
        # Nothing was forgotten.
        assert [one["count"] for one in hottest] == sorted(everything.values())[: -shown - 1 : -1]


@given(batches=BATCHES, shown=st.integers(1, 4))
def test_a_key_with_more_than_its_part_of_the_events_is_never_forgotten(
    batches: list[list[int]], shown: int
) -> None:
    everything = Counter(key for batch in batches for key in batch)
    latencies = KeyLatencies(shown)
    for batch in batches:
        latencies.count({key: ([1.0] * n, [1.0] * n) for key, n in Counter(batch).items()})
    many = {key for key, n in everything.items() if n > everything.total() / (KEPT * shown)}
    assert many <= latencies._keys.keys()  # pyright: ignore[reportPrivateUsage]
    assert len(latencies._keys) <= 2 * KEPT * shown  # pyright: ignore[reportPrivateUsage]


@given(
    values=st.lists(st.floats(0, 3.6e9, width=32), min_size=1, max_size=60),
    share=st.sampled_from([("median", 0.5), ("p99", 0.99), ("max", 1.0)]),
)
def test_percentiles_are_exact_to_two_percent(
    values: list[float], share: tuple[str, float]
) -> None:
    latencies = KeyLatencies(1)
    latencies.count({"k": (values, [0.0] * len(values))})
    (one,), _ = latencies.statistics()
    name, part = share
    exact = sorted(values)[max(1, int(part * len(values) + 0.5)) - 1] / 1e6
    assert exact <= one["waiting"][name] * (1 + 1e-6) + 1e-40
    assert one["waiting"][name] <= exact * 1.02 + 1e-40


def test_a_key_that_was_forgotten_and_comes_again_may_have_had_events_before() -> None:
    latencies = KeyLatencies(1)
    one = ([1.0], [1.0])
    latencies.count({"first": one})
    latencies.count({key: ([1.0, 1.0], [1.0, 1.0]) for key in range(2 * KEPT)})
    latencies.count({"first": ([1.0] * 9, [1.0] * 9)})
    (hottest,), others = latencies.statistics()
    assert (hottest["key"], hottest["count"]) == ("first", 9)
    assert hottest["before"] >= 1
    assert others["count"] == 1 + 4 * KEPT


def test_all_other_keys_have_the_times_of_those_that_are_not_shown_and_were_forgotten() -> None:
    latencies = KeyLatencies(1)
    # Some have so many events that these are counted by cells, and some have few.
    for key, n in enumerate((500, 300, 200, *([3] * 3 * KEPT))):
        latencies.count({key: ([1000.0 * (key > 1)] * n, [0.0] * n)})
    latencies.count({1: ([0.0] * 7, [0.0] * 7)})
    (hottest,), others = latencies.statistics()
    assert (hottest["key"], hottest["count"]) == (0, 500)
    assert others["count"] == 300 + 7 + 200 + 9 * KEPT
    assert others["waiting"]["median"] == 0
    assert others["waiting"]["max"] == pytest.approx(0.001, rel=0.02)


def test_the_total_is_the_sum_of_both_parts_and_times_below_0_are_0() -> None:
    latencies = KeyLatencies(1)
    latencies.count({"k": ([1000.0, -5.0], [2000.0, 0.0])})
    (one,), others = latencies.statistics()
    assert one["total"]["max"] == pytest.approx(0.003, rel=0.02)
    assert one["waiting"]["median"] == 0
    assert others["count"] == 0
