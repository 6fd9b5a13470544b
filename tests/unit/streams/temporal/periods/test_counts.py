from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from math import inf, nan
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.base.errors import BuildError
from penstock.streams.temporal.periods.counts import sequenced
from penstock.streams.temporal.periods.intervals import IntervalError, Period, RowTypeError
from penstock.streams.temporal.periods.tallies import rounded

Row = tuple[int, int | None]

DAY = datetime(2024, 1, 1)
rows = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 6) | st.none()).map(
        lambda row: (row[0], None if row[1] is None else row[0] + row[1])
    ),
    max_size=12,
)
amounts = st.integers(-3, 3) | st.floats(-1e9, 1e9) | st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16])
# Columns of one type, which are summed in another way, and of several.
columns = st.sampled_from(
    [
        amounts,
        st.integers(-(1 << 70), 1 << 70),
        st.floats(-1e9, 1e9),
        st.sampled_from([0.1, 1e308, -1e308, 5e-324, 0.0]),
    ]
).flatmap(lambda one: st.lists(one, min_size=12, max_size=12))

EXTREME = list(map(Decimal, ["1E+3", "1E-80", "0E-70", "0E+70", "-1E+61", "1E-300", "1E+60", "-0"]))


def shown(periods: list[Period]) -> list[tuple[Any, Any, Any]]:
    return [(period.begin, period.end, period.value) for period in periods]


def count(table: list[Any], **options: Any) -> list[tuple[Any, Any, Any]]:
    return shown(sequenced(table, begin=0, end=1, **options))


def valid(table: list[Any], instant: float) -> list[Any]:
    """The rows that are valid at an instant, by the definition."""
    return [row for row in table if row[0] <= instant and (row[1] is None or instant < row[1])]


def value_at(periods: list[Period], instant: float) -> Any:
    found = [
        period.value
        for period in periods
        if period.begin <= instant and (period.end is None or instant < period.end)
    ]
    assert len(found) <= 1
    return found[0] if found else None


def assert_coalesced(periods: list[Period]) -> None:
    for one, other in pairwise(periods):
        assert one.end is not None
        assert one.end <= other.begin
        assert one.end < other.begin or one.value != other.value


# The story.


@pytest.mark.parametrize(
    ("table", "periods"),
    [
        ([], []),
        ([(1, 4), (4, 9)], [(1, 9, 1)]),
        ([(1, 3), (5, 8)], [(1, 3, 1), (5, 8, 1)]),
        ([(0, 10), (2, 5), (5, 7)], [(0, 2, 1), (2, 7, 2), (7, 10, 1)]),
        ([(3, None)], [(3, None, 1)]),
        ([(3, None), (5, None)], [(3, 5, 1), (5, None, 2)]),
        ([(5, 6), (3, 6), (3, 5)], [(3, 6, 2)]),
    ],
)
def test_the_count_of_rows_is_emitted_by_period(table: list[Row], periods: list[Any]) -> None:
    assert count(table) == periods


@pytest.mark.parametrize(
    ("table", "periods"),
    [
        ([(1, 3), (5, 8)], [(1, 3, 1), (3, 5, 0), (5, 8, 1)]),
        ([(0, 1), (5, None)], [(0, 1, 1), (1, 5, 0), (5, None, 1)]),
        ([(1, 3)], [(1, 3, 1)]),
        ([], []),
    ],
)
def test_include_zero_adds_the_gaps_between_rows_and_no_others(
    table: list[Row], periods: list[Any]
) -> None:
    assert count(table, include_zero=True) == periods


@pytest.mark.parametrize(("aggregate", "plain"), [("min", min), ("max", max)])
def test_the_extreme_of_a_hundred_rows_at_once_is_that_of_the_valid_ones(
    aggregate: Any, plain: Callable[[Iterable[int]], int]
) -> None:
    table = [(n, n + 70 + n * 37 % 50, n * 29 % 101) for n in range(400)]
    periods = sequenced(table, aggregate, begin=0, end=1, of=2)
    told = [p.value for p in periods for _ in range(p.begin, p.end)]
    last = max(end for _, end, _ in table)
    assert told == [plain(v for b, e, v in table if b <= at < e) for at in range(last)]


def test_each_key_is_counted_and_coalesced_by_itself() -> None:
    table = [(1, 4, "a"), (2, 3, "b"), (4, 6, "a"), (0, 1, "b")]
    periods = sequenced(table, by=2, begin=0, end=1)
    assert periods == [Period("a", 1, 6, 1), Period("b", 0, 1, 1), Period("b", 2, 3, 1)]


