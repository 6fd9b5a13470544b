"""Rows that are cancelled while a reader of SQLite or PostgreSQL has them in work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import (
    adaptive_flat_map,
    collect,
    from_iterable,
    group_by,
    read_table,
    spread,
    write_table,
)
from penstock.streams.sql_queue import Store, open_store
from penstock.streams.sql_queue.analytics.statistics import measure
from penstock.streams.sql_queue.claimed import CANCELLED
from penstock.streams.sql_queue.upkeep import Refusals, cancel
from tests.helpers.until import until


async def ends(store: Store) -> list[tuple[Any, ...]]:
    return await store.query(
        "SELECT {id}, {status}, {attempts}, {error} FROM {table} ORDER BY {id}"
    )


@pytest.mark.parametrize("by", [None, "key"])
def test_the_call_of_a_row_in_work_is_cancelled_and_the_row_is_dead_at_once(
    database: str, by: str | None
) -> None:
    begun, cancelled, done = list[int](), list[int](), list[Any]()

    async def handler(value: dict[str, Any]) -> dict[str, Any]:
        begun.append(value["n"])
        try:
            if value["n"] == 1:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)
            cancelled.append(value["n"])
            # The next row of the key has not overtaken it.
            assert by is None or begun == [1]
            raise
        return value

    async def work() -> None:
        values = [{"key": "k", "n": n} for n in (1, 2, 3)]
        await from_iterable(values).to(write_table(database)).run()
        store = open_store(database)
        await store.open()
        refused: Refusals = []
        assert await cancel(store, [3, 9], refused) == {3}
        rows = read_table(database, by=by, follow=False)
        if by is not None:
            rows = rows.pipe(group_by("key"), spread())
        pipeline = rows.pipe(adaptive_flat_map(handler)).to(
            write_table(database, "results"), collect(done)
        )
        async with pipeline.start() as running:
            await until(lambda: 1 in begun)
            assert await cancel(store, ["1"], refused) == {"1"}
            assert await cancel(store, ["1"], refused) == set()
            assert (await ends(store))[0] == (1, -1, 1, CANCELLED)
            report = await running.wait()
        assert (cancelled, done, refused) == ([1], [values[1]], [])
        numbers = report.statistics["stages"][0]
        assert (numbers["in"], numbers["finished"]) == (2, 1)
        assert (numbers["dropped"], numbers["cancelled"]) == ({"cancelled": 1}, 1)
        assert report.outcome == "completed"
        states = [(1, -1, 1, CANCELLED), (2, 1, 1, None), (3, -1, 0, CANCELLED)]
        assert await ends(store) == states
        assert len(await store.query("SELECT 1 FROM results")) == 1
        stats = await measure(store, 60.0)
        assert (stats.dead, stats.cancelled, stats.in_work) == (2, 2, 0)
        if by is not None:
            # Other readers need not wait for the lease of the key.
            assert await store.query("SELECT key FROM {keys}") == []
        await store.close()

    asyncio.run(work())
