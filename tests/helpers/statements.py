"""Statements of tests, in SQLite or PostgreSQL, and random transactions of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from random import Random
from typing import Any

import psycopg

__all__ = ["Connection", "execute", "interleave"]

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


def execute(url: str, *statements: str) -> None:
    """Have each of these statements done, and committed."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as lite, lite:
            for statement in statements:
                lite.execute(statement)
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())


async def interleave(
    rng: Random,
    url: str,
    begin: Callable[[Connection], Awaitable[object]],
    insert: Callable[[Connection], Awaitable[Any]],
    look: Callable[[set[Any]], Awaitable[object]],
) -> set[Any]:
    """The ids that were committed, of up to four transactions at a time in PostgreSQL.

    `insert` returns the id of a row that it inserts, `look` is called with the ids so far.
    """
    open_ones: list[tuple[Connection, list[Any]]] = []
    committed: set[Any] = set()
    spare = [await psycopg.AsyncConnection.connect(url) for _ in range(4)]
    for _ in range(30):
        kind = rng.random()
        if kind < 0.3 and spare:
            connection = spare.pop()
            await begin(connection)
            open_ones.append((connection, []))
        elif kind < 0.6 and open_ones:
            connection, ids = rng.choice(open_ones)
            ids.append(await insert(connection))
        elif kind < 0.8 and open_ones:
            connection, ids = open_ones.pop(rng.randrange(len(open_ones)))
            if rng.random() < 0.7:
                await connection.commit()
                committed.update(ids)
            else:
                await connection.rollback()
            spare.append(connection)
        else:
            await look(committed)
    for connection, _ in open_ones:
        await connection.rollback()
    for connection in [*spare, *(one for one, _ in open_ones)]:
        await connection.close()
    return committed
