"""Targets as texts, and budgets next to counts by hand."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.base.errors import BadArgument, BuildError
from penstock.streams.diagnostics.objective import (
    BURNS,
    SLICE,
    WINDOWS,
    Budget,
    share_of,
    target_of,
)


@pytest.mark.parametrize(
    ("text", "part", "percent", "bound"),
    [
        ("p99 < 50ms", "total", "99", 0.05),
        (" service  p95<2s ", "service", "95", 2.0),
        ("waiting < 1.5 min", "waiting", None, 90.0),
        ("total p99.9 < 1h", "total", "99.9", 3600.0),
        ("p999 < 10us", "total", "99.9", 1e-5),
        ("p5 < 10 µs", "total", "5", 1e-5),
    ],
)
def test_a_target_names_a_part_a_percentile_and_a_time(
    text: str, part: str, percent: str | None, bound: float
) -> None:
    target = target_of(text)
    assert target.part == part
    assert target.percentile == (None if percent is None else Fraction(percent) / 100)
    assert target.bound == pytest.approx(bound)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "p99",
            "p99 < 50",
            "p99 < 50 msec",
            "p99 <= 50ms",
            "p99 > 50ms",
            "< 50ms",
            "p99 < 0ms",
        ),
        *("p100 < 1s", "p0 < 1s", "latency < 1s", "servicep99 < 1s", "p99 < -1s", "p99 < 1s 2s"),
        *(None, 50, b"p99 < 1s"),
    ],
)
def test_anything_else_is_an_error_that_says_what_is_allowed(text: object) -> None:
    with pytest.raises(
        BadArgument, match=r"objective\(.*(\[waiting\|service\|total\]|p50 or more)"
    ):
        target_of(text)


def test_a_share_in_percent_is_an_error_that_says_the_share() -> None:
    with pytest.raises(BuildError, match=r"99\.9 % is share=0\.999$"):
        share_of(99.9)


@pytest.mark.parametrize("share", [0, 1, -0.5, True, "0.9", None, float("nan")])
def test_a_share_is_between_0_and_1(share: object) -> None:
    with pytest.raises(BuildError, match="above 0 and below 1"):
        share_of(share)


# The ends of slices and windows are tried more often than by chance.
EDGES = [
    n * SLICE
    for n in (0, 1, 29, 30, 31, *(s // SLICE + d for s in (3600, 21_600) for d in (-1, 0, 1)))
]
GAPS = st.one_of(st.floats(0, 2_000), st.sampled_from([float(one) for one in EDGES]))
LISTS = st.lists(st.tuples(GAPS, st.integers(1, 30), st.integers(0, 30)), min_size=1, max_size=40)


def _windows(judged: list[tuple[int, int, int]], now: int) -> dict[str, tuple[int, int]]:
    """By hand: what was good and bad in the slices of each window."""
    return {
        name: (
            sum(good for at, good, _ in judged if at > now - seconds // SLICE),
            sum(bad for at, _, bad in judged if at > now - seconds // SLICE),
        )
        for name, seconds in WINDOWS.items()
    }


@given(lists=LISTS, share=st.sampled_from(["0.5", "0.9", "0.99"]), silence=GAPS)
def test_events_are_counted_over_all_time_and_in_each_window(
    lists: list[tuple[float, int, int]], share: str, silence: float
) -> None:
    budget = Budget(target_of("total < 1s"), Fraction(share), 0.0)
    now = 0.0
    judged: list[tuple[int, int, int]] = []
    for gap, events, late in lists:
        now += gap
        late = min(late, events)
        budget.count(events, late, now)
        judged.append((int(now // SLICE), events - late, late))
    now += silence
    numbers = budget.statistics(now)
    good, bad = sum(one[1] for one in judged), sum(one[2] for one in judged)
    assert (numbers["good"], numbers["bad"]) == (good, bad)
    assert numbers["kept"] == (Fraction(bad, good + bad) <= 1 - Fraction(share))
    for name, (good, bad) in _windows(judged, int(now // SLICE)).items():
        window = numbers["windows"][name]
        assert (window["good"], window["bad"]) == (good, bad)
        if good + bad:
            burnt = Fraction(bad, good + bad) / (1 - Fraction(share))
            assert window["burn_rate"] == float(burnt)
            assert window["kept"] == (burnt <= 1)
        else:
            assert window["burn_rate"] is window["kept"] is None


@given(lists=LISTS, percent=st.sampled_from([50, 90, 99]))
def test_with_a_percentile_a_slice_is_good_if_as_many_of_its_events_were_in_time(
    lists: list[tuple[float, int, int]], percent: int
) -> None:
    budget = Budget(target_of(f"p{percent} < 1s"), Fraction("0.9"), 0.0)
    now = 0.0
    slices: dict[int, tuple[int, int]] = {}
    for gap, events, late in lists:
        now += gap
        late = min(late, events)
        budget.count(events, late, now)
        before = slices.get(int(now // SLICE), (0, 0))
        slices[int(now // SLICE)] = before[0] + events, before[1] + late
    budget.end()
    # The percentile as HdrHistogram and the nearest-rank method have it.
    good = sum(
        events - late >= ceil(Fraction(percent, 100) * events) for events, late in slices.values()
    )
    numbers = budget.statistics(now)
    assert (numbers["good"], numbers["bad"]) == (good, len(slices) - good)


@pytest.mark.parametrize(("late", "bad"), [(1, 0), (2, 1)])
def test_as_many_late_events_as_the_percentile_allows_are_good(late: int, bad: int) -> None:
    budget = Budget(target_of("p90 < 1s"), Fraction("0.9"), 0.0)
    budget.count(10, late, 0.0)
    assert budget.statistics(SLICE)["bad"] == bad


@pytest.mark.parametrize(("name", "seconds"), WINDOWS.items())
def test_an_event_leaves_a_window_when_it_is_as_old(name: str, seconds: int) -> None:
    budget = Budget(target_of("total < 1s"), Fraction("0.9"), 0.0)
    budget.count(3, 1, 0.0)
    budget.count(1, 0, seconds - SLICE)
    assert budget.statistics(seconds - 0.1)["windows"][name]["bad"] == 1
    # With an event in the next slice, and without one.
    assert budget.statistics(seconds)["windows"][name]["bad"] == 0
    budget.count(1, 0, seconds)
    assert budget.statistics(seconds)["windows"][name]["bad"] == 0


def test_a_slice_counts_when_it_is_over_and_one_without_events_does_not() -> None:
    budget = Budget(target_of("p99 < 1s"), Fraction("0.9"), 0.0)
    budget.count(10, 10, 0.0)
    assert budget.statistics(9.9)["bad"] == 0
    assert budget.statistics(10.0)["bad"] == 1
    assert budget.statistics(1_000.0)["bad"] == 1


def test_what_burns_now_and_has_burnt_for_an_hour_burns_fast_and_what_is_over_does_not() -> None:
    budget = Budget(target_of("total < 1s"), Fraction("0.999"), 0.0)
    name, _, short, _ = BURNS[0]
    # One in fifty: twenty times what may be.
    said: list[str | None] = []
    for second in range(0, 4_000, 10):
        is_bad = second < 3_600
        budget.count(50, int(is_bad), second)
        said.append(budget.statistics(second)["burning"])
    # Not before the short window is over once: a single late event at the start is no alarm.
    assert set(said[: WINDOWS[short] // SLICE]) == {None}
    assert set(said[WINDOWS[short] // SLICE : 360]) == {name}
    # The short window, which is the sooner over, lets it end: here at a rate of 14.4 of 20.
    assert said[-1] != name
    assert budget.statistics(40_000)["burning"] is None


def test_decimal_shares_are_exact() -> None:
    budget = Budget(target_of("total < 1s"), share_of(0.9), 0.0)
    budget.count(10, 1, 0)
    # 1 - 0.9 is less than 0.1 for floats.
    assert budget.statistics(0)["kept"]