def test_rows_may_be_objects_of_json_with_texts_and_without_an_end() -> None:
    table = [{"from": "2004-07-13", "to": "2004-07-18"}, {"from": "2004-07-16"}]
    assert shown(sequenced(table)) == [
        (date(2004, 7, 13), date(2004, 7, 16), 1),
        (date(2004, 7, 16), date(2004, 7, 18), 2),
        (date(2004, 7, 18), None, 1),
    ]


@pytest.mark.parametrize(
    ("aggregate", "values"),
    [("sum", [5, 3, 4]), ("avg", [5.0, 1.5, 4.0]), ("min", [5, 1, 4]), ("max", [5, 2, 4])],
)
def test_other_aggregates_are_emitted_in_the_same_way(aggregate: Any, values: list[Any]) -> None:
    table = [(0, 2, 5), (2, 4, 1), (2, 4, 2), (4, 9, 4)]
    periods = sequenced(table, aggregate, begin=0, end=1, of=2)
    assert shown(periods) == list(zip([0, 2, 4], [2, 4, 9], values, strict=True))


@pytest.mark.parametrize("end", [0.7, None])
@pytest.mark.parametrize(("aggregate", "middle"), [("sum", 3), ("avg", 1.5), ("max", 2)])
def test_points_that_are_floats_are_returned_as_they_came(
    aggregate: Any, middle: float, end: float | None
) -> None:
    table = [(0.2, end, 2), (0.1, 0.3, 1)]
    periods = count(table, aggregate=aggregate, of=2)
    assert periods[0] == (0.1, 0.2, 1)
    middles = [(0.2, 0.3, middle), (0.3, end, 2)]
    assert periods[1:] == ([(0.2, end, 2)] if aggregate == "max" else middles)


def test_a_sum_that_stays_the_same_is_one_period_whichever_rows_contribute() -> None:
    table = [(0, 3, 5), (3, 6, 2), (3, 6, 3)]
    assert shown(sequenced(table, "sum", begin=0, end=1, of=2)) == [(0, 6, 5)]


def test_a_sum_of_zero_is_a_period_and_no_rows_are_none() -> None:
    table = [(0, 3, 5), (1, 2, -5)]
    assert shown(sequenced(table, "sum", begin=0, end=1, of=2)) == [(0, 1, 5), (1, 2, 0), (2, 3, 5)]


def test_decimals_stay_decimals() -> None:
    table = [(0, 3, Decimal("0.10")), (1, 3, Decimal("0.20"))]
    assert shown(sequenced(table, "sum", begin=0, end=1, of=2)) == [
        (0, 1, Decimal("0.10")),
        (1, 3, Decimal("0.30")),
    ]
    assert sequenced(table, "avg", begin=0, end=1, of=2)[-1].value == Decimal("0.15")


def test_a_sum_is_of_the_kind_of_what_is_summed_and_not_of_what_has_left() -> None:
    table = [(0, 3, 10), (1, 2, 0.5), (4, 5, Fraction(1, 2)), (4, 6, Fraction(3, 2))]
    periods = sequenced(table, "sum", begin=0, end=1, of=2)
    assert repr([period.value for period in periods]) == repr(
        [10, 10.5, 10, Fraction(2), Fraction(3, 2)]
    )


def test_an_hour_that_the_clock_says_twice_is_counted_as_two() -> None:
    zone = ZoneInfo("Europe/Berlin")
    begin = datetime(2024, 10, 27, 2, 30, tzinfo=zone)
    end = begin.replace(fold=1)
    ((start, stop, value),) = count([(begin, end)])
    assert (stop - start, value) == (timedelta(hours=1), 1)


def test_datetimes_of_different_zones_are_compared_as_instants() -> None:
    east = timezone(timedelta(hours=2))
    table = [
        (datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(2024, 1, 1, 15, tzinfo=east)),
        ("2024-01-01T15:00:00+02:00", "2024-01-01T14:00:00Z"),
    ]
    assert count(table) == [(table[0][0], datetime(2024, 1, 1, 14, tzinfo=UTC), 1)]


# The law.


