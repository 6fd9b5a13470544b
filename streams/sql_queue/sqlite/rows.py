"""Reads rows of a SQLite table by their keys."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Any

from penstock.streams.sql_queue.claimed import Refused
from penstock.streams.sql_queue.schema import Required, quoted
from penstock.streams.sql_queue.sqlite.claims import SqliteStore
from penstock.streams.sql_queue.sqlite.table import which_file
from penstock.streams.sql_queue.store import DatabaseLost

__all__ = ["SqliteRows"]


class SqliteRows(SqliteStore):
    """One transaction, which sees one state of the table, reads the rows of all keys. Nothing in
    the file is changed; it may be replaced by another one in the meantime."""

    async def look(self, by: str, columns: Sequence[str] | None) -> None:
        await self.open(Required([by, *(columns or ())], make=False, there=True))
        there = await self._transaction(self._columns, durable=False, writing=False)
        self._wanted = list(columns or there)
        wanted = ", ".join(map(quoted, self._wanted))
        table = self.layout.names()["table"]
        self._text = f"SELECT {wanted} FROM {table} WHERE {quoted(by)} = ? LIMIT 2"

    async def rows(self, keys: Sequence[Any]) -> list[list[dict[str, Any]]]:
        try:
            return await self._transaction(
                partial(self._rows, keys=keys), durable=False, writing=False
            )
        except (OverflowError, UnicodeEncodeError) as error:
            raise Refused(error) from error

    def _rows(self, db: sqlite3.Connection, keys: Sequence[Any]) -> list[list[dict[str, Any]]]:
        return [
            [dict(zip(self._wanted, row, strict=True)) for row in db.execute(self._text, (key,))]
            for key in keys
        ]

    def _connected(self) -> sqlite3.Connection:
        if self._db is not None and (which := which_file(self._path)) != self._which:
            if which is None:
                raise DatabaseLost(f"{self._file} does not exist")
            self._disconnect()
        return super()._connected()

    def _prepare(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA query_only = ON")
