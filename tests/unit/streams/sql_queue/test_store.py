from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import orjson
import pytest

from penstock.streams.base.errors import BuildError, CannotOpen, ColumnMissing, TableMissing
from penstock.streams.delivery.commit import Parts
from penstock.streams.sql_queue import (
    ClaimTerms,
    Failure,
    Insertion,
    Row,
    Settlement,
    Store,
    open_store,
)
from penstock.streams.sql_queue.store import Enqueued
from tests.helpers.beside import use_own

MINE = ClaimTerms("me")
YOURS = ClaimTerms("you")
GONE = ClaimTerms("me", lease=0.0)

MINE_BY_KEY, YOURS_BY_KEY = ClaimTerms("me", by="key"), ClaimTerms("you", by="key")


@pytest.fixture(params=["ordinary", "beside"], autouse=True)
def beside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the queue is beside a user's table: everything is the same."""
    if request.param == "beside":
        use_own(sys.modules[__name__], monkeypatch)
    return bool(request.param == "beside")


@asynccontextmanager
async def opened(url: str, *tables: str, **options: Any) -> AsyncGenerator[list[Store], None]:
    """Stores of the tables, or two stores of a single table."""
    stores = [open_store(url, table, **options) for table in tables or ("queue", "queue")]
    try:
        for store in stores:
            await store.open()
        yield stores
    finally:
        for store in stores:
            await store.close()


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(work())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def payloads(count: int) -> list[str]:
    return [orjson.dumps({"n": n, "key": f"k{n % 2}"}).decode() for n in range(count)]


def numbers(rows: list[Row]) -> list[int]:
    return [orjson.loads(row.payload or "")["n"] for row in rows]


async def statuses(store: Store) -> list[tuple[int, int]]:
    rows = await store.query("SELECT {status}, {attempts} FROM {rows} AS t ORDER BY {id}")
    return [(status, attempts) for status, attempts in rows]


def test_rows_are_claimed_in_the_order_of_their_ids_and_by_one_reader_only(database: str) -> None:
    async def work() -> None:
        async with opened(database) as (mine, yours):
            await mine.put(payloads(5))
            assert numbers((await mine.claim(3, MINE)).rows) == [0, 1, 2]
            assert numbers((await yours.claim(3, YOURS)).rows) == [3, 4]
            assert (await mine.claim(3, MINE)).rows == []

    run(work)


def test_readers_that_claim_at_once_never_get_the_same_row(database: str) -> None:
    async def work() -> None:
        async with opened(database, *["queue"] * 4) as stores:
            await stores[0].put(payloads(500))

            async def all_of(store: Store, name: str) -> list[int]:
                found: list[int] = []
                while rows := (await store.claim(7, ClaimTerms(name))).rows:
                    found += numbers(rows)
                return found

            shares = await asyncio.gather(*(all_of(s, str(n)) for n, s in enumerate(stores)))
            assert sorted(n for share in shares for n in share) == list(range(500))
            assert all(share == sorted(share) for share in shares)

    run(work)


def test_a_row_goes_to_another_reader_when_its_lease_has_run_out(database: str) -> None:
    async def work() -> None:
        async with opened(database) as (mine, yours):
            await mine.put(payloads(2))
            (first, _) = (await mine.claim(2, GONE)).rows
            (again, _) = (await yours.claim(2, YOURS)).rows
            assert (again.id, again.attempts) == (first.id, 2)
            assert again.token != first.token

    run(work)


def test_what_is_said_with_an_old_token_changes_nothing(database: str) -> None:
    async def work() -> None:
        async with opened(database) as (mine, yours):
            await mine.put(payloads(3))
            old = (await mine.claim(3, GONE)).rows
            new = (await yours.claim(3, YOURS)).rows
            before = await yours.query("SELECT * FROM {table} ORDER BY {id}")
            for settlement in (
                Settlement(finished=old),
                Settlement(returned=old),
                Settlement(abandoned=old),
                Settlement(failed=[Failure(row, "no", 1.0) for row in old]),
            ):
                assert await mine.settle(settlement, MINE) == old
            assert await mine.renew(old, MINE) == old
            assert await yours.query("SELECT * FROM {table} ORDER BY {id}") == before
            assert await yours.settle(Settlement(finished=new), YOURS) == []
            assert await statuses(yours) == [(1, 2)] * 3

    run(work)


