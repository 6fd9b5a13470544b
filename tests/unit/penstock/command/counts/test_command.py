"""`penstock counts` in a shell."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.streams.pictures.steps import as_svg
from tests.helpers.statements import execute

Penstock = Callable[..., Any]

CSV = """client,from,to,price
ada,2004-07-01,2004-07-14,5
ada,2004-07-08,2004-07-20,7.5
bob,2004-07-14,,4
"""
COUNTS = [
    {"begin": "2004-07-01", "end": "2004-07-08", "value": 1},
    {"begin": "2004-07-08", "end": "2004-07-20", "value": 2},
    {"begin": "2004-07-20", "end": None, "value": 1},
]


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders.csv"
    path.write_text(CSV, encoding="utf-8")
    return path


def lines(result: Any) -> list[Any]:
    return [json.loads(line) for line in result.out.splitlines()]


def test_each_period_of_a_csv_file_is_a_line_of_json(penstock: Penstock, orders: Path) -> None:
    result = penstock("counts", orders)
    assert (result.status, lines(result), result.err) == (0, COUNTS, "")


def test_keys_are_written_as_they_are(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_text('{"client": "\N{GREEK SMALL LETTER ALPHA}", "from": 1, "to": 2}', "utf-8")
    assert '"key": "\N{GREEK SMALL LETTER ALPHA}"' in penstock("counts", path, "--by=client").out


def test_json_lines_are_counted_in_the_same_way(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    rows = ['{"from": "2004-07-01", "to": "2004-07-14"}', '{"from": "2004-07-08", "to": null}']
    path.write_text("\n".join(rows), encoding="utf-8")
    assert [line["value"] for line in lines(penstock("counts", path))] == [1, 2, 1]
    path.write_text("\n".join([*rows, "broken"]), encoding="utf-8")
    result = penstock("counts", path)
    assert (result.status, len(lines(result))) == (3, 3)
    assert "line 3 is not valid JSON" in result.err


def test_a_table_of_a_database_is_counted_in_the_same_way(
    penstock: Penstock, database: str
) -> None:
    script = [
        'CREATE TABLE "order" ("from" date, "to" date, client text, price numeric)',
        """INSERT INTO "order" VALUES ('2004-07-01', '2004-07-14', 'ada', 5),
           ('2004-07-08', '2004-07-20', 'ada', 7.5), ('2004-07-14', NULL, 'bob', 4)""",
    ]
    execute(database, *script)
    assert lines(penstock("counts", database, "--table", "order")) == COUNTS
    sums = penstock("counts", database, "--table=order", "--aggregate=sum", "--of=price")
    assert [line["value"] for line in lines(sums)] == [5, 12.5, 11.5, 4]
    missing = penstock("counts", database, "--table", "order", "--by", "clint")
    assert missing.status == 2
    assert "has no column 'clint'; it has: from, to, client, price" in missing.err
    unknown = penstock("counts", database, "--table", "none")
    assert (unknown.status, unknown.err.count("\n")) == (2, 1)
    assert "has no table 'none'" in unknown.err


def test_a_month_has_its_least_mean_and_greatest(penstock: Penstock, orders: Path) -> None:
    (line,) = lines(penstock("counts", orders, "--month"))
    mean = (7 + 12 * 2 + 12) / 31
    assert line == {"month": "2004-07", "least": 1, "mean": mean, "greatest": 2}
    by = lines(penstock("counts", orders, "--month", "--by", "client", "--until", "2004-08-01"))
    assert [(line["key"], line["greatest"]) for line in by] == [("ada", 2), ("bob", 1)]


def test_the_value_at_an_instant_is_that_of_the_rows_valid_then(
    penstock: Penstock, orders: Path, tmp_path: Path
) -> None:
    assert lines(penstock("counts", orders, "--at", "2004-07-15")) == [
        {"at": "2004-07-15", "value": 2}
    ]
    by = lines(penstock("counts", orders, "--at", "2004-07-15", "--by", "client"))
    assert [(line["key"], line["value"]) for line in by] == [("ada", 1), ("bob", 1)]
    numbers = tmp_path / "numbers.csv"
    numbers.write_text("from,to\n1,3\n2.5,9\n", encoding="utf-8")
    assert lines(penstock("counts", numbers, "--at", "2.5")) == [{"at": 2.5, "value": 2}]
    numbers.write_text("from,to\n", encoding="utf-8")
    assert lines(penstock("counts", numbers, "--at", "2.5"))[0]["value"] == 0


def test_bad_rows_and_rows_open_for_no_time_are_left_out_and_reported(
    penstock: Penstock, orders: Path
) -> None:
    bad = "ada,2004-07-14,2004-07-01,1\nada,never,,1\nbob,2004-07-02,2004-07-02,1\n"
    orders.write_text(CSV + bad, encoding="utf-8")
    result = penstock("counts", orders)
    assert (result.status, lines(result)) == (3, COUNTS)
    assert "row 4 is left out: from '2004-07-14' comes after to '2004-07-01'" in result.err
    assert "row 5 is left out: 'never' is not a point in time" in result.err
    assert "1 row skipped: open for no time" in result.err


def test_a_bad_row_does_not_make_texts_of_a_column_of_numbers(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("from,to\n1,5\n2,4.5\n0x10,20\n2004-07-01,20\n")
    result = penstock("counts", path)
    assert (result.status, [line["value"] for line in lines(result)]) == (3, [1, 2, 1])
    assert result.err.count("left out") == 2


def test_dates_without_hyphens_among_others_are_dates(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("from,to\n20040701,20040714\n2004-07-08,\n")
    result = penstock("counts", path)
    assert [line["begin"] for line in lines(result)] == ["2004-07-01", "2004-07-08", "2004-07-14"]


def test_numbers_beyond_those_of_json_are_texts(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("from,to,price\n1,1e400,1e308\n1,1e400,1e308\n")
    result = penstock("counts", path, "--aggregate=sum", "--of=price")
    assert (result.status, result.err) == (0, "")
    assert lines(result) == [{"begin": 1, "end": "1E+400", "value": "2E+308"}]
    path = tmp_path / "orders.jsonl"
    path.write_text('{"from": 1, "to": 2, "price": -1e308}\n' * 2)
    result = penstock("counts", path, "--aggregate=sum", "--of=price")
    assert lines(result) == [{"begin": 1, "end": 2, "value": "-Infinity"}]


def test_a_sum_of_more_digits_than_python_writes_is_a_text(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("from,to,price\n" + f"1,2,{'9' * 4300}\n" * 2)
    result = penstock("counts", path, "--aggregate=sum", "--of=price")
    assert (result.status, result.err) == (0, "")
    assert lines(result) == [{"begin": 1, "end": 2, "value": "2E+4300"}]


def test_keys_that_are_no_keys_are_named_and_those_of_bytes_are_texts(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_text('{"from": 1, "to": 2, "client": [7]}\n')
    result = penstock("counts", path, "--by=client")
    assert (result.status, result.out) == (3, "")
    assert "row 1 is left out: its 'client' is [7], which cannot be a key (--by)" in result.err
    url = f"sqlite:///{tmp_path}/work.db"
    with sqlite3.connect(tmp_path / "work.db") as database:
        database.execute('CREATE TABLE orders ("from" INTEGER, "to" INTEGER, client BLOB)')
        database.execute("INSERT INTO orders VALUES (1, 2, x'6164ff')")
    database.close()
    (line,) = lines(penstock("counts", url, "--table=orders", "--by=client"))
    assert line["key"] == "ad\\xff"


@pytest.mark.parametrize("text", ["from,to\n1,2\n", "\r\nfrom,to\r\n\r\n1,2\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_csv_of_standard_input_is_read_as_that_of_a_file(
    penstock: Penstock, script: list[str], tmp_path: Path, mark: bytes, text: str
) -> None:
    path = tmp_path / "orders.csv"
    path.write_bytes(mark + text.encode())
    assert lines(penstock("counts", path)) == [{"begin": 1, "end": 2, "value": 1}]
    command = [*script, "counts", "--input-format=csv"]
    with path.open("rb") as file:
        found = subprocess.run(command, stdin=file, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == '{"begin": 1, "end": 2, "value": 1}\n'


def test_csv_of_a_standard_input_that_is_closed_is_one_line(tmp_path: Path) -> None:
    code = "import os, sys; os.close(0); from penstock.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "counts", "--input-format=csv"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("penstock: Cannot read standard input: it is closed")


def test_a_quotation_mark_that_is_not_closed_loses_no_rows_silently(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "orders.csv"
    path.write_text('from,to,note\n1,2,"two\nlines"\n3,4,"open\n5,6,\n7,8,\n')
    result = penstock("counts", path)
    assert (result.status, [line["begin"] for line in lines(result)]) == (3, [1, 5, 7])
    assert "orders.csv, line 3 is not a row of CSV (unexpected end of data)" in result.err


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_columns_that_are_not_separated_by_commas_are_told_so(
    penstock: Penstock, tmp_path: Path, separator: str
) -> None:
    path = tmp_path / "ORDERS.CSV"
    path.write_text("from,to\n1,2\n".replace(",", separator))
    result = penstock("counts", path)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.endswith(f"separated by ',' here, not by {separator!r}\n")


def test_a_format_of_files_is_refused_with_a_database(penstock: Penstock) -> None:
    result = penstock("counts", "sqlite:///work.db", "--table=orders", "--input-format=csv")
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "--input-format csv is of files" in result.err


def test_a_column_that_is_there_twice_is_a_mistake(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("from,to,from\n1,5,3\n")
    result = penstock("counts", path)
    assert (result.status, result.out) == (2, "")
    assert "names more than one column 'from'" in result.err


def test_beyond_ten_bad_rows_the_others_are_only_counted(penstock: Penstock, orders: Path) -> None:
    orders.write_text(CSV + "ada,never,,1\n" * 12, encoding="utf-8")
    result = penstock("counts", orders)
    assert result.err.count("is left out") == 10
    assert "2 more rows left out" in result.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--by", "clint"], "its first row names no column 'clint'; it has: client, from"),
        (["--aggregate", "sum"], "--aggregate sum needs --of FIELD"),
        (["--of", "price"], "--of needs an --aggregate other than count"),
        (["--table", "orders"], "--table needs the URL of a database"),
        (["--at", "soon"], "'soon' is not a point in time"),
        (["--at", "2004-07-15", "--plot", "a.svg"], "leave --at out"),
        (["--plot", "a.png"], "must end in .svg"),
        (["--plot", "none/a.svg"], "Cannot write none/a.svg"),
        (["--until", "2004-08-01"], "--until goes with --day"),
        (["--", "more"], "takes nothing after"),
    ],
)
def test_a_wrong_use_is_one_line_and_status_2(
    penstock: Penstock, orders: Path, words: list[str], said: str
) -> None:
    result = penstock("counts", orders, *words)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert said in result.err


def test_an_input_that_is_not_there_is_named(penstock: Penstock, tmp_path: Path) -> None:
    for source in ("none.csv", "none.jsonl"):
        result = penstock("counts", tmp_path / source)
        assert result.status == 2
        assert source in result.err
    result = penstock("counts", f"sqlite:///{tmp_path}/none.db", "--table", "a")
    assert (result.status, "none.db does not exist" in result.err) == (2, True)
    result = penstock("counts", f"sqlite:///{tmp_path}/none.db")
    assert "say which table by --table" in result.err


def test_a_plot_has_a_curve_for_each_key_or_three_for_a_month(
    penstock: Penstock, orders: Path, tmp_path: Path
) -> None:
    for options, curves in (
        ([], 1),
        (["--by", "client"], 2),
        (["--month"], 3),
        (["--month", "--by", "client"], 2),
    ):
        plot = tmp_path / "plot.svg"
        assert penstock("counts", orders, *options, "--plot", plot).status == 0
        assert plot.read_text("utf-8").count('class="curve"') == curves


def test_more_keys_than_can_be_told_apart_are_refused_in_a_plot(
    penstock: Penstock, orders: Path, tmp_path: Path
) -> None:
    rows = "".join(f"c{n},2004-07-01,,1\n" for n in range(7))
    orders.write_text(f"client,from,to,price\n{rows}", encoding="utf-8")
    result = penstock("counts", orders, "--by", "client", "--plot", tmp_path / "plot.svg")
    assert result.status == 2
    assert "at most 6 keys, and there are 7" in result.err


def test_a_picture_does_not_grow_with_the_number_of_steps_and_keeps_their_extremes() -> None:
    steps = [(at, at + 1, 10 if at == 77_777 else at % 2) for at in range(100_000)]
    picture = as_svg(("count", {"": steps}))
    assert len(picture) < 60_000
    (path,) = re.findall(r' d="(.*)"', picture)
    top, bottom = 56, 332
    heights = [float(height) for height in re.findall(r"V([\d.]+)", path)]
    assert (min(heights), max(heights)) == (top, bottom)


@pytest.mark.parametrize(
    "steps",
    [
        [(date.min, date.max, 1), (date.max, None, 2)],
        [(datetime.min, datetime.max, 1)],
        [(1, 2, 10**400), (2, 3, -1)],
        [(1, 2, 1.7e308), (2, 3, -1.7e308)],
        [(-1e300, 1e300, 1)],
    ],
)
def test_steps_at_the_ends_of_the_calendar_and_of_numbers_are_drawn(steps: list[Any]) -> None:
    picture = as_svg(("count", {"": steps}))
    assert "nan" not in picture
    assert "inf" not in picture


@pytest.mark.parametrize("end", ["inf", "1e301", "1" + "0" * 400])
def test_points_in_time_too_large_to_draw_are_refused_in_a_plot(
    penstock: Penstock, tmp_path: Path, end: str
) -> None:
    path = tmp_path / "orders.csv"
    path.write_text(f"from,to\n1,{end}\n2,3\n")
    result = penstock("counts", path, "--plot", tmp_path / "plot.svg")
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "--plot draws points in time up to 1e+300" in result.err


def test_nothing_to_draw_is_an_empty_picture() -> None:
    assert "curve" not in as_svg(("count", {})).split("</style>")[1]


def test_a_database_without_a_table_says_that_it_is_missing(penstock: Penstock) -> None:
    no_table = penstock("counts", "sqlite:///none.db")
    assert (no_table.status, no_table.out) == (2, "")
    assert no_table.err.startswith("penstock: sqlite:///none.db: say which table by --table NAME")


def test_a_field_that_no_row_has_is_told_once_with_a_count(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_text('{"from": 1, "c": "a"}\n{"from": 2}\n{"from": 3}\n', encoding="utf-8")
    result = penstock("counts", path, "--by", "client")
    assert (result.status, result.out) == (3, "")
    assert result.err.splitlines() == [
        "penstock: row 1 has no field 'client' (--by), left out: {'from': 1, 'c': 'a'}",
        "penstock: 2 more rows have no field 'client' (--by), left out",
    ]
    result = penstock("counts", path, "--by", "c")
    assert (result.status, [line["key"] for line in lines(result)]) == (3, ["a"])


def test_an_input_without_rows_is_told_in_one_line_and_gives_status_0(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("from,to\n", encoding="utf-8")
    result = penstock("counts", path)
    assert (result.status, result.out, result.err) == (0, "", f"penstock: {path} has no rows\n")
    with sqlite3.connect(tmp_path / "work.db") as database:
        database.execute('CREATE TABLE orders ("from", "to")')
    database.close()
    result = penstock("counts", f"sqlite:///{tmp_path}/work.db", "--table", "orders")
    assert (result.status, result.out, result.err) == (0, "", "penstock: orders has no rows\n")


def test_a_field_of_a_csv_file_may_be_of_any_length(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("from,to,note\n2004-07-01,2004-07-14," + "x" * 200_000 + "\n")
    result = penstock("counts", path)
    assert (result.status, json.loads(result.out)["end"]) == (0, "2004-07-14")


@pytest.mark.parametrize("end", ["", "NULL", "null", r"\N", "NaT"])
def test_the_end_of_an_open_row_may_be_written_as_databases_do(
    penstock: Penstock, tmp_path: Path, end: str
) -> None:
    path = tmp_path / "open.csv"
    path.write_text(f"from,to\n2004-07-01,{end}\n")
    result = penstock("counts", path)
    assert (result.status, json.loads(result.out)["end"]) == (0, None)
