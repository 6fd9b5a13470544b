"""The schema of a queue's table, and its quoted names in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.streams.errors import BuildError

__all__ = [
    "COLUMNS",
    "DEAD",
    "IN_PROCESS",
    "PROCESSED",
    "UNPROCESSED",
    "Layout",
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


@dataclass(frozen=True, slots=True)
class Layout:
    """A table and its columns, by the names that they have in the database.

    `columns` maps names of `COLUMNS` to those of an existing table; without it the table has the
    names of `COLUMNS`, and is created if it is missing.
    """

    table: str = "queue"
    columns: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if not _is_name(self.table):
            raise BuildError(f"{self.table!r} is not a valid name of a table")
        if self.columns is None:
            return
        given: Any = self.columns
        if not isinstance(given, Mapping) or not all(map(_is_name, self.columns.values())):
            raise BuildError(
                f"{given!r} is not a valid mapping of columns: give a dict that maps the names of "
                f"a queue's columns to those of table {self.table!r}, as in "
                f'{{"payload": "body", ...}}'
            )
        if unknown := set(self.columns) - set(COLUMNS):
            raise BuildError(
                f"columns= names {', '.join(map(repr, sorted(unknown)))}, which a queue does not "
                f"have; it has: {', '.join(COLUMNS)}"
            )

    @property
    def mapped(self) -> bool:
        """Whether it is the user's own table, which is never created."""
        return self.columns is not None

    def column(self, name: str) -> str:
        """The name of a queue's column in the database."""
        return (self.columns or {}).get(name, name)

    @property
    def parts(self) -> list[str]:
        """Schema, if there is one, and table."""
        return self.table.split(".", 1)

    def beside(self, suffix: str) -> str:
        """The quoted name of a table beside this one."""
        *schema, table = self.parts
        return ".".join(quoted(part) for part in (*schema, table + suffix))

    def names(self) -> dict[str, str]:
        """The quoted identifiers for `{table}`, `{id}`, ... in a statement."""
        return {
            "table": ".".join(map(quoted, self.parts)),
            "keys": self.beside("_keys"),
            "index": quoted(f"{self.parts[-1]}_status_id"),
            **{name: quoted(self.column(name)) for name in COLUMNS},
        }

    def missing(self, there: Iterable[str], fields: Iterable[str] | None = None) -> list[str]:
        """The columns (of a queue, or `fields`) that are missing in `there`."""
        has = set(there)
        wanted = map(self.column, COLUMNS) if fields is None else fields
        return [name for name in wanted if name not in has]

    def lacking(self, database: str, columns: Iterable[str]) -> str:
        """The error message for missing columns."""
        names = ", ".join(map(repr, columns))
        return (
            f"Table {self.table!r} in {database} lacks {names}. Add what is missing, or name the "
            "columns that serve instead by columns=."
        )


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name != "" and "\0" not in name


def quoted(name: str) -> str:
    """An identifier, quoted for SQL, whatever it contains."""
    return '"' + name.replace('"', '""') + '"'
