"""The commands that read events all read them from the same inputs, and refuse the same."""

from __future__ import annotations

import argparse
import bz2
import csv
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.command.dispatch import whole_parser
from tests.helpers.statements import execute

Penstock = Callable[..., Any]

EVENTS = [
    {"k": "a", "step": "x", "from": "2004-07-01", "to": "2004-07-03", "n": 1},
    {"k": "b", "step": "y", "from": "2004-07-02", "to": "2004-07-04", "n": 2},
    {"k": "a", "step": "y", "from": "2004-07-02", "to": "2004-07-05", "n": 3},
]
COMMANDS = ["distinct", "map", "monitor", "learn", "mine", "counts"]


@pytest.fixture
def words(tmp_path: Path) -> Callable[..., list[Any]]:
    """A command line that reads these paths."""
    file = tmp_path / "same.py"
    file.write_text("def same(event):\n    return {**event, 'n': int(event['n'])}\n")
    # Nothing happens in it.
    other = tmp_path / "other.jsonl"
    other.write_text('{"k": "c", "step": "z"}\n')

    def of(command: str, *paths: object, by: str = "k") -> list[Any]:
        options = {
            "distinct": [f"--by={by}", "--within=9", "--to=jsonl"],
            "map": [f"{file}:same", f"--by={by}", "--to=jsonl", "--limit=1"],
            "monitor": ["G x", "--prop=x=step:x", f"--by={by}", "--evidence=0"],
            "learn": [f"--by={by}", "--step=step"],
            "mine": [f"--by={by}"],
            "counts": [f"--by={by}"],
        }[command]
        if command == "learn":
            # Good traces, and bad ones.
            paths = (*paths, other)
        return [command, *options, "--report=none", *paths]

    return of


