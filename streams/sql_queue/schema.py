"""The schema of a queue's table, and its quoted names in SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from penstock.streams.base.errors import BuildError, CannotOpen, ColumnMissing, TableMissing

__all__ = [
    "ANY",
    "COLUMNS",
    "DEAD",
    "IN_PROCESS",
    "NUMBERS",
    "OWN",
    "PRIORITY",
    "PROCESSED",
    "UNPROCESSED",
    "Layout",
    "Required",
    "Upsert",
    "quoted",
]

UNPROCESSED, IN_PROCESS, PROCESSED, DEAD = 0, 9, 1, -1

COLUMNS = {
    "id": "integers in the order of arrival, made by the database",
    "payload": "JSON",
    "status": "0 unprocessed, 9 in process, 1 processed, -1 failed for good",
    "run_at": "not to be worked on before this time",
    "enqueued": "when the row was inserted",
    "started": "when it was claimed for the last time",
    "finished": "when it was processed, or failed for good",
    "attempts": "how often it was claimed and worked on",
    "owner": "who has claimed it",
    "token": "a number that is new with every claim",
    "expires": "when the claim expires",
    "error": "why the last attempt failed",
}
"""The columns of a queue. Times are `timestamptz` on PostgreSQL, seconds since 1970 on SQLite."""

PRIORITY = "priority"
"""A column that a queue may lack, if an older version made it or it is the user's own table: a
whole number; rows with lower ones are claimed first."""

NUMBERS = {
    "status": "0 for rows that wait, 9 for those in work, 1 for finished and -1 for failed ones",
    "attempts": "how often a row was claimed and worked on",
    "token": "a large one, that is new with every claim",
    PRIORITY: "lower ones for rows that are claimed first",
}
"""The columns of a queue that must not be of texts, with what they hold."""

OWN = ("id", "payload", "status", "enqueued", "started", "finished")
"""The columns of a user's table beside which the others are kept; it must have the first three."""


# The most tables that are named where none is near.
_SHOWN = 10
# How alike two names are if one may be meant by the other; chosen: a letter too many, too few or in
# the wrong place in a name of five.
_NEAR = 0.8


