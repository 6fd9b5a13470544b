"""A backend in a PostgreSQL database, which other programs can read.

A store is the four tables `penstock_...` of one schema, the first in the connection's search path.
A commit is on the server's disk when it returns. One run at a time may commit: it has a lock of its
session, and each commit expects the run's id and the number of commits before it in the store.

A connection that is lost is replaced, for up to a minute. The number tells whether the transaction
that was under way has happened: it is not written twice, nor lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from threading import Lock
from time import monotonic, sleep
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import Connection, errors

from penstock.streams.base.database_url import conninfo, database_at, first_line, redacted
from penstock.streams.base.errors import (
    BuildError,
    CannotOpen,
    DatabaseUnavailable,
    RightsMissing,
)
from penstock.streams.delivery.commit import Kind
from penstock.streams.state.backend import (
    MOST_OVER,
    Columns,
    KeptStage,
    MovingRow,
    NotWritten,
    OfMany,
    PartsRefused,
    Row,
    Unit,
    another_run,
    find_refused,
    other_format,
)

__all__ = ["FORMATS", "SHARED_FORMAT", "Db", "PostgreSQL", "columns_in"]

T = TypeVar("T")

FORMATS = _FORMAT, SHARED_FORMAT = 1, 2

_SCHEMA = """
CREATE TABLE penstock_store (format integer NOT NULL, run text NOT NULL, commits bigint NOT NULL);
CREATE TABLE penstock_stage (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text UNIQUE NOT NULL,
    by text NOT NULL, version integer NOT NULL
);
CREATE TABLE penstock_state (
    stage integer NOT NULL, key text COLLATE "C" NOT NULL, state json NOT NULL,
    version integer NOT NULL, timers json, due float8, PRIMARY KEY (stage, key)
) WITH (fillfactor = 80);
CREATE INDEX penstock_state_due ON penstock_state (stage, due, key) WHERE due IS NOT NULL;
CREATE TABLE penstock_mark (partition text COLLATE "C" PRIMARY KEY, mark bytea NOT NULL)
    WITH (fillfactor = 80);
"""

# A server gives up a session whose machine is gone as soon as a client does.
_SESSION = """
SET default_transaction_isolation = 'read committed';
SET enable_seqscan = off;
SET tcp_keepalives_idle = 10;
SET tcp_keepalives_interval = 5;
SET tcp_keepalives_count = 3;
SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off';
"""

_LOCK = "hashtextextended('penstock store in ' || current_schema(), 0)"

_MAKING = "hashtextextended('penstock store made in ' || current_schema(), 0)"

_HOLDER = f"""
SELECT concat('process ', pid, ' of the server (',
    concat_ws(', ', nullif(application_name, ''), usename, client_addr), ')')
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND (classid::bigint << 32 | objid::bigint) = {_LOCK}
"""

_NEXT = "UPDATE penstock_store SET commits = commits + 1 WHERE run = %s AND commits = %s"

_PUT = """
INSERT INTO penstock_state
SELECT %s, key, state::json, version, nullif(timers, '')::json, due FROM
    unnest(%s::text[], %s::text[], %s::integer[], %s::text[], %s::float8[])
    AS one (key, state, version, timers, due)
ON CONFLICT (stage, key) DO UPDATE SET state = excluded.state, version = excluded.version,
    timers = excluded.timers, due = excluded.due
"""

_DELETE_OVER = """
DELETE FROM penstock_state WHERE stage = %s AND key = ANY(ARRAY(
    SELECT key FROM penstock_state WHERE stage = %s AND due < %s ORDER BY due LIMIT %s))
