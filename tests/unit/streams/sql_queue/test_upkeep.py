from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.streams.sql_queue import (
    DEAD,
    ClaimTerms,
    Failure,
    Settlement,
    Store,
    open_store,
    upkeep,
)
from penstock.streams.sql_queue.analytics.statistics import measure
from penstock.streams.sql_queue.upkeep import peek, purge, retry, retry_some

TERMS = ClaimTerms("poller", attempts=3)


def with_queue(url: str, work: Callable[[Store, list[int]], Coroutine[Any, Any, None]]) -> None:
    """Six rows: the first is finished, two are dead, one waits for another try, two are new."""

    async def main() -> None:
        store = open_store(url)
        await store.open()
        try:
            ids = await store.put([f'{{"n": {n}}}' for n in range(6)])
            rows = (await store.claim(4, TERMS)).rows
            failed = [
                Failure(rows[1], "ValueError: one"),
                Failure(rows[2], "ValueError: two"),
                Failure(rows[3], "ValueError: three", 3600.0),
            ]
            assert await store.settle(Settlement([rows[0]], failed), TERMS) == []
            await work(store, ids)
        finally:
            await store.close()

    asyncio.run(main())


async def states(store: Store) -> list[tuple[int, int]]:
    rows = await store.query("SELECT {status}, {attempts} FROM {table} ORDER BY {id}")
    return [(status, attempts) for status, attempts in rows]


def test_dead_rows_are_tried_again_as_often_as_new_ones(database: str) -> None:
    async def work(store: Store, ids: list[int]) -> None:
        assert await retry(store, []) == 2
        assert await states(store) == [(1, 1), (0, 0), (0, 0), (0, 1), (0, 0), (0, 0)]
        assert [row.id for row in (await store.claim(9, TERMS)).rows] == [*ids[1:3], *ids[4:]]

    with_queue(database, work)


def test_of_chosen_rows_those_that_failed_are_tried_again_at_once(database: str) -> None:
    async def work(store: Store, ids: list[int]) -> None:
        assert await retry_some(store, [], []) == set()
        assert await retry_some(store, [*ids[:2], ids[3], ids[5], 999], []) == {ids[1], ids[3]}
        assert [row.id for row in (await store.claim(9, TERMS)).rows] == [
            *(ids[1], ids[3]),
            *ids[4:],
        ]

    with_queue(database, work)


def test_the_last_error_stays_with_a_row_that_is_tried_again(database: str) -> None:
    async def work(store: Store, ids: list[int]) -> None:
        await retry(store, [])
        first, second, *_ = await peek(store, 9)
        assert (first.error, second.error) == ("ValueError: one", "ValueError: two")

    with_queue(database, work)


def test_finished_rows_are_deleted_once_they_are_old_enough(database: str) -> None:
    async def work(store: Store, ids: list[int]) -> None:
        assert await purge(store, 3600.0, []) == 0
        assert await purge(store, 0.0, []) == 1
        assert len(await states(store)) == 5
        assert await purge(store, 0.0, [], dead=True) == 2
        assert await states(store) == [(0, 1), (0, 0), (0, 0)]

    with_queue(database, work)


def test_many_rows_are_changed_a_batch_at_a_time(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_BATCH", 1)

    async def work(store: Store, ids: list[int]) -> None:
        assert await retry(store, []) == 2
        assert await purge(store, 0.0, []) == 1

    with_queue(database, work)


def test_the_next_rows_are_peeked_at_in_the_order_of_their_ids(database: str) -> None:
    async def work(store: Store, ids: list[int]) -> None:
        waiting = await peek(store, 2)
        assert [row.id for row in waiting] == [ids[3], ids[4]]
        assert (waiting[0].attempts, waiting[0].error) == (1, "ValueError: three")
        assert (waiting[0].run_at or 0) - (waiting[0].enqueued or 0) > 3000
        dead = await peek(store, 9, DEAD)
        assert [(row.id, row.error) for row in dead] == [
            (ids[1], "ValueError: one"),
            (ids[2], "ValueError: two"),
        ]
        assert len(await states(store)) == 6

    with_queue(database, work)


MADE = """CREATE TABLE jobs (id {id}, payload text, status {small} DEFAULT 0, run_at {time},
    enqueued {time}, started {time}, finished {time}, attempts integer DEFAULT 0, owner text,
    token bigint, expires {time}, error text)"""
TYPES = {
    "postgresql": {"id": "text PRIMARY KEY", "small": "smallint", "time": "timestamptz"},
    "sqlite": {"id": "TEXT PRIMARY KEY", "small": "INTEGER", "time": "REAL"},
}


def with_jobs(url: str, work: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
    """Three rows in a user's table, whose ids are words and which has no times."""

    async def main() -> None:
        made = open_store(url)
        await made.open()
        await made.query(MADE.format_map(TYPES[url.partition(":")[0]]))
        for id in ("it's", "Ä:b", "{c}"):
            await made.query("INSERT INTO jobs (id, payload) VALUES (:id, '1')", id=id)
        await made.close()
        store = open_store(url, "jobs", {"id": "id"})
        await store.open()
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(main())


def test_rows_whose_ids_are_words_are_tended_like_others(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_BATCH", 2)

    async def work(store: Store) -> None:
        rows = (await store.claim(3, TERMS)).rows
        await store.settle(Settlement(failed=[Failure(row, "ValueError") for row in rows]), TERMS)
        assert await retry_some(store, ["it's", "nobody"], []) == {"it's"}
        assert await retry_some(store, ["Ä:b", "{c}"], []) == {"Ä:b", "{c}"}
        rows = (await store.claim(3, TERMS)).rows
        await store.settle(Settlement(failed=[Failure(row, "ValueError") for row in rows]), TERMS)
        assert await retry(store, []) == 3
        await store.settle(Settlement((await store.claim(3, TERMS)).rows), TERMS)
        assert await purge(store, 0, []) == 3

    with_jobs(database, work)


def test_rows_without_times_are_due_now(database: str) -> None:
    async def work(store: Store) -> None:
        assert [row.run_at for row in await peek(store, 3)] == [None, None, None]
        stats = await measure(store, 60)
        assert (stats.waiting, stats.delayed) == (3, 0)
        assert stats.oldest_waiting is not None
        assert stats.oldest_waiting.seconds == 0
        rows = (await store.claim(3, TERMS)).rows
        assert [row.age for row in rows] == [0, 0, 0]
        await store.settle(Settlement(rows), TERMS)
        assert (await measure(store, 60)).finished == 3

    with_jobs(database, work)
