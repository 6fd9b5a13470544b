"""A backend in an SQLite file, which other programs can read.

A commit is in the file when it returns; with `durable` it is on the disk too, and survives a power
failure (`synchronous` of SQLite's documentation, with a write-ahead log). One run at a time may
commit: the file has an id of the run that opened it last, and a commit of any other is refused.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

from penstock.streams.base.errors import CannotOpen
from penstock.streams.io.file_lock import locked
from penstock.streams.state.backend import (
    MOST_OVER,
    Columns,
    KeptStage,
    NotWritten,
    PartsRefused,
    Row,
    Unit,
    another_run,
    find_refused,
    other_format,
)

__all__ = ["SQLite"]

_FORMAT = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS penstock (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS penstock_stage (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, "by" TEXT NOT NULL, version INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS penstock_state (
    stage INTEGER NOT NULL, key BLOB NOT NULL, state BLOB NOT NULL, version INTEGER NOT NULL,
    timers BLOB NOT NULL, due REAL, PRIMARY KEY (stage, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS penstock_state_due ON penstock_state (stage, due)
    WHERE due IS NOT NULL;
CREATE TABLE IF NOT EXISTS penstock_mark (
    partition TEXT PRIMARY KEY, mark BLOB NOT NULL
) WITHOUT ROWID;
"""

# With the number of a stage. The module binds a text or a number at once, and looks for an adapter
# for each bytes and None, which costs as much as all else.
_PUT = """
INSERT INTO penstock_state
    VALUES (%d, CAST(? AS BLOB), CAST(? AS BLOB), ?, CAST(? AS BLOB), nullif(?, ''))
    ON CONFLICT (stage, key) DO UPDATE SET state = excluded.state, version = excluded.version,
    timers = excluded.timers, due = excluded.due
"""

_DELETE_OVER = """
DELETE FROM penstock_state WHERE stage = ? AND key IN
    (SELECT key FROM penstock_state WHERE stage = ? AND due < ? ORDER BY due LIMIT ?)
"""

_MARK = """
INSERT INTO penstock_mark VALUES (?, ?) ON CONFLICT (partition) DO UPDATE SET mark = excluded.mark
"""

# Keys that are asked for by one statement.
_MOST_KEYS = 500

# Seconds for which another program may be writing.
_PATIENCE = 30.0


