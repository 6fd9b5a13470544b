from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import warnings
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from penstock.streams.sql_queue import DatabaseLost, Layout, open_store
from penstock.streams.sql_queue.postgres import table_statements as postgres_sql
from penstock.streams.sql_queue.postgres.claims import PostgresStore


def test_a_connection_that_is_given_up_while_it_is_made_is_closed(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        store = open_store(postgres)
        await store.open()
        monkeypatch.setattr(postgres_sql, "LISTEN", "SELECT pg_sleep(30)")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.changed(10.0), 0.2)
        await store.close()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(story())
        gc.collect()
    assert [str(warning.message) for warning in told] == []


def test_a_reader_listens_although_its_first_attempt_to_did_not_succeed(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        store, other = open_store(postgres), open_store(postgres)
        await store.open()
        await other.open()
        execute = AsyncConnection.execute
        refuses = True

        async def refuse(self: Any, query: Any, *args: Any, **options: Any) -> Any:
            nonlocal refuses
            if refuses and "LISTEN" in query:
                refuses = False
                raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
            return await execute(self, query, *args, **options)

        monkeypatch.setattr(AsyncConnection, "execute", refuse)
        with pytest.raises(DatabaseLost):
            await store.changed(10.0)
        await store.changed(10.0)
        await other.put([b"{}"])
        async with asyncio.timeout(5):
            await store.changed(60.0)
        await store.close()
        await other.close()

    asyncio.run(story())


def test_a_connection_ends_within_half_a_minute_when_its_server_is_out_of_reach(
    postgres: str,
) -> None:
    async def story(url: str) -> dict[str, str]:
        store = PostgresStore(url, Layout())
        await store.open()
        db = await store._connected()
        with socket.socket(fileno=os.dup(db.fileno())) as one:
            assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if sys.platform == "linux":
                idle, interval, count, unanswered = (
                    one.getsockopt(socket.IPPROTO_TCP, option)
                    for option in (
                        socket.TCP_KEEPIDLE,
                        socket.TCP_KEEPINTVL,
                        socket.TCP_KEEPCNT,
                        socket.TCP_USER_TIMEOUT,
                    )
                )
                assert idle + interval * count <= 30
                assert 0 < unanswered <= 30_000
        parameters = db.info.get_parameters()
        await store.close()
        return parameters

    assert asyncio.run(story(postgres))["application_name"] == "penstock"
    own = asyncio.run(story(f"{postgres}?application_name=shop&keepalives_idle=7"))
    assert (own["application_name"], own["keepalives_idle"]) == ("shop", "7")