"""

_MARK = """
INSERT INTO penstock_mark SELECT * FROM unnest(%s::text[], %s::bytea[])
ON CONFLICT (partition) DO UPDATE SET mark = excluded.mark
"""

_ROWS = """
SELECT key, state::text, version, coalesce(timers::text, ''), due FROM penstock_state
WHERE stage = %s
"""

# Seconds for which a lost connection is tried to be replaced, and between two attempts.
_PATIENCE = 60.0
_SOON, _LATEST = 0.05, 1.0

# Seconds for which the session of the last run may still be open on the server.
_LAST_RUN = 5.0

_PASSING = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,
    errors.IdleInTransactionSessionTimeout,
)
"""Errors after which the same call may succeed, perhaps with a new connection."""

Db = Connection[tuple[Any, ...]]


class PostgreSQL:
    """States in the database of a URL."""

    in_thread = reads_in_thread = True
    most_rows: int | None = None
    format = _FORMAT
    schema: LiteralString = _SCHEMA
    formats: tuple[int, ...] = (_FORMAT,)
    """The formats of stores that it may open for writing."""
    lock: LiteralString = "pg_advisory_lock"
    """The function by which a session gets the lock of a store."""
    rows = _ROWS
    """Reads the rows of a stage."""
    here = ""
    """The condition of the rows and marks that are read."""

    def __init__(self, url: str) -> None:
        self.database: tuple[Any, ...] | None = database_at(url)
        self._name = redacted(url)
        self._conninfo = conninfo(url)
        self._run = ""
        self._commits = 0
        self._ids: dict[str, int] = {}
        self._reading: Db | None = None
        self._writing: Db | None = None
        # Of the connection for reading.
        self._lock = Lock()

    def open(self) -> None:
        with self._named("open"):
            writing = self._writing = self._connect()
            self._take_lock(writing)
            with writing.transaction():
                # Others may be about to make it.
                writing.execute(f"SELECT pg_advisory_xact_lock({_MAKING})")
                if not _is_store(writing):
                    writing.execute(self.schema)
                    values = "INSERT INTO penstock_store VALUES (%s, '', 0)"
                    writing.execute(values, (self.format,))
                self._check_format(writing, *self.formats)
                self._begin_run(writing)
        self.open_to_read()

    def _begin_run(self, db: Db) -> None:
        self._run = os.urandom(8).hex()
        taken = "UPDATE penstock_store SET run = %s RETURNING commits"
        ((self._commits,),) = db.execute(taken, (self._run,)).fetchall()

    def open_to_read(self) -> None:
        """Connect for reading, also during a run. Raises CannotOpen if there is no store."""
        with self._named("read"):
            self._reading = self._connect()
            self._check_format(self._reading)
            self._read_ids()

    def close(self) -> None:
        for connection in (self._reading, self._writing):
            if connection is not None:
                connection.close()
        self._reading = self._writing = None

    def stages(self) -> list[KeptStage]:
        rows = self._read("SELECT name, by, version FROM penstock_stage ORDER BY id")
        return [KeptStage(*row) for row in rows]

    def declare(self, stages: Iterable[KeptStage]) -> None:
        found = list(stages)

        def write(db: Db) -> None:
            for stage in found:
                db.execute(
                    "INSERT INTO penstock_stage (name, by, version) VALUES (%s, %s, %s) ON CONFLICT"
                    " (name) DO UPDATE SET by = excluded.by, version = excluded.version",
                    stage,
                )

        self._write(write)
        self._read_ids()

    def forget(self, stage: str) -> None:
        def write(db: Db) -> None:
            db.execute("DELETE FROM penstock_state WHERE stage = %s", (self._ids[stage],))
            db.execute("DELETE FROM penstock_stage WHERE name = %s", (stage,))

        self._write(write)
        self._read_ids()

    @property
    def _own(self) -> tuple[object, ...]:
        """The parameters of `here`."""
        return ()

    def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
        texts = [key.decode() for key in keys]
        of_keys = f"{self.rows} AND key = ANY(%s)"
        return list(map(_row, self._read(of_keys, self._ids[stage], *self._own, texts)))

    def due(self, stage: str, after: float, until: float, most: int) -> list[tuple[float, bytes]]:
        found = self._read(
            f"SELECT due, key FROM penstock_state WHERE stage = %s{self.here} "
            "AND due >= %s AND due < %s ORDER BY due, key LIMIT %s",
            *(self._ids[stage], *self._own, after, until, most),
        )
        return [(due, key.encode()) for due, key in found]

    def mark(self, partition: str) -> bytes | None:
        of_one = f"SELECT mark FROM penstock_mark WHERE partition = %s{self.here}"
        found = self._read(of_one, partition, *self._own)
        mark: bytes | None = found[0][0] if found else None
        return mark

    def marks(self) -> list[tuple[str, bytes]]:
        where = f"WHERE true{self.here} ORDER BY partition"
        return self._read(f"SELECT partition, mark FROM penstock_mark {where}", *self._own)

    def commit(self, unit: Unit) -> None:
        try:
            self._write(partial(self._put, unit))
        except NotWritten as not_written:
            raise self._refused(unit) or not_written.error from None
        except CannotOpen as error:
            # A deferred constraint refuses a part at the end.
            if not unit.parts or not isinstance(error.__cause__, psycopg.Error):
                raise
            raise self._refused(unit) or error from error.__cause__

    def _refused(self, unit: Unit) -> PartsRefused | None:
        with self._named("write"):
            return self._insist(partial(self._try_parts, unit))

    def _try_parts(self, unit: Unit) -> PartsRefused | None:
        db, refused = self._writer(), None
        with db.transaction():
            db.execute("SET CONSTRAINTS ALL IMMEDIATE")
            refused = find_refused(
                unit.parts,
                partial(_write_part, db),
                db.transaction,
                lambda error: not isinstance(error, _PASSING),
            )
            raise psycopg.Rollback
        return refused

    def _put_parts(self, unit: Unit, db: Db) -> None:
        try:
            for kind, values in unit.parts.items():
                _write_part(db, kind, values)
        except _PASSING:
            raise
        except Exception as error:
            raise NotWritten(error) from error

    def _put(self, unit: Unit, db: Db) -> None:
        self._put_parts(unit, db)
        for stage, rows in unit.rows.items():
            if rows:
                db.execute(_PUT, (self._ids[stage], *columns_in(rows)))
        for stage, gone in unit.gone.items():
            texts = [key.decode() for key in gone]
            delete = "DELETE FROM penstock_state WHERE stage = %s AND key = ANY(%s)"
            db.execute(delete, (self._ids[stage], texts))
        for stage, until in unit.over.items():
            number = self._ids[stage]
            db.execute(_DELETE_OVER, (number, number, until, MOST_OVER))
        if unit.marks:
            db.execute(_MARK, (list(unit.marks), list(unit.marks.values())))

    def scan(self, stage: str) -> Iterator[Row]:
        return map(_row, self._scan(f"{self.rows} ORDER BY key", self._ids[stage], *self._own))

    def _scan(self, statement: Any, *values: object) -> Iterator[tuple[Any, ...]]:
        # A connection of its own: what is read is one state of the store, however long it takes.
        with (
            self._named("read"),
            closing(self._connect()) as db,
            db.transaction(),
            db.cursor("states") as cursor,
        ):
            cursor.itersize = 1_000
            cursor.execute(statement, values)
            yield from cursor

    def size(self, stage: str) -> tuple[int, int]:
        ((keys, size),) = self._read(
            "SELECT count(*), coalesce(sum(octet_length(key) + octet_length(state::text)), 0)::int8"
            f" FROM penstock_state WHERE stage = %s{self.here}",
            *(self._ids[stage], *self._own),
        )
        return keys, size

    def backup(self, path: str) -> None:
        """Raises BuildError: PostgreSQL has a program for copies."""
        raise BuildError(
            f"The store {self._name} is in PostgreSQL, which makes copies itself: pg_dump "
            f"--table='penstock_*' {self._name} > {path}"
        )

    # The connections.

    def _connect(self) -> Db:
        db: Db = psycopg.connect(self._conninfo, autocommit=True)
        try:
            # First: what is set in a pool would be other programs'.
            self._check_server(db)
            db.execute(_SESSION)
        except BaseException:
            db.close()
            raise
        return db

    def _check_server(self, db: Db) -> None:
        ((pid,),) = db.execute("SELECT pg_backend_pid()", prepare=False).fetchall()
        if pid != db.info.backend_pid:
            raise CannotOpen(
                f"{self._name} is a pool of connections, such as PgBouncer: a store needs a "
                "session of its own. Give it the URL of PostgreSQL itself, which hosted databases "
                "often have on another port."
            )
        encoding = db.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise CannotOpen(
                f"The database {self._name} has the encoding {encoding}, and a store needs UTF8: "
                "use a database that was made with ENCODING 'UTF8'."
            )

    def _take_lock(self, db: Db) -> None:
        try:
            with db.transaction():
                db.execute("SELECT set_config('lock_timeout', %s, true)", (f"{_LAST_RUN:g}s",))
                db.execute(f"SELECT {self.lock}({_LOCK})")
        except errors.LockNotAvailable as error:
            holders = " and ".join(who for (who,) in db.execute(_HOLDER).fetchall())
            raise CannotOpen(
                f"Another run uses the store {self._name}: {holders or 'it has just ended'}. Wait "
                "until it has ended, or use another store: one in another schema has a URL with "
                "?options=-csearch_path%3DSCHEMA."
            ) from error

    def _writer(self) -> Db:
        """The connection for writing, a new one if it was lost."""
        db = self._writing
        assert db is not None
        if db.closed:
            db = self._writing = self._connect()
            # Its old session may have it still; what is written does not depend on it.
            db.execute(f"SELECT {self.lock.replace('pg_', 'pg_try_')}({_LOCK})")
        return db

    def _write(self, work: Callable[[Db], None]) -> None:
        """Do this in one transaction, once."""
        with self._named("write"):
            self._insist(partial(self._try, work))
        self._commits += 1

    def _try(self, work: Callable[[Db], None]) -> None:
        db = self._writer()
        with db.transaction():
            # It waits until a transaction of a lost connection has ended.
            if db.execute(_NEXT, (self._run, self._commits)).rowcount:
                work(db)
                return
            found = db.execute("SELECT run, commits FROM penstock_store").fetchall()
        if found != [(self._run, self._commits + 1)]:
            raise another_run(self._name)
        # It was written: only the answer was lost.

    def _read(self, statement: str, *values: object) -> list[Any]:
        # Any: the columns that are asked for.
        with self._named("read"):
            return self._insist(partial(self._try_read, statement, values))

    def _try_read(self, statement: str, values: Sequence[object]) -> list[Any]:
        with self._lock:
            db = self._reading
            assert db is not None
            if db.closed:
                db = self._reading = self._connect()
            # Any: no literal that a type checker knows.
            text: Any = statement
            return db.execute(text, values).fetchall()

    def _insist(self, call: Callable[[], T]) -> T:
        """The result of a call, which is repeated while the database is away."""
        until, wait = monotonic() + _PATIENCE, _SOON
        while True:
            try:
                return call()
            except _PASSING as error:
                if monotonic() > until:
                    raise DatabaseUnavailable(
                        f"The store {self._name} could not be used for {_PATIENCE:g} s: "
                        f"{first_line(error)}. Start the pipeline again when the database is back: "
                        "events that are not committed come again."
                    ) from error
            sleep(wait)
            wait = min(2 * wait, _LATEST)

    @contextmanager
    def _named(self, what: str) -> Generator[None]:
        try:
            yield
        except (errors.InsufficientPrivilege, errors.InvalidSchemaName) as error:
            raise RightsMissing(
                f"Cannot {what} the store {self._name}: {first_line(error)}. A run needs CREATE on "
                "the schema until it has made the tables penstock_*, and SELECT, INSERT, UPDATE "
                "and DELETE on them."
            ) from error
        except psycopg.Error as error:
            raise CannotOpen(
                f"Cannot {what} the store {self._name}: {first_line(error)}."
            ) from error

    def _check_format(self, db: Db, *formats: int) -> None:
        if not _is_store(db):
            raise CannotOpen(
                f"{self._name} is not a store yet: no run has begun to use it, or it is another "
                "database or schema."
            )
        found = [format for (format,) in db.execute("SELECT format FROM penstock_store").fetchall()]
        if len(found) != 1 or found[0] not in FORMATS:
            raise other_format(self._name, found[0] if found else "unknown", _FORMAT)
        if formats and found[0] not in formats:
            is_shared = found[0] == SHARED_FORMAT
            raise (OfMany if is_shared else CannotOpen)(
                f"The store {self._name} was made with shared={is_shared}, which "
                "cannot be changed: use it like that, or another store; one in another schema has "
                "a URL with ?options=-csearch_path%3DSCHEMA."
            )

    def _read_ids(self) -> None:
        self._ids = dict(self._read("SELECT name, id FROM penstock_stage"))


class _Awaited:
    """A connection whose answers are awaited, which they need not be: kinds of parts also write in
    transactions of an event loop."""

    def __init__(self, db: Db) -> None:
        self._db = db

    async def execute(self, *statement: Any) -> _AwaitedCursor:
        return _AwaitedCursor(self._db.execute(*statement))


class _AwaitedCursor:
    def __init__(self, cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
        self._cursor = cursor
        self.description = cursor.description
        self.rowcount = cursor.rowcount

    async def fetchall(self) -> list[tuple[Any, ...]]:
        return self._cursor.fetchall()


def _write_part(db: Db, kind: Kind, values: list[Any]) -> None:
    """Write values of a kind, which awaits nothing but the connection."""
    writing: Coroutine[Any, Any, None] | None = kind.write(_Awaited(db), values)
    if writing is None:
        return
    try:
        writing.send(None)
    except StopIteration:
        return
    writing.close()
    raise TypeError(f"{kind} waits for something else than the connection")


def _is_store(db: Db) -> bool:
    ((found,),) = db.execute("SELECT to_regclass('penstock_store') IS NOT NULL").fetchall()
    return bool(found)


def columns_in(rows: Sequence[Columns]) -> tuple[list[Any], ...]:
    """The columns of rows, as a statement takes them."""
    keys, states, versions, timers, due = zip(*rows, strict=True)
    return (
        [key.decode() for key in keys],
        [state.decode() for state in states],
        list(versions),
        [one.decode() for one in timers],
        list(due),
    )


def _row(columns: tuple[Any, ...]) -> Row:
    key, state, version, timers, due, *number = columns
    row = key.encode(), state.encode(), version, timers.encode(), due
    return MovingRow.of(row, *number) if number else Row(*row)