def test_a_settlement_with_a_lost_row_writes_nothing_at_all(database: str) -> None:
    async def work() -> None:
        async with opened(database, "queue", "results") as (mine, results):
            await mine.put(payloads(2))
            (stolen,) = (await mine.claim(1, GONE)).rows
            await mine.claim(1, YOURS)
            (held,) = (await mine.claim(1, MINE)).rows
            parts: Parts = {Insertion(results, None): [Enqueued("{}")]}
            settlement = Settlement(finished=[stolen, held], parts=parts)
            assert await mine.settle(settlement, MINE) == [stolen]
            assert await statuses(results) == []
            assert await statuses(mine) == [(9, 2), (9, 1)]
            settlement.finished.remove(stolen)
            assert await mine.settle(settlement, MINE) == []
            assert await statuses(results) == [(0, 0)]

    run(work)


def test_a_settlement_whose_answer_was_lost_is_not_written_twice(database: str) -> None:
    async def work() -> None:
        async with opened(database, "queue", "results") as (mine, results):
            await mine.put(payloads(3))
            finished, returned, failed = (await mine.claim(3, MINE)).rows
            settlement = Settlement(
                [finished],
                [Failure(failed, "no")],
                [returned],
                {Insertion(results, None): [Enqueued("{}")]},
            )
            assert await mine.settle(settlement, MINE) == []
            assert await mine.settle(settlement, MINE) == []
            assert await statuses(mine) == [(1, 1), (0, 0), (-1, 1)]
            assert await statuses(results) == [(0, 0)]

    run(work)


def test_a_returned_row_is_claimed_again_in_its_place_and_not_counted_as_tried(
    database: str,
) -> None:
    async def work() -> None:
        async with opened(database) as (mine, _):
            await mine.put(payloads(4))
            rows = (await mine.claim(2, MINE, reclaim=False)).rows
            assert await mine.settle(Settlement(returned=rows[:1]), MINE) == []
            again = (await mine.claim(2, MINE, reclaim=False)).rows
            assert numbers(again) == [0, 2]
            assert again[0].attempts == 1

    run(work)


def test_a_failed_row_waits_for_its_time_and_is_dead_after_its_last_attempt(database: str) -> None:
    async def work() -> None:
        async with opened(database) as (mine, _):
            await mine.put(payloads(1))
            terms = ClaimTerms("me", attempts=2)
            (row,) = (await mine.claim(1, terms)).rows
            assert await mine.settle(Settlement(failed=[Failure(row, "later", 60.0)]), terms) == []
            assert (await mine.claim(1, terms)).rows == []
            await mine.query("UPDATE {table} SET {run_at} = {now}")
            (row,) = (await mine.claim(1, terms)).rows
            assert row.attempts == 2
            assert await mine.settle(Settlement(failed=[Failure(row, "why", 60.0)]), terms) == []
            assert await mine.query("SELECT {status}, {error} FROM {table}") == [(-1, "why")]

    run(work)


def test_a_row_whose_lease_runs_out_in_its_last_attempt_has_failed_for_good(database: str) -> None:
    async def work() -> None:
        async with opened(database) as (mine, yours):
            await mine.put(payloads(2))
            once = ClaimTerms("me", lease=0.0, attempts=1)
            (row,) = (await mine.claim(1, once)).rows
            claim = await yours.claim(2, once)
            assert claim.buried == [row.id]
            assert numbers(claim.rows) == [1]
            (found,) = await yours.query("SELECT {error} FROM {table} WHERE {status} = -1")
            assert "LeaseLost" in found[0]
            assert await mine.settle(Settlement(finished=[row]), once) == [row]

    run(work)


@dataclass
class Fate:
    """What becomes of a row whose readers are lost at random: the model of its claims."""

    attempts: int = 0
    lost_alone: int = 0
    is_suspect: bool = False
    status: int = 0

    def is_claimed(self, row: Row, *, alone: bool) -> None:
        assert self.status in (0, 9)
        assert alone == self.is_suspect
        self.attempts += 1
        assert row.attempts == self.attempts
        self.status = 9

    def is_lost(self, most: int) -> None:
        if self.is_suspect:
            self.lost_alone += 1
            self.status = -1 if self.lost_alone == most else 9
        elif self.attempts >= most - 1:
            self.is_suspect, self.attempts = True, most - 1

    def ends(self, how: str, most: int) -> None:
        if how == "returned":
            self.attempts -= 1
            self.status = 9 if self.is_suspect else 0
        elif how == "failed":
            self.status = -1 if self.attempts >= most else 0
        else:
            self.status = 1