@given(rows, st.booleans())
def test_at_every_instant_the_count_is_the_plain_count(table: list[Row], zero: bool) -> None:
    periods = sequenced(table, begin=0, end=1, include_zero=zero)
    assert_coalesced(periods)
    for instant in [n / 2 for n in range(-2, 60)]:
        expected = len(valid(table, instant))
        seen = value_at(periods, instant)
        assert seen == expected or (expected == 0 and seen is None)
        between = any(row[0] <= instant for row in table) and any(
            row[1] is None or instant < row[1] for row in table
        ) and any(instant < row[0] for row in table)  # fmt: skip
        if expected == 0:
            assert (seen == 0) == (zero and between)


@given(rows, columns, st.sampled_from(["sum", "avg", "min", "max"]))
def test_at_every_instant_an_aggregate_is_the_plain_one_correctly_rounded(
    table: list[Row], values: list[Any], aggregate: Any
) -> None:
    whole = [(*row, value) for row, value in zip(table, values, strict=False)]
    periods = sequenced(whole, aggregate, begin=0, end=1, of=2)
    assert_coalesced(periods)
    for instant in [n / 2 for n in range(-2, 60)]:
        amounts_now = [row[2] for row in valid(whole, instant)]
        seen = value_at(periods, instant)
        if not amounts_now:
            assert seen is None
        elif aggregate in ("min", "max"):
            assert seen == {"min": min, "max": max}[aggregate](amounts_now)
        else:
            exact = sum(map(Fraction, amounts_now))
            exact = exact / len(amounts_now) if aggregate == "avg" else exact
            whole_numbers = aggregate == "sum" and all(type(one) is int for one in amounts_now)
            assert seen == (exact if whole_numbers else rounded(exact))
            if len(set(map(type, values))) == 1:
                assert type(seen) is (int if whole_numbers else float)


@given(
    rows,
    st.lists(
        st.decimals(-1000, 1000, places=2) | st.sampled_from(EXTREME),
        min_size=12,
        max_size=12,
    ),
    st.sampled_from(["sum", "avg"]),
)
def test_at_every_instant_an_aggregate_of_decimals_is_a_decimal(
    table: list[Row], values: list[Decimal], aggregate: Any
) -> None:
    whole = [(*row, value) for row, value in zip(table, values, strict=False)]
    periods = sequenced(whole, aggregate, begin=0, end=1, of=2)
    assert_coalesced(periods)
    for instant in [n / 2 for n in range(-2, 60)]:
        now = [Fraction(row[2]) for row in valid(whole, instant)]
        if now:
            exact = sum(now) / (len(now) if aggregate == "avg" else 1)
            seen = value_at(periods, instant)
            assert type(seen) is Decimal
            assert seen == Decimal(exact.numerator) / Decimal(exact.denominator)


@given(st.lists(st.sampled_from([(0, 2), (0, 3), (1, 3), (1, None), (2, 3)]), max_size=40))
def test_many_rows_of_few_points_are_counted_like_any(table: list[Row]) -> None:
    periods = sequenced(table, begin=0, end=1)
    assert_coalesced(periods)
    for instant in [n / 2 for n in range(-2, 10)]:
        assert (value_at(periods, instant) or 0) == len(valid(table, instant))


def test_an_average_that_is_too_large_for_a_float_is_infinite() -> None:
    table = [(0, 1, 10**400), (1, 2, -(10**400)), (2, 3, 5)]
    assert count(table, aggregate="avg", of=2) == [(0, 1, inf), (1, 2, -inf), (2, 3, 5.0)]


@pytest.mark.parametrize(
    "point",
    [
        lambda n: n / 7,
        lambda n: Decimal(n) / 8,
        lambda n: Fraction(n, 3),
        lambda n: DAY.date() + timedelta(n),
        lambda n: DAY + timedelta(microseconds=n),
        # So far from each other that a float of the seconds between them tells no microseconds.
        lambda n: (datetime(9000, 1, 1) if n > 9 else DAY) + timedelta(microseconds=n),
        lambda n: (DAY + timedelta(hours=n)).replace(tzinfo=UTC),
    ],
)
@given(table=rows, values=st.lists(st.integers(-3, 3), min_size=12, max_size=12))
def test_sums_are_the_same_whatever_kind_of_points_there_are(
    point: Callable[[int], Any], table: list[Row], values: list[int]
) -> None:
    whole = [(*row, value) for row, value in zip(table, values, strict=False)]
    ends = {None: None, **{n: point(n) for n in range(20)}}
    moved = [(ends[begin], ends[end], value) for begin, end, value in whole]
    for aggregate in ("sum", "avg"):
        assert count(moved, aggregate=aggregate, of=2) == [
            (ends[begin], ends[end], value)
            for begin, end, value in count(whole, aggregate=aggregate, of=2)
        ]


