"""Reads rows of a PostgreSQL table by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from penstock.streams.sql_queue.claimed import Refused
from penstock.streams.sql_queue.postgres.claims import PostgresStore
from penstock.streams.sql_queue.schema import Required, quoted

__all__ = ["PostgresRows"]

# A subquery for each key: two rows are enough to see that there are several.
_ROWS = """SELECT k.place, t.* FROM unnest(:keys::text[]) WITH ORDINALITY AS k (key, place)
CROSS JOIN LATERAL
    (SELECT {wanted} FROM {table} WHERE {by} = k.key::{by_type} LIMIT 2) AS t"""

# The same types, of any length: a cast to the other ones would cut a key off.
_ANY_LENGTH = {"character": "bpchar", "bit": "varbit"}


class PostgresRows(PostgresStore):
    """Keys are compared as the type of their column. One statement, which sees one state of the
    table, reads the rows of all keys."""

    needs = "It needs SELECT on {table!r}."

    async def look(self, by: str, columns: Sequence[str] | None) -> None:
        await self.open(Required([by, *(columns or ())], there=True))
        self._wanted = list(columns or self._columns)
        self._names["wanted"] = ", ".join(map(quoted, self._wanted))
        self._names["by"] = quoted(by)
        self._names["by_type"] = _ANY_LENGTH.get(self._columns[by], self._columns[by])

    async def rows(self, keys: Sequence[Any]) -> list[list[dict[str, Any]]]:
        found: list[list[dict[str, Any]]] = [[] for _ in keys]
        async with self._using() as db:
            try:
                rows = await self._all(db, _ROWS, {"keys": list(map(str, keys))})
            except (psycopg.DataError, UnicodeEncodeError) as error:
                raise Refused(error) from error
        for row in rows:
            place: int = row[0] - 1
            found[place].append(dict(zip(self._wanted, row[1:], strict=True)))
        return found
