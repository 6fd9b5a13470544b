"""The copy of a changelog, or of a stream, in a local file of SQLite, with the place up to which it
has each partition.

It is written after a transaction was committed, and so is never ahead of that; what it is behind is
read again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from itertools import islice
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from penstock.streams.base.errors import CannotOpen
from penstock.streams.state.backend import KeptStage, MovingRow, Row, Unit, other_format
from penstock.streams.state.kafka.changelog import Change
from penstock.streams.state.sqlite import SQLite

__all__ = ["Copy"]

_FORMAT = "copy 1"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS penstock_copy (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS penstock_stage (
    name TEXT PRIMARY KEY, "by" TEXT NOT NULL, version INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS penstock_state (
    stage TEXT NOT NULL, key BLOB NOT NULL, partition INTEGER NOT NULL, state BLOB NOT NULL,
    version INTEGER NOT NULL, timers BLOB NOT NULL, due REAL, PRIMARY KEY (stage, key, partition)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS penstock_state_due ON penstock_state (stage, due)
    WHERE due IS NOT NULL;
CREATE TABLE IF NOT EXISTS penstock_mark (
    partition INTEGER NOT NULL, name TEXT NOT NULL, mark BLOB NOT NULL,
    PRIMARY KEY (partition, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS penstock_place (partition INTEGER PRIMARY KEY, next INTEGER NOT NULL);
"""

_PUT = "REPLACE INTO penstock_state VALUES (?, ?, ?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM penstock_state WHERE stage = ? AND key = ? AND partition = ?"
_ROWS = "SELECT partition, key, state, version, timers, due FROM penstock_state WHERE stage = ?"

# Keys that are asked for by one statement.
_MOST_KEYS = 500
# Rows that are written to a backup at once.
_MOST_ROWS = 5_000


