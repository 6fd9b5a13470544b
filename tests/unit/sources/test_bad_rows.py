"""Rows that fail or cannot be read, and tables that are taken away: the others are finished."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from penstock import adaptive_flat_map, group_by, read_table, spread, write_table
from penstock.streams.failures.backoff import Backoff
from penstock.streams.limits import Fixed
from penstock.streams.pipelines.pipeline import Pipeline
from penstock.streams.sql_queue import DEAD, UNPROCESSED, Store, open_store
from penstock.streams.sql_queue.analytics.statistics import measure
from penstock.streams.sql_queue.upkeep import peek, retry
from tests.helpers.until import until

ROWS = 60


@asynccontextmanager
async def queue(url: str, poison: int | None = None) -> AsyncGenerator[Store]:
    """A queue with rows of five keys, one of which a handler may fail on, and their results."""
    store = open_store(url)
    await store.open()
    try:
        payloads: list[dict[str, Any]] = [{"n": n, "key": n % 5} for n in range(ROWS)]
        if poison is not None:
            payloads[poison]["poison"] = True
        await store.put([orjson.dumps(payload) for payload in payloads])
        await store.query("CREATE TABLE results (n integer)")
        yield store
    finally:
        await store.close()


def pipeline_of(
    url: str, by: str | None = None, *, attempts: int = 3, seconds: float = 0.0
) -> Pipeline:
    async def handler(event: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(seconds)
        if "poison" in event:
            raise ValueError("poison")
        return {"n": event["n"]}

    soon = Backoff(0.02, cap=0.02)
    rows = read_table(url, by=by, attempts=attempts, backoff=soon, follow=False, poll=0.05)
    in_order = rows if by is None else rows.pipe(group_by(by), spread())
    work = adaptive_flat_map(handler, Fixed(5), on_error="revert")
    return in_order.pipe(work).to(write_table(url, "results", columns=["n"]))


async def finish(url: str, by: str | None = None, *, attempts: int = 3) -> dict[str, Any]:
    """Process all rows; return the counts of the source."""
    report = await pipeline_of(url, by, attempts=attempts).run()
    numbers: dict[str, Any] = report.statistics["stages"][0]
    return numbers


async def check(store: Store, dead: int = 0) -> None:
    """Check that every row is finished with one result, or dead with its error."""
    stats = await measure(store, 60.0)
    assert (stats.waiting, stats.failed, stats.in_work) == (0, 0, 0)
    assert (stats.finished, stats.dead) == (ROWS - dead, dead)
    results = Counter(n for (n,) in await store.read("SELECT n FROM results"))
    assert len(results) == results.total() == ROWS - dead
    assert all(row.error for row in await peek(store, ROWS, DEAD))


@pytest.mark.parametrize("by", [None, "key"])
def test_a_poisonous_row_is_dead_after_its_attempts_and_the_others_are_finished(
    database: str, by: str | None
) -> None:
    async def story() -> None:
        async with queue(database, poison=7) as store:
            await finish(database, by)
            await check(store, dead=1)
            (dead,) = await peek(store, 9, DEAD)
            assert (dead.id, dead.attempts) == (8, 3)
            assert dead.error is not None
            assert dead.error.startswith("ValueError: poison\n")
            assert (await measure(store, 60.0)).repeated == 2

    asyncio.run(story())


def test_json_that_is_not_an_object_is_dead_with_the_reason(postgres: str) -> None:
    async def story() -> None:
        async with queue(postgres) as store:
            for id, payload in ((5, "[8]"), (9, '"text"'), (11, "null")):
                text = "UPDATE {table} SET {payload} = (:payload)::text::json WHERE {id} = :id"
                await store.query(text, id=id, payload=payload)
            await finish(postgres)
            await check(store, dead=3)
            dead = await peek(store, 9, DEAD)
            assert {row.id for row in dead} == {5, 9, 11}
            assert all(str(row.error).startswith("BadRow: ") for row in dead)

    asyncio.run(story())


def test_payloads_that_cannot_be_decoded_are_dead_with_the_reason(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/work.db"

    async def story() -> None:
        async with queue(url) as store:
            for id, payload in ((3, '{"n": 2'), (5, b"\xff\x00"), (9, "[8]"), (11, "")):
                text = "UPDATE {table} SET {payload} = :payload WHERE {id} = :id"
                await store.query(text, id=id, payload=payload)
            assert (await finish(url))["bad_rows"] == 4
            await check(store, dead=4)
            reasons = {row.id: str(row.error) for row in await peek(store, 9, DEAD)}
            assert all(reasons[id].startswith("BadRow: ") for id in (3, 5, 9, 11))
            assert "is not valid JSON" in reasons[3]
            assert "of type list" in reasons[9]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("table", "column", "named"),
    [
        *(("{table}", None, "queue"), ("{table}", "{error}", "error")),
        *(("results", None, "results"), ("results", "n", "n")),
    ],
)
def test_a_table_or_column_that_is_taken_away_ends_the_run_and_loses_nothing(
    database: str, table: str, column: str | None, named: str
) -> None:
    if column is None:
        take, give = f"{table} RENAME TO elsewhere", f"elsewhere RENAME TO {table}"
    else:
        take = f"{table} RENAME COLUMN {column} TO other"
        give = f"{table} RENAME COLUMN other TO {column}"

    async def story() -> None:
        async with queue(database) as store:

            async def some_results() -> bool:
                return bool(await store.read("SELECT n FROM results LIMIT 1"))

            running = pipeline_of(database, attempts=10, seconds=0.02).start()
            await until(some_results)
            await store.query(f"ALTER TABLE {take}")
            with pytest.raises(Exception, match=named):
                await running.wait()
            await store.query(f"ALTER TABLE {give}")
            # Let all leases have run out.
            await store.query("UPDATE {table} SET {expires} = {now} - {second} WHERE {status} = 9")
            await finish(database, attempts=10)
            await check(store)

    asyncio.run(story())


def test_dead_rows_are_finished_when_their_cause_is_gone_and_they_are_tried_again(
    database: str,
) -> None:
    async def story() -> None:
        async with queue(database, poison=7) as store:
            await finish(database)
            await check(store, dead=1)
            await store.query("UPDATE {table} SET {payload} = '{{\"n\": 7}}' WHERE {id} = 8")
            assert await retry(store, []) == 1
            (row,) = await peek(store, 9, UNPROCESSED)
            assert row.attempts == 0
            await finish(database)
            await check(store)

    asyncio.run(story())
