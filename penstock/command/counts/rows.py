"""The rows of a CSV file, of JSON lines, or of a table of SQLite or PostgreSQL."""

from __future__ import annotations

import csv
import re
import sqlite3
from argparse import Namespace
from collections.abc import Iterable
from contextlib import closing
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TextIO

from penstock.streams.base.database_url import file_of, redacted
from penstock.streams.base.errors import (
    BuildError,
    CannotOpen,
    ColumnMissing,
    TableMissing,
)
from penstock.streams.base.extras import missing_extra
from penstock.streams.base.validation import moment_of
from penstock.streams.io.paths import input_name, opening
from penstock.streams.sql_queue.schema import quoted

__all__ = ["Row", "as_number", "read_rows"]

Row = dict[str, Any]

_DATABASES = ("sqlite:", "postgresql:", "postgres:")
_FINE, _BAD_LINES = 0, 3
_LONGEST_FIELD = 2**31 - 1

# As PostgreSQL, MySQL and pandas export the end of a row that has none.
_OPEN = ("", "NULL", "null", "\\N", "NaT")
_OTHER_SEPARATOR = re.compile(r"[;\t|]")


def read_rows(options: Namespace) -> tuple[list[Row] | None, int]:
    """All rows with an exit status: 3 if lines of JSON were bad. No rows if the reading failed.

    Raises BuildError for an input that cannot be opened, or lacks a column.
    """
    source: str | None = options.source
    if source is not None and source.startswith(_DATABASES):
        if options.format is not None:
            raise BuildError(f"--format {options.format} is of a file; {redacted(source)} has none")
        return _read_table(source, options), _FINE
    if options.table is not None:
        raise BuildError("--table needs the URL of a database, such as sqlite:///work.db")
    named_csv = source is not None and source.lower().endswith(".csv")
    kind = options.format or ("csv" if named_csv else "jsonl")
    if kind == "csv":
        return _read_csv(source, options), _FINE
    return _read_jsonl(source)


def as_number(text: str) -> Any:
    """An int or a Decimal; the text itself if it is neither."""
    for kind in (int, Decimal):
        try:
            return kind(text)
        except (ValueError, InvalidOperation):
            continue
    return text


def _wanted(options: Namespace) -> list[str]:
    fields = (options.begin, options.end, options.by, options.of)
    return list(dict.fromkeys(field for field in fields if field is not None))


def _check_columns(there: Iterable[str], options: Namespace, where: str) -> None:
    has = list(there)
    if not has:
        raise ColumnMissing(f"{where} is empty: its first line must name the columns")
    if twice := [name for name in _wanted(options) if has.count(name) > 1]:
        raise BuildError(f"{where} has more than one column {', '.join(map(repr, twice))}")
    if lacks := [name for name in _wanted(options) if name not in has]:
        advice = "--begin, --end, --by and --of name columns"
        if len(has) == 1 and _OTHER_SEPARATOR.search(has[0]):
            advice = "Only commas separate columns"
        raise ColumnMissing(
            f"{where} has no column {', '.join(map(repr, lacks))}; it has: {', '.join(has)}. "
            f"{advice}"
        )


def _read_jsonl(source: str | None) -> tuple[list[Row] | None, int]:
    from penstock.command.pipelines.options import Options
    from penstock.command.pipelines.run import execute, warnings_to_standard_error
    from penstock.sinks.collect import collect
    from penstock.sources.jsonl import read_jsonl

    warnings_to_standard_error()
    rows: list[Row] = []
    status = execute(read_jsonl().to(collect(rows)), Options(source, report="none"))
    return (rows if status in (_FINE, _BAD_LINES) else None), status


