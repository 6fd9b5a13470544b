"""Whether a connection is a session of its own, or one that a pooler lends out anew each time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from psycopg import AsyncConnection, errors

from penstock.streams.base.errors import CannotOpen

__all__ = ["check_session"]

Connection = AsyncConnection[tuple[Any, ...]]

# How often it is tried. On an idle pool the first time shows it, whichever of its connections it
# lends out first. A busy one would have to hand the same connection back each time by chance.
_TRIES = 10
# Seconds for a second connection: a pool of sessions may have none left.
_PATIENCE = 5.0


async def check_session(
    db: Connection, connect: Callable[[], Awaitable[Connection]], where: str
) -> None:
    """Raise CannotOpen if a pooler lends `db` a connection for each transaction.

    A lease, and what is set or listened to, would then be another client's. Nothing is changed. A
    second connection, of `connect`, is made only if there is a pooler.
    """
    if await _server_of(db) == db.info.backend_pid:
        return  # It was the server itself that answered.
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            if await _is_shared(db, await connect()):
                raise CannotOpen(
                    f"{where} is a pool of transactions, such as that of PgBouncer with pool_mode "
                    "= transaction or statement: each transaction may get another session of the "
                    "server, so that what a reader or writer sets there would be other programs', "
                    "and no reader would be woken. Give the URL of PostgreSQL itself, which "
                    "hosted databases often have on another port, or of a pool with pool_mode = "
                    "session."
                )


async def _is_shared(db: Connection, other: Connection) -> bool:
    """Whether a server process of `db` goes to `other`, or another one comes to `db`."""
    async with other:
        own = await _server_of(db)
        for _ in range(_TRIES):
            try:
                async with other.transaction():
                    if own == await _server_of(other) or own != await _server_of(db):
                        return True
            except errors.ProtocolViolation:
                return True  # No transactions at all: a pool of statements.
    return False


async def _server_of(db: Connection) -> int:
    # Prepared, it would have to be the same session each time.
    cursor = await db.execute("SELECT pg_backend_pid()", prepare=False)
    ((pid,),) = await cursor.fetchall()
    return int(pid)
