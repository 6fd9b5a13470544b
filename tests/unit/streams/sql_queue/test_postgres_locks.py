"""Readers of one table do not wait for each other's transactions."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from penstock.streams.sql_queue import ClaimTerms, Row, Settlement, Store, open_store
from penstock.streams.sql_queue.postgres import statements as sql
from penstock.streams.sql_queue.postgres.claims import PostgresStore
from tests.helpers.until import until

ATTEMPTS = 2
WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
GONE, MINE, YOURS = (
    ClaimTerms(owner, lease=lease, attempts=ATTEMPTS, by="key")
    for owner, lease in (("gone", 0.0), ("mine", 60.0), ("yours", 60.0))
)


async def suspects_of_two_keys(store: Store) -> None:
    """Rows that a reader held which died, all of them with one attempt left."""
    await store.open()
    await store.put([b'{"key": "a"}', b'{"key": "a"}', b'{"key": "b"}', b'{"key": "b"}'])
    assert len((await store.claim(9, GONE)).rows) == 4
    # Nothing to claim, but suspects from now on.
    assert (await store.claim(9, MINE)).rows == []


def test_a_key_stays_with_its_reader_while_that_is_in_the_middle_of_a_settlement(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that is stopped there may still commit, or not: later rows must not overtake."""

    async def story() -> None:
        over, others = ClaimTerms("me", lease=0.0, by="key"), ClaimTerms("you", by="key")
        mine, yours = open_store(postgres), open_store(postgres)
        await mine.open()
        await mine.put([b'{"key": "a"}', b'{"key": "a"}', b'{"key": "b"}'])
        await yours.open()
        rows = (await mine.claim(9, over)).rows
        stopped, woken = asyncio.Event(), asyncio.Event()
        finish = PostgresStore._finish

        async def stop_after(self: PostgresStore, db: Any, rows: list[Row]) -> None:
            await finish(self, db, rows)
            stopped.set()
            await woken.wait()

        monkeypatch.setattr(PostgresStore, "_finish", stop_after)
        settling = asyncio.ensure_future(mine.settle(Settlement(finished=rows[:1]), over))
        async with asyncio.timeout(20):
            await stopped.wait()
            assert [row.key for row in (await yours.claim(9, others)).rows] == ["b"]
            woken.set()
            assert await settling == []
            assert [row.id for row in (await yours.claim(9, others)).rows] == [rows[1].id]
        for store in (mine, yours):
            await store.close()

    asyncio.run(story())


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("suspects", [False, True])
def test_a_claim_takes_the_rows_around_one_that_another_transaction_has_locked(
    postgres: str, behind: bool, suspects: bool
) -> None:
    async def story() -> None:
        store, terms = open_store(postgres), ClaimTerms("me", attempts=2)
        await store.open()
        await store.put([b"{}"] * 6)
        (first,) = (await store.claim(1, terms, reclaim=not behind)).rows
        if suspects:
            await store.claim(9, ClaimTerms("gone", lease=0.0, attempts=2))
        with psycopg.connect(postgres) as other:
            other.execute("SELECT 1 FROM queue WHERE id = 2 FOR UPDATE")
            async with asyncio.timeout(20):
                if suspects:
                    rows = (await store.claim_suspect(terms)).rows
                else:
                    rows = (await store.claim(9, terms, reclaim=not behind)).rows
            other.rollback()
        assert first.id == 1
        assert [row.id for row in rows] == ([3] if suspects else [3, 4, 5, 6])
        await store.close()

    asyncio.run(story())


def test_a_reader_beside_a_table_takes_the_rows_around_one_that_is_locked(postgres: str) -> None:
    async def story() -> None:
        store = open_store(postgres, "jobs", beside=True)
        with psycopg.connect(postgres, autocommit=True) as own:
            own.execute("CREATE TABLE jobs (id int PRIMARY KEY, payload json, status int)")
            own.execute("INSERT INTO jobs SELECT n, '{}', 0 FROM generate_series(1, 5) AS n")
        await store.open()
        with psycopg.connect(postgres) as other:
            other.execute("SELECT 1 FROM jobs WHERE id = 1 FOR UPDATE")
            async with asyncio.timeout(20):
                rows = (await store.claim(9, ClaimTerms("me"))).rows
            other.rollback()
        assert [row.id for row in rows] == [2, 3, 4, 5]
        await store.close()

    asyncio.run(story())


