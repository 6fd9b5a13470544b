"""A backend in a PostgreSQL database that several runs use at a time, each with the states of the
partitions that it has adopted.

Nothing is copied: rows stay in the tables, with the number of their partition. Each partition has a
generation, which grows when a run adopts it. A commit counts itself in its partitions if they have
their generations still: so a run that has lost a partition commits nothing of it, and one that
adopts a partition waits for the commit that is under way.

By that count a run knows a commit whose answer was lost. The number of a transaction would not tell
it: a server that has crashed gives such a number again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial

from penstock.streams.state.backend import (
    MOST_OVER,
    Moved,
    Restoring,
    Unit,
    another_count,
)
from penstock.streams.state.postgresql.backend import SHARED_FORMAT, Db, PostgreSQL, columns_in

__all__ = ["SharedPostgreSQL"]

_SCHEMA = """
CREATE TABLE penstock_store (
    format integer NOT NULL, run text NOT NULL, commits bigint NOT NULL, partitions integer
);
CREATE TABLE penstock_stage (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text UNIQUE NOT NULL,
    by text NOT NULL, version integer NOT NULL
);
CREATE TABLE penstock_partition (
    number integer PRIMARY KEY, generation bigint NOT NULL, commits bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE penstock_state (
    stage integer NOT NULL, key text COLLATE "C" NOT NULL, state json NOT NULL,
    version integer NOT NULL, timers json, due float8, number integer NOT NULL,
    PRIMARY KEY (stage, number, key)
) WITH (fillfactor = 80);
CREATE INDEX penstock_state_due ON penstock_state (stage, number, due, key) WHERE due IS NOT NULL;
CREATE TABLE penstock_mark (
    partition text COLLATE "C" NOT NULL, mark bytea NOT NULL, number integer NOT NULL,
    PRIMARY KEY (number, partition)
) WITH (fillfactor = 80);
"""

_FIRST_COUNT = "UPDATE penstock_store SET partitions = %s WHERE partitions IS NULL"

_ADOPT = """
INSERT INTO penstock_partition VALUES (%s, 1, 0)
ON CONFLICT (number) DO UPDATE SET generation = penstock_partition.generation + 1
RETURNING generation, commits
"""

_COUNT = """
UPDATE penstock_partition AS p SET commits = p.commits + 1
FROM unnest(%s::integer[], %s::bigint[], %s::bigint[]) AS own (number, generation, commits)
WHERE p.number = own.number AND p.generation = own.generation AND p.commits = own.commits
RETURNING p.number
"""

_PUT = """
INSERT INTO penstock_state
SELECT %s, key, state::json, version, nullif(timers, '')::json, due, number FROM
    unnest(%s::integer[], %s::text[], %s::text[], %s::integer[], %s::text[], %s::float8[])
    AS one (number, key, state, version, timers, due)
ON CONFLICT (stage, number, key) DO UPDATE SET state = excluded.state, version = excluded.version,
    timers = excluded.timers, due = excluded.due
"""

_DELETE = """
DELETE FROM penstock_state AS s USING unnest(%s::integer[], %s::text[]) AS one (number, key)
WHERE s.stage = %s AND s.number = one.number AND s.key = one.key
"""

_DELETE_OVER = """
DELETE FROM penstock_state WHERE stage = %s AND number = ANY(%s) AND key = ANY(ARRAY(
    SELECT key FROM penstock_state WHERE stage = %s AND number = ANY(%s) AND due < %s
    ORDER BY due LIMIT %s)) AND due < %s
"""

_MARK = """
INSERT INTO penstock_mark SELECT partition, mark, number
FROM unnest(%s::integer[], %s::text[], %s::bytea[]) AS one (number, partition, mark)
ON CONFLICT (number, partition) DO UPDATE SET mark = excluded.mark
"""

_ROWS = """
SELECT key, state::text, version, coalesce(timers::text, ''), due, number FROM penstock_state
WHERE stage = %s AND number = ANY(%s)
"""

# A run that is frozen within a commit keeps others from its partitions: the server ends that.
_SESSION = "SET idle_in_transaction_session_timeout = '10s'"


class _Written(Exception):
    """The transaction was committed before: only the answer was lost."""


class SharedPostgreSQL(PostgreSQL):
    """States in the database of a URL, of the partitions that this run has adopted."""

    format = SHARED_FORMAT
    formats = (SHARED_FORMAT,)
    schema = _SCHEMA
    lock = "pg_advisory_lock_shared"
    rows = _ROWS
    here = " AND number = ANY(%s)"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        # The generation of each partition, and its commits.
        self._adopted: dict[int, tuple[int, int]] = {}
        # The partitions of the commit that is under way.
        self._touched: list[int] = []
        # The calls of `adopt` that are under way.
        self._adopting: dict[int, object] = {}

    # Partitions.

    def adopt(self, partition: int, count: int) -> None:
        call = self._adopting[partition] = object()
        with self._named("open"):
            adopted = self._insist(partial(self._try_adopt, partition, count))
        if self._adopting.get(partition) is not call:
            raise Moved([partition])
        del self._adopting[partition]
        self._adopted[partition] = adopted

    def _try_adopt(self, partition: int, count: int) -> tuple[int, int]:
        # A connection of its own: it may wait for the commit of another run.
        with closing(self._connect()) as db:
            db.execute(_FIRST_COUNT, (count,))
            ((found,),) = db.execute("SELECT partitions FROM penstock_store").fetchall()
            if found != count:
                raise another_count(self._name, found, count)
            ((generation, commits),) = db.execute(_ADOPT, (partition,)).fetchall()
        return generation, commits

    def release(self, partition: int) -> None:
        self._adopting.pop(partition, None)
        self._adopted.pop(partition, None)

    def marks_of(self, partition: int) -> list[tuple[str, bytes]]:
        return self._read(
            "SELECT partition, mark FROM penstock_mark WHERE number = %s ORDER BY partition",
            partition,
        )

    def restoring(self) -> list[Restoring]:
        return []

    def standby_lag(self) -> int | None:
        return None

    @property
    def _own(self) -> tuple[object, ...]:
        return (list(self._adopted),)

    # Writing.

    def _connect(self) -> Db:
        db = super()._connect()
        try:
            db.execute(_SESSION)
        except BaseException:
            db.close()
            raise
        return db

    def _begin_run(self, db: Db) -> None:
        self._adopted.clear()

    def commit(self, unit: Unit) -> None:
        touched = self._touched = sorted({*unit.partitions, *(self._adopted if unit.over else ())})
        if moved := [number for number in touched if number not in self._adopted]:
            raise Moved(moved)
        super().commit(unit)
        for number in touched:
            generation, commits = self._adopted[number]
            self._adopted[number] = generation, commits + 1

    def _try(self, work: Callable[[Db], None]) -> None:
        db = self._writer()
        with suppress(_Written), db.transaction():
            work(db)

    def _count(self, db: Db) -> None:
        """Count this commit in the partitions that it touches, which stay as they are until it
        ends. Raises Moved for those that other runs have adopted."""
        own = {number: self._adopted[number] for number in self._touched}
        values = list(own), [one for one, _ in own.values()], [one for _, one in own.values()]
        counted = [number for (number,) in db.execute(_COUNT, values).fetchall()]
        if len(counted) == len(own):
            return
        found = db.execute("SELECT number, generation, commits FROM penstock_partition").fetchall()
        there = {number: (generation, commits) for number, generation, commits in found}
        moved = [number for number in own if there[number][0] != own[number][0]]
        if not counted and len(moved) < len(own):
            # In all that are still here.
            raise _Written
        for number in moved:
            self.release(number)
        raise Moved(moved)

    def _put(self, unit: Unit, db: Db) -> None:
        self._count(db)
        self._put_parts(unit, db)
        units = unit.partitions.items()
        for stage in {stage for of_it in unit.partitions.values() for stage in of_it.rows}:
            rows = [(number, row) for number, one in units for row in one.rows.get(stage, ())]
            if rows:
                numbers, columns = zip(*rows, strict=True)
                db.execute(_PUT, (self._ids[stage], list(numbers), *columns_in(columns)))
        for stage in {stage for of_it in unit.partitions.values() for stage in of_it.gone}:
            gone = [(number, key) for number, one in units for key in one.gone.get(stage, ())]
            keys = [number for number, _ in gone], [key.decode() for _, key in gone]
            db.execute(_DELETE, (*keys, self._ids[stage]))
        marks = [(number, *mark) for number, one in units for mark in one.marks.items()]
        if marks:
            db.execute(_MARK, tuple(map(list, zip(*marks, strict=True))))
        for stage, until in unit.over.items():
            of_stage = self._ids[stage], self._touched
            db.execute(_DELETE_OVER, (*of_stage, *of_stage, until, MOST_OVER, until))
