"""Queues that version 0.1.0 left in tables: see `tests.contract.stored.generate`."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import collect, read_table
from penstock.streams.sql_queue import ClaimTerms, Row, Settlement, Store, open_store
from penstock.streams.sql_queue.analytics.statistics import measure
from penstock.streams.sql_queue.schema import Required
from penstock.streams.sql_queue.upkeep import retry

FOLDER = Path(__file__).parent / "first"
OLD = ClaimTerms("reader-a")


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@pytest.fixture
def stored(database: str) -> str:
    """The URL of a database with the stored data."""
    if database.startswith("sqlite"):
        script = (FOLDER / "queue.sqlite.sql").read_text(encoding="utf-8")
        with closing(sqlite3.connect(database.removeprefix("sqlite:///"))) as connection:
            connection.executescript(script)
    else:
        script = (FOLDER / "queue.postgresql.sql").read_text(encoding="utf-8")
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(script.encode())
    return database


@asynccontextmanager
async def opened(url: str, table: str = "queue") -> AsyncGenerator[Store, None]:
    store = open_store(url, table)
    await store.open(Required(make=False))
    try:
        yield store
    finally:
        await store.close()


async def column(store: Store, name: str) -> list[Any]:
    rows = await store.query(f"SELECT {{{name}}} FROM {{table}} ORDER BY {{id}}")
    return [value for (value,) in rows]


async def read(url: str, table: str = "queue", **options: Any) -> list[dict[str, Any]]:
    """The rows of a reader that does not wait for others."""
    values: list[dict[str, Any]] = []
    source = read_table(url, table, follow=False, wait_for_leases=False, **options)
    await source.to(collect(values)).run()
    return values


def test_the_state_of_every_row_is_seen(stored: str) -> None:
    async def work() -> None:
        async with opened(stored) as store:
            stats = await measure(store, 1e10)
        assert (stats.waiting, stats.delayed, stats.failed) == (4, 1, 1)
        assert (stats.in_work, stats.expired, stats.finished, stats.dead) == (3, 2, 2, 1)
        assert stats.oldest_waiting is not None
        assert stats.oldest_waiting.id == 5
        assert [(one.owner, one.in_work, one.expired, one.finished) for one in stats.pollers] == [
            ("reader-a", 2, 2, 2),
            ("reader-b", 1, 0, 0),
        ]
        assert stats.time_in_work is not None
        assert stats.time_in_work.max < 1

    run(work())


def test_what_is_due_is_worked_on_and_what_another_reader_holds_is_not(stored: str) -> None:
    async def work() -> None:
        values = await read(stored)
        assert sorted(value["n"] for value in values) == [1, 5, 6, 7, 9]
        assert {"n": 9, "name": "Zo\u00eb"} in values
        async with opened(stored) as store:
            # Row 4 was dead, row 8 is in work elsewhere, row 10 holds no object, row 11 is not due.
            assert await column(store, "status") == [1, 1, 1, -1, 1, 1, 1, 9, 1, -1, 0]
            assert await column(store, "attempts") == [5, 1, 1, 1, 2, 2, 1, 1, 1, 1, 0]
            assert (await column(store, "owner"))[7] == "reader-b"

    run(work())


def test_a_reader_of_then_that_is_late_changes_nothing(stored: str) -> None:
    async def work() -> None:
        async with opened(stored) as store:
            tokens = dict(await store.query("SELECT {id}, {token} FROM {table}"))
            theirs = Row(6, tokens[6], 1, "{}")
            (mine,) = [
                row
                for row in (await store.claim(9, ClaimTerms("new"))).rows
                if row.id == 6 and row.token != tokens[6]
            ]
            assert await store.settle(Settlement(finished=[theirs]), OLD) == [theirs]
            assert (await column(store, "status"))[5] == 9
            assert await store.settle(Settlement(finished=[mine]), ClaimTerms("new")) == []
            assert (await column(store, "status"))[5] == 1

    run(work())


def test_a_reader_of_then_that_is_in_time_is_heard(stored: str) -> None:
    async def work() -> None:
        async with opened(stored) as store:
            tokens = dict(await store.query("SELECT {id}, {token} FROM {table}"))
            row = Row(8, tokens[8], 1, "{}")
            assert await store.settle(Settlement(finished=[row]), ClaimTerms("reader-b")) == []
            assert (await column(store, "status"))[7] == 1

    run(work())


def test_dead_rows_are_tried_again_and_new_ones_come_after_the_old(stored: str) -> None:
    async def work() -> None:
        async with opened(stored) as store:
            assert await retry(store, []) == 1
            assert await store.put(['{"n": 12}']) == [12]
        assert sorted(one["n"] for one in await read(stored)) == [1, 4, 5, 6, 7, 9, 12]

    run(work())


def test_keys_keep_their_order_and_a_key_that_another_reader_holds_is_left_to_it(
    stored: str,
) -> None:
    async def work() -> None:
        values = await read(stored, "keyed", by="key")
        of: dict[str, list[int]] = {}
        for value in values:
            of.setdefault(value["key"], []).append(value["n"])
        assert of == {"a": [3, 6], "b": [2, 5], "d": [7]}
        async with opened(stored, "keyed") as store:
            assert await column(store, "status") == [1, 1, 1, 9, 1, 1, 1, 0]
            left = await store.query("SELECT key, epoch, owner FROM {keys}")
            assert left == [("c", 4, "reader-b")]

    run(work())


def test_a_lease_of_a_key_has_a_larger_epoch_than_all_before(stored: str) -> None:
    async def work() -> None:
        async with opened(stored, "keyed") as store:
            rows = (await store.claim(9, ClaimTerms("new", by="key"))).rows
            assert {row.key for row in rows} == {"a", "b", "d"}
            assert all(row.epoch is not None and row.epoch > 4 for row in rows)

    run(work())