class Copy:
    """The copies of partitions in one file, of what is in `where`. Reads are of the partitions in
    `partitions`."""

    def __init__(self, path: str, where: str) -> None:
        self.partitions = frozenset()
        self._path = path
        self._where = where
        self._writing: sqlite3.Connection | None = None
        self._reading: sqlite3.Connection | None = None
        # Of the connection that writes, which restores and commits share.
        self._lock = Lock()

    @property
    def partitions(self) -> Set[int]:
        return self._partitions

    @partitions.setter
    def partitions(self, numbers: Set[int]) -> None:
        self._partitions = numbers
        self._here = f" AND partition IN ({', '.join(map(str, sorted(numbers)))})"

    def open(self, topic: str) -> None:
        """Open the copy of the topic, or the stream, with this id: what another one had is not in
        it."""
        with self._named():
            self._writing = self._connect()
            self._writing.execute("PRAGMA journal_mode = WAL")
            self._writing.execute("PRAGMA synchronous = NORMAL")
            self._writing.executescript(_SCHEMA)
            with self._transaction() as writing:
                writing.execute(
                    "INSERT OR IGNORE INTO penstock_copy VALUES ('format', ?), ('topic', ?)",
                    (_FORMAT, topic),
                )
                found = dict(writing.execute("SELECT name, value FROM penstock_copy").fetchall())
            if found["format"] != _FORMAT:
                raise other_format(self._path, found["format"], 1)
            self._reading = self._connect()
        self.expect(topic)

    def expect(self, topic: str) -> None:
        """Have nothing of another topic than the one with this id."""
        with self._named(), self._transaction() as writing:
            ((before,),) = writing.execute("SELECT value FROM penstock_copy WHERE name = 'topic'")
            if before != topic:
                for table in ("state", "mark", "place"):
                    writing.execute(f"DELETE FROM penstock_{table}")
                writing.execute("UPDATE penstock_copy SET value = ? WHERE name = 'topic'", (topic,))

    def close(self) -> None:
        for connection in (self._reading, self._writing):
            if connection is not None:
                connection.close()
        self._reading = self._writing = None

    # Writing.

    def next(self, partition: int) -> Any:
        """The place of the first record that the copy does not have; None if it has none."""
        found = self._read("SELECT next FROM penstock_place WHERE partition = ?", partition)
        return found[0][0] if found else None

    def clear(self, partition: int) -> None:
        """Have nothing of a partition."""
        with self._named(), self._transaction() as writing:
            for table in ("state", "mark", "place"):
                writing.execute(f"DELETE FROM penstock_{table} WHERE partition = ?", (partition,))

    def change(self, partition: int, change: Change, next_: int) -> None:
        """Apply the changes of records up to an offset."""
        with self._named(), self._transaction() as writing:
            rows = [
                (stage, key, partition, *columns[1:])
                for (stage, key), columns in change.rows.items()
                if columns is not None
            ]
            gone = [(*name, partition) for name, columns in change.rows.items() if columns is None]
            writing.executemany(_PUT, rows)
            writing.executemany(_DELETE, gone)
            self._put_marks(writing, partition, change.marks)
            writing.executemany("REPLACE INTO penstock_stage VALUES (?, ?, ?)", change.stages)
            writing.execute("REPLACE INTO penstock_place VALUES (?, ?)", (partition, next_))

    def write(self, units: Mapping[int, Unit], next_: Mapping[int, object]) -> None:
        """Write what was committed, and where each partition goes on."""
        with self._named(), self._transaction() as writing:
            for partition, unit in units.items():
                for stage, rows in unit.rows.items():
                    put = [(stage, columns[0], partition, *columns[1:]) for columns in rows]
                    writing.executemany(_PUT, put)
                for stage, keys in unit.gone.items():
                    writing.executemany(_DELETE, [(stage, key, partition) for key in keys])
                self._put_marks(writing, partition, unit.marks)
            writing.executemany("REPLACE INTO penstock_place VALUES (?, ?)", next_.items())

    @staticmethod
    def _put_marks(writing: sqlite3.Connection, partition: int, marks: Mapping[str, bytes]) -> None:
        writing.executemany(
            "REPLACE INTO penstock_mark VALUES (?, ?, ?)",
            [(partition, name, mark) for name, mark in marks.items()],
        )

    def declare(self, stages: Iterable[KeptStage]) -> None:
        with self._named(), self._transaction() as writing:
            writing.executemany("REPLACE INTO penstock_stage VALUES (?, ?, ?)", list(stages))

    def forget(self, stage: str) -> None:
        with self._named(), self._transaction() as writing:
            writing.execute("DELETE FROM penstock_state WHERE stage = ?", (stage,))
            writing.execute("DELETE FROM penstock_stage WHERE name = ?", (stage,))

    # Reading.

    def stages(self) -> list[KeptStage]:
        rows = self._read('SELECT name, "by", version FROM penstock_stage ORDER BY rowid')
        return [KeptStage(*row) for row in rows]

    def stages_in(self, partition: int) -> list[str]:
        """The stages that have states in a partition."""
        return [
            stage.name
            for stage in self.stages()
            if self._read(
                "SELECT 1 FROM penstock_state WHERE stage = ? AND partition = ? LIMIT 1",
                *(stage.name, partition),
            )
        ]

    def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
        found: list[Row] = []
        for at in range(0, len(keys), _MOST_KEYS):
            part = keys[at : at + _MOST_KEYS]
            places = ", ".join("?" * len(part))
            rows = self._read(f"{_ROWS} AND key IN ({places}){self._here}", stage, *part)
            found += map(_row, rows)
        return found

    def due(self, stage: str, after: float, until: float, most: int) -> list[tuple[float, bytes]]:
        return self._read(
            "SELECT due, key FROM penstock_state WHERE stage = ? AND due >= ? AND due < ?"
            f"{self._here} ORDER BY due, key LIMIT ?",
            *(stage, after, until, most),
        )

    def over(self, stage: str, until: float, most: int) -> list[tuple[int, bytes]]:
        """The partitions and keys of the oldest rows that are due before a time."""
        return self._read(
            f"SELECT partition, key FROM penstock_state WHERE stage = ? AND due < ?{self._here} "
            "ORDER BY due LIMIT ?",
            *(stage, until, most),
        )

    def marks_of(self, partition: int) -> list[tuple[str, bytes]]:
        return self._read(
            "SELECT name, mark FROM penstock_mark WHERE partition = ? ORDER BY name", partition
        )

    def marks(self) -> list[tuple[str, bytes]]:
        return self._read(
            f"SELECT name, mark FROM penstock_mark WHERE true{self._here} ORDER BY name"
        )

    def scan(self, stage: str) -> Iterator[Row]:
        # A connection of its own: what is read is one state of the file, however long it takes.
        with self._named(), closing(self._connect()) as reading:
            for row in reading.execute(f"{_ROWS}{self._here} ORDER BY key", (stage,)):
                yield _row(row)

    def size(self, stage: str) -> tuple[int, int]:
        ((keys, size),) = self._read(
            "SELECT count(*), coalesce(sum(length(key) + length(state)), 0) FROM penstock_state "
            f"WHERE stage = ?{self._here}",
            stage,
        )
        return keys, size

    def backup(self, path: str) -> None:
        """Write what is here to a new file, which is a store of one run. Raises CannotOpen."""
        with (
            TemporaryDirectory(prefix="backup-", dir=os.path.dirname(self._path)) as folder,
            self._named(),
            closing(self._connect()) as reading,
        ):
            # All that is read is one state of the file.
            reading.execute("BEGIN")
            store = SQLite(os.path.join(folder, "store"))
            store.open()
            try:
                self._write_to(store, reading)
                store.backup(path)
            finally:
                store.close()

    def _write_to(self, store: SQLite, reading: sqlite3.Connection) -> None:
        stages = self.stages()
        store.declare(stages)
        for stage in stages:
            rows = map(_row, reading.execute(f"{_ROWS}{self._here}", (stage.name,)))
            while some := list(islice(rows, _MOST_ROWS)):
                store.commit(Unit({stage.name: some}))
        marks = f"SELECT name, mark FROM penstock_mark WHERE true{self._here}"
        store.commit(Unit(marks=dict(reading.execute(marks))))

    # The connections.

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._path, timeout=30, isolation_level=None, check_same_thread=False
        )

    def _read(self, statement: str, *values: object) -> list[Any]:
        # Any: the columns that are asked for.
        assert self._reading is not None
        with self._named():
            return self._reading.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        writing = self._writing
        assert writing is not None
        with self._lock:
            writing.execute("BEGIN IMMEDIATE")
            try:
                yield writing
            except BaseException:
                writing.execute("ROLLBACK")
                raise
            writing.execute("COMMIT")

    @contextmanager
    def _named(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise CannotOpen(
                f"Cannot use the copy {self._path} of a store: {error}. It may be deleted "
                f"({os.path.dirname(self._path)}): then it is read from {self._where} again."
            ) from error


def _row(found: Any) -> Row:
    partition, *columns = found
    # Any: the columns of a row, in order.
    values: Any = tuple(columns)
    return MovingRow.of(values, partition)
