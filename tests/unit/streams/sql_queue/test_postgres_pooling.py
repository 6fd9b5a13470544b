"""Poolers in front of PostgreSQL: those of transactions are refused, and left as they were."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from penstock import collect, from_iterable, ops, queue_stats, read_table, write_table
from penstock.streams.base.errors import CannotOpen
from penstock.streams.sql_queue import open_store
from penstock.streams.sql_queue.schema import Required
from penstock.streams.sql_queue.upkeep import peek
from tests.helpers.servers.pooler import Pooler

SETTINGS = ("synchronous_commit", "default_transaction_isolation", "enable_seqscan")


async def read(url: str) -> None:
    await read_table(url, follow=False).to(collect([])).run()


async def read_by_key(url: str) -> None:
    await read_table(url, by="n").to(collect([])).run()


async def write(url: str) -> None:
    await from_iterable([{"n": 1}]).to(write_table(url)).run()


async def measure(url: str) -> None:
    await queue_stats(url).pipe(ops.take(1)).to(collect([])).run()


async def look(url: str) -> None:
    store = open_store(url)
    try:
        await store.open(Required(make=False))
        await peek(store, 1)
    finally:
        await store.close()


Use = Callable[[str], Awaitable[Any]]


@pytest.mark.parametrize("mode", ["transaction", "statement"])
@pytest.mark.parametrize("use", [read, read_by_key, write, measure, look])
def test_a_pool_of_transactions_is_refused_by_name_before_anything_is_set_or_made_there(
    postgres: str, mode: str, use: Use
) -> None:
    async def story() -> None:
        async with Pooler(postgres, mode) as pooler:
            with pytest.raises(CannotOpen, match=r"PgBouncer.*pool_mode = session"):
                await use(pooler.url)
            assert await of_its_sessions(pooler, SETTINGS) == await of_its_sessions(None, SETTINGS)
        with psycopg.connect(postgres) as db:
            assert db.execute("SELECT to_regclass('queue')").fetchone() == (None,)

    async def of_its_sessions(pooler: Pooler | None, names: tuple[str, ...]) -> list[str]:
        url = postgres if pooler is None else pooler.url
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
            return [str(await (await db.execute(f"SHOW {name}")).fetchone()) for name in names]

    asyncio.run(story())


@pytest.mark.parametrize("busy", [0, 1])
@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("size", [2, 3])
def test_it_is_recognised_whichever_session_it_lends_next(
    postgres: str, size: int, in_turn: bool, busy: int
) -> None:
    async def story() -> None:
        async with Pooler(postgres, "transaction", size=size, in_turn=in_turn, busy=busy) as pooler:
            for _ in range(3):
                with pytest.raises(CannotOpen, match="PgBouncer"):
                    await look(pooler.url)

    asyncio.run(story())


def test_a_pool_of_sessions_serves_readers_and_writers(postgres: str) -> None:
    async def story() -> None:
        async with Pooler(postgres, "session") as pooler:
            values: list[Any] = []
            rows = read_table(pooler.url, poll=60.0).pipe(ops.take(2))
            reading = asyncio.ensure_future(rows.to(collect(values)).run())
            await write(pooler.url)
            await write(pooler.url)
            async with asyncio.timeout(20):
                await reading
            assert values == [{"n": 1}, {"n": 1}]

    asyncio.run(story())
