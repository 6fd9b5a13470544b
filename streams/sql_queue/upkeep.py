"""Maintenance of a queue: inspect rows, retry dead ones, delete finished ones.

Large changes are made in transactions of some thousand rows, so that pollers never wait long.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from penstock.streams.sql_queue.claimed import CANCELLED, Refused
from penstock.streams.sql_queue.schema import DEAD, PROCESSED, UNPROCESSED
from penstock.streams.sql_queue.store import Store

__all__ = ["Found", "Refusals", "cancel", "known", "peek", "purge", "retry", "retry_some"]

_BATCH = 5_000

Refusals = list[tuple[Any, Refused]]

# The largest integer of both databases.
_MOST = 2**63 - 1

_PEEK = """SELECT t.{id}, t.{status}, t.{attempts}, {seconds}t.{enqueued}), {seconds}t.{run_at}),
    {rank}, t.{owner}, t.{error}, {payload_of}
FROM {rows} AS t WHERE """
_FAILED = " AND t.{error} IS NOT NULL"
_WAITING = ("{waits}", " ORDER BY {by_index} LIMIT :count")
_OTHERS = (
    "t.{status} >= :status AND t.{status} <= :status",
    " ORDER BY t.{status}, t.{id} LIMIT :count",
)

_AGAIN = """UPDATE {table} SET
    {status} = 0, {attempts} = 0, {run_at} = {now}, {started} = NULL, {finished} = NULL,
    {owner} = NULL, {token} = NULL, {expires} = NULL
WHERE """
_RETRY = (
    _AGAIN
    + """{id} IN (
    SELECT {id} FROM {table} AS t WHERE {status} >= -1 AND {status} <= -1 AND {behind}{spared}
    ORDER BY {status}, {id} LIMIT :count)
RETURNING {id}"""
)

# As text: ids typed at a command line are text, whatever type the column has.
_RETRY_ONE = (
    _AGAIN
    + """({status} = -1 OR {status} = 0 AND {error} IS NOT NULL) AND CAST({id} AS text) = :text
RETURNING {id}"""
)

# The token of a row in work goes: whatever its reader says of it counts no more. The reader finds
# that out, and cancels the call.
_CANCEL = """UPDATE {table} SET
    {status} = -1, {finished} = {now}, {error} = :why,
    {owner} = NULL, {token} = NULL, {expires} = NULL
WHERE {status} IN (0, 9) AND CAST({id} AS text) = :text
RETURNING {id}"""

_KNOWN = "SELECT 1 FROM {table} WHERE CAST({id} AS text) = :text"

# Some rows that have had their status for long enough, to be deleted.
_OLD = """(
    SELECT {id} FROM {table} AS t
    WHERE {status} >= :status AND {status} <= :status AND {behind}
        AND {finished} <= {now} - :age * {second}{spared}
    ORDER BY {status}, {id} LIMIT :count)"""

# Of the user's own table, and then what is beside rows that are gone.
_PURGE_OWN = f"DELETE FROM {{own}} WHERE {{own_id}} IN {_OLD} RETURNING {{own_id}}"
_PURGE_BESIDE = """DELETE FROM {table}
WHERE {status} >= :status AND {status} <= :status AND {finished} <= {now} - :age * {second}
    AND NOT EXISTS (SELECT 1 FROM {own} AS o WHERE o.{own_id} = {table}.{id})"""

_PURGE = f"DELETE FROM {{table}} WHERE {{id}} IN {_OLD} RETURNING {{id}}"


@dataclass(frozen=True, slots=True)
class Found:
    """A row as stored in the table; times are seconds since 1970."""

    id: Any
    status: int
    attempts: int
    enqueued: float | None
    run_at: float | None
    priority: int | None
    owner: str | None
    error: str | None
    payload: str | bytes | None


async def peek(
    store: Store, count: int, status: int = UNPROCESSED, *, failed: bool = False
) -> list[Found]:
    """The first `count` rows of a status, in the order of their ids, and those that wait in the one
    in which they are claimed; of those that have `failed`, if that is given."""
    which, first = _WAITING if status == UNPROCESSED else _OTHERS
    statement = _PEEK + which + _FAILED * failed + first
    found = await store.read(statement, status=status, count=min(count, _MOST))
    return [Found(*row) for row in found]


async def retry(store: Store, refused: Refusals) -> int:
    """Let all rows that failed for good be tried again, at once and as often as new ones.

    The last error stays with a row until it has finished. Returns how many there were, without
    those for which the database `refused` it, which are added there with its errors.
    """
    return await _in_batches(store, _RETRY, refused)


async def retry_some(store: Store, ids: Collection[Any], refused: Refusals) -> set[Any]:
    """As `retry`, for rows that failed for good or wait for their next attempt.

    Returns those ids whose rows will be tried. An id may be given as its text.
    """
    found: set[Any] = set()
    for id in ids:
        try:
            if await store.query(_RETRY_ONE, text=str(id)):
                found.add(id)
        except Refused as error:
            refused.append((id, error))
    return found


async def cancel(store: Store, ids: Collection[Any], refused: Refusals) -> set[Any]:
    """Let rows that wait, or are in work, have failed for good; returns the ids of those that did.

    The reader that has a row in work cancels its call within about a second; its outcome is void.
    An id may be given as its text.
    """
    found: set[Any] = set()
    for id in ids:
        try:
            if await store.query(_CANCEL, text=str(id), why=CANCELLED):
                found.add(id)
        except Refused as error:
            refused.append((id, error))
    return found


async def known(store: Store, ids: Collection[Any]) -> set[Any]:
    """Those of the ids whose rows exist; each may be given as its text."""
    return {id for id in ids if await store.read(_KNOWN, text=str(id))}


async def purge(store: Store, age: float, refused: Refusals, *, dead: bool = False) -> int:
    """Delete rows that finished at least `age` seconds ago; with `dead` those that failed for good.

    Returns how many there were, without those that the database `refused` to delete.
    """
    status = DEAD if dead else PROCESSED
    if not store.layout.beside:
        return await _in_batches(store, _PURGE, refused, status=status, age=float(age))
    deleted = await _in_batches(store, _PURGE_OWN, refused, status=status, age=float(age))
    await store.query(_PURGE_BESIDE, status=status, age=float(age))
    return deleted


async def _in_batches(store: Store, text: str, refused: Refusals, **parameters: Any) -> int:
    """Run a statement that returns ids until no more come, for fewer rows and at last one where the
    database refuses it.

    If ids are numbers, each statement begins after the last one's, and reads no dead index entries.
    Text ids are compared by the database only.
    """
    done = 0
    behind: dict[str, Any] = {}
    count = _BATCH
    while True:
        statement = text.replace("{behind}", "{id} > :after" if behind else "TRUE")
        values: dict[str, Any] = {"count": count, **behind, **parameters}
        try:
            found = await store.query(statement, **values)
        except Refused as error:
            if count == 1:
                rows = statement[statement.index("SELECT ") : statement.rindex(")")]
                ((id,),) = await store.read(rows, **values)
                store.spare(id, error)
                refused.append((id, error))
            count = -(-count // 4)
            continue
        done += len(found)
        if len(found) < count:
            return done
        count = min(count * 4, _BATCH)
        ids = [id for (id,) in found]
        behind = {"after": max(ids)} if isinstance(ids[0], int) else {}