def test_rows_that_others_have_finished_since_a_claim_began_are_not_begun_anew(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that is late sees them as they were: not in the queue yet."""

    async def story() -> None:
        mine, yours = (open_store(postgres, "jobs", beside=True) for _ in range(2))
        with psycopg.connect(postgres, autocommit=True) as own:
            own.execute("CREATE TABLE jobs (id int PRIMARY KEY, payload json, status int)")
            await mine.open()
            await yours.open()
            # So that all its tables are there.
            assert (await mine.claim(9, MINE)).rows == []
            own.execute("""INSERT INTO jobs VALUES (1, '{"key": "a"}', 0)""")
            own.execute("SELECT pg_advisory_lock(7)")
            with monkeypatch.context() as late:
                wait = "FROM new, pg_advisory_xact_lock_shared(7)"
                late.setattr(sql, "ADOPT_ALL", sql.ADOPT_ALL.replace("FROM new", wait))
                claiming = asyncio.ensure_future(mine.claim(9, MINE))
                await until(lambda: own.execute(WAITING).fetchone() is not None)
            async with asyncio.timeout(20):
                (row,) = (await yours.claim(9, YOURS)).rows
                idle = [(row.key or "", row.epoch)]
                assert await yours.settle(Settlement([row], idle_keys=idle), YOURS) == []
                own.execute("SELECT pg_advisory_unlock(7)")
                assert (await claiming).rows == []
            assert own.execute("SELECT status FROM jobs").fetchall() == [(1,)]
        for store in (mine, yours):
            await store.close()

    asyncio.run(story())


@pytest.mark.parametrize("how", ["settles", "claims"])
def test_who_works_on_suspects_waits_for_no_other_who_does(postgres: str, how: str) -> None:
    """Two that waited for each other were a deadlock per row, of at least a second."""

    async def story() -> None:
        mine, yours = open_store(postgres), open_store(postgres)
        await suspects_of_two_keys(mine)
        await yours.open()
        (row,) = (await mine.claim_suspect(MINE)).rows
        (other,) = (await yours.claim_suspect(YOURS)).rows
        assert {row.key, other.key} == {"a", "b"}
        await mine.put([b'{"key": "c"}'])
        assert len((await mine.claim(9, GONE)).rows) == 1
        with psycopg.connect(postgres) as settling:
            # As `yours` does in the middle of its settlement.
            settling.execute("DELETE FROM queue_keys WHERE key = %s", [other.key])
            async with asyncio.timeout(20):
                if how == "settles":
                    idle = [(row.key or "", row.epoch)]
                    assert await mine.settle(Settlement([row], idle_keys=idle), MINE) == []
                else:
                    assert (await mine.claim(9, MINE)).rows == []
            settling.rollback()
        # The other suspect of the key is still to be worked on alone.
        marked = await mine.query("SELECT key FROM {keys} WHERE owner = '' ORDER BY key")
        assert marked == [(row.key if how == "settles" else "c",)]
        for store in (mine, yours):
            await store.close()

    asyncio.run(story())


@pytest.mark.parametrize("level", ["repeatable\\ read", "serializable"])
def test_readers_wait_for_each_other_instead_of_failing_at_the_servers_own_level_of_isolation(
    postgres: str, level: str
) -> None:
    async def story() -> None:
        url = f"{postgres}?options={quote(f'-c default_transaction_isolation={level}')}"
        store, terms = open_store(url), ClaimTerms("me")
        await store.open()
        await store.put([b"{}"])
        (row,) = (await store.claim(1, terms)).rows
        with psycopg.connect(postgres) as other, psycopg.connect(postgres, autocommit=True) as see:
            other.execute("UPDATE queue SET error = 'a note'")
            settling = asyncio.ensure_future(store.settle(Settlement([row]), terms))
            await until(lambda: see.execute(WAITING).fetchone() is not None)
            other.commit()
        assert await settling == []
        await store.close()

    asyncio.run(story())


def test_one_suspect_is_claimed_however_the_server_plans_it(postgres: str) -> None:
    """A nested loop looked for the first key again for each key, and found the next one."""
    settings = "-c enable_hashjoin=off -c enable_mergejoin=off -c enable_hashagg=off"

    async def story() -> None:
        store = open_store(f"{postgres}?options={quote(settings)}")
        await suspects_of_two_keys(store)
        for _ in range(4):
            assert len((await store.claim_suspect(MINE)).rows) == 1
        await store.close()

    asyncio.run(story())
