"""What is done to a queue by hand: look at rows, try dead ones again, delete finished ones.

Large changes are made in transactions of some thousand rows, so that pollers never wait long.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from streams.table.schema import DEAD, PROCESSED, UNPROCESSED
from streams.table.store import Store

__all__ = ["Found", "peek", "purge", "retry", "retry_some"]

_BATCH = 5_000

_PEEK = """SELECT t.{id}, t.{status}, t.{attempts}, {seconds}t.{enqueued}), {seconds}t.{run_at}),
    t.{owner}, t.{error}, {payload_of}
FROM {table} AS t WHERE t.{status} >= :status AND t.{status} <= :status
ORDER BY t.{status}, t.{id} LIMIT :count"""

_AGAIN = """UPDATE {table} SET
    {status} = 0, {attempts} = 0, {run_at} = {now}, {started} = NULL, {finished} = NULL,
    {owner} = NULL, {token} = NULL, {expires} = NULL
WHERE """
_RETRY = (
    _AGAIN
    + """{id} IN (
    SELECT {id} FROM {table} WHERE {status} >= -1 AND {status} <= -1 AND {id} > :after
    ORDER BY {status}, {id} LIMIT :count)
RETURNING {id}"""
)

_PURGE = """DELETE FROM {table} WHERE {id} IN (
    SELECT {id} FROM {table}
    WHERE {status} >= :status AND {status} <= :status AND {id} > :after
        AND {finished} <= {now} - :age * {second}
    ORDER BY {status}, {id} LIMIT :count)
RETURNING {id}"""


@dataclass(frozen=True, slots=True)
class Found:
    """A row as it stands in the table; times are seconds since 1970."""

    id: int
    status: int
    attempts: int
    enqueued: float
    run_at: float
    owner: str | None
    error: str | None
    payload: str | bytes


async def peek(store: Store, count: int, status: int = UNPROCESSED) -> list[Found]:
    """The first `count` rows of a status, in the order of their ids, as they are claimed."""
    return [Found(*row) for row in await store.read(_PEEK, status=status, count=count)]


async def retry(store: Store) -> int:
    """Let all rows that failed for good be tried again, at once and as often as new ones.

    The last error stays with a row until it has finished. Returns how many there were.
    """
    return await _in_batches(store, _RETRY)


async def retry_some(store: Store, ids: Collection[int]) -> set[int]:
    """As `retry`, for rows that failed for good or wait for their next attempt.

    Returns the ids of those that will be tried.
    """
    if not ids:
        return set()
    # Numbers, so the text is safe; a list as a parameter is written differently everywhere.
    listed = ", ".join(str(int(id)) for id in ids)
    chosen = "{status} = -1 OR {status} = 0 AND {error} IS NOT NULL"
    text = f"{_AGAIN}{{id}} IN ({listed}) AND ({chosen}) RETURNING {{id}}"
    return {id for (id,) in await store.query(text)}


async def purge(store: Store, age: float, *, dead: bool = False) -> int:
    """Delete rows that finished at least `age` seconds ago; with `dead` those that failed for good.

    Returns how many there were.
    """
    status = DEAD if dead else PROCESSED
    return await _in_batches(store, _PURGE, status=status, age=float(age))


async def _in_batches(store: Store, text: str, **parameters: Any) -> int:
    """Run a statement that returns ids until no more come; each looks beyond those before."""
    done = 0
    after = -(2**63)
    while True:
        found = await store.query(text, after=after, count=_BATCH, **parameters)
        done += len(found)
        if len(found) < _BATCH:
            return done
        after = max(id for (id,) in found)