def _read_csv(source: str | None, options: Namespace) -> list[Row]:
    path = source or "-"
    name = input_name(path)
    try:
        with (
            opening(path, name, 0, "read") as (descriptor, own),
            own,
            open(descriptor, encoding="utf-8-sig", newline="", closefd=False) as file,
        ):
            return _csv_rows(file, options, name)
    except OSError as error:
        raise CannotOpen(f"Cannot read {name}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise CannotOpen(f"Cannot read {name} as CSV: {error}") from error


def _csv_rows(file: TextIO, options: Namespace, name: str) -> list[Row]:
    # Python refuses a field of more than 131,072 characters, also in a column that nobody needs.
    csv.field_size_limit(_LONGEST_FIELD)
    # Otherwise a quotation mark that is not closed would take all further rows into its field.
    table = csv.DictReader(file, strict=True)
    rows: list[Row] = []
    begins = 1
    try:
        while table.fieldnames == []:
            # A blank line.
            table.fieldnames = None
        _check_columns(table.fieldnames or (), options, name)
        begins = table.line_num + 1
        for row in table:
            rows.append(row)
            begins = table.line_num + 1
    except csv.Error as error:
        raise CannotOpen(
            f"Cannot read {name} as CSV: {error}, in the row that begins on line {begins}"
        ) from error
    if options.of is not None:
        for row in rows:
            row[options.of] = as_number(row[options.of] or "")
    for row in rows:
        if row[options.end] in _OPEN:
            row[options.end] = None
    points = [(row, end, row[end]) for row in rows for end in (options.begin, options.end)]
    numbers = {text: as_number(text) for *_, text in points if text}
    # A date without hyphens could be a number, too: the columns are all one or all the other, and
    # bad rows do not decide which.
    dates = sum(_is_date(text) for text, number in numbers.items() if isinstance(number, str))
    if dates and dates >= sum(
        not isinstance(number, str) and not _is_date(text) for text, number in numbers.items()
    ):
        numbers = {}
    for row, end, text in points:
        row[end] = numbers.get(text, text) if text else None
    return rows


def _is_date(text: str) -> bool:
    try:
        moment_of(text)
    except ValueError:
        return False
    return True


def _read_table(url: str, options: Namespace) -> list[Row]:
    if options.table is None:
        raise BuildError(f"{redacted(url)}: say which table by --table NAME")
    read = _from_sqlite if url.startswith("sqlite:") else _from_postgres
    return read(url, options)


def _from_sqlite(url: str, options: Namespace) -> list[Row]:
    path = Path(file_of(url))
    if not path.exists():
        raise CannotOpen(f"{path} does not exist")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            # SQLite would take the quoted name of a column that is not there for a text.
            there = database.execute(
                "SELECT name FROM pragma_table_info(?)", (options.table.split(".")[-1],)
            ).fetchall()
            return _select(database, [name for (name,) in there], options, str(path))
    except sqlite3.Error as error:
        raise CannotOpen(f"Cannot read {path}: {error}") from error


def _from_postgres(url: str, options: Namespace) -> list[Row]:
    try:
        import psycopg
    except ImportError as error:
        raise missing_extra(f"PostgreSQL needs psycopg ({error})", "postgres") from error
    where = redacted(url)
    try:
        with psycopg.connect(url, connect_timeout=10, application_name="penstock") as database:
            there = database.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s)"
                " AND attnum > 0 AND NOT attisdropped",
                (_quoted(options.table),),
            ).fetchall()
            return _select(database, [name for (name,) in there], options, where)
    except psycopg.Error as error:
        first, *_ = str(error).splitlines() or [type(error).__name__]
        raise CannotOpen(f"Cannot read {where}: {first}") from error


def _select(database: Any, there: list[str], options: Namespace, where: str) -> list[Row]:
    """The wanted columns of all rows; the two databases have the same interface for it."""
    if not there:
        raise TableMissing(f"{where} has no table {options.table!r}")
    _check_columns(there, options, f"{options.table} in {where}")
    wanted = _wanted(options)
    columns = ", ".join(map(quoted, wanted))
    rows = database.execute(f"SELECT {columns} FROM {_quoted(options.table)}")
    return [dict(zip(wanted, row, strict=True)) for row in rows]


def _quoted(table: str) -> str:
    """Schema, if there is one, and table."""
    return ".".join(map(quoted, table.split(".", 1)))
