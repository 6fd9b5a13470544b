"""A table in a file of SQLite: one connection, whose thread aiosqlite owns."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import aiosqlite
from orjson import dumps

from streams import clock
from streams.errors import CannotOpen, ColumnMissing, TableMissing
from streams.table import sqlite_sql as sql
from streams.table.position import Position
from streams.table.schema import Layout, quoted
from streams.table.store import (
    DatabaseLost,
    Insertion,
    Store,
    columns_of,
)

__all__ = ["SqliteTable"]

# Seconds between two looks at a database in which nothing happens: at first, and at most.
_SOON, _LATEST = 0.005, 0.5
# Seconds that a statement waits for the lock of another process.
_PATIENCE = 5.0

_stores: WeakSet[SqliteTable] = WeakSet()


class SqliteTable(Store):
    """Enqueued rows and results are synced to the disk with their commit.

    Claims and what became of rows are not: a power cut can undo them, and then the rows are
    worked on again. What came of rows in this database is undone with them.
    """

    def __init__(self, url: str, file: str, layout: Layout) -> None:
        self.url = url
        self.layout = layout
        self._file = file
        self._path = os.path.realpath(file)
        names = layout.names()
        self._names = {
            **names,
            "now": ":now",
            "second": "1.0",
            "seconds": "(",
            "payload_of": f"CAST(t.{names['payload']} AS BLOB)",
        }
        self._db: aiosqlite.Connection | None = None
        self._durable: bool | None = None
        self._lock = asyncio.Lock()
        self._woken = asyncio.Event()
        self._version: int | None = None
        self._wait = _SOON
        self._key: str | None = None
        self._position = Position()
        self._loop: asyncio.AbstractEventLoop | None = None

    # The connection.

    async def open(self, fields: Sequence[str] | None = None, *, make: bool = True) -> None:
        if not make and not Path(self._file).exists():  # noqa: ASYNC240 - one look, at the start
            raise CannotOpen(f"{self._file} is not there")
        try:
            # Whoever only looks need not wait for those who write.
            async with self._transaction(writing=make) as db:
                await self._look(db, fields, make)
        except sqlite3.DatabaseError as error:
            raise CannotOpen(f"Cannot use {self._file}: {error}") from error
        self._loop = asyncio.get_running_loop()
        _stores.add(self)

    async def _look(
        self, db: aiosqlite.Connection, fields: Sequence[str] | None, make: bool
    ) -> None:
        there = await self._columns(db)
        if not there and make and fields is None and not self.layout.mapped:
            for statement in sql.CREATE:
                await db.execute(statement.format_map(self._names))
        elif not there:
            raise TableMissing(f"{self._file} has no table {self.layout.table!r}.")
        elif lacks := self.layout.missing(there, fields):
            raise ColumnMissing(self.layout.lacking(self._file, lacks))

    async def _columns(self, db: aiosqlite.Connection) -> list[str]:
        rows = await db.execute_fetchall(
            "SELECT name FROM pragma_table_info(?)", (self.layout.parts[-1],)
        )
        return [row[0] for row in rows]

    async def _connected(self) -> aiosqlite.Connection:
        if self._db is None:
            db = await aiosqlite.connect(self._file, isolation_level=None, timeout=_PATIENCE)
            try:
                await _write_ahead(db)
            except BaseException:
                await db.close()
                raise
            self._db = db
            self._durable = None
        return self._db

    @asynccontextmanager
    async def _transaction(
        self, *, durable: bool = True, writing: bool = True
    ) -> AsyncGenerator[aiosqlite.Connection, None]:
        async with self._lock:
            try:
                db = await self._connected()
                if durable != self._durable:
                    level = "FULL" if durable else "NORMAL"
                    await db.execute(f"PRAGMA synchronous = {level}")
                    self._durable = durable
                try:
                    # Inside, since the thread begins even if this task is cancelled meanwhile.
                    await db.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
                    yield db
                    await db.commit()
                except BaseException:
                    with suppress(sqlite3.Error):
                        await db.rollback()
                    raise
            except sqlite3.OperationalError as error:
                # The extended codes have more bits.
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CANTOPEN):
                    raise  # It would be the same the next time.
                raise DatabaseLost(str(error)) from error

    async def close(self) -> None:
        _stores.discard(self)
        async with self._lock:
            db, self._db = self._db, None
            if db is not None:
                await db.close()

    async def _all(
        self, db: aiosqlite.Connection, text: str, values: dict[str, Any] | None = None
    ) -> list[Any]:
        names = {**self._names, "key": self._key or "NULL"}
        return list(await db.execute_fetchall(text.format_map(names), values or {}))

    async def _many(
        self, db: aiosqlite.Connection, text: str, rows: Sequence[tuple[Any, ...]]
    ) -> int:
        """Run a statement for each of `rows`; returns how many rows were changed in all."""
        if not rows:
            return 0
        async with db.executemany(text.format_map(self._names), rows) as cursor:
            return cursor.rowcount

    # What comes in.

    def encoded(self, fields: Mapping[str, str] | None, value: Any) -> Any:
        if fields is None:
            return dumps(value).decode()
        return tuple(_plain(part) for part in columns_of(value, fields))

    async def insert(self, insertions: Sequence[Insertion]) -> None:
        async with self._transaction() as db:
            for insertion in insertions:
                await self._insert(db, insertion)
        self._announce(insertions)

    async def _insert(self, db: aiosqlite.Connection, insertion: Insertion) -> None:
        now = clock.wall()
        names = insertion.layout.names()
        fields = insertion.fields
        if fields is None:
            text = sql.PUT.removesuffix(" RETURNING {id}").format_map(names)
            await db.executemany(text, [(value, now, now) for value in insertion.values])
            return
        columns = ", ".join(map(quoted, fields))
        places = ", ".join("?" * len(fields))
        await db.executemany(
            f"INSERT INTO {names['table']} ({columns}) VALUES ({places})",
            insertion.values,
        )

    async def put(self, payloads: Sequence[str | bytes], delay: float = 0.0) -> list[Any]:
        now = clock.wall()
        ids: list[Any] = []
        async with self._transaction() as db:
            text = sql.PUT.format_map(self._names)
            for payload in payloads:
                text_of = payload.decode() if isinstance(payload, bytes) else payload
                ids += await db.execute_fetchall(text, (text_of, now + delay, now))
        self._wake_all()
        return [id for (id,) in ids]

    def _announce(self, insertions: Sequence[Insertion]) -> None:
        if insertions:
            self._wake_all()

    def _wake_all(self) -> None:
        for store in list(_stores):
            if store._path == self._path and store._loop is not None:
                # Its loop may be that of another thread, and may be over.
                with suppress(RuntimeError):
                    store._loop.call_soon_threadsafe(store._woken.set)

    async def changed(self, within: float) -> None:
        end = clock.monotonic() + within
        while (left := end - clock.monotonic()) > 0 and not self._woken.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), min(self._wait, left))
            version = await self._data_version()
            if version != self._version:
                self._version = version
                self._wait = _SOON
                break
            self._wait = min(self._wait * 2, _LATEST)
        self._woken.clear()

    async def _data_version(self) -> int:
        """A number that changes when another connection has committed something."""
        async with self._lock:
            try:
                db = await self._connected()
                ((version,),) = await db.execute_fetchall("PRAGMA data_version")
            except sqlite3.OperationalError as error:
                raise DatabaseLost(str(error)) from error
        return int(version)

    async def query(self, text: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        async with self._transaction() as db:
            return await self._all(db, text, {"now": clock.wall(), **parameters})

    async def read(self, text: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        async with self._transaction(writing=False) as db:
            return await self._all(db, text, {"now": clock.wall(), **parameters})


async def _write_ahead(db: aiosqlite.Connection) -> None:
    """Switch to a write-ahead log, for which SQLite itself does not wait for others' locks."""
    end = clock.monotonic() + _PATIENCE
    while True:
        try:
            await db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or clock.monotonic() >= end:
                raise
            await asyncio.sleep(_SOON)
        else:
            return


def _plain(value: Any) -> Any:
    """`value` as SQLite can hold it: what has parts becomes JSON."""
    if value is None or isinstance(value, str | bytes | int | float):
        return value
    return dumps(value).decode()
