"""A table of a database, whose queries take a while, and which may be away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.streams.joins.database_table import DatabaseTable
from penstock.streams.sql_queue.claimed import Refused
from penstock.streams.sql_queue.schema import Layout
from penstock.streams.sql_queue.store import DatabaseLost

__all__ = ["RowsByKey"]


class RowsByKey:
    """The rows of each key in `there`, which a test may change at any time.

    A query takes `seconds`, in the middle of which it reads. While it is `away` it fails; it
    refuses the keys in `refused`. The keys of each query are in `queries`.
    """

    def __init__(self, there: dict[Any, Any] | None = None, seconds: float = 0.0) -> None:
        self.url = "memory://plans"
        self.layout = Layout("plans")
        self.there = {} if there is None else there
        self.seconds = seconds
        self.refused: set[Any] = set()
        self.away = False
        self.queries: list[list[Any]] = []
        self.is_open = False

    def table(self, ttl: float = 0.0, cache: int = 100, patience: float = 60.0) -> DatabaseTable:
        return DatabaseTable(lambda: self, "plans in memory", "user", ttl, cache, None, patience)

    async def look(self, by: str, columns: Sequence[str] | None) -> None:
        await asyncio.sleep(0)
        self.is_open = True

    async def rows(self, keys: Sequence[Any]) -> list[list[dict[str, Any]]]:
        assert self.is_open
        self.queries.append(list(keys))
        await asyncio.sleep(self.seconds / 2)
        if self.away:
            raise DatabaseLost("no route to it")
        if not self.refused.isdisjoint(keys):
            raise Refused(ValueError("not a number"))
        found = [self.there.get(key, []) for key in keys]
        rows = [list(rows) if isinstance(rows, list) else [rows] for rows in found]
        await asyncio.sleep(self.seconds / 2)
        return rows

    async def blockers(self) -> str:
        return ""

    async def close(self) -> None:
        self.is_open = False
