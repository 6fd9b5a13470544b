"""The connection to a SQLite table, and the thread in which its transactions run.

A transaction is one call in that thread, so the file's only lock is held for no longer than SQLite
works, whatever the event loop does meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

from orjson import loads

from penstock.streams.base import clock
from penstock.streams.base.errors import (
    CannotOpen,
    ColumnMissing,
    DatabaseUnavailable,
    RightsMissing,
    TableMissing,
)
from penstock.streams.delivery.commit import Parts
from penstock.streams.io.encoding import encoded
from penstock.streams.sql_queue.claimed import Refused
from penstock.streams.sql_queue.position import Position
from penstock.streams.sql_queue.schema import (
    ANY,
    NUMBERS,
    OWN,
    PRIORITY,
    Layout,
    Required,
    Upsert,
    quoted,
)
from penstock.streams.sql_queue.sqlite import statements as sql
from penstock.streams.sql_queue.sqlite.expressions import as_text, json_path, literals, seconds
from penstock.streams.sql_queue.sqlite.lock_queue import LockQueue
from penstock.streams.sql_queue.store import (
    DatabaseLost,
    Enqueued,
    PeriodicJob,
    Store,
    columns_of,
    payload_of,
)

__all__ = ["SqliteTable", "refusals", "which_file"]

# Seconds between two polls of an idle database, at first and at most.
_SOON, _LATEST = 0.005, 0.5
# Seconds that a transaction waits for another one's lock, and seconds between two attempts.
_PATIENCE, _LOOK = 5.0, 0.001

_stores: WeakSet[SqliteTable] = WeakSet()

T = TypeVar("T")


# Declared types of columns in which programs keep times as texts.
_TEXTS = re.compile("char|text|clob|date|time", re.IGNORECASE)


class _GivenUp(Exception):
    """The caller of the transaction has been cancelled."""


class SqliteTable(Store):
    """Enqueued rows and results are synced to the disk with their commit.

    Claims and outcomes are not: a power cut can undo them, and then the rows are processed again.
    Results of rows in this database are undone with them.
    """

    def __init__(self, url: str, file: str, layout: Layout) -> None:
        self.url = url
        self.layout = layout
        self._file = file
        self._path = os.path.realpath(file)
        names = layout.names(seconds)
        self._names = {
            **names,
            "now": ":now",
            "second": "1.0",
            "seconds": "(",
            "as_text": "",
            "spared": "",
            "only": "",
            # Programs of others may insert times as texts.
            "came_at": seconds(names["enqueued"]),
            "is_due": f"({names['run_at']} IS NULL OR {seconds(names['run_at'])} <= :now "
            f"OR {seconds(names['run_at'])} <= {seconds(names['enqueued'])})",
            "payload_of": f"CAST({layout.value(layout.column('payload'))} AS BLOB)",
            **sql.order(names, ranked=False),
        }
        if layout.beside:
            # A trigger may not name the schema of a table; `_look_beside` says what it mirrors.
            self._names["own_name"] = quoted(layout.parts[-1])
            self._names["table_name"] = quoted(f"{layout.parts[-1]}_queue")
        self._spared = []
        self._db: sqlite3.Connection | None = None
        self._which: tuple[int, int] | None = None
        self._durable: bool | None = None
        self._thread = ThreadPoolExecutor(1, "sqlite")
        self._lock_queue = LockQueue(self._path)
        self._woken = asyncio.Event()
        self._version: int | None = None
        self._wait = _SOON
        self._key: str | None = None
        # The condition of `open(only=)` where the table is called `t`.
        self._only_of_t = ""
        self._position = Position()
        self._loop: asyncio.AbstractEventLoop | None = None

    # The connection.

    async def open(self, required: Required = ANY) -> None:
        if (required.there or not required.make) and not Path(self._path).exists():  # noqa: ASYNC240 - one look, at the start
            raise CannotOpen(f"{self._file} does not exist")
        try:
            # Readers need not wait for writers.
            await self._transaction(partial(self._look, required), writing=required.make)
            if required.fields is not None and required.upsert is not None:
                look = partial(self._look_for_index, required.fields, required.upsert)
                await self._transaction(look)
        except sqlite3.DatabaseError as error:
            raise CannotOpen(f"Cannot use {self._file}: {error}") from error
        self._loop = asyncio.get_running_loop()
        _stores.add(self)

    def _look(self, required: Required, db: sqlite3.Connection) -> None:
        columns = self._columns(db)
        if not columns:
            tables = [name for (name,) in db.execute(sql.TABLES)]
            self.layout.check_may_make(self._file, tables, required)
            for statement in sql.CREATE:
                db.execute(statement.format_map(self._names))
            self.near = self.layout.near(tables)
        else:
            self.layout.check(self._file, columns, required.fields)
        self.columns = columns
        brought = self.layout.context(columns, required.context)
        self._names["context"] = "".join(
            f", CAST(CAST({self.layout.value(name, None)} AS TEXT) AS BLOB)" for name in brought
        )
        if required.fields is None:
            for name in NUMBERS:
                if name != PRIORITY and (name in OWN or not self.layout.beside):
                    self.layout.check_number(self._file, name, self._kind(db, name))
            self._rank(db, needed=required.ranked)
            if self.layout.beside:
                self._look_beside(db, required.make)
            if required.only is not None:
                field, values = required.only
                within = f"IN ({literals(values)})"
                self._names["only"] = f" AND {self._text_of(db, field, None)} {within}"
                self._names["spared"] = self._names["only"]
                self._only_of_t = f" AND {self._text_of(db, field, 't')} {within}"

    def _rank(self, db: sqlite3.Connection, *, needed: bool) -> None:
        self.is_ranked = self.layout.ranks(self._columns(db))
        if needed and not self.is_ranked:
            raise ColumnMissing(self.layout.no_priority(self.url))
        if self.is_ranked:
            self.layout.check_number(self._file, PRIORITY, self._kind(db, PRIORITY))
        index = self._names["priority_index"] if self._has_priority_index(db) else None
        self._names |= sql.order(self._names, self.is_ranked, index)

    def _has_priority_index(self, db: sqlite3.Connection) -> bool:
        text = "SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ?"
        name = self._names["priority_index"][1:-1].replace('""', '"')
        return self.is_ranked and db.execute(text, (name,)).fetchone() is not None

    def _text_of(self, db: sqlite3.Connection, field: str, row: str | None) -> str:
        """The SQL of the text of a column, else of a field of the payload; `row` is what the
        queue's is called in the statement, if it has another name."""
        if field in self._columns(db):
            return f"CAST({self.layout.value(field, row)} AS TEXT)"
        payload = self.layout.value(self.layout.column("payload"), row)
        return (
            f"CASE WHEN json_valid({payload}) "
            f"THEN CAST({payload} ->> {json_path(field)} AS TEXT) END"
        )

    def _look_for_index(
        self, fields: Sequence[str], upsert: Upsert, db: sqlite3.Connection
    ) -> None:
        try:
            # SQLite looks for the index itself.
            db.execute(f"EXPLAIN {self._insertion(fields, upsert)}", [None] * len(fields))
        except sqlite3.OperationalError as error:
            if "does not match any" not in str(error):
                raise
            raise CannotOpen(self.layout.no_index(self._file, upsert.key)) from error

    def _look_beside(self, db: sqlite3.Connection, make: bool) -> None:
        name = f"{self.layout.parts[-1]}_queue"
        if not db.execute("SELECT 1 FROM pragma_table_info(?)", (name,)).fetchone():
            if not make:
                raise TableMissing(self.layout.no_table_beside(self._file))
            kind = self._kind(db, "id")
            # Another type of an id would change what is compared with it.
            names = {**self._names, "id_type": "INTEGER" if kind.upper() == "INTEGER" else ""}
            names["mirrored"] = names["moved"] = ""
            for name in self.layout.mirrored:
                time = f"NEW.{quoted(name)}"
                if _TEXTS.search(self._kind(db, name)):
                    time = as_text(time)
                names["mirrored"] += f", {quoted(self.layout.column(name))} = {time}"
                if name == "started":
                    # A row that is claimed again stays in process.
                    names["moved"] = " OR NEW.started IS NOT OLD.started"
            for statement in sql.CREATE_BESIDE:
                db.execute(statement.format_map(names))

    def _kind(self, db: sqlite3.Connection, column: str) -> str:
        """The declared type of a column of the queue."""
        text = "SELECT type FROM pragma_table_info(?) WHERE name = ?"
        found = db.execute(text, (self.layout.parts[-1], self.layout.column(column))).fetchone()
        kind: str = found[0]
        return kind

    def _columns(self, db: sqlite3.Connection) -> list[str]:
        rows = db.execute("SELECT name FROM pragma_table_info(?)", (self.layout.parts[-1],))
        return [row[0] for row in rows]

    def _connected(self) -> sqlite3.Connection:
        if self._db is not None and self._which != which_file(self._path):
            # The connection would go on with what has no name any more, and see nothing of others.
            raise DatabaseUnavailable(
                f"{self._file} was removed or replaced while it was in use. What was recorded "
                "since is not in the file that has this name now: stop all that use it before you "
                "do so."
            )
        if self._db is None:
            # By its whole path: the program may change its folder in the meantime.
            db = sqlite3.connect(self._path, timeout=0, isolation_level=None)
            try:
                self._prepare(db)
            except BaseException:
                db.close()
                raise
            self._db, self._which = db, which_file(self._path)
            self._durable = None
        return self._db

    def _prepare(self, db: sqlite3.Connection) -> None:
        """A connection was made."""
        db.execute("PRAGMA journal_mode = WAL")

    async def _transaction(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        durable: bool = True,
        writing: bool = True,
    ) -> T:
        """Call `work` in a transaction, in the thread, and return its result.

        It is called again if the database is locked. If the caller is cancelled it is rolled back.
        """
        given_up = threading.Event()

        def attempt() -> T:
            db = self._connected()
            with self._lock_queue.taken() if writing else nullcontext():
                return within(db)

        def within(db: sqlite3.Connection) -> T:
            if durable != self._durable:
                db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            try:
                db.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
                result = work(db)
                if given_up.is_set():
                    raise _GivenUp
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    with suppress(sqlite3.Error):
                        db.execute("ROLLBACK")
                raise
            return result

        try:
            return await self._in_thread(partial(_insisting, attempt, given_up))
        except asyncio.CancelledError:
            given_up.set()
            raise

    async def _in_thread(self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.wrap_future(self._thread.submit(call))
        except sqlite3.OperationalError as error:
            code = _code(error)
            if code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CANTOPEN):
                raise  # Trying again would not help.
            if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
                raise RightsMissing(f"{self._file}: {error}: no permission to write it") from error
            raise DatabaseLost(str(error)) from error

    async def close(self) -> None:
        _stores.discard(self)
        await self._in_thread(self._disconnect)

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()
        self._lock_queue.close()

    def _all(
        self,
        db: sqlite3.Connection,
        text: str,
        values: dict[str, Any] | None = None,
        some: Sequence[Any] = (),
    ) -> list[Any]:
        names = {**self._names, "key": self._key or "NULL", "some": literals(some)}
        return db.execute(text.format_map(names), values or {}).fetchall()

    def _many(self, db: sqlite3.Connection, text: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Run a statement for each of `rows`; returns how many rows were changed in all."""
        return db.executemany(text.format_map(self._names), rows).rowcount if rows else 0

    # What comes in.

    def encoded(self, fields: Mapping[str, str] | None, value: Any) -> Any:
        if fields is None:
            return payload_of(value)
        return tuple(_plain(part) for part in columns_of(value, fields))

    async def write(self, parts: Parts) -> None:
        await self._transaction(partial(self._write_parts, parts=parts))
        if parts:
            self.announce()

    def _write_parts(self, db: sqlite3.Connection, parts: Parts) -> None:
        for kind, values in parts.items():
            kind.write(db, values)

    def insert(
        self,
        db: sqlite3.Connection,
        fields: Mapping[str, str] | None,
        values: list[Any],
        upsert: Upsert | None = None,
    ) -> None:
        if fields is not None:
            db.executemany(self._insertion(list(fields), upsert), values)
        elif self.layout.beside:
            for value in values:
                self._put_own(db, value)
        else:
            now = clock.wall()
            text = sql.PUT.removesuffix(" RETURNING {id}").format_map(self._names)
            db.executemany(text, [self._put_in(value, now) for value in values])

    def _insertion(self, fields: Sequence[str], upsert: Upsert | None) -> str:
        columns = ", ".join(map(quoted, fields))
        places = ", ".join("?" * len(fields))
        end = "" if upsert is None else f" {upsert.clause(fields)}"
        return f"INSERT INTO {self.layout.names()['table']} ({columns}) VALUES ({places}){end}"

    async def upgrade(self) -> bool:
        if self.layout.mapped:
            raise CannotOpen(self.layout.no_upgrade(self._file))

        def work(db: sqlite3.Connection) -> bool:
            if self.layout.ranks(self._columns(db)):
                return False
            for statement in sql.UPGRADE:
                db.execute(statement.format_map(self._names))
            self._rank(db, needed=True)
            return True

        return await self._transaction(work)

    async def put(
        self, payloads: Sequence[str | bytes], delay: float = 0.0, priority: int = 0
    ) -> list[Any]:
        run_at = clock.wall() + delay if delay else None
        texts = [p.decode() if isinstance(p, bytes) else p for p in payloads]
        values = [Enqueued(text, run_at, priority) for text in texts]

        def work(db: sqlite3.Connection) -> list[Any]:
            if self.layout.beside:
                return [self._put_own(db, value) for value in values]
            now, text = clock.wall(), sql.PUT.format_map(self._names)
            puts = [self._put_in(value, now) for value in values]
            return [db.execute(text, put).fetchall()[0][0] for put in puts]

        ids = await self._transaction(work)
        self.announce()
        return ids

    def _put_in(self, value: Enqueued, now: float) -> tuple[Any, ...]:
        """The parameters of PUT."""
        run_at = now if value.run_at is None else value.run_at
        return (value.payload, run_at, now, *([value.priority] if self.is_ranked else []))

    def _put_own(self, db: sqlite3.Connection, value: Enqueued) -> Any:
        ((id,),) = db.execute(sql.PUT_OWN.format_map(self._names), (value.payload,)).fetchall()
        if value.run_at is not None:
            self._many(db, sql.DELAY_OWN, [(id, value.run_at, clock.wall())])
        return id

    def announce(self) -> None:
        for store in list(_stores):
            if store._path == self._path and store._loop is not None:
                # Its loop may belong to another thread, and may be closed.
                with suppress(RuntimeError):
                    store._loop.call_soon_threadsafe(store._woken.set)

    async def is_paused(self) -> bool:
        name = f"{self.layout.parts[-1]}_paused"

        def look(db: sqlite3.Connection) -> list[Any]:
            return self._all(db, sql.HAS_TABLE, {"name": name})

        return bool(await self._transaction(look, writing=False))

    async def pause(self, paused: bool) -> None:
        text = sql.PAUSE if paused else sql.RESUME
        await self._transaction(lambda db: self._all(db, text))
        self.announce()

    async def now(self) -> float:
        return clock.wall()

    async def plan(self, name: str, schedule: str, first: float) -> None:
        values = {"name": name, "schedule": schedule, "first": first}

        def work(db: sqlite3.Connection) -> None:
            self._all(db, sql.CREATE_PERIODIC)
            self._all(db, sql.PLAN, values)

        await self._transaction(work)

    async def planned(self) -> dict[str, PeriodicJob]:
        name = f"{self.layout.parts[-1]}_periodic"

        def look(db: sqlite3.Connection) -> list[Any]:
            there = self._all(db, sql.HAS_TABLE, {"name": name})
            return self._all(db, sql.PLANNED) if there else []

        found = await self._transaction(look, writing=False)
        return {row[0]: PeriodicJob(*row) for row in found}

    async def move(
        self, name: str, time: float, after: float, rows: list[Enqueued], missed: int = 0
    ) -> bool:
        last = rows[-1].run_at if rows else None
        values = {"name": name, "time": time, "after": after, "last": last, "missed": missed}

        def work(db: sqlite3.Connection) -> bool:
            if not self._all(db, sql.MOVE, values):
                return False
            self.insert(db, None, rows)
            return True

        moved = await self._transaction(work)
        self.announce()
        return moved

    async def changed(self, within: float) -> bool:
        end = clock.monotonic() + within
        while not (found := self._woken.is_set()) and (left := end - clock.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(self._wait, left)):
                    await self._woken.wait()
            version = await self._data_version()
            if version != self._version:
                self._version = version
                self._wait = _SOON
                found = True
                break
            self._wait = min(self._wait * 2, _LATEST)
        self._woken.clear()
        return found

    async def _data_version(self) -> int:
        """A number that changes when another connection has committed something."""

        def look() -> int:
            ((version,),) = self._connected().execute("PRAGMA data_version")
            return int(version)

        return await self._in_thread(partial(_insisting, look))

    def spare(self, id: Any, refused: Refused) -> None:
        super().spare(id, refused)
        others = f" AND {self._names['id']} NOT IN ({literals(self._spared)})"
        self._names["spared"] = self._names["only"] + others

    async def blockers(self) -> str:
        return "the lock of the file, which another connection has, or for the disk"

    async def query(self, text: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        values = {"now": clock.wall(), **parameters}
        with refusals():
            return await self._transaction(lambda db: self._all(db, text, values))

    async def read(
        self, text: str, /, *, field: str | None = None, **parameters: Any
    ) -> list[tuple[Any, ...]]:
        values = {"now": clock.wall(), **parameters}

        def work(db: sqlite3.Connection) -> list[Any]:
            names = {**self._names, "key": self._key or "NULL"}
            if field is not None:
                names["field"] = self._field(db, field)
            if self._only_of_t:
                names["only"] = names["spared"] = self._only_of_t
            return db.execute(text.format_map(names), values).fetchall()

        return await self._transaction(work, writing=False)

    def _field(self, db: sqlite3.Connection, field: str) -> str:
        """The SQL that `{field}` stands for; as bytes, as a text in SQLite may be any bytes."""
        return f"CAST({self._text_of(db, field, 't')} AS BLOB)"


@contextmanager
def refusals() -> Generator[None, None, None]:
    """Raise Refused where the database refuses what it is told to write."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.DataError) as error:
        raise Refused(error) from error


def which_file(path: str) -> tuple[int, int] | None:
    """The device and inode of a file, which tell it from others; None if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _insisting(call: Callable[[], T], given_up: threading.Event | None = None) -> T:
    """The result of `call`, which is repeated while another connection holds the lock."""
    end = clock.monotonic() + _PATIENCE
    while True:
        try:
            return call()
        except sqlite3.OperationalError as error:
            over = clock.monotonic() >= end or (given_up is not None and given_up.is_set())
            if over or _code(error) != sqlite3.SQLITE_BUSY:
                raise
        time.sleep(_LOOK)


def _code(error: sqlite3.OperationalError) -> int:
    # The extended codes have more bits.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _plain(value: Any) -> Any:
    """`value` as SQLite can store it: its text or number in JSON, or the JSON of a dict or list."""
    if value is None or isinstance(value, str | bytes | int):
        return value
    json = encoded(value)
    return json.decode() if json[:1] in b"{[" else loads(json)