class SQLite:
    """States in the file `path`; beside it are two files of SQLite and a lock file."""

    in_thread = True
    reads_in_thread = False
    most_rows: int | None = None

    def __init__(self, path: str, *, durable: bool = False) -> None:
        self.database: tuple[Any, ...] | None = ("sqlite", os.path.realpath(path))
        self._path = path
        self._durable = durable
        self._owner = ""
        self._lock: int | None = None
        self._ids: dict[str, int] = {}
        self._reading: sqlite3.Connection | None = None
        self._writing: sqlite3.Connection | None = None

    def open(self) -> None:
        self._lock = locked(
            f"{self._path}.lock",
            "another run uses the store. Wait until it has ended, or use another store.",
        )
        with self._named("open"):
            self._writing = self._connect()
            self._writing.execute("PRAGMA journal_mode = WAL")
            self._writing.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            self._owner = os.urandom(8).hex()
            with self._transaction(checked=False) as writing:
                for statement in _SCHEMA.split(";"):
                    writing.execute(statement)
                writing.execute("INSERT OR IGNORE INTO penstock VALUES ('format', ?)", (_FORMAT,))
                self._check_format(writing)
                writing.execute("REPLACE INTO penstock VALUES ('run', ?)", (self._owner,))
        self.open_to_read()

    def open_to_read(self) -> None:
        """Open the file for reading, also during a run. Raises CannotOpen if it is not a store."""
        if not os.path.isfile(self._path):
            why = "it is a folder" if os.path.isdir(self._path) else "no run has made it yet"
            raise CannotOpen(f"There is no store at {self._path}: {why}.")
        with self._named("read"):
            self._reading = self._connect()
            self._reading.execute("PRAGMA query_only = ON")
            self._check_format(self._reading)
            self._read_ids()

    def close(self) -> None:
        for connection in (self._reading, self._writing):
            if connection is not None:
                connection.close()
        self._reading = self._writing = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def stages(self) -> list[KeptStage]:
        rows = self._read('SELECT name, "by", version FROM penstock_stage ORDER BY id')
        return [KeptStage(*row) for row in rows]

    def declare(self, stages: Iterable[KeptStage]) -> None:
        with self._named("write"), self._transaction() as writing:
            writing.executemany(
                'INSERT INTO penstock_stage (name, "by", version) VALUES (?, ?, ?) '
                'ON CONFLICT (name) DO UPDATE SET "by" = excluded."by", '
                "version = excluded.version",
                list(stages),
            )
        self._read_ids()

    def forget(self, stage: str) -> None:
        with self._named("write"), self._transaction() as writing:
            writing.execute("DELETE FROM penstock_state WHERE stage = ?", (self._ids[stage],))
            writing.execute("DELETE FROM penstock_stage WHERE name = ?", (stage,))
        self._read_ids()

    def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
        found: list[Row] = []
        number = self._ids[stage]
        for at in range(0, len(keys), _MOST_KEYS):
            part = keys[at : at + _MOST_KEYS]
            marks = ", ".join(("CAST(? AS BLOB)",) * len(part))
            found += self._rows(f"stage = ? AND key IN ({marks})", number, *map(bytes.decode, part))
        return found

    def due(self, stage: str, after: float, until: float, most: int) -> list[tuple[float, bytes]]:
        return self._read(
            "SELECT due, key FROM penstock_state WHERE stage = ? AND due >= ? AND due < ? "
            "ORDER BY due, key LIMIT ?",
            *(self._ids[stage], after, until, most),
        )

    def mark(self, partition: str) -> bytes | None:
        found = self._read("SELECT mark FROM penstock_mark WHERE partition = ?", partition)
        mark: bytes | None = found[0][0] if found else None
        return mark

    def marks(self) -> list[tuple[str, bytes]]:
        return self._read("SELECT partition, mark FROM penstock_mark ORDER BY partition")

    def commit(self, unit: Unit) -> None:
        try:
            self._commit(unit)
        except NotWritten as not_written:
            with self._named("write"):
                raise self._refused(unit) or not_written.error from None

    def _commit(self, unit: Unit) -> None:
        is_safer = unit.durable and not self._durable
        with self._named("write"), self._transaction(durable=is_safer) as writing:
            try:
                for kind, values in unit.parts.items():
                    kind.write(writing, values)
            except Exception as error:
                raise NotWritten(error) from error
            for stage, rows in unit.rows.items():
                number = self._ids[stage]
                writing.executemany(_PUT % number, map(_bound, rows))
            for stage, keys in unit.gone.items():
                number = self._ids[stage]
                writing.executemany(
                    "DELETE FROM penstock_state WHERE stage = ? AND key = ?",
                    [(number, key) for key in keys],
                )
            for stage, until in unit.over.items():
                number = self._ids[stage]
                writing.execute(_DELETE_OVER, (number, number, until, MOST_OVER))
            writing.executemany(_MARK, list(unit.marks.items()))

    def _refused(self, unit: Unit) -> PartsRefused | None:
        refused = None
        with self._named("write"), suppress(_Undone), self._transaction() as writing:
            refused = find_refused(
                unit.parts,
                lambda kind, values: kind.write(writing, values),
                partial(_apart, writing),
                _is_refusal,
            )
            raise _Undone
        return refused

    def scan(self, stage: str) -> Iterator[Row]:
        # A connection of its own: what is read is one state of the file, however long it takes.
        with self._named("read"), closing(self._connect()) as reading:
            for row in reading.execute(f"{_ROWS} stage = ? ORDER BY key", (self._ids[stage],)):
                yield Row(*row)

    def size(self, stage: str) -> tuple[int, int]:
        ((keys, size),) = self._read(
            "SELECT count(*), coalesce(sum(length(key) + length(state)), 0) FROM penstock_state "
            "WHERE stage = ?",
            self._ids[stage],
        )
        return keys, size

    def backup(self, path: str) -> None:
        """Write a copy of the current state to a new file. Raises CannotOpen."""
        with self._named("copy", f" to {path}"), closing(self._connect()) as connection:
            connection.execute("VACUUM INTO ?", (path,))

    # The connections.

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )

    @contextmanager
    def _named(self, what: str, to: str = "") -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise CannotOpen(f"Cannot {what} the store {self._path}{to}: {error}.") from error

    @contextmanager
    def _transaction(
        self, *, checked: bool = True, durable: bool = False
    ) -> Generator[sqlite3.Connection]:
        """A transaction; a `durable` one survives a power failure, also if the store does not."""
        writing = self._writing
        assert writing is not None
        if durable:
            writing.execute("PRAGMA synchronous = FULL")
        try:
            with self._begun(writing, checked=checked):
                yield writing
        finally:
            if durable:
                writing.execute("PRAGMA synchronous = NORMAL")

    @contextmanager
    def _begun(self, writing: sqlite3.Connection, *, checked: bool) -> Generator[None]:
        writing.execute("BEGIN IMMEDIATE")
        try:
            if checked:
                ((owner,),) = writing.execute("SELECT value FROM penstock WHERE name = 'run'")
                if owner != self._owner:
                    raise another_run(self._path)
            yield
        except BaseException:
            # A trigger may have done so.
            if writing.in_transaction:
                writing.execute("ROLLBACK")
            raise
        writing.execute("COMMIT")

    def _check_format(self, connection: sqlite3.Connection) -> None:
        is_made = connection.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'penstock'"
        ).fetchone()
        if not is_made:
            raise CannotOpen(
                f"{self._path} is not a store yet: no run has begun to use it, or it is another "
                "database."
            )
        found = connection.execute("SELECT value FROM penstock WHERE name = 'format'").fetchone()
        if found is None or found[0] != _FORMAT:
            version = "unknown" if found is None else found[0]
            raise other_format(self._path, version, _FORMAT)

    def _read(self, statement: str, *values: object) -> list[Any]:
        # Any: the columns that are asked for.
        assert self._reading is not None
        with self._named("read"):
            return self._reading.execute(statement, values).fetchall()

    def _rows(self, where: str, *values: object) -> list[Row]:
        return [Row(*row) for row in self._read(f"{_ROWS} {where}", *values)]

    def _read_ids(self) -> None:
        self._ids = dict(self._read("SELECT name, id FROM penstock_stage"))


def _bound(row: Columns) -> tuple[str, str, int, str, float | str]:
    """The columns of a row as `_PUT` takes them."""
    key, state, version, timers, due = row
    return key.decode(), state.decode(), version, timers.decode(), "" if due is None else due


class _Undone(Exception):
    """The transaction is rolled back on purpose."""


@contextmanager
def _apart(writing: sqlite3.Connection) -> Generator[None]:
    """Undo what is done within, if that raises."""
    writing.execute("SAVEPOINT part")
    try:
        yield
    except BaseException:
        if writing.in_transaction:
            writing.execute("ROLLBACK TO part")
        else:
            # A trigger has undone all of it.
            writing.execute("BEGIN IMMEDIATE")
        raise


def _is_refusal(error: Exception) -> bool:
    """Whether the cause of an error is what was to be written, and not the file or its lock."""
    if not isinstance(error, sqlite3.OperationalError):
        return True
    # The extended codes have more bits.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_ERROR


_ROWS = "SELECT key, state, version, timers, due FROM penstock_state WHERE"