@pytest.mark.parametrize("by", [None, "n"])
def test_a_row_is_dead_only_when_it_was_alone_at_as_many_losses_in_a_row_as_it_has_attempts(
    database: str, by: str | None
) -> None:
    ends = ["lost", "lost", "failed", "failed", "returned", "finished"]

    async def walk(store: Store, random: Random) -> list[int]:
        most = random.randrange(2, 4)
        terms = ClaimTerms("mortal", lease=0.0, attempts=most, by=by)
        fates = {id: Fate() for id in await store.put(payloads(6))}
        given_up: list[int] = []
        for _ in range(40):
            claim = await store.claim(random.randrange(1, 7), terms)
            given_up += claim.buried
            alone = not claim.rows
            rows = claim.rows or (await store.claim_suspect(terms)).rows
            for row in rows:
                fates[row.id].is_claimed(row, alone=alone)
            how = random.choice(ends)
            if how == "lost":
                for row in rows:
                    fates[row.id].is_lost(most)
                continue
            settlement = Settlement(idle_keys=[(row.key, row.epoch) for row in rows if row.key])
            for row in rows:
                # Some are returned unbegun beside those that end.
                one = how if alone else random.choice([how, "returned"])
                fates[row.id].ends(one, most)
                outcome = Failure(row, "why", 0.0) if one == "failed" else row
                getattr(settlement, one).append(outcome)
            assert await store.settle(settlement, terms) == []
        found = [status for status, _ in await statuses(store)]
        assert found[-len(fates) :] == [fate.status for fate in fates.values()]
        dead = [id for id, fate in fates.items() if fate.lost_alone == most]
        assert sorted(given_up) == dead
        await store.query("UPDATE {table} SET {status} = 1")
        return dead

    async def work() -> None:
        async with opened(database) as (store, _):
            assert any([await walk(store, Random(seed)) for seed in range(10)])

    run(work)


def test_an_abandoned_row_is_reclaimed_as_one_of_a_reader_that_died(database: str) -> None:
    async def work() -> None:
        async with opened(database) as (mine, yours):
            await mine.put(payloads(2))
            for attempt in (1, 2, 3):
                rows = (await mine.claim(2, MINE)).rows
                assert [row.attempts for row in rows] == [attempt] * 2
                assert await mine.settle(Settlement(abandoned=rows), MINE) == []
                assert await mine.settle(Settlement(abandoned=rows), MINE) == []
            (row, _) = (await yours.claim(2, YOURS)).rows
            assert await yours.settle(Settlement(abandoned=[row]), YOURS) == []
            # It is alone from its last attempt on.
            for attempt in (5, 6, 7, 8, 9):
                assert (await yours.claim(2, YOURS)).rows == []
                (alone,) = (await mine.claim_suspect(MINE)).rows
                assert (alone.id, alone.attempts) == (row.id, attempt)
                assert await mine.settle(Settlement(abandoned=[alone]), MINE) == []
            assert (await yours.claim(2, YOURS)).buried == [row.id]
            assert await statuses(yours) == [(-1, 9), (9, 4)]

    run(work)


def test_later_rows_of_a_key_do_not_overtake_an_abandoned_one(database: str) -> None:
    mine_by_key, yours_by_key = ClaimTerms("me", by="key"), ClaimTerms("you", by="key")

    async def work() -> None:
        async with opened(database) as (mine, yours):
            await mine.put(payloads(6))
            rows = (await mine.claim(4, mine_by_key)).rows
            assert numbers(rows) == [0, 1, 2, 3]
            # The later row of its key is returned with it, without a report.
            abandons = Settlement(abandoned=rows[:1], idle_keys=[("k0", rows[0].epoch)])
            assert await mine.settle(abandons, mine_by_key) == []
            assert await statuses(mine) == [(9, 1), (9, 1), (0, 0), (9, 1), (0, 0), (0, 0)]
            assert (await mine.claim(9, mine_by_key, reclaim=False)).rows[0].key == "k1"
            again = (await yours.claim(9, yours_by_key)).rows
            assert [
                (one, row.attempts) for one, row in zip(numbers(again), again, strict=True)
            ] == [*[(0, 2), (2, 1), (4, 1)]]

    run(work)


