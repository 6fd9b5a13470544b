"""A table of a database, as users describe it for `lookup`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.streams.sql_queue.rows import KeyedRows

__all__ = ["DatabaseTable"]


class _DatabaseTable(NamedTuple):
    open: Callable[[], KeyedRows]
    """Makes what reads the rows, not connected yet."""
    name: str
    """The table and the database, without its password."""
    by: str
    """The column of the keys."""
    ttl: float
    """The seconds after which the row of a key is read again."""
    cache: int
    """The most keys whose rows are in memory."""
    columns: Sequence[str] | None
    """The columns of a row; None: all."""
    patience: float
    """The seconds for which a database that is away is tried again."""


# A tuple has no room for the record of its call, and a class of one has.
class DatabaseTable(_DatabaseTable):
    """What `database_table` returns, for `lookup`: the rows of a table as they are now, or were
    some seconds ago."""
