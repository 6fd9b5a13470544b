"""The interface to rows of a table that are read by their keys, the same for every database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from penstock.streams.sql_queue.schema import Layout

__all__ = ["Database", "KeyedRows"]


class Database(Protocol):
    """A database in which a table is used. Calls of it raise DatabaseLost while it is away."""

    url: str
    layout: Layout

    async def blockers(self) -> str:
        """What the calls wait for that take long, "" if that is not known."""
        ...


class KeyedRows(Database, Protocol):
    """The rows of a table by the values of one column."""

    async def look(self, by: str, columns: Sequence[str] | None) -> None:
        """Connect, and look whether the table has the column of the keys, and the columns to be
        read; None: all of them. Raises CannotOpen, TableMissing and ColumnMissing."""

    async def rows(self, keys: Sequence[Any]) -> list[list[dict[str, Any]]]:
        """The rows of each key, of more than two only two. Raises Refused for a key that the column
        cannot have."""
        ...

    async def close(self) -> None: ...
