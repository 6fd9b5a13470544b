"""Where the windows of a fixed shape begin and end."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any, get_args
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.windows.grids import CalendarGrid, RegularGrid
from penstock.streams.windows.shapes import Calendar, Regular, Unit, calendar, tumbling
from tests.helpers.windows_by_definition import calendar_window

# In each the clock changes, at an hour, by half an hour, at midnight, by a day, or it does not.
CHANGES = {
    "Europe/Athens": [1774746000, 1792890000],
    "America/New_York": [1772953200, 1793512800],
    "Australia/Lord_Howe": [1775314800, 1791041400],
    "America/Sao_Paulo": [1541300400, 1550368800],
    "Asia/Beirut": [1711836000, 1729976400],
    "America/Toronto": [-1601753400, -1583697600],
    "America/Havana": [1772946000, 1793509200],
    "Pacific/Apia": [1325239200],
    "Asia/Kathmandu": [1792890000],
    "UTC": [1792890000],
}


@pytest.mark.parametrize("unit", get_args(Unit))
@pytest.mark.parametrize("zone", CHANGES)
def test_a_calendar_window_has_the_times_with_its_name(zone: str, unit: Any) -> None:
    grid = CalendarGrid(calendar(unit, zone=zone))
    step = {"hour": 60, "day": 60, "week": 300, "month": 900, "quarter": 900, "year": 900}[unit]
    random = Random(zone + unit)
    for change in CHANGES[zone]:
        for around in {"hour": [2, 5000], "day": [2, 90_000]}.get(unit, [5000]):
            for _ in range(3 if unit in ("hour", "day") else 1):
                time = change + random.uniform(-around, around)
                expected = calendar_window(unit, ZoneInfo(zone), time, step)
                assert grid.slice_at(time) == expected, time


@pytest.mark.parametrize("unit", get_args(Unit))
@pytest.mark.parametrize("zone", CHANGES)
def test_calendar_windows_follow_one_another_without_a_gap(zone: str, unit: Any) -> None:
    grid = CalendarGrid(calendar(unit, zone=zone))
    for change in CHANGES[zone]:
        time = change - 3 * 86400.0
        found: list[tuple[float, float]] = []
        while time < change + 3 * 86400:
            found.append(grid.slice_at(time))
            assert found[-1][0] <= time
            assert grid.slice_at(found[-1][1] - 0.001) == found[-1]
            time = found[-1][1]
        assert all(one[1] == other[0] for one, other in pairwise(found))


def _hours(unit: Unit, zone: str, time: float) -> float:
    start, end = CalendarGrid(calendar(unit, zone=zone)).slice_at(time)
    return (end - start) / 3600


def test_days_have_23_and_25_hours_where_the_clock_changes() -> None:
    spring, autumn = CHANGES["Europe/Athens"]
    assert _hours("day", "Europe/Athens", spring) == 23
    assert _hours("day", "Europe/Athens", autumn) == 25


def test_an_hour_that_comes_twice_is_two_windows() -> None:
    _, autumn = CHANGES["Europe/Athens"]
    grid = CalendarGrid(calendar("hour", zone="Europe/Athens"))
    assert grid.slice_at(autumn - 1.0) == (autumn - 3600, autumn)
    assert grid.slice_at(autumn + 1.0) == (autumn, autumn + 3600)


def test_a_change_of_half_an_hour_makes_an_hour_of_half_an_hour() -> None:
    _, spring = CHANGES["Australia/Lord_Howe"]
    assert _hours("hour", "Australia/Lord_Howe", spring + 1.0) == 0.5


def test_a_day_goes_on_where_the_clock_goes_back_to_the_day_before() -> None:
    # At 00:01 to 23:01.
    zone, change = "America/St_Johns", 1289097060
    grid = CalendarGrid(calendar("day", zone=zone))
    day = grid.slice_at(change - 30.0)
    assert day == (change - 60, change + 86_400 + 3540)
    assert grid.slice_at(change + 30.0) == day
    assert grid.slice_at(change + 7200.0) == day
    assert grid.slice_at(change - 61.0)[1] == change - 60


@given(
    length=st.sampled_from([0.1, 0.7, 1 / 3, 1e-6, 60, 3600, 86_400, 2.5]),
    number=st.integers(-(10**6), 10**10),
    part=st.floats(0, 1),
)
def test_a_bound_is_the_float_nearest_to_a_multiple(
    length: float, number: int, part: float
) -> None:
    exact = Fraction(repr(length))
    start, end = float(number * exact), float((number + 1) * exact)
    time = min(max(start + part * (end - start), start), end)
    if start < end:
        grid = RegularGrid(tumbling(length))
        found = (start, end) if time < end else (end, float((number + 2) * exact))
        assert grid.slice_at(time) == found
        assert grid.slice_at(start) == (start, end)
        assert list(grid.windows(start, end, start)) == [(start, end)]
        assert list(grid.windows(start, end, end)) == []


@given(
    length=st.integers(1, 30),
    every=st.integers(1, 30),
    at=st.integers(-50, 50),
    above=st.floats(-90, 90),
)
def test_the_windows_of_a_slice_are_all_that_have_it(
    length: int, every: int, at: int, above: float
) -> None:
    every = min(every, length)
    grid = RegularGrid(Regular(Fraction(length), Fraction(every)))
    start, end = grid.slice_at(float(at))
    windows = [(float(n * every), float(n * every + length)) for n in range(-200, 200)]
    having = [one for one in windows if one[0] <= at < one[1]]
    assert having == [one for one in windows if one[0] <= start and end <= one[1]]
    assert list(grid.windows(start, end, above)) == [one for one in having if one[1] > above]
    assert grid.last_end(start, end) == having[-1][1]


def test_a_calendar_is_given_by_its_unit_and_its_zone() -> None:
    assert calendar("day", zone="Europe/Athens") == Calendar("day", ZoneInfo("Europe/Athens"))