@given(rows, st.randoms())
def test_the_order_of_rows_does_not_matter(table: list[Row], random: Any) -> None:
    shuffled = table.copy()
    random.shuffle(shuffled)
    assert count(shuffled) == count(table)


@given(rows)
def test_a_count_of_one_key_is_the_sum_of_ones(table: list[Row]) -> None:
    ones = sequenced(table, "sum", begin=0, end=1, of=lambda row: 1)
    assert shown(ones) == count(table)


# Rows that are open for no time.


@pytest.mark.parametrize("instant", [5, DAY, "2024-01-01", Decimal("0.5"), "2024-01-01T00:00Z"])
def test_a_row_that_ends_where_it_begins_is_skipped_and_counted(instant: Any) -> None:
    periods = sequenced([(instant, instant)] * 2, begin=0, end=1)
    assert (periods, periods.empty) == ([], 2)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6) | st.none(), st.sampled_from("ab"))),
    st.sampled_from(["count", "sum", "max"]),
)
def test_periods_are_those_of_the_rows_that_are_open_for_some_time(
    drawn: list[Any], aggregate: Any
) -> None:
    table = [
        (begin, None if length is None else begin + length, key) for begin, length, key in drawn
    ]
    some_time = [row for row in table if row[0] != row[1]]
    options: Any = {"by": 2, "begin": 0, "end": 1}
    options |= {"include_zero": True} if aggregate == "count" else {"of": 0}
    periods = sequenced(table, aggregate, **options)
    assert periods == sequenced(some_time, aggregate, **options)
    assert periods.empty == len(table) - len(some_time)
    assert periods.aggregate == aggregate


# Bad rows.


@pytest.mark.parametrize(
    ("row", "kind", "said"),
    [
        ((5, 3), IntervalError, "from 5 comes after to 3"),
        ((DAY, DAY - timedelta(1)), IntervalError, "comes after to"),
        ((nan, 3), TypeError, "NaN is not a point in time"),
        ((3, nan), TypeError, "NaN is not a point in time"),
        ((Decimal("NaN"), None), TypeError, "NaN is not a point in time"),
        ((Decimal("sNaN"), None), TypeError, "NaN is not a point in time"),
        ((3, date(2024, 1, 1)), TypeError, "is a number, but to .* is a date"),
        ((date(2024, 1, 1), DAY), TypeError, "is a date, but to .* without a time zone"),
        ((DAY.replace(tzinfo=UTC), DAY + timedelta(1)), TypeError, "with a time zone, but to"),
        (("2024-01-01", "never"), TypeError, "'never' is not a point in time"),
        ((None, 3), TypeError, "None of type NoneType is not a point in time"),
        ((True, 3), TypeError, "True of type bool is not a point in time"),
        (([1], [2]), TypeError, "of type list is not a point in time"),
    ],
)  # fmt: skip
def test_a_bad_interval_is_named_with_its_row_and_both_ends(
    row: Any, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=rf"row 0: .*{said}") as raised:
        count([row])
    assert isinstance(raised.value, IntervalError | RowTypeError)
    assert raised.value.row == 0


def test_a_bad_interval_is_named_with_its_key() -> None:
    with pytest.raises(IntervalError, match="row 1 of 'x': from 5 comes after to 3") as raised:
        sequenced([(1, 2, "y"), (5, 3, "x")], begin=0, end=1, by=2)
    assert raised.value.row == 1


@pytest.mark.parametrize(
    "table",
    [
        [(1, 2), (DAY, None)],
        [(DAY, None), (DAY.replace(tzinfo=UTC), None)],
        [(date(2024, 1, 1), None), (DAY, None)],
    ],
)
def test_rows_of_different_kinds_are_refused(table: list[Any]) -> None:
    with pytest.raises(TypeError, match=r"row 1: .* but the points before it are each a"):
        count(table)


@pytest.mark.parametrize("amount", [nan, inf, None, "3", True, [1], Decimal("sNaN")])
def test_an_amount_that_is_not_a_finite_number_is_refused(amount: Any) -> None:
    with pytest.raises(RowTypeError, match=r"row 1: .* is not an amount") as raised:
        sequenced([(0, 1, 1), (0, 1, amount)], "sum", begin=0, end=1, of=2)
    assert raised.value.row == 1


