"""Rows that fail, kill whoever works on them or cannot be read, and tables that are taken away."""

from __future__ import annotations

import asyncio
import signal

import pytest

from streams.errors import LeaseLost
from streams.table import UNPROCESSED
from streams.table.upkeep import peek, retry
from tests.table.outcome import (
    Outcome,
    end_leases,
    finish,
    numbered,
    opened,
    prepare,
    until_some_results,
)
from tests.table.poller import Orders, ended, pipeline_of, started

ROWS = 60


@pytest.mark.parametrize("by", [None, "key"])
def test_a_poisonous_row_is_dead_after_its_attempts_and_the_others_are_finished(
    database: str, by: str | None
) -> None:
    async def story() -> Outcome:
        payloads = numbered(ROWS)
        payloads[7]["poison"] = True
        await prepare(database, payloads)
        return await finish(Orders(database, by))

    end = asyncio.run(story())
    end.check(ROWS, dead=1)
    (dead,) = end.dead
    assert (dead.id, dead.attempts) == (8, 3)
    assert dead.error is not None
    assert dead.error.startswith("ValueError: poison\n")
    assert end.results.keys() == set(range(ROWS)) - {7}
    assert end.stats.repeated == 2


def test_a_row_that_kills_its_pollers_is_dead_after_its_attempts_and_takes_no_other_with_it(
    database: str,
) -> None:
    async def story() -> Outcome:
        payloads = numbered(ROWS)
        payloads[7]["kill"] = True
        await prepare(database, payloads)
        for _ in range(3):
            with started(Orders(database)) as (poller,):
                assert await ended(poller) == -signal.SIGKILL
            async with opened(database) as store:
                await end_leases(store, None)
        return await finish(Orders(database))

    end = asyncio.run(story())
    end.check(ROWS, dead=1)
    (dead,) = end.dead
    assert (dead.id, dead.attempts) == (8, 3)
    assert dead.error is not None
    assert dead.error.startswith(LeaseLost.__name__)


def test_json_that_is_no_object_is_dead_with_the_reason(postgres: str) -> None:
    async def story() -> Outcome:
        await prepare(postgres, numbered(ROWS))
        async with opened(postgres) as store:
            for id, payload in ((5, "[8]"), (9, '"text"'), (11, "null")):
                text = "UPDATE {table} SET {payload} = (:payload)::text::json WHERE {id} = :id"
                await store.query(text, id=id, payload=payload)
        return await finish(Orders(postgres))

    end = asyncio.run(story())
    end.check(ROWS, dead=3)
    assert {row.id for row in end.dead} == {5, 9, 11}
    assert all(str(row.error).startswith("BadRow: ") for row in end.dead)


def test_payloads_that_cannot_be_decoded_are_dead_with_the_reason(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/work.db"

    async def story() -> Outcome:
        await prepare(url, numbered(ROWS))
        async with opened(url) as store:
            for id, payload in ((3, '{"n": 2'), (5, b"\xff\x00"), (9, "[8]"), (11, "")):
                text = "UPDATE {table} SET {payload} = :payload WHERE {id} = :id"
                await store.query(text, id=id, payload=payload)
        return await finish(Orders(url))

    end = asyncio.run(story())
    end.check(ROWS, dead=4)
    reasons = {row.id: row.error for row in end.dead}
    assert all(str(reasons[id]).startswith("BadRow: ") for id in (3, 5, 9, 11))
    assert "is not valid JSON" in str(reasons[3])
    assert "of type list" in str(reasons[9])
    assert end.read["bad_rows"] == 4


@pytest.mark.parametrize(
    ("take", "give", "named"),
    [
        (
            "ALTER TABLE {table} RENAME TO elsewhere",
            "ALTER TABLE elsewhere RENAME TO {table}",
            "queue",
        ),
        (
            "ALTER TABLE {table} RENAME COLUMN {error} TO reason",
            "ALTER TABLE {table} RENAME COLUMN reason TO {error}",
            "error",
        ),
        (
            "ALTER TABLE results RENAME TO elsewhere",
            "ALTER TABLE elsewhere RENAME TO results",
            "results",
        ),
        (
            "ALTER TABLE results RENAME COLUMN n TO number",
            "ALTER TABLE results RENAME COLUMN number TO n",
            "n",
        ),
    ],
)
def test_a_table_or_column_that_is_taken_away_ends_the_run_and_loses_nothing(
    database: str, take: str, give: str, named: str
) -> None:
    async def story() -> None:
        await prepare(database, numbered(ROWS))
        running = pipeline_of(Orders(database, seconds=0.02, attempts=10)).start()
        async with opened(database) as store:
            await until_some_results(store)
            await store.query(take)
            with pytest.raises(Exception, match=named):
                await running.wait()
            await store.query(give)
            await end_leases(store, None)
        end = await finish(Orders(database, attempts=10))
        end.check(ROWS)

    asyncio.run(story())


def test_dead_rows_are_finished_when_their_cause_is_gone_and_they_are_tried_again(
    database: str,
) -> None:
    async def story() -> None:
        payloads = numbered(ROWS)
        payloads[7]["poison"] = True
        await prepare(database, payloads)
        (await finish(Orders(database))).check(ROWS, dead=1)
        async with opened(database) as store:
            await store.query("UPDATE {table} SET {payload} = '{{\"n\": 7}}' WHERE {id} = 8")
            assert await retry(store) == 1
            (row,) = await peek(store, 9, UNPROCESSED)
            assert row.attempts == 0
        (await finish(Orders(database))).check(ROWS)

    asyncio.run(story())
