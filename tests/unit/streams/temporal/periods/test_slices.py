from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import groupby
from math import inf
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.base.errors import WrongType
from penstock.streams.temporal import IntervalError, Periods, Slice, as_of, by_calendar, sequenced

FIRST = date(2003, 12, 20)
AGGREGATES: dict[str, Any] = {
    "count": len,
    "sum": sum,
    "min": min,
    "max": max,
    "avg": lambda amounts: float(sum(map(Fraction, amounts)) / len(amounts)),
}

rows = st.lists(
    st.tuples(
        st.integers(0, 100),
        st.integers(0, 60) | st.none(),
        st.sampled_from("ab"),
        st.integers(-3, 9),
    ).map(
        lambda row: (
            FIRST + timedelta(row[0]),
            None if row[1] is None else FIRST + timedelta(row[0] + row[1]),
            *row[2:],
        )
    ),
    max_size=8,
)


def periods_of(table: list[Any], aggregate: Any = "count", *, by: Any = 2) -> Periods:
    of = None if aggregate == "count" else 3
    return sequenced(table, aggregate, by=by, begin=0, end=1, of=of)


def plain(table: list[Any], aggregate: str, key: str, day: date) -> Any:
    """The plain aggregate over the rows of a key that are valid on a day; None without any."""
    amounts = [
        amount
        for begin, end, mine, amount in table
        if mine == key and begin <= day and (end is None or day < end)
    ]
    return AGGREGATES[aggregate](amounts) if amounts else None


