"""PostgreSQL behind a pool of 12 connections: an insert and a look-up of some 20 ms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.plants.plant import Phase, Plant
from tests.helpers.servers.postgres import Postgres

__all__ = ["POSTGRES"]

_CONNECTIONS = 12

# The sleep in the server stands for a wait for a disk or a lock.
_WORK = """
    WITH stored AS (INSERT INTO orders (customer) VALUES (%s) RETURNING id)
    SELECT stored.id, pg_sleep(0.015 + 0.01 * random()) FROM stored
"""


@asynccontextmanager
async def _opened() -> AsyncIterator[Any]:
    from psycopg_pool import AsyncConnectionPool

    server = await asyncio.to_thread(Postgres)
    try:
        pool = AsyncConnectionPool(
            server.url, min_size=_CONNECTIONS, max_size=_CONNECTIONS, open=False
        )
        async with pool:
            await pool.wait()
            async with pool.connection() as connection:
                await connection.execute(
                    "CREATE TABLE orders (id serial PRIMARY KEY, customer int)"
                )

            async def store(number: int) -> Any:
                async with pool.connection() as connection:
                    cursor = await connection.execute(_WORK, (number % 1000,))
                    return await cursor.fetchone()

            yield store
    finally:
        await asyncio.to_thread(server.stop)


async def _nothing() -> None: ...


POSTGRES = Plant(
    "postgres", _opened, (Phase(f"pool of {_CONNECTIONS}", _nothing, (8, 10, 12, 15, 24)),)
)
