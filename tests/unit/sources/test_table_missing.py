"""Tables and databases that are not there, as by a name that is mistyped."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from penstock import collect, read_table, write_table
from penstock.streams.base.errors import CannotOpen, TableMissing
from penstock.streams.sql_queue import Store, open_store
from penstock.streams.sql_queue.schema import Required


async def opened(url: str, table: str, *, make: bool = True) -> Store:
    store = open_store(url, table)
    try:
        await store.open(Required(make=make))
    finally:
        await store.close()
    return store


async def read(url: str, table: str, **options: Any) -> list[Any]:
    values: list[Any] = []
    await read_table(url, table, follow=False, **options).to(collect(values)).run()
    return values


def test_a_reader_that_does_not_follow_refuses_a_missing_table_and_names_near_ones(
    database: str,
) -> None:
    async def work() -> None:
        for table in ("queue", "other"):
            await opened(database, table)
        with pytest.raises(TableMissing) as raised:
            await read(database, "qeue")
        assert database.removeprefix("sqlite:///") in str(raised.value)
        assert "has no table 'qeue'. Did you mean 'queue'? A queue is made by" in str(raised.value)
        with pytest.raises(TableMissing, match="'qeue'"):
            await opened(database, "qeue", make=False)

    asyncio.run(work())


def test_where_no_name_is_near_all_tables_are_named(database: str) -> None:
    if database.startswith("sqlite"):
        Path(database.removeprefix("sqlite:///")).touch()

    async def work() -> None:
        with pytest.raises(TableMissing, match=r"'jobs'\. It has no tables\. A queue"):
            await read(database, "jobs")
        for table in ("alpha", "beta", "penstock_state"):
            await opened(database, table)
        with pytest.raises(TableMissing, match=r"'jobs'\. It has: 'alpha', 'beta'\. A queue"):
            await read(database, "jobs")

    asyncio.run(work())


@pytest.mark.parametrize("options", [{}, {"columns": {"payload": "body"}}, {"beside": True}])
def test_a_reader_that_does_not_follow_makes_no_database(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(CannotOpen, match=r"work\.db does not exist"):
        asyncio.run(read(f"sqlite:///{tmp_path}/work.db", "queue", **options))
    assert list(tmp_path.iterdir()) == []


def test_a_users_own_table_is_not_said_to_be_made(database: str) -> None:
    async def work() -> None:
        await opened(database, "jobs")
        with pytest.raises(TableMissing, match=r"Did you mean 'jobs'\? Only queues are made"):
            await read(database, "job", columns={"payload": "body"})
        with pytest.raises(TableMissing, match=r"Did you mean 'jobs'\? Only queues are made"):
            await write_nothing(database, "job")

    async def write_nothing(url: str, table: str) -> None:
        await read_table(url, "jobs", follow=False).to(write_table(url, table, columns=["n"])).run()

    asyncio.run(work())


def test_a_reader_that_follows_makes_its_table_and_warns_of_near_names(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def follow(table: str) -> None:
        values: list[Any] = []
        async with read_table(database, table).to(collect(values)).start() as running:
            while not running.is_ready:  # noqa: ASYNC110 - a thread, or a server, opens it
                await asyncio.sleep(0.01)
            await running.drain()

    async def work() -> None:
        for table in ("queue", "results", "qeue"):
            await follow(table)
            await opened(database, table, make=False)
        await follow("qeue")

    with caplog.at_level(logging.WARNING, "penstock"):
        asyncio.run(work())
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "had no table 'qeue', and read_table has made it; there is 'queue'" in warning