@dataclass(frozen=True, slots=True)
class Layout:
    """A table and its columns, by the names that they have in the database.

    `columns` maps names of `COLUMNS` to an existing table's; without it the table has the names of
    `COLUMNS`, and is created if it is missing.

    With `beside` the existing table need only have the needed ones of `OWN`, and is changed in
    nothing but its statuses (and `started` and `finished`, if these are mapped). All else is in a
    table beside it, whose name ends in `_queue`.

    `longest` is the bound of the database on a name, in bytes.
    """

    table: str = "queue"
    columns: Mapping[str, str] | None = None
    beside: bool = False
    longest: int | None = None

    def __post_init__(self) -> None:
        if not _is_name(self.table):
            raise BuildError(f"{self.table!r} is not a valid name of a table")
        for part in self.parts:
            if self.longest is not None and len(part.encode()) > self.longest:
                raise BuildError(
                    f"{part!r} has more than {self.longest} bytes, which PostgreSQL would cut off: "
                    "give the table a shorter name"
                )
        if not isinstance(self.beside, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BuildError(f"beside={self.beside!r}: True or False is needed")
        if self.columns is None:
            return
        given: Any = self.columns
        if not isinstance(given, Mapping) or not all(map(_is_name, self.columns.values())):
            raise BuildError(
                f"{given!r} is not a valid mapping of columns: give a dict that maps the names of "
                f"a queue's columns to those of table {self.table!r}, as in "
                f'{{"payload": "body", ...}}'
            )
        if unknown := set(self.columns) - {*COLUMNS, PRIORITY}:
            raise BuildError(
                f"columns= names {', '.join(map(repr, sorted(unknown)))}, which a queue does not "
                f"have; it has: {', '.join((*COLUMNS, PRIORITY))}"
            )
        if self.beside and (others := set(self.columns) - set(OWN)):
            raise BuildError(
                f"columns= names {', '.join(map(repr, sorted(others)))}, which is kept beside "
                f"table {self.table!r}; of its own may be named: {', '.join(OWN)}"
            )

    @property
    def mapped(self) -> bool:
        """Whether it is the user's own table, which is never created."""
        return self.columns is not None or self.beside

    @property
    def knows_arrivals(self) -> bool:
        """Whether the table says when a row came. Without it, a row came when it was claimed."""
        return not self.beside or self._names("enqueued")

    def column(self, name: str) -> str:
        """The name of a queue's column in the database."""
        return (self.columns or {}).get(name, name)

    @property
    def mirrored(self) -> list[str]:
        """The times that the user's table has as well, if the queue is beside it."""
        return [name for name in ("started", "finished") if self.beside and self._names(name)]

    @property
    def parts(self) -> list[str]:
        """Schema, if there is one, and table."""
        return self.table.split(".", 1)

    def next_to(self, suffix: str) -> str:
        """The quoted name of something beside this table."""
        *schema, _ = self.parts
        return ".".join(map(quoted, (*schema, self._with(suffix))))

    def _with(self, suffix: str) -> str:
        """The table's name and the suffix. A name that would be too long has a digest in place of
        the table's end, so that it is no other's."""
        table = self.parts[-1]
        if self.longest is None or len((table + suffix).encode()) <= self.longest:
            return table + suffix
        end = f"_{sha256(table.encode()).hexdigest()[:8]}{suffix}"
        return table.encode()[: self.longest - len(end)].decode(errors="ignore") + end

    def names(self, time: Callable[[str], str] = str) -> dict[str, str]:
        """The quoted identifiers for `{table}`, `{id}`, ... in a statement. `time` makes a time of
        the queue of an expression for one of the user's."""
        own = ".".join(map(quoted, self.parts))
        names = {"table": own, "own": own, "rows": own, "keys": self.next_to("_keys")}
        names["paused"] = self.next_to("_paused")
        names["periodic"] = self.next_to("_periodic")
        names["index"] = quoted(self._with("_status_id"))
        names["priority_index"] = quoted(self._with("_priority"))
        names |= {name: quoted(self.column(name)) for name in (*COLUMNS, PRIORITY)}
        names |= {f"own_{name}": names[name] for name in OWN}
        if not self.beside:
            return names
        names |= {name: quoted(name) for name in COLUMNS}
        names |= {
            "table": self.next_to("_queue"),
            "index": quoted(self._with("_queue_status_id")),
            "mirror": self.next_to("_queue_mirror"),
            "payload": self.value(self.column("payload"), quoted(self._with("_queue"))),
            # In SQL, what is null where the user's table has no such column.
            "came": time(f"o.{names['own_enqueued']}") if self._names("enqueued") else "NULL",
            "begun": time(f"o.{names['own_started']}") if self._names("started") else "NULL",
            "ended": time(f"o.{names['own_finished']}") if self._names("finished") else "NULL",
        }
        names["rows"] = self._all_rows(names)
        return names

    def value(self, column: str, row: str | None = "t") -> str:
        """An expression for a column of the user's table, where `row` is what the queue's is called
        in the statement; None where it has no other name."""
        if not self.beside:
            return quoted(column) if row is None else f"{row}.{quoted(column)}"
        own, id = ".".join(map(quoted, self.parts)), quoted(self.column("id"))
        row = row or quoted(self._with("_queue"))
        return f'(SELECT o.{quoted(column)} FROM {own} AS o WHERE o.{id} = {row}."id")'

    def _names(self, column: str) -> bool:
        return column in (self.columns or {})

    def _all_rows(self, names: Mapping[str, str]) -> str:
        """The rows of both tables as a queue's, for statistics; to be given a name.

        A row that was never claimed is only in the user's table; a status that the user has set
        back to 0 counts.
        """
        kept = ", ".join(
            f"b.{names[name]}" for name in ("run_at", "owner", "token", "expires", "error")
        )
        return f"""(SELECT o.{names["own_id"]} AS "id", o.{names["own_payload"]} AS "payload",
    CASE WHEN o.{names["own_status"]} = 0 AND b."status" IN (1, -1) THEN 0
        ELSE coalesce(b."status", o.{names["own_status"]}) END AS "status",
    coalesce(b."enqueued", {names["came"]}) AS "enqueued",
    coalesce(b."started", {names["begun"]}) AS "started",
    coalesce(b."finished", {names["ended"]}) AS "finished",
    coalesce(b."attempts", 0) AS "attempts", {kept}
FROM {names["own"]} AS o LEFT JOIN {names["table"]} AS b ON b."id" = o.{names["own_id"]})"""

    def context(self, there: Iterable[str], field: str | None) -> list[str]:
        """The columns of a table that bring the context of a trace: the one called `field`, and
        with it `tracestate`."""
        has = set(there)
        if field is None or field not in has:
            return []
        return [field, *({"tracestate"} & has)]

    def check(self, database: str, there: Collection[str], fields: Iterable[str] | None) -> None:
        """Raises ColumnMissing if columns (of a queue, or `fields`) are not `there`."""
        wanted = fields
        if wanted is None:
            own = self.columns or {}
            needed = [*OWN[:3], *own] if self.beside else list(dict.fromkeys((*COLUMNS, *own)))
            wanted = dict.fromkeys(map(self.column, needed))
        if lacks := [name for name in wanted if name not in there]:
            if fields is None:
                raise ColumnMissing(self._lacking(database, lacks))
            raise ColumnMissing(self._without(database, lacks, there))

    def ranks(self, there: Iterable[str]) -> bool:
        """Whether rows have a priority in a table with these columns. In a user's own table a
        column is one only if `columns` names it."""
        if self.beside or (self.columns is not None and not self._names(PRIORITY)):
            return False
        return self.column(PRIORITY) in set(there)

    def no_priority(self, database: str) -> str:
        """The error message where rows shall have a priority, and the table has none."""
        if self.beside:
            return f"The queue beside table {self.table!r} in {database} has no priorities."
        if self.columns is not None:
            return (
                f"Table {self.table!r} in {database} has no column that serves as 'priority': add "
                "a column of integers (not null, by default 0) with an index on it and the id, and "
                'name it, as in queue={"priority": "urgency"}.'
            )
        return (
            f"Table {self.table!r} in {database} was made by a version without priorities: "
            f"'penstock queue upgrade {database} --table {self.table}' adds them."
        )

    def no_upgrade(self, database: str) -> str:
        """The error message for a user's own table, which only its owner changes."""
        return (
            f"Table {self.table!r} in {database} is your own, which penstock does not change. "
            "What a queue may have beside its usual columns: an integer column for 'priority' (not "
            "null, by default 0) and an index on it and the id."
        )

    def check_number(self, database: str, name: str, kind: str) -> None:
        """Raises CannotOpen if one of `NUMBERS` is declared to be of texts (`kind`)."""
        if re.search("char|text|clob", kind, re.IGNORECASE):
            raise CannotOpen(
                f"Column {self.column(name)!r} of table {self.table!r} in {database} is of type "
                f"{kind}. A queue needs numbers there: {NUMBERS[name]}. Add a column of integers, "
                "or name the one that serves instead by columns= (in a shell --column)."
            )

    def check_may_make(self, database: str, tables: list[str], required: Required) -> None:
        """Raises TableMissing unless the table, which is not among the `tables` of a database, may
        be made."""
        # Whether a writer would.
        makes = required.fields is None and not self.mapped
        if required.there or not (required.make and makes):
            raise TableMissing(self._no_table(database, tables, makes=makes))

    def _no_table(self, database: str, tables: list[str], *, makes: bool) -> str:
        # Those of a store of states are not what was meant.
        tables = [table for table in tables if not table.startswith("penstock")]
        if near := self.near(tables):
            there = f"Did you mean {' or '.join(map(repr, near))}?"
        elif tables:
            more = f" and {len(tables) - _SHOWN:,} more" if len(tables) > _SHOWN else ""
            there = f"It has: {', '.join(map(repr, tables[:_SHOWN]))}{more}."
        else:
            there = "It has no tables."
        made = (
            "A queue is made by what writes into it, and by a reader that follows it (follow=True)."
            if makes
            else "Only queues are made by penstock: make this table first."
        )
        return f"{database} has no table {self.table!r}. {there} {made}"

    def near(self, tables: Iterable[str]) -> list[str]:
        """The tables whose names are similar to this one's."""
        from difflib import get_close_matches

        return get_close_matches(self.table, tables, cutoff=_NEAR)

    def no_table_beside(self, database: str) -> str:
        """The error message where nothing is kept beside the user's table yet."""
        name = ".".join((*self.parts[:-1], self._with("_queue")))
        return (
            f"{database} has no table {name!r} beside {self.table!r}: it is made by "
            "the first reader or writer of the queue."
        )

    def no_index(self, database: str, key: Sequence[str]) -> str:
        """The error message for a key that no unique index has."""
        columns = ", ".join(map(quoted, key))
        name = quoted("_".join((self.parts[-1], *key)))
        table = ".".join(map(quoted, self.parts))
        return (
            f"Table {self.table!r} in {database} has no primary key or unique index on just "
            f"{', '.join(map(repr, key))}, which key= needs: CREATE UNIQUE INDEX {name} ON {table} "
            f"({columns})"
        )

    def _without(self, database: str, fields: Sequence[str], there: Iterable[str]) -> str:
        """The error message for columns of a table, no queue, that are not `there`."""
        names = ", ".join(map(repr, fields))
        return (
            f"Table {self.table!r} in {database} has no column{'s' * (len(fields) > 1)} {names}; "
            f"it has: {', '.join(there)}."
        )

    def _lacking(self, database: str, columns: Iterable[str]) -> str:
        """The error message for missing columns of a queue."""
        names = ", ".join(map(repr, columns))
        beside = (
            ""
            if self.beside
            else " beside=True (in a shell --beside) keeps all but an id, a payload and a status "
            "in a table beside it."
        )
        return (
            f"Table {self.table!r} in {database} lacks {names}. Add what is missing, or name the "
            f"columns that serve instead by columns= (in a shell --column).{beside} A table that "
            "is no queue, and is only read, needs from_id=, as in from_id='id'."
        )


@dataclass(frozen=True, slots=True)
class Upsert:
    """The columns of a `key`, and whether an inserted row with the key of one that is there
    `replaces` its other columns that are filled, or is ignored."""

    key: Sequence[str]
    replaces: bool

    def clause(self, columns: Iterable[str]) -> str:
        """The end of an INSERT that fills these columns."""
        key = ", ".join(map(quoted, self.key))
        others = [quoted(name) for name in columns if name not in self.key]
        if not (self.replaces and others):
            return f"ON CONFLICT ({key}) DO NOTHING"
        new = ", ".join(f"{name} = excluded.{name}" for name in others)
        return f"ON CONFLICT ({key}) DO UPDATE SET {new}"


class Required(NamedTuple):
    """What a table must have when it is opened.

    With `fields` it is not a queue but a table that must have those columns, and with `upsert` a
    unique index on its key. It is made only with `make`. `there`: the table, and the database, must
    exist; what belongs to it is still made. `context` names the column with the context of a trace,
    which claimed rows get if there is such a column. `ranked`: rows must have priorities. `only` is
    a column, or a field of the payload, and its values in the rows that are claimed.
    """

    fields: Sequence[str] | None = None
    upsert: Upsert | None = None
    make: bool = True
    there: bool = False
    context: str | None = None
    ranked: bool = False
    only: tuple[str, Sequence[str]] | None = None


ANY = Required()


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name != "" and "\0" not in name


def quoted(name: str) -> str:
    """An identifier, quoted for SQL, whatever it contains."""
    return '"' + name.replace('"', '""') + '"'