@asynccontextmanager
async def passing_by(database: str) -> AsyncGenerator[tuple[Store, Store], None]:
    """Two readers by key. Mine has claimed all rows but two: number 2, of the key "x", which the
    other had and has released since, and number 4, of "y", whose rows mine leaves for now. Later
    ones have come, 5 of "x" and 6 of "y"; the next claim may begin behind those before it."""

    def keyed(first: int, keys: str) -> list[str]:
        numbered = enumerate(keys, first)
        return [orjson.dumps({"n": number, "key": key}).decode() for number, key in numbered]

    async with opened(database) as (mine, yours):
        await mine.put(keyed(0, "xyxzy"))
        (first,) = (await yours.claim(1, YOURS_BY_KEY)).rows
        assert first.key == "x"
        assert numbers((await mine.claim(1, MINE_BY_KEY)).rows) == [1]
        passing = await mine.claim(9, MINE_BY_KEY, reclaim=False, left=["y"])
        assert numbers(passing.rows) == [3]
        done = Settlement(finished=[first], idle_keys=[("x", first.epoch)])
        assert await yours.settle(done, YOURS_BY_KEY) == []
        await mine.put(keyed(5, "xy"))
        yield mine, yours


def test_rows_of_a_key_that_was_passed_by_do_not_overtake_earlier_ones(database: str) -> None:
    async def work() -> None:
        async with passing_by(database) as (mine, _):
            found = numbers((await mine.claim(9, MINE_BY_KEY, reclaim=False)).rows)
            found += numbers((await mine.claim(9, MINE_BY_KEY)).rows)
            assert found == [2, 4, 5, 6]

    run(work)


def test_a_key_that_was_passed_by_is_held_by_no_reader_that_takes_no_rows_of_it(
    database: str,
) -> None:
    async def work() -> None:
        async with passing_by(database) as (mine, yours):
            found = numbers((await mine.claim(9, MINE_BY_KEY, reclaim=False, left=["y"])).rows)
            found += numbers((await yours.claim(9, YOURS_BY_KEY)).rows)
            assert found == [2, 5]

    run(work)


def test_a_renewal_that_comes_after_a_row_was_abandoned_does_not_hold_it(database: str) -> None:
    mine_by_key, yours_by_key = ClaimTerms("me", by="key"), ClaimTerms("you", by="key")

    async def work() -> None:
        async with opened(database) as (mine, yours):
            await mine.put(payloads(6))
            rows = (await mine.claim(4, mine_by_key)).rows
            assert await mine.settle(Settlement(abandoned=rows[:1]), mine_by_key) == []
            # It was under way already; the other key is renewed.
            await mine.renew(rows, mine_by_key)
            assert numbers((await yours.claim(9, yours_by_key)).rows) == [0, 2, 4]

    run(work)


def test_a_renewed_lease_holds(database: str) -> None:
    async def work() -> None:
        async with opened(database) as (mine, yours):
            await mine.put(payloads(2))
            rows = (await mine.claim(2, GONE)).rows
            assert await mine.renew(rows[:1], MINE) == []
            assert numbers((await yours.claim(2, YOURS)).rows) == [1]

    run(work)


def test_a_key_is_with_one_reader_at_a_time_and_its_rows_in_order(database: str) -> None:
    async def work() -> None:
        async with opened(database) as (mine, yours):
            await mine.put(payloads(6))
            by_key = ClaimTerms("me", by="key"), ClaimTerms("you", by="key")
            first = (await mine.claim(1, by_key[0])).rows
            assert numbers(first) == [0]
            others = (await yours.claim(9, by_key[1])).rows
            assert numbers(others) == [1, 3, 5]
            second = (await mine.claim(9, by_key[0])).rows
            assert numbers(second) == [2, 4]
            lease = [("k0", first[0].epoch)]
            assert second[0].epoch == first[0].epoch
            assert others[0].epoch != first[0].epoch
            done = Settlement(finished=first, returned=second, idle_keys=lease)
            assert await mine.settle(done, by_key[0]) == []
            assert numbers((await yours.claim(9, by_key[1])).rows) == [2, 4]

    run(work)