# What all days of a unit have in common, by Python's own calendar.
NAMES: dict[Any, Callable[[date], Any]] = {
    "day": lambda day: day,
    "week": lambda day: day.isocalendar()[:2],
    "month": lambda day: (day.year, day.month),
    "quarter": lambda day: (day.year, {3: 1, 6: 2, 9: 3, 12: 4}[-(-day.month // 3) * 3]),
    "year": lambda day: day.year,
}


def first_of(unit: str, day: date) -> date:
    name = NAMES[unit](day)
    while NAMES[unit](day - timedelta(1)) == name:
        day -= timedelta(1)
    return day


def first_of_next(unit: str, day: date) -> date:
    name = NAMES[unit](day)
    while NAMES[unit](day) == name:
        day += timedelta(1)
    return day


@given(rows, st.sampled_from([*AGGREGATES]), st.integers(-3, 170))
def test_at_every_instant_the_value_is_the_plain_aggregate(
    table: list[Any], aggregate: str, offset: int
) -> None:
    day = FIRST + timedelta(offset)
    keys = [key for begin, end, key, _ in table if begin != end]
    expected = {key: plain(table, aggregate, key, day) for key in keys}
    if aggregate == "count":
        expected = {key: value or 0 for key, value in expected.items()}
    else:
        expected = {key: value for key, value in expected.items() if value is not None}
    assert as_of(periods_of(table, aggregate), day.isoformat()) == expected


@given(
    rows,
    st.sampled_from([*NAMES]),
    st.sampled_from([*AGGREGATES]),
    st.integers(0, 170) | st.none(),
)
def test_a_unit_is_the_least_the_mean_and_the_greatest_of_its_days(
    table: list[Any], unit: Any, aggregate: str, cut: int | None
) -> None:
    until = None if cut is None else FIRST + timedelta(cut)
    table = [row for row in table if row[0] != row[1]]
    points = [point for row in table for point in row[:2] if point is not None]
    expected: list[Slice] = []
    for key in dict.fromkeys(row[2] for row in table):
        stop = until or _end_of(unit, periods_of(table, aggregate), points)
        # What begins later makes no month the last one of its key.
        mine = [row for row in table if row[2] == key and row[0] < stop]
        if not mine:
            continue
        begin = min(row[0] for row in mine)
        ends = [row[1] for row in mine]
        last = stop if None in ends else min(stop, max(end for end in ends if end is not None))
        last = min(stop, first_of_next(unit, last - timedelta(1)))
        start = first_of(unit, begin)
        days = [start + timedelta(n) for n in range((last - start).days)]
        for first, some in groupby(days, partial(first_of, unit)):
            values = [plain(table, aggregate, key, day) for day in some]
            if aggregate == "count":
                values = [value or 0 for value in values]
            values = [value for value in values if value is not None]
            if values:
                mean = float(sum(map(Fraction, values)) / len(values))
                expected.append(Slice(key, first, min(values), mean, max(values)))
    assert by_calendar(periods_of(table, aggregate), unit, until=until) == expected


def _end_of(unit: str, periods: Periods, points: list[date]) -> date:
    latest = max(p for period in periods for p in (period.begin, period.end) if p is not None)
    begins_there = any(p.end is None and p.begin == latest for p in periods)
    return first_of_next(unit, latest if begins_there else latest - timedelta(1))


def test_a_month_of_datetimes_is_measured_to_the_instant() -> None:
    begin = datetime(2024, 2, 1, tzinfo=UTC)
    table = [(begin, begin + timedelta(hours=29)), (begin, "2024-03-01T00:00+00:00")]
    (month,) = by_calendar(sequenced(table, begin=0, end=1), "month")
    assert month == Slice(None, date(2024, 2, 1), 1, 1 + 1 / 24, 2)


def test_a_mean_of_decimals_is_a_decimal_and_one_beyond_the_largest_float_infinite() -> None:
    days = [(date(2024, 1, 1), date(2024, 1, 2)), (date(2024, 1, 2), date(2024, 1, 5))]
    table = [(*days[0], Decimal("0.1")), (*days[1], Decimal("0.2"))]
    (month,) = by_calendar(sequenced(table, "sum", begin=0, end=1, of=2), "month")
    assert repr(month.mean) == "Decimal('0.175')"
    (month,) = by_calendar(sequenced([(*days[0], 1e308)] * 2, "sum", begin=0, end=1, of=2), "month")
    assert month.mean == inf


def test_without_periods_there_are_no_values_and_no_months() -> None:
    assert as_of(sequenced([]), 5) == {}
    assert by_calendar(sequenced([]), "month") == []


def test_the_last_month_of_the_calendar_ends_where_it_is_told_to() -> None:
    for last in (date(9999, 12, 31), datetime(9999, 12, 31)):
        first = last.replace(day=1)
        open_row = sequenced([(first, None)], begin=0, end=1)
        assert by_calendar(open_row, "month", until=last) == [
            Slice(None, date(9999, 12, 1), 1, 1.0, 1)
        ]
        closed = sequenced([(first, first + timedelta(15))], begin=0, end=1)
        assert by_calendar(closed, "month", until=last) == [
            Slice(None, date(9999, 12, 1), 0, 0.5, 1)
        ]


def test_what_is_not_a_date_has_no_months_and_what_is_has_no_numbers() -> None:
    numbers = sequenced([(1, 3)], begin=0, end=1)
    dates = sequenced([("2024-01-01", "9999-12-31")], begin=0, end=1)
    with pytest.raises(WrongType, match="by_calendar needs periods of dates or datetimes"):
        by_calendar(numbers, "month")
    with pytest.raises(WrongType, match=r"at=5: 5 is a number, but .* a date"):
        as_of(dates, 5)
    with pytest.raises(WrongType, match=r"until=5: 5 is a number, but .* a date"):
        by_calendar(dates, "month", until=5)
    with pytest.raises(IntervalError, match="ends after the year 9999: give `until`"):
        by_calendar(dates, "month")
    assert [month.mean for month in by_calendar(dates, "month", until="2024-03-01")] == [1.0, 1.0]


# Half an hour (Lord Howe), at midnight (Sao Paulo), back to the day before (St Johns), a day that
# is skipped (Apia), and none (Kathmandu).
CHANGES = {
    "Europe/Athens": [datetime(2025, 3, 30, 1), datetime(2025, 10, 26, 1)],
    "Australia/Lord_Howe": [datetime(2025, 4, 5, 15), datetime(2025, 10, 4, 15, 30)],
    "America/Sao_Paulo": [datetime(2018, 11, 4, 3), datetime(2018, 2, 18, 2)],
    "America/St_Johns": [datetime(2010, 11, 7, 2, 30)],
    "Pacific/Apia": [datetime(2011, 12, 30, 10)],
    "Asia/Kathmandu": [datetime(2025, 1, 1)],
    "UTC": [datetime(2024, 12, 30)],
}
QUARTER = timedelta(minutes=15)


@given(
    st.sampled_from([(zone, change) for zone, several in CHANGES.items() for change in several]),
    st.sampled_from([*NAMES]),
    st.lists(st.tuples(st.integers(-300, 300), st.integers(1, 200)), min_size=1, max_size=4),
)
def test_a_unit_of_a_zone_has_the_instants_whose_local_date_is_in_it(
    change: tuple[str, datetime], unit: Any, spans: list[tuple[int, int]]
) -> None:
    zone, middle = ZoneInfo(change[0]), change[1].replace(tzinfo=UTC)
    table = [(middle + at * QUARTER, middle + (at + long) * QUARTER) for at, long in spans]
    last = max(end for _, end in table)
    found = by_calendar(sequenced(table, begin=0, end=1), unit, until=last, zone=zone)
    # All instants from before the first unit on, by Python's own rules for the zone.
    instant = min(begin for begin, _ in table)
    first = first_of(unit, instant.astimezone(zone).date())
    local = datetime(first.year, first.month, first.day, tzinfo=zone)
    instant = local.astimezone(UTC) - timedelta(hours=3)
    values: dict[date, list[int]] = {}
    latest = date.min
    while instant < last:
        # A day goes on where the clock goes back to the day before.
        latest = max(latest, instant.astimezone(zone).date())
        count = sum(begin <= instant < end for begin, end in table)
        values.setdefault(first_of(unit, latest), []).append(count)
        instant += QUARTER
    assert found == [
        Slice(None, first, min(counts), sum(counts) / len(counts), max(counts))
        for first, counts in values.items()
        if first >= found[0].first
    ]


def test_a_zone_is_one_of_times_that_have_zones() -> None:
    athens = ZoneInfo("Europe/Athens")
    for point in ("2024-01-01", "2024-01-01T10:00"):
        periods = sequenced([(point, None)], begin=0, end=1)
        with pytest.raises(WrongType, match="zone='Europe/Athens' goes with datetimes that have"):
            by_calendar(periods, "day", zone=athens)
    late = sequenced([("9999-12-31T23:30Z", None)], begin=0, end=1)
    with pytest.raises(IntervalError, match="is out of range in Europe/Athens"):
        by_calendar(late, "day", zone=athens)
