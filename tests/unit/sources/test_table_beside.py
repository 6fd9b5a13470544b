"""A queue beside a user's table: what is special about it. The rest is tested in `test_table`."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from penstock import adaptive_flat_map, collect, from_iterable, read_table, write_table
from penstock.streams.base.errors import BuildError, CannotOpen, ColumnMissing, TableMissing
from penstock.streams.failures.backoff import Backoff
from penstock.streams.sql_queue import ClaimTerms, Failure, Settlement, Store, open_store
from penstock.streams.sql_queue.analytics.replay import read_visits
from penstock.streams.sql_queue.analytics.statistics import QueueStats, measure
from penstock.streams.sql_queue.schema import Required
from penstock.streams.sql_queue.upkeep import peek, purge, retry
from tests.helpers.beside import COLUMNS

TERMS = ClaimTerms("me")


@pytest.fixture
def own(database: str) -> str:
    """The URL of a database with the table of the published queue: jobs."""
    number, time = (
        ("INTEGER", "REAL") if database.startswith("sqlite") else ("bigint", "timestamptz")
    )
    execute(
        database,
        f"CREATE TABLE jobs (id {number} PRIMARY KEY, payload text, status integer, "
        f"processed {time})",
    )
    return database


def execute(url: str, text: str) -> list[tuple[Any, ...]]:
    """Run a statement as a program of the user's does."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=20)) as db, db:
            return list(db.execute(text))
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(text.encode())
        return list(cursor.fetchall()) if cursor.description else []


def insert(url: str, *numbers: int, status: int = 0) -> None:
    values = ", ".join(f"""({n}, '{{"n": {n}}}', {status})""" for n in numbers)
    execute(url, f"INSERT INTO jobs (id, payload, status) VALUES {values}")


def statuses(url: str) -> dict[int, int]:
    return dict(execute(url, "SELECT id, status FROM jobs"))


def read(url: str, **options: Any) -> Any:
    return read_table(url, "jobs", columns=COLUMNS, beside=True, follow=False, **options)


def handled(url: str, handler: Callable[[dict[str, Any]], Any], **options: Any) -> list[Any]:
    done: list[Any] = []
    asyncio.run(
        read(url, **options)
        .pipe(adaptive_flat_map(handler, on_error="revert"))
        .to(collect(done))
        .run()
    )
    return done