def test_a_key_whose_lease_has_run_out_goes_over_with_all_its_rows(database: str) -> None:
    async def work() -> None:
        async with opened(database) as (mine, yours):
            await mine.put(payloads(6))
            old = (await mine.claim(6, ClaimTerms("me", lease=0.0, by="key"))).rows
            yours_by_key = ClaimTerms("you", by="key")
            (one,) = (await yours.claim(1, yours_by_key)).rows
            assert numbers([one]) == [0]
            # Even rows that nobody has claimed since no longer belong to the first reader.
            assert await mine.settle(Settlement(finished=old), ClaimTerms("me", by="key")) == old
            assert await mine.renew(old, ClaimTerms("me", by="key")) == old
            assert numbers((await yours.claim(9, yours_by_key)).rows) == [1, 2, 3, 4, 5]

    run(work)


def test_a_row_that_failed_holds_its_key_back_until_it_is_tried_again(database: str) -> None:
    async def work() -> None:
        async with opened(database) as (mine, yours):
            await mine.put(payloads(6))
            terms, others = ClaimTerms("me", by="key"), ClaimTerms("you", by="key")
            rows = (await mine.claim(4, terms)).rows
            failure = Failure(rows[0], "later", 60.0)
            assert await mine.settle(Settlement(failed=[failure]), terms) == []
            # The later rows of its key are given back with it.
            assert await mine.settle(Settlement(finished=rows[2:3]), terms) == rows[2:3]
            idle = [("k1", rows[1].epoch)]
            assert (
                await mine.settle(Settlement(returned=[rows[1], rows[3]], idle_keys=idle), terms)
                == []
            )
            assert numbers((await yours.claim(9, others)).rows) == [1, 3, 5]
            await mine.query("UPDATE {keys} SET expires = {now} WHERE key = 'k0'")
            await mine.query("UPDATE {table} SET {run_at} = {now}")
            assert numbers((await mine.claim(9, terms)).rows) == [0, 2, 4]

    run(work)


def test_a_column_of_the_table_can_be_the_key(database: str) -> None:
    async def work() -> None:
        async with opened(database) as (mine, _):
            await mine.query('ALTER TABLE {own} ADD COLUMN "who %s {{?}}" integer')
            await mine.put(payloads(2))
            await mine.query('UPDATE {own} SET "who %s {{?}}" = 7')
            await mine.close()
            await mine.open()
            rows = (await mine.claim(2, ClaimTerms("me", by="who %s {?}"))).rows
            assert [row.key for row in rows] == ["7", "7"]

    run(work)


def test_names_are_quoted_whatever_is_in_them(database: str) -> None:
    async def work() -> None:
        table = 'q"; DROP TABLE x; -- {%s} :n'
        async with opened(database, table) as (store,):
            await store.put(payloads(1))
            rows = (await store.claim(1, MINE)).rows
            assert await store.settle(Settlement(finished=rows), MINE) == []
            assert await statuses(store) == [(1, 1)]

    run(work)


@pytest.mark.parametrize("beside", ["ordinary"], indirect=True)
def test_a_table_of_the_users_is_used_by_the_names_of_its_columns(database: str) -> None:
    async def work() -> None:
        async with opened(database) as (store, _):
            await store.query("ALTER TABLE {table} RENAME COLUMN {payload} TO body")
            await store.query("ALTER TABLE {table} RENAME TO orders")
        columns = {"payload": "body"}
        async with opened(database, "orders", columns=columns) as (store,):
            await store.put(payloads(1))
            assert numbers((await store.claim(1, MINE)).rows) == [0]

    run(work)


def test_a_missing_table_of_the_users_is_named_and_not_made(database: str) -> None:
    async def work() -> None:
        with pytest.raises(TableMissing, match="'orders'"):
            async with opened(database, "orders", columns={"payload": "body"}):
                pass

    run(work)


@pytest.mark.parametrize("beside", ["ordinary"], indirect=True)
def test_a_missing_column_is_named(database: str) -> None:
    async def work() -> None:
        async with opened(database) as (store, _):
            await store.query("ALTER TABLE {table} DROP COLUMN {error}")
        with pytest.raises(ColumnMissing, match=r"lacks 'error'.*columns=.*beside=True"):
            async with opened(database):
                pass

    run(work)