@pytest.mark.parametrize(
    ("bad", "error", "said"),
    [
        (("2004-07-13", "2004-07-12"), IntervalError, "row 2300: from .* comes after to"),
        (("2004-07-13T00:00", "2004-07-14"), TypeError, "row 2300: .* is a datetime"),
        (("2004-07-13", "soon"), TypeError, "row 2300: 'soon' is not a point in time"),
    ],
)
def test_one_bad_row_of_a_long_table_of_dates_is_named(bad: Any, error: Any, said: str) -> None:
    table: list[Any] = [("2004-07-12", None), *[("2004-07-12", "2004-07-14")] * 2_999]
    assert [value for *_, value in count(table)] == [3_000, 1]
    table[2300] = bad
    with pytest.raises(error, match=said) as raised:
        count(table)
    assert raised.value.row == 2300


def test_a_long_count_leaves_the_garbage_collector_as_it_was() -> None:
    # What was frozen when the tests began would hide what the count leaves behind.
    gc.unfreeze()
    try:
        assert len(count([(2 * at, 2 * at + 1) for at in range(110_000)])) == 110_000
        assert gc.isenabled()
        # Python 3.12 freezes a few hundred immortal objects itself.
        assert gc.get_freeze_count() < (1_000 if sys.version_info[:2] == (3, 12) else 1)
    finally:
        gc.freeze()


def test_rows_may_be_objects_with_attributes() -> None:
    class Row(NamedTuple):
        begin: int
        end: int | None
        of: int

    rows: list[Any] = [Row(1, 4, 2), {"begin": 2, "of": 3}, Row(2, 4, 0)]
    options: Any = {"begin": "begin", "end": "end"}
    assert shown(sequenced(rows, **options)) == [(1, 2, 1), (2, 4, 3), (4, None, 1)]
    assert shown(sequenced(rows, "sum", of="of", **options))[1] == (2, 4, 5)
    with pytest.raises(RowTypeError, match=r"row 0: .* is not a row with 'too'"):
        sequenced(rows, begin="begin", end="too")


def test_a_row_without_a_beginning_is_named() -> None:
    with pytest.raises(IntervalError, match=r"row 1500: .* has no 'from'") as raised:
        sequenced([*[{"from": 1}] * 1_500, {"to": 3}])
    assert raised.value.row == 1500
    with pytest.raises(
        RowTypeError, match="row 1: 7 of type int is not a row with 'from'"
    ) as wrong:
        sequenced([{"from": 1}, 7])
    assert wrong.value.row == 1
    with pytest.raises(KeyError) as own:
        sequenced([{"from": 1}, {}], begin=lambda row: row["from"])
    assert own.value.__notes__ == ["in row 1"]


def test_a_row_without_a_key_or_with_one_that_cannot_be_is_named() -> None:
    with pytest.raises(IntervalError, match=r"row 0: .*'from': 1.* has no 'client'"):
        sequenced([{"from": 1}], by="client")
    with pytest.raises(RowTypeError, match=r"row 1: \[2\] of type list cannot be a key") as raised:
        sequenced([{"from": 1, "client": 1}, {"from": 1, "client": [2]}], by="client")
    assert raised.value.row == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"aggregate": "median"}, "use one of count, sum, avg, min, max"),
        ({"aggregate": "sum"}, "needs of="),
        ({"of": 2}, "counts rows"),
        ({"aggregate": "sum", "of": 2, "include_zero": True}, "only a count of no rows is 0"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: Any, said: str) -> None:
    with pytest.raises(BuildError, match=said):
        sequenced([], **options)


@pytest.mark.parametrize("first", [datetime.min, datetime.max])
def test_a_moment_that_there_is_not_in_utc_is_named_with_its_row(first: datetime) -> None:
    far = timezone(timedelta(hours=5 if first == datetime.min else -5))
    table = [(datetime(2024, 1, 1, tzinfo=UTC), None), (first.replace(tzinfo=far), None)]
    with pytest.raises(IntervalError, match=r"row 1: .* is out of range in UTC"):
        count(table)


@pytest.mark.parametrize("aggregate", ["min", "max"])
def test_the_least_and_the_greatest_are_not_rounded(aggregate: Any) -> None:
    long = Decimal("0." + "1234567890" * 5)
    assert count([(0, 1, long)], aggregate=aggregate, of=2) == [(0, 1, long)]
