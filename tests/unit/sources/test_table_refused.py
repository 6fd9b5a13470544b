"""A constraint or a trigger that one row breaks is the failure of that row, and of no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from penstock import Backoff, Fixed, adaptive_flat_map, collect, ops, read_table, write_table
from penstock.streams.sql_queue import ClaimTerms, Settlement, Store, open_store
from penstock.streams.sql_queue.upkeep import purge, retry, retry_some

Work = Callable[[Store], Awaitable[None]]


def with_queue(url: str, count: int, work: Work) -> None:
    """Run `work` on a queue of rows with n from 1."""

    async def story() -> None:
        store = open_store(url)
        await store.open()
        await store.put([orjson.dumps({"n": n, "key": n % 2}) for n in range(1, count + 1)])
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(story())


async def refuse(
    store: Store, condition: str, *, name: str = "refuse", change: str = "UPDATE"
) -> None:
    """No change of a row may make this true: of SQL, where the new row is NEW."""
    if store.url.startswith("sqlite"):
        await store.query(
            f"CREATE TRIGGER {name} BEFORE {change} ON {{table}} WHEN {condition} "
            "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
    else:
        await store.query(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE 'not this one'; END $$"
        )
        await store.query(
            f"CREATE TRIGGER {name} BEFORE {change} ON {{table}} FOR EACH ROW "
            f"WHEN ({condition}) EXECUTE FUNCTION {name}()"
        )


async def rows(store: Store) -> list[tuple[int, int, str | None]]:
    found = await store.query("SELECT {id}, {status}, {error} FROM {table} ORDER BY {id}")
    return [(id, status, error) for id, status, error in found]


async def read(url: str, *stages: Any, **options: Any) -> tuple[list[int], Any]:
    values: list[dict[str, Any]] = []
    source: Any = read_table(url, follow=False, poll=0.05, **options)
    async with asyncio.timeout(30):
        report = await source.pipe(*stages).to(collect(values)).run()
    return sorted(value["n"] for value in values), report


@pytest.mark.parametrize("by", [None, "key"])
def test_a_row_that_nobody_may_claim_has_failed_for_good_and_the_others_are_processed(
    database: str, by: str | None
) -> None:
    async def work(store: Store) -> None:
        await refuse(store, "NEW.status = 9 AND NEW.id IN (3, 7)")
        found, report = await read(database, by=by)
        assert found == [1, 2, 4, 5, 6, 8, 9]
        assert report.statistics["stages"][0]["bad_rows"] == 2
        for id, status, error in await rows(store):
            assert status == (-1 if id in (3, 7) else 1)
            assert ("not this one" in (error or "")) == (id in (3, 7))

    with_queue(database, 9, work)


@pytest.mark.parametrize("by", [None, "key"])
def test_a_row_of_which_every_change_is_refused_is_left_alone_and_said(
    database: str, by: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(store: Store) -> None:
        await refuse(store, "NEW.id = 1")
        found, _ = await read(database, by=by, batch=1)
        assert found == [2, 3, 4]
        assert await rows(store) == [(1, 0, None), (2, 1, None), (3, 1, None), (4, 1, None)]
        assert any("row 1 of" in told and "not this one" in told for told in caplog.messages)

    with_queue(database, 4, work)


@pytest.mark.parametrize("by", [None, "key"])
@pytest.mark.parametrize("condition", ["NEW.id > 0", "NEW.status = 9", "NEW.status = 1"])
def test_where_the_database_refuses_a_hundred_in_a_row_the_run_ends_with_its_error(
    database: str, by: str | None, condition: str
) -> None:
    async def work(store: Store) -> None:
        await refuse(store, condition)
        with pytest.raises(Exception, match="not this one"):
            await read(database, by=by, batch=7)
        assert sum(status == -1 for _, status, _ in await rows(store)) < 160

    with_queue(database, 300, work)


@pytest.mark.parametrize("by", [None, "key"])
def test_a_row_that_may_not_be_reclaimed_has_failed_for_good(database: str, by: str | None) -> None:
    async def work(store: Store) -> None:
        await store.claim(9, ClaimTerms("crashed", lease=0.0, by=by))
        await store.query("UPDATE {table} SET {error} = 'before' WHERE {id} = 2")
        await refuse(store, "NEW.id = 2 AND NEW.status <> -1")
        found, _ = await read(database, by=by)
        assert found == [1, 3]
        (_, (_, status, error), _) = await rows(store)
        assert status == -1
        assert error is not None
        assert error.startswith("before\n")
        assert "not this one" in error

    with_queue(database, 3, work)


def fail(event: dict[str, Any]) -> dict[str, Any]:
    if event["n"] == 2:
        raise ValueError("try again")
    return event


@pytest.mark.parametrize("by", [None, "key"])
def test_a_row_that_may_not_be_tried_again_has_failed_for_good_with_both_errors(
    database: str, by: str | None
) -> None:
    async def work(store: Store) -> None:
        await refuse(store, "NEW.id = 2 AND NEW.status = 0")
        stage = adaptive_flat_map(fail, on_error="revert")
        found, report = await read(database, stage, by=by, backoff=Backoff(0.01))
        assert found == [1, 3, 4]
        (_, (_, status, error), _, _) = await rows(store)
        assert (status, report.exit_status) == (-1, 3)
        assert error is not None
        assert error.startswith("ValueError: try again")
        assert "not this one" in error
        numbers = report.statistics
        assert (numbers["in"], numbers["finished"], numbers["failed"], numbers["returned"]) == (
            (4, 3, 1, 0)
        )

    with_queue(database, 4, work)


@pytest.mark.parametrize("results", [False, True])
def test_a_row_that_may_not_be_marked_as_finished_has_failed_and_the_others_have_finished(
    database: str, results: bool
) -> None:
    async def work(store: Store) -> None:
        await refuse(store, "NEW.id = 2 AND NEW.status = 1")
        sink = write_table(database, "results") if results else collect([])
        report = await read_table(database, follow=False).to(sink).run()
        assert [status for _, status, _ in await rows(store)] == [1, -1, 1]
        numbers = report.statistics
        assert (numbers["in"], numbers["finished"], numbers["failed"]) == (3, 2, 1)
        if results:
            others = open_store(database, "results")
            await others.open()
            assert await others.query("SELECT count(*) FROM {table}") == [(2,)]
            await others.close()

    with_queue(database, 3, work)


def test_a_row_that_may_not_be_given_back_has_failed_for_good(database: str) -> None:
    async def work(store: Store) -> None:
        await refuse(store, "NEW.id = 2 AND NEW.status = 0")
        report = await read_table(database).pipe(ops.take(1)).to(collect([])).run()
        assert report.outcome == "completed"
        assert [status for _, status, _ in await rows(store)] == [1, -1, 0]

    with_queue(database, 3, work)


def test_a_row_that_may_not_even_fail_is_claimed_again_when_its_lease_has_run_out(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(store: Store) -> None:
        await refuse(store, "NEW.id = 2 AND NEW.status = -1")
        stage = adaptive_flat_map(fail, Fixed(1), on_error="skip")
        found, _ = await read(database, stage, lease=0.2, attempts=1)
        assert found == [1, 3]
        assert any("refuses to record" in told for told in caplog.messages)

    with_queue(database, 3, work)


def test_a_lease_that_the_database_does_not_let_grow_is_lost_and_the_others_are_renewed(
    database: str,
) -> None:
    async def work(store: Store) -> None:
        terms = ClaimTerms("me")
        claimed = (await store.claim(9, terms)).rows
        await refuse(store, "NEW.id = 2 AND NEW.status = 9")

        begun = asyncio.Event()

        async def slow(event: dict[str, Any]) -> dict[str, Any]:
            begun.set()
            await asyncio.sleep(2)
            return event

        assert await store.settle(Settlement(returned=claimed), terms) == []
        await store.query("DROP TRIGGER refuse" + _on(store))
        reading = asyncio.ensure_future(
            # So long that a machine with much else to do renews it in time.
            read(database, adaptive_flat_map(slow, Fixed(9)), lease=1.5)
        )
        await begun.wait()
        await refuse(store, "NEW.id = 2 AND NEW.status = 9", name="refuse_again")
        found, _ = await reading
        assert found == [1, 2, 3]

    def _on(store: Store) -> str:
        return "" if store.url.startswith("sqlite") else " ON {table}"

    with_queue(database, 3, work)


def test_retry_does_for_the_others_what_the_database_refuses_for_one(database: str) -> None:
    async def work(store: Store) -> None:
        await store.query("UPDATE {table} SET {status} = -1, {finished} = {now} - 9 * {second}")
        await refuse(store, "NEW.id = 3 AND NEW.status = 0")
        refused: list[Any] = []
        assert await retry(store, refused) == 4
        assert [id for id, _ in refused] == [3]
        assert await retry_some(store, [3], refused) == set()
        assert [id for id, _ in refused] == [3, 3]
        assert "not this one" in str(refused[1][1])

    with_queue(database, 5, work)


def test_purge_deletes_the_others_where_the_database_keeps_one(database: str) -> None:
    async def work(store: Store) -> None:
        await store.query("UPDATE {table} SET {status} = 1, {finished} = {now} - 9 * {second}")
        await refuse(store, "OLD.id = 3", change="DELETE")
        refused: list[Any] = []
        assert await purge(store, 1.0, refused) == 4
        assert [id for id, _ in refused] == [3]
        assert [id for id, _, _ in await rows(store)] == [3]

    with_queue(database, 5, work)


def test_a_lock_that_two_waiting_rows_may_not_have_fails_the_one_that_is_tried_again(
    database: str,
) -> None:
    """As with the queueing lock of other queues: the row that is in work may have a double."""

    async def work(store: Store) -> None:
        key = "json_extract({payload}, '$.key')"
        if not store.url.startswith("sqlite"):
            key = "({payload} ->> 'key')"
        await store.query(f"CREATE UNIQUE INDEX one ON {{table}} ({key}) WHERE {{status}} = 0")

        async def doubled(event: dict[str, Any]) -> dict[str, Any]:
            if event["n"] == 1:
                await store.put([orjson.dumps({"n": 9, "key": event["key"]})], delay=3_600.0)
                raise ValueError("try again")
            return event

        found, report = await read(database, adaptive_flat_map(doubled, on_error="revert"))
        assert (found, report.statistics["failed"]) == ([2], 1)
        (first, second, double) = await rows(store)
        assert [first[1], second[1], double[1]] == [-1, 1, 0]
        assert first[2] is not None
        assert first[2].startswith("ValueError: try again")
        assert "unique" in first[2].lower()

    with_queue(database, 2, work)