def test_a_table_is_made_by_several_at_once(database: str) -> None:
    async def work() -> None:
        stores = [open_store(database) for _ in range(4)]
        await asyncio.gather(*(store.open() for store in stores))
        for store in stores:
            await store.close()

    run(work)


def test_a_reader_is_woken_by_what_another_enqueues(database: str) -> None:
    async def work() -> None:
        async with opened(database) as (mine, yours):
            # The first call reports that something may have come before.
            await mine.changed(30.0)
            waiting = asyncio.create_task(mine.changed(30.0))
            await asyncio.sleep(0)
            await yours.put(payloads(1))
            await asyncio.wait_for(waiting, 10.0)

    run(work)


@pytest.mark.parametrize("beside", ["ordinary"], indirect=True)
def test_plain_sql_wakes_a_reader_of_postgres(postgres: str) -> None:
    async def work() -> None:
        async with opened(postgres) as (mine, yours):
            await mine.changed(30.0)
            await yours.query("INSERT INTO {table} ({payload}) VALUES (:body)", body="{}")
            await asyncio.wait_for(mine.changed(30.0), 10.0)

    run(work)


def test_claims_of_postgres_walk_an_index_of_what_waits(postgres: str) -> None:
    async def work() -> None:
        from penstock.streams.sql_queue.postgres import statements as postgres_sql

        async with opened(postgres) as (mine, _):
            await mine.put(payloads(2000))
            await mine.query("UPDATE {table} SET {status} = 1 WHERE {id} <= 1500")
            await mine.query("ANALYZE {table}")
            values = {
                "count": 10,
                "owner": "me",
                "token": 1,
                "attempts": 1,
                "lease": 1,
                "exhausted": "no",
                "reclaim": True,
                "behind": 5,
                "urgent": 0,
                "suspect": -1,
            }
            for text in (postgres_sql.CLAIM, postgres_sql.CLAIM_BEHIND):
                steered = mine._text("EXPLAIN " + text)  # type: ignore[attr-defined]
                async with mine._using() as connection:  # type: ignore[attr-defined]
                    plan = await (await connection.execute(steered, values)).fetchall()
                lines = "\n".join(line for (line,) in plan)
                assert "queue_status_id" in lines  # for expired leases
                assert not mine.is_ranked or "queue_priority" in lines
                assert "Sort Key: t.id" not in lines
                assert "Seq Scan" not in lines

    run(work)


@pytest.mark.parametrize(
    "url", ["work.db", "sqlite:///", "sqlite:///:memory:", "sqlite://host/x.db", "mysql://x/y", ""]
)
def test_a_url_that_names_no_database_is_refused(url: str) -> None:
    with pytest.raises(BuildError, match="does not name a"):
        open_store(url)


def test_a_password_is_not_shown() -> None:
    async def work() -> None:
        store = open_store("postgresql://me:secret@127.0.0.1:1/none")
        with pytest.raises(CannotOpen) as caught:
            await store.open()
        assert "me:***@127.0.0.1:1/none" in str(caught.value)
        assert "secret" not in str(caught.value)

    run(work)


def test_what_is_cancelled_while_it_is_written_is_not_written(database: str) -> None:
    async def work() -> None:
        async with opened(database) as (store, other):
            putting = asyncio.ensure_future(store.put(payloads(20_000)))
            await asyncio.sleep(0.01)
            putting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await putting
            await store.put(payloads(1))
            assert await statuses(other) == [(0, 0)]

    run(work)


def test_the_lost_ones_among_finished_rows_are_known_although_others_are_still_held(
    database: str,
) -> None:
    async def work() -> None:
        async with opened(database) as (mine, yours):
            await mine.put(payloads(3))
            rows = (await mine.claim(3, GONE)).rows
            (taken,) = (await yours.claim(1, YOURS)).rows
            assert await mine.settle(Settlement(rows), GONE) == rows[:1]
            assert await mine.settle(Settlement(rows[1:]), GONE) == []
            assert [status for status, _ in await statuses(mine)] == [9, 1, 1]
            assert await yours.settle(Settlement([taken]), YOURS) == []

    run(work)