def with_store(url: str, work: Callable[[Store], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    async def main() -> Any:
        store = open_store(url, "jobs", COLUMNS, beside=True)
        try:
            await store.open(Required(**options))
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(main())


def test_the_table_is_taken_as_it_is_and_no_column_is_added(own: str) -> None:
    insert(own, 3, 1, 2)
    assert handled(own, lambda event: event["n"]) == [1, 2, 3]
    assert statuses(own) == {1: 1, 2: 1, 3: 1}
    rows = execute(own, "SELECT * FROM jobs WHERE processed IS NOT NULL")
    assert [len(row) for row in rows] == [4, 4, 4]


def test_the_status_of_a_row_is_the_same_in_both_tables_at_every_step(own: str) -> None:
    insert(own, 1, 2, 3)

    async def work(store: Store) -> None:
        first, second, third = (await store.claim(3, TERMS)).rows
        assert statuses(own) == {1: 9, 2: 9, 3: 9}
        failures = [Failure(second, "Boom"), Failure(third, "Later", 60.0)]
        await store.settle(Settlement([first], failures), TERMS)
        assert statuses(own) == {1: 1, 2: -1, 3: 0}
        await retry(store, [])
        assert statuses(own) == {1: 1, 2: 0, 3: 0}

    with_store(own, work)


def test_a_row_that_waits_for_its_next_attempt_is_not_begun_anew(own: str) -> None:
    insert(own, 1)
    tries: list[int] = []

    def fail(event: dict[str, Any]) -> None:
        tries.append(event["n"])
        raise ValueError("Boom")

    handled(own, fail, attempts=3, backoff=Backoff(0.01, cap=0.01))
    assert (tries, statuses(own)) == ([1, 1, 1], {1: -1})


def test_rows_of_another_status_are_left_alone(own: str) -> None:
    insert(own, 1, status=5)
    insert(own, 2)
    execute(own, "INSERT INTO jobs (id, payload) VALUES (3, '{}')")
    assert handled(own, lambda event: event["n"]) == [2]
    assert statuses(own) == {1: 5, 2: 1, 3: None}


def test_a_row_that_is_set_back_is_worked_on_again(own: str) -> None:
    insert(own, 1, 2)
    assert handled(own, lambda event: event["n"]) == [1, 2]
    execute(own, "UPDATE jobs SET status = 0 WHERE id = 1")
    assert with_store(own, lambda store: measure(store, 60.0)).waiting == 1
    assert handled(own, lambda event: event["n"]) == [1]


def test_a_lease_that_ran_out_goes_to_another_reader_and_its_old_holder_changes_nothing(
    own: str,
) -> None:
    insert(own, 1)

    async def work(store: Store) -> None:
        (late,) = (await store.claim(1, ClaimTerms("gone", lease=0.0))).rows
        (mine,) = (await store.claim(1, TERMS)).rows
        assert (mine.id, mine.attempts) == (1, 2)
        assert await store.settle(Settlement([late]), ClaimTerms("gone")) == [late]
        assert statuses(own) == {1: 9}
        assert await store.settle(Settlement([mine]), TERMS) == []
        assert statuses(own) == {1: 1}

    with_store(own, work)


def test_only_as_many_rows_are_taken_in_as_are_claimed_and_readers_get_different_ones(
    own: str,
) -> None:
    insert(own, *range(100))

    async def story() -> None:
        stores = [open_store(own, "jobs", beside=True) for _ in range(4)]
        for store in stores:
            await store.open()
        claims = await asyncio.gather(
            *(store.claim(10, ClaimTerms(f"r{n}")) for n, store in enumerate(stores))
        )
        taken = [row.id for claim in claims for row in claim.rows]
        assert len(taken) == len(set(taken)) == 40
        ((kept,),) = await stores[0].query("SELECT count(*) FROM {table}")
        assert kept == 40
        for store in stores:
            await store.close()

    asyncio.run(story())


def test_the_key_may_be_a_field_or_a_column_of_the_users_table(own: str) -> None:
    execute(own, "ALTER TABLE jobs ADD COLUMN who text")
    insert(own, 1, 2, 3, 4)
    execute(own, "UPDATE jobs SET who = CASE WHEN id < 3 THEN 'a' ELSE 'b' END")

    async def work(store: Store) -> None:
        first = (await store.claim(1, ClaimTerms("me", by="who"))).rows
        others = (await store.claim(9, ClaimTerms("you", by="who"))).rows
        assert [(row.id, row.key) for row in (*first, *others)] == [(1, "a"), (3, "b"), (4, "b")]

    with_store(own, work)


def test_what_is_enqueued_and_statistics_are_of_the_users_table(own: str) -> None:
    insert(own, 1, 2, status=1)
    if own.startswith("postgresql"):
        execute(own, "ALTER TABLE jobs ALTER id ADD GENERATED BY DEFAULT AS IDENTITY (START 10)")
    sink = write_table(own, "jobs", queue=COLUMNS, beside=True)
    asyncio.run(from_iterable([{"n": 7}, {"n": 8}]).to(sink).run())

    async def work(store: Store) -> None:
        stats = await measure(store, 60.0)
        assert (stats.waiting, stats.finished) == (2, 2)
        assert stats.oldest_waiting is not None
        found = [orjson.loads(row.payload or "") for row in await peek(store, 9)]
        assert found == [{"n": 7}, {"n": 8}]
        rows = (await store.claim(9, TERMS)).rows
        await store.settle(Settlement(rows), TERMS)
        stats = await measure(store, 60.0)
        assert (stats.waiting, stats.finished, stats.service_rate) == (0, 4, 2 / 60)
        assert len(await read_visits(store, 60.0)) == 2
        assert await store.put(["{}"], delay=60.0)
        assert (await measure(store, 60.0)).delayed == 1
        assert (await store.claim(9, TERMS)).rows == []

    with_store(own, work)


def test_purged_rows_are_gone_from_both_tables(own: str) -> None:
    insert(own, 1, 2)
    handled(own, lambda event: event["n"])

    async def work(store: Store) -> None:
        insert(own, 3)
        assert await purge(store, 0.0, []) == 2
        assert statuses(own) == {3: 0}
        assert await store.query("SELECT count(*) FROM {table}") == [(0,)]

    with_store(own, work)


def test_results_and_the_status_of_the_users_row_are_one_transaction(own: str) -> None:
    insert(own, 1)
    execute(own, "CREATE TABLE bills (n integer CHECK (n < 0))")
    sink = write_table(own, "bills", columns=["n"], on_error="skip")
    report = asyncio.run(read(own, attempts=1).to(sink).run())
    assert (report.statistics["failed"], statuses(own)) == (1, {1: -1})
    execute(own, "UPDATE jobs SET status = 0, payload = '{\"n\": -4}'")
    asyncio.run(read(own).to(sink).run())
    assert (execute(own, "SELECT n FROM bills"), statuses(own)) == ([(-4,)], {1: 1})


def test_ids_may_be_texts(database: str) -> None:
    execute(database, "CREATE TABLE jobs (id text PRIMARY KEY, payload text, status integer)")
    execute(database, "INSERT INTO jobs VALUES ('b', '{\"n\": 2}', 0), ('a', '{\"n\": 1}', 0)")
    done: list[Any] = []
    asyncio.run(read_table(database, "jobs", beside=True, follow=False).to(collect(done)).run())
    assert done == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("kind", ["text", "DATETIME", "timestamp"])
def test_times_in_sqlite_may_be_texts_as_they_are_in_most_programs(
    tmp_path: Path, kind: str
) -> None:
    url = f"sqlite:///{tmp_path}/own.db"
    execute(
        url,
        f"CREATE TABLE jobs (id INTEGER PRIMARY KEY, payload text, status integer DEFAULT 0, "
        f"came {kind} DEFAULT CURRENT_TIMESTAMP, done {kind})",
    )
    hour_ago = "datetime('now', '-1 hour')"
    execute(url, f"INSERT INTO jobs (payload, came) VALUES ('{{}}', {hour_ago}), ('{{}}', 99)")
    execute(url, "INSERT INTO jobs (payload) VALUES ('[]')")
    execute(url, f"INSERT INTO jobs (status, came, done) VALUES (1, {hour_ago}, {hour_ago})")
    # Seconds, which a column of texts makes a text.
    ago = "strftime('%s', 'now', '-1 hour')"
    execute(url, f"INSERT INTO jobs (status, came, done) VALUES (1, {hour_ago}, {ago})")
    columns = {"enqueued": "came", "finished": "done"}
    seen: list[Any] = []
    stream = read_table(url, "jobs", columns=columns, beside=True, follow=False)
    asyncio.run(stream.to(collect(seen)).run())
    assert len(seen) == 2

    async def measured() -> QueueStats:
        store = open_store(url, "jobs", columns, beside=True)
        await store.open()
        try:
            return await measure(store, 600.0)
        finally:
            await store.close()

    stats = asyncio.run(measured())
    assert (stats.arrival_rate, stats.service_rate) == (1 / 600, 2 / 600)
    assert stats.time_waiting is not None
    assert 3600 <= stats.time_waiting.p50 < 3660
    ended = execute(url, "SELECT julianday(done) - julianday('now') FROM jobs WHERE id < 4")
    assert all(-60 < days * 86_400 < 1 for (days,) in ended)
    assert execute(url, "SELECT DISTINCT typeof(done) FROM jobs WHERE id < 4") == [("text",)]


@pytest.mark.parametrize("kind", ["text", "varchar(20)"])
def test_a_column_of_texts_is_no_status(database: str, kind: str) -> None:
    execute(database, f"CREATE TABLE jobs (id integer PRIMARY KEY, payload text, state {kind})")
    execute(database, "INSERT INTO jobs VALUES (1, '{}', 'new')")
    rows = read_table(database, "jobs", columns={"status": "state"}, beside=True, follow=False)
    with pytest.raises(CannotOpen, match=r"'state' of table 'jobs' .*needs numbers there: 0 for"):
        asyncio.run(rows.to(collect([])).run())
    tables = "sqlite_master" if database.startswith("sqlite") else "information_schema.tables"
    names = str(execute(database, f"SELECT * FROM {tables}"))
    assert "jobs_queue" not in names


def test_what_is_missing_is_named(own: str) -> None:
    with pytest.raises(TableMissing, match="'jobs_queue' beside 'jobs'"):
        with_store(own, lambda store: measure(store, 60.0), make=False)
    execute(own, "ALTER TABLE jobs DROP COLUMN status")
    with pytest.raises(ColumnMissing, match="lacks 'status'"):
        with_store(own, lambda store: measure(store, 60.0))
    with pytest.raises(TableMissing, match="no table 'none'"):
        asyncio.run(read_table(own, "none", beside=True).to(collect([])).run())


def test_columns_that_are_kept_beside_cannot_be_named() -> None:
    with pytest.raises(BuildError, match="'token', which is kept beside table 'jobs'"):
        read_table("sqlite:///a.db", "jobs", columns={"token": "t"}, beside=True)
    with pytest.raises(BuildError, match="either columns are filled"):
        write_table("sqlite:///a.db", "jobs", columns=["n"], beside=True)
    with pytest.raises(BuildError, match="beside='yes'"):
        read_table("sqlite:///a.db", "jobs", beside="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["TIMESTAMP", "REAL"])
def test_the_time_at_which_a_row_was_claimed_is_kept_in_a_column_of_ones_own(
    database: str, kind: str
) -> None:
    own = {"started": "begun"}
    if not database.startswith("sqlite"):
        kind = {"TIMESTAMP": "timestamptz", "REAL": "timestamp"}[kind]
    execute(
        database,
        f"CREATE TABLE jobs (id bigint PRIMARY KEY, payload text, status integer, begun {kind})",
    )
    insert(database, 1)

    async def story() -> None:
        store = open_store(database, "jobs", own, beside=True)
        await store.open()
        begun: list[Any] = []
        for lease in (0.0, 60.0):  # again, without a change of the status
            (row,) = (await store.claim(9, ClaimTerms("me", lease=lease))).rows
            begun += execute(database, "SELECT begun FROM jobs")
            await asyncio.sleep(0.002)
        assert begun[0] != begun[1] != (None,) != begun[0]
        assert await store.settle(Settlement(returned=[row]), TERMS) == []
        assert execute(database, "SELECT begun FROM jobs") == [(None,)]
        await store.close()

    asyncio.run(story())
    values: list[Any] = []
    rows = read_table(database, "jobs", beside=True, columns=own, follow=False)
    asyncio.run(rows.to(collect(values)).run())
    assert values == [{"n": 1}]
    assert execute(database, "SELECT begun IS NULL, status FROM jobs") == [(False, 1)]
