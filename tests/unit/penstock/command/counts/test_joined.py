"""Several series of `penstock counts` side by side, and what is printed where there is nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.command.counts.joined import Absent, side_by_side, with_gaps
from penstock.command.counts.plain import label
from penstock.streams.temporal import sequenced

Penstock = Callable[..., Any]

ROWS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 9) | st.none()).map(
        lambda row: (row[0], None if row[1] is None else row[0] + row[1])
    ),
    max_size=5,
)


def spans_of(rows: list[Any]) -> list[Any]:
    periods = sequenced(rows, begin=0, end=1)
    return [(period.begin, period.end, period.value) for period in periods]


def valid(rows: list[Any], at: int) -> Any:
    return sum(begin <= at and (end is None or at < end) for begin, end in rows) or Absent


@given(st.lists(ROWS, min_size=1, max_size=4), st.booleans())
def test_at_every_instant_each_series_has_its_own_value(
    series: list[list[Any]], gaps: bool
) -> None:
    found = list(side_by_side([spans_of(rows) for rows in series]))
    if gaps:
        found = list(with_gaps(found, [Absent] * len(series)))
        assert all(one[1] == other[0] for one, other in pairwise(found))
    for at in range(40):
        values = [valid(rows, at) for rows in series]
        here = [span[2] for span in found if span[0] <= at and (span[1] is None or at < span[1])]
        is_between = found and found[0][0] <= at and any(at < span[0] for span in found)
        if any(one is not Absent for one in values) or (gaps and is_between):
            assert here == [values]
        else:
            assert here == []
    assert all(one[2] != other[2] for one, other in pairwise(found) if one[1] == other[0])


@given(st.dates(min_value=date(1000, 1, 1)))
def test_a_week_has_the_name_that_pythons_calendar_gives_it(day: date) -> None:
    monday = day - timedelta(day.weekday())
    assert label("week", monday) == day.strftime("%G-W%V")
    assert label("month", day) == day.strftime("%Y-%m")
    assert label("day", day) == day.strftime("%Y-%m-%d")
    assert label("year", day) == f"{day.year:04}"
    year, quarter = label("quarter", day).split("-Q")
    assert (int(year), day.month) in [(day.year, 3 * int(quarter) - n) for n in range(3)]


def lines(result: Any) -> list[Any]:
    assert (result.status, result.err) == (0, "")
    return [json.loads(line) for line in result.out.splitlines()]


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders.csv"
    path.write_text(
        "client,from,to,price\n"
        "ada,2004-07-01,2004-07-10,5\n"
        "ada,2004-07-05,2004-07-10,7.5\n"
        "bob,2004-07-20,2004-07-25,4\n"
    )
    return path


@pytest.fixture
def returns(tmp_path: Path) -> Path:
    path = tmp_path / "returns.jsonl"
    path.write_text('{"client": "bob", "from": "2004-07-08", "to": "2004-07-22", "price": 1}\n')
    return path


def test_the_keys_stand_side_by_side(penstock: Penstock, orders: Path) -> None:
    assert lines(penstock("counts", orders, "--by=client", "--join")) == [
        {"begin": "2004-07-01", "end": "2004-07-05", "ada": 1, "bob": 0},
        {"begin": "2004-07-05", "end": "2004-07-10", "ada": 2, "bob": 0},
        {"begin": "2004-07-20", "end": "2004-07-25", "ada": 0, "bob": 1},
    ]


def test_several_files_stand_side_by_side_and_for_each_key(
    penstock: Penstock, orders: Path, returns: Path
) -> None:
    # Each in the format that its own name says.
    assert lines(penstock("counts", orders, returns, "--join")) == [
        {"begin": "2004-07-01", "end": "2004-07-05", "orders": 1, "returns": 0},
        {"begin": "2004-07-05", "end": "2004-07-08", "orders": 2, "returns": 0},
        {"begin": "2004-07-08", "end": "2004-07-10", "orders": 2, "returns": 1},
        {"begin": "2004-07-10", "end": "2004-07-20", "orders": 0, "returns": 1},
        {"begin": "2004-07-20", "end": "2004-07-22", "orders": 1, "returns": 1},
        {"begin": "2004-07-22", "end": "2004-07-25", "orders": 1, "returns": 0},
    ]
    by = lines(penstock("counts", orders, returns, "--join", "--by=client"))
    assert [one for one in by if one["key"] == "bob"] == [
        {"key": "bob", "begin": "2004-07-08", "end": "2004-07-20", "orders": 0, "returns": 1},
        {"key": "bob", "begin": "2004-07-20", "end": "2004-07-22", "orders": 1, "returns": 1},
        {"key": "bob", "begin": "2004-07-22", "end": "2004-07-25", "orders": 1, "returns": 0},
    ]
    assert lines(penstock("counts", orders, returns, "--join", "--at=2004-07-09")) == [
        {"at": "2004-07-09", "orders": 2, "returns": 1}
    ]
    assert lines(penstock("counts", orders, returns, "--join", "--quarter")) == [
        {
            "quarter": "2004-Q3",
            "orders": {"least": 0, "mean": 19 / 92, "greatest": 2},
            "returns": {"least": 0, "mean": 14 / 92, "greatest": 1},
        }
    ]
    assert lines(penstock("counts", orders, returns, "--join", "--year")) == [
        {
            "year": "2004",
            "orders": {"least": 0, "mean": 19 / 366, "greatest": 2},
            "returns": {"least": 0, "mean": 14 / 366, "greatest": 1},
        }
    ]


def test_tables_stand_side_by_side(penstock: Penstock, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "work.db") as database:
        for name in ("a", "b"):
            database.execute(f'CREATE TABLE {name} ("from" integer, "to" integer)')
            database.execute(f"INSERT INTO {name} VALUES (1, 3)")
    database.close()
    url = f"sqlite:///{tmp_path}/work.db"
    found = lines(penstock("counts", url, "--table=a", "--table=b", "--join"))
    assert found == lines(penstock("counts", url, url, "--table=a", "--table=b", "--join"))
    assert found == [{"begin": 1, "end": 3, "a": 1, "b": 1}]


def test_null_is_printed_where_no_row_is_valid(
    penstock: Penstock, orders: Path, returns: Path
) -> None:
    gap = {"begin": "2004-07-10", "end": "2004-07-20"}
    assert gap not in [
        {name: one[name] for name in gap} for one in lines(penstock("counts", orders))
    ]
    for text, value in (("0", 0), ("null", None), ("none", "none"), ('"0"', "0"), ("", "")):
        found = lines(penstock("counts", orders, f"--null={text}"))
        assert [one["value"] for one in found] == [1, 2, value, 1]
        assert {**gap, "value": value} in found
    found = lines(penstock("counts", orders, returns, "--join", "--null=null"))
    assert [(one["orders"], one["returns"]) for one in found][:2] == [(1, None), (2, None)]
    sums = ("--aggregate=sum", "--of=price")
    found = lines(penstock("counts", orders, returns, "--join", *sums))
    assert [one["returns"] for one in found] == [None, None, 1, 1, 1, None]


def test_null_is_printed_for_units_of_the_calendar_in_which_no_row_is_valid(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("from,to,n\n2004-07-30,2004-08-01,5\n2004-12-05,2004-12-06,3\n")
    words = ("counts", path, "--aggregate=max", "--of=n", "--month")
    assert [one["month"] for one in lines(penstock(*words))] == ["2004-07", "2004-12"]
    found = lines(penstock(*words, "--null=null"))
    assert [(one["month"], one["greatest"]) for one in found] == [
        *(("2004-07", 5), ("2004-08", None), ("2004-09", None), ("2004-10", None)),
        *(("2004-11", None), ("2004-12", 3)),
    ]
    zeros = lines(penstock("counts", path, "--month"))
    assert [one["greatest"] for one in zeros] == [1, 0, 0, 0, 0, 1]
    none = lines(penstock("counts", path, "--month", "--null=-"))
    assert none[1] == {"month": "2004-08", "least": "-", "mean": "-", "greatest": "-"}
    at = penstock(*words[:4], "--by=n", "--at=2004-12-05", "--null=null")
    assert [one["value"] for one in lines(at)] == [3, None]


def test_units_follow_the_calendar_of_the_zone(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    # In Athens the clock was set back on 26 October 2025: a Sunday of 25 hours.
    path.write_text("from,to\n2025-10-25T21:00Z,2025-10-26T21:59Z\n")
    (utc, second) = lines(penstock("counts", path, "--day"))
    assert (utc["day"], second["day"]) == ("2025-10-25", "2025-10-26")
    (athens,) = lines(penstock("counts", path, "--day", "--zone=Europe/Athens"))
    assert athens["day"] == "2025-10-26"
    assert athens["mean"] == pytest.approx((25 * 60 - 1) / (25 * 60))
    (week,) = lines(penstock("counts", path, "--week", "--zone=Europe/Athens"))
    assert week["week"] == "2025-W43"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--join"], "give several PATHs, or --by"),
        (["--zone=Europe/Athens"], "--zone goes with --day, --week, --month, --quarter or --year"),
        (["--until=2004-08-01"], "--until goes with --day, --week, --month, --quarter or --year"),
        (["--day", "--zone=Nowhere"], "--zone Nowhere: the time zone database has no such zone"),
        (["--day", "--zone=Europe/Athens"], "goes with datetimes that have a time zone"),
    ],
)
def test_a_wrong_use_is_one_line_and_status_2(
    penstock: Penstock, tmp_path: Path, words: list[str], said: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"from": "2004-07-01", "to": "2004-07-02"}\n')
    result = penstock("counts", path, *words)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert said in result.err


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["begin", "b"], "'begin', the name of a series, is the name of a field of each line too"),
        ([1, "1"], "'1', the name of a series, is that of another one too"),
    ],
)
def test_a_series_has_a_name_of_its_own(
    penstock: Penstock, tmp_path: Path, keys: list[Any], said: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"from": 1, "k": key}) + "\n" for key in keys))
    result = penstock("counts", path, "--join", "--by=k")
    assert (result.status, result.out) == (2, "")
    assert said in result.err


def test_inputs_that_cannot_be_told_apart_or_compared_are_refused(
    penstock: Penstock, orders: Path, tmp_path: Path
) -> None:
    result = penstock("counts", orders, orders, "--join")
    assert (result.status, "an input is given twice" in result.err) == (2, True)
    numbers = tmp_path / "numbers.csv"
    numbers.write_text("from,to\n1,2\n")
    result = penstock("counts", orders, numbers, "--join")
    assert (result.status, result.out) == (2, "")
    assert "--join: in numbers, 1 is a number, but the points before it are each a date" in (
        result.err
    )
    other = tmp_path / "more" / "orders.csv"
    other.parent.mkdir()
    other.write_text(orders.read_text())
    found = lines(penstock("counts", orders, other, "--join"))
    assert set(found[0]) == {"begin", "end", str(orders), str(other)}


def test_more_keys_than_fit_in_a_line_are_refused(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("from,to,k\n" + "".join(f"1,2,{n}\n" for n in range(1001)))
    result = penstock("counts", path, "--by=k", "--join")
    assert (result.status, result.out) == (2, "")
    assert "--join puts at most 1,000 series side by side, and there are 1,001" in result.err


def test_a_plot_has_a_curve_for_each_series(
    penstock: Penstock, orders: Path, returns: Path, tmp_path: Path
) -> None:
    plot = tmp_path / "plot.svg"
    for words, curves in (([], 2), (["--week"], 2), (["--by=client"], 3)):
        assert penstock("counts", orders, returns, "--join", *words, "--plot", plot).status == 0
        assert plot.read_text("utf-8").count('class="curve"') == curves
