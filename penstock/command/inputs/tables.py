"""The source of the rows of tables or views in SQLite or PostgreSQL, which are only read."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import date, time
from decimal import Decimal
from itertools import islice
from operator import length_hint
from pathlib import Path
from typing import Any

from penstock.streams.base.database_url import conninfo, file_of, first_line, redacted
from penstock.streams.base.errors import (
    BadLine,
    CannotOpen,
    ColumnMissing,
    TableMissing,
    describe,
)
from penstock.streams.base.extras import missing_extra
from penstock.streams.io.body import NotAValue
from penstock.streams.io.descriptor import Threaded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.sql_queue.schema import quoted
from penstock.streams.stages.source_stage import BaseSourceStage
from penstock.streams.stages.stream import Stream
from penstock.streams.stages.time_slice import fitting

__all__ = ["read_tables"]

# Rows that are fetched at a time.
_AT_ONCE = 1000

# Of the whole numbers that JSON lines have.
_LARGEST = 2**63 - 1

_OF_JSON = frozenset({str, int, float, bool, dict, list})

_Make = Callable[[Any], Any]


def read_tables(
    urls: Sequence[str],
    tables: Sequence[str],
    needed: Sequence[str],
    make: _Make | None,
    *,
    order: str | None = None,
    only: bool = False,
) -> Flowable[Any]:
    """The rows of a table of each database, one after another, as dicts or what `make` makes of
    them, in the order of the column `order` if it is given.

    `only` the `needed` columns, with values as the driver has them; otherwise all, with values as
    JSON has them. The stream fails with CannotOpen, TableMissing or ColumnMissing. A row for which
    `make` raises NotAValue is reported and counted as a bad line. Memory: 1,000 rows.
    """
    names = list(tables) * (len(urls) if len(tables) == 1 else 1)
    places = [_Table(*pair, needed, order, only) for pair in zip(urls, names, strict=True)]
    details = ", ".join(str(place) for place in places)
    info = StageInfo("read_rows", details, 0, f"reads {_AT_ONCE:,} rows at a time")

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        _Reading(downstream, run, stream.info, places, make).start()

    stream: Stream[Any] = Stream(attach, info)
    return Flowable.like(stream)


class _Table:
    """A table of a database, and the part of it that is read."""

    def __init__(
        self, url: str, table: str, needed: Sequence[str], order: str | None, only: bool
    ) -> None:
        self._url = url
        self._table = table
        self._needed = list(dict.fromkeys(needed))
        self._order = order
        self._only = only
        self._is_sqlite = url.lower().startswith("sqlite:")
        self._where = str(Path(file_of(url))) if self._is_sqlite else redacted(url)

    def __str__(self) -> str:
        return f"{self._table} in {self._where}"

    def lists(self, own: ExitStack) -> Iterator[list[Any]]:
        """The rows, some at a time; `own` closes the database. Raises CannotOpen and the like."""
        read = self._of_sqlite if self._is_sqlite else self._of_postgresql
        for columns, rows in read(own):
            if self._only:
                yield [dict(zip(columns, row, strict=True)) for row in rows]
            else:
                yield [dict(zip(columns, map(_as_json, row), strict=True)) for row in rows]

    def _of_sqlite(self, own: ExitStack) -> Iterator[tuple[list[str], list[Any]]]:
        path = Path(self._where)
        if not path.exists():
            raise CannotOpen(f"{path} does not exist")
        try:
            # Each call is in a thread of its own, one after another.
            database = own.enter_context(
                closing(
                    sqlite3.connect(
                        f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False
                    )
                )
            )
            # SQLite would take the quoted name of a column that is not there for a text.
            there = database.execute(
                "SELECT name FROM pragma_table_info(?)", (self._table.split(".")[-1],)
            )
            columns = self._columns([name for (name,) in there])
            rows = database.execute(self._statement(columns))
            while some := rows.fetchmany(_AT_ONCE):
                yield columns, some
        except sqlite3.Error as error:
            raise CannotOpen(f"Cannot read {path}: {error}") from error

    def _of_postgresql(self, own: ExitStack) -> Iterator[tuple[list[str], list[Any]]]:
        try:
            import psycopg
        except ImportError as error:
            raise missing_extra(f"PostgreSQL needs psycopg ({error})", "postgres") from error
        try:
            database: Any = own.enter_context(closing(psycopg.connect(conninfo(self._url))))
            there = database.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s)"
                " AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                (_quoted(self._table),),
            )
            columns = self._columns([name for (name,) in there.fetchall()])
            # Otherwise the driver would fetch all rows at once.
            database.execute(f"DECLARE penstock CURSOR FOR {self._statement(columns)}")
            while some := database.execute(f"FETCH {_AT_ONCE} FROM penstock").fetchall():
                yield columns, some
        except psycopg.Error as error:
            raise CannotOpen(f"Cannot read {self._where}: {first_line(error)}") from error

    def _columns(self, there: list[str]) -> list[str]:
        """The columns to read, of those that are there."""
        if not there:
            raise TableMissing(f"{self._where} has no table {self._table!r}")
        if lacks := [name for name in self._needed if name not in there]:
            raise ColumnMissing(
                f"{self} has no column {', '.join(map(repr, lacks))}; it has: {', '.join(there)}"
            )
        return self._needed if self._only else there

    def _statement(self, columns: list[str]) -> str:
        order = "" if self._order is None else f" ORDER BY {quoted(self._order)}"
        return f"SELECT {', '.join(map(quoted, columns))} FROM {_quoted(self._table)}{order}"


def _quoted(table: str) -> str:
    """Schema, if there is one, and table."""
    return ".".join(map(quoted, table.split(".", 1)))


def _as_json(value: Any) -> Any:
    """The value as JSON has it: a number that a float has not, and what is not text, as text."""
    if value is None or type(value) in _OF_JSON:
        return value
    if isinstance(value, Decimal):
        if value.is_finite() and abs(value) <= _LARGEST and value == value.to_integral_value():
            return int(value)
        near = float(value)
        return near if Decimal(repr(near)) == value else str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


class _Lists(Threaded):
    """The rows of tables, some at a time, each time in a thread."""

    def __init__(self, tables: Sequence[_Table], own: ExitStack, run: Run, ready: Any) -> None:
        super().__init__(-1, own, run, ready)
        self._lists = (rows for table in tables for rows in table.lists(own))

    def next(self) -> list[Any] | None:
        """The next rows, none at the end; None if `ready` will be called for more."""
        return self._call(self._next)

    def _next(self) -> list[Any]:
        no_rows: list[Any] = []
        return next(self._lists, no_rows)


class _Reading(BaseSourceStage):
    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        tables: Sequence[_Table],
        make: _Make | None,
    ) -> None:
        super().__init__(downstream, run, info)
        self._lists = _Lists(tables, ExitStack(), run, self.wake)
        self._rows: Iterator[Any] = iter(())
        self._number = 0
        self._make = make

    def produce(self) -> None:
        now = self.run.now()
        while self.demand and not self._slice.is_over(now):
            if not length_hint(self._rows):
                try:
                    rows = self._lists.next()
                except Exception as error:
                    self.fail(error)
                    return
                if rows is None:
                    return
                if not rows:
                    self.complete()
                    return
                self._rows = iter(rows)
            values = list(islice(self._rows, min(self._chunk, self.demand)))
            self.emit_all(values if self._make is None else self._made(values), now)
            before, now = now, self.run.now()
            self._chunk = fitting(self._chunk, now - before)

    def _made(self, rows: list[Any]) -> list[Any]:
        """What is made of the good rows; the others are reported, numbered from 1."""
        assert self._make is not None
        values: list[Any] = []
        for row in rows:
            self._number += 1
            try:
                values.append(self._make(row))
            except NotAValue as bad:
                place = f"{self.info.detail}, row {self._number}"
                error = BadLine(f"{place} {bad}: {describe(row)}")
                error.place = place
                self.run.errors.count_bad_line(error)
        return values

    def release(self) -> None:
        self._lists.close()