def in_jsonl(events: list[Any]) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def write_csv(path: Path, events: list[Any], delimiter: str = ",") -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(events[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(events)
    return path


def expected(penstock: Penstock, words: Callable[..., list[Any]], tmp_path: Path, of: str) -> Any:
    path = tmp_path / "plain.jsonl"
    path.write_text(in_jsonl(EVENTS))
    found = penstock(*words(of, path))
    assert found.err == ""
    assert found.out
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_files_of_each_format_and_compression_are_read_alike(
    penstock: Penstock, words: Callable[..., list[Any]], tmp_path: Path, command: str
) -> None:
    plain = expected(penstock, words, tmp_path, command)
    text = write_csv(tmp_path / "events.csv", EVENTS).read_bytes()
    (tmp_path / "events.csv.gz").write_bytes(gzip.compress(text))
    (tmp_path / "events.csv.bz2").write_bytes(bz2.compress(text))
    write_csv(tmp_path / "events.tsv", EVENTS, "\t")
    lines = in_jsonl(EVENTS).encode()
    (tmp_path / "events.jsonl.xz").write_bytes(lzma.compress(lines))
    types = [] if command in ("learn", "map", "mine") else ["--types=n=int"]
    for name in ("events.csv", "events.csv.gz", "events.csv.bz2", "events.tsv"):
        assert penstock(*words(command, tmp_path / name), *types) == plain, name
    assert penstock(*words(command, tmp_path / "events.jsonl.xz")) == plain


@pytest.mark.parametrize("command", [one for one in COMMANDS if one != "learn"])
def test_several_files_and_patterns_are_read_one_after_another(
    penstock: Penstock, words: Callable[..., list[Any]], tmp_path: Path, command: str
) -> None:
    plain = expected(penstock, words, tmp_path, command)
    for number, event in enumerate(EVENTS):
        (tmp_path / f"part.{number + 9}").write_text(in_jsonl([event]))
    parts = sorted(tmp_path.glob("part.*"), key=lambda path: int(path.suffix[1:]))
    assert penstock(*words(command, *parts)) == plain
    assert penstock(*words(command, tmp_path / "part.*")) == plain
    assert penstock(*words(command, *reversed(parts)), "--order=name") == plain


@pytest.mark.parametrize("command", COMMANDS)
def test_a_table_and_the_url_of_an_object_are_read_alike(
    penstock: Penstock,
    words: Callable[..., list[Any]],
    tmp_path: Path,
    command: str,
    database: str,
) -> None:
    plain = expected(penstock, words, tmp_path, command)
    assert penstock(*words(command, (tmp_path / "plain.jsonl").as_uri())) == plain
    fill(database, "shop", EVENTS)
    if command == "learn":
        fill(database, "other", [{**EVENTS[0], "k": "c", "step": "z"}])
        line = words(command, database)
        line[-1] = database
        assert penstock(*line, "--table=shop", "--table=other") == plain
    else:
        assert penstock(*words(command, database), "--table=shop") == plain


def fill(database: str, table: str, events: list[Any]) -> None:
    """Make a table with these rows: texts, dates and numbers that are exact where there are any."""
    execute(
        database,
        f'CREATE TABLE {table} (k text, step text, "from" date, "to" date, n numeric)',
        *(f"INSERT INTO {table} VALUES {tuple(event.values())!r}" for event in events),
    )


@pytest.mark.parametrize("command", [one for one in COMMANDS if one != "learn"])
def test_standard_input_is_read_alike(
    penstock: Penstock,
    process: Penstock,
    module: list[str],
    words: Callable[..., list[Any]],
    tmp_path: Path,
    command: str,
) -> None:
    plain = expected(penstock, words, tmp_path, command)
    result = process([*module, *map(str, words(command))], input=in_jsonl(EVENTS))
    assert (result.returncode, result.stdout, result.stderr) == (plain.status, plain.out, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_bad_line_is_named_and_makes_the_exit_status_3_or_that_of_the_result(
    penstock: Penstock, words: Callable[..., list[Any]], tmp_path: Path, command: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(in_jsonl(EVENTS[:1]) + "broken\n")
    result = penstock(*words(command, path))
    assert result.status == 3
    assert "bad.jsonl, line 2 is not valid JSON" in result.err
    write_csv(tmp_path / "bad.csv", EVENTS[:1])
    with (tmp_path / "bad.csv").open("a") as file:
        file.write("a,y\n")
    result = penstock(*words(command, tmp_path / "bad.csv"))
    assert result.status == 3
    assert "bad.csv, line 3 has 2 fields, and the header has 5: 'a,y'\n" in result.err


@pytest.mark.parametrize("command", COMMANDS)
def test_an_event_without_the_field_of_an_option_is_left_out_and_reported(
    penstock: Penstock, words: Callable[..., list[Any]], tmp_path: Path, command: str
) -> None:
    path = tmp_path / "events.jsonl"
    lacking = [{name: value for name, value in event.items() if name != "k"} for event in EVENTS]
    path.write_text(in_jsonl([EVENTS[0], *lacking[1:]]))
    result = penstock(*words(command, path))
    what = "row" if command == "counts" else "event"
    assert result.status == 3
    assert result.err == (
        f"penstock: {what} 2 has no field 'k' (--by), left out: {lacking[1]}\n"
        f"penstock: 1 more {what} has no field 'k' (--by), left out\n"
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_a_column_that_is_not_there_is_named_with_those_that_are(
    penstock: Penstock, words: Callable[..., list[Any]], tmp_path: Path, command: str
) -> None:
    path = write_csv(tmp_path / "events.csv", EVENTS)
    result = penstock(*words(command, path, by="K"))
    assert (result.status, result.out) == (2, "")
    assert result.err == (
        f"penstock: {path}: its first row names no column 'K'; it has: k, step, from, to, n\n"
    )
    database = f"sqlite:///{tmp_path}/work.db"
    fill(database, "shop", EVENTS)
    result = penstock(*words(command, database, by="K"), "--table=shop")
    if command != "learn":
        assert (result.status, result.out) == (2, "")
        there = "k, step, from, to, n"
        assert result.err == (
            f"penstock: shop in {tmp_path}/work.db has no column 'K'; it has: {there}\n"
        )


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        ("none.jsonl", [], "Cannot read none.jsonl: No such file or directory"),
        ("none.csv", [], "Cannot read none.csv: No such file or directory"),
        ("none.*", [], "Cannot read none.*: no file has such a name"),
        ("a.jsonl", ["--types=n=int"], "--types goes with CSV and TSV: values of JSON have types"),
        ("a.csv", ["--types=n"], "--types n: 'n' is not COLUMN=TYPE, with one of str, int,"),
        ("a.jsonl", ["--table=t"], "--table needs the URL of a database, such as sqlite:///"),
        ("sqlite:///a.db", [], "sqlite:///a.db: say which table by --table NAME"),
        ("sqlite:///a.db", ["--table=t", "--types=n=int"], "--types n=int is of files"),
        ("sqlite:///a.db", ["--table=t", "--order=name"], "--order name is of files"),
        ("sqlite:///a.db", ["--table=t", "--input-format=csv"], "--input-format csv is of files"),
        ("sqlite:///a.db", ["--table=t"], "a.db does not exist"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_status_2(
    penstock: Penstock,
    words: Callable[..., list[Any]],
    command: str,
    path: str,
    options: list[str],
    said: str,
) -> None:
    result = penstock(*words(command, path), *options)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert said in result.err


def test_a_file_and_a_database_are_not_one_input(penstock: Penstock) -> None:
    result = penstock("mine", "sqlite:///a.db", "a.csv", "--table=t")
    assert (result.status, result.out) == (2, "")
    assert result.err == "penstock: sqlite:///a.db is a database, and a.csv is not: read one only\n"


def test_the_rows_of_a_table_come_in_the_order_of_their_times(
    penstock: Penstock, tmp_path: Path
) -> None:
    database = f"sqlite:///{tmp_path}/work.db"
    fill(database, "shop", list(reversed(EVENTS)))
    words = ("distinct", "--by=n", "--within=9", "--report=none", "--table=shop", database)
    found = penstock(*words, "--time=from")
    assert [json.loads(line)["n"] for line in found.out.splitlines()] == [1, 3, 2]


def test_values_of_a_table_that_json_has_not_are_written_as_numbers_or_texts(
    penstock: Penstock, postgres: str
) -> None:
    import psycopg

    with psycopg.connect(postgres) as server:
        server.execute(
            "CREATE VIEW odd AS SELECT 1 AS k, 12.50 AS price, 12345678901234567.89 AS large, "
            "timestamptz '2004-07-01 10:00+02' AS at, '\\x6164ff'::bytea AS data, "
            "interval '1 day' AS long, 'NaN'::numeric AS none, numeric '1e30' AS huge, "
            "'{\"a\": [1]}'::jsonb AS doc"
        )
    found = penstock("distinct", "--by=k", "--within=9", "--report=none", "--table=odd", postgres)
    assert (found.status, found.err) == (0, "")
    row = json.loads(found.out)
    assert row.pop("at").startswith("2004-07-01T")
    assert row == {
        "k": 1,
        "price": 12.5,
        "large": "12345678901234567.89",
        "data": "ad\\xff",
        "long": "1 day, 0:00:00",
        "none": "NaN",
        "huge": 1e30,
        "doc": {"a": [1]},
    }


def test_run_reads_several_files_in_place_of_standard_input(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for number, path in enumerate(paths):
        path.write_text(f'{{"n":{number}}}\n')
    monkeypatch.setenv("PENSTOCK_INPUT", "none.jsonl")
    words = ("run", "-c", "read_jsonl()", "--report=none", "--input", paths[0])
    assert penstock(*words, "--input", paths[1]).out == '{"n":0}\n{"n":1}\n'
    assert penstock("run", "-c", "read_jsonl()", f"--input={tmp_path}/*.jsonl").status == 0
    result = penstock("run", "-c", "read_jsonl()", "--input=sqlite:///a.db")
    assert (result.status, "a table is read by read_table()" in result.err) == (2, True)
    result = penstock("run", "-c", "read_jsonl()", "--input=postgresql://me:secret@host/db")
    assert (result.status, "secret" in result.err) == (2, False)
    assert "a table is read by read_table()" in result.err


def test_all_commands_describe_their_input_in_the_same_words() -> None:
    parsers = next(
        action.choices
        for action in whole_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    described: dict[str, set[str]] = {}
    for command in COMMANDS:
        for action in parsers[command]._actions:
            if action.dest in ("paths", "order", "input_format", "types", "table"):
                told = f"{action.help} {action.metavar} {action.choices} {action.default}"
                described.setdefault(action.dest, set()).add(told)
    assert {name: len(texts) for name, texts in described.items()} == dict.fromkeys(
        ("paths", "order", "input_format", "types", "table"), 1
    )


@pytest.mark.parametrize("count", [0, 999, 1000, 2001])
def test_each_row_of_a_table_comes_once_and_in_order(
    penstock: Penstock, database: str, count: int
) -> None:
    fill(database, "shop", EVENTS[:0])
    rows = ", ".join(f"('k{n}', 's', NULL, NULL, {n})" for n in range(count))
    if count:
        execute(database, f"INSERT INTO shop VALUES {rows}")
    words = ("distinct", "--by=k", "--within=9", "--report=none", "--table=shop", database)
    found = penstock(*words)
    assert (found.status, found.err) == (0, "")
    assert [json.loads(line)["n"] for line in found.out.splitlines()] == list(range(count))


def test_a_row_of_a_table_that_is_no_event_is_named_and_makes_the_exit_status_3(
    penstock: Penstock, database: str
) -> None:
    fill(database, "shop", EVENTS)
    execute(database, "INSERT INTO shop (k) VALUES ('c')")
    result = penstock("mine", "--by=k", "--table=shop", "--report=text", database)
    assert (result.status, result.out.splitlines()[0]) == (3, "3 events of 2 cases")
    assert "row 4 has None as 'step': the name of a step is needed (--step FIELD): {'k': 'c'" in (
        result.err
    )
    assert "bad lines: 1" in result.err


def test_an_error_of_a_function_names_the_row(penstock: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "fails.py"
    file.write_text("def fails(event):\n    return 1 / (event['n'] - 2)\n")
    database = f"sqlite:///{tmp_path}/work.db"
    fill(database, "shop", EVENTS)
    result = penstock("map", f"{file}:fails", "--table=shop", database)
    assert result.status == 1
    assert "in stage 2 'adaptive_flat_map', on the event {'k': 'b'" in result.err
    assert "(line" not in result.err


def test_a_view_and_a_table_of_another_schema_are_read(penstock: Penstock, postgres: str) -> None:
    execute(postgres, "CREATE SCHEMA old")
    fill(postgres, "old.shop", EVENTS)
    execute(postgres, "CREATE VIEW later AS SELECT * FROM old.shop WHERE n > 1 ORDER BY n DESC")
    words = ("distinct", "--by=n", "--within=9", "--report=none", postgres)
    for table, numbers in (("old.shop", [1, 2, 3]), ("later", [3, 2])):
        found = penstock(*words, f"--table={table}")
        assert [json.loads(line)["n"] for line in found.out.splitlines()] == numbers
