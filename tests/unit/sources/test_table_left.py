"""Rows of a key that is over its share stay in the table, and those of other keys are read."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from penstock import adaptive_flat_map, collect, group_by, rate_limit, read_table, spread
from penstock.streams.failures.backoff import Backoff
from penstock.streams.limits import Fixed
from penstock.streams.sql_queue import ClaimTerms, Layout, Settlement, Store, open_store
from penstock.streams.sql_queue.postgres.claims import PostgresStore
from penstock.streams.sql_queue.postgres.statements import LEASE_KEYS
from tests.helpers.until import until
from tests.helpers.walks import seeds

BURST, SHARE = 300, 20
OTHERS = 60


async def filled(url: str) -> Store:
    """A queue with a burst of one customer, and rows of twenty others behind it."""
    store = open_store(url, "queue")
    await store.open()
    rows = [{"customer": "hot", "n": n} for n in range(BURST)]
    rows += [{"customer": f"c{n % 20}", "n": n} for n in range(OTHERS)]
    await store.put([orjson.dumps(row) for row in rows])
    return store


async def statuses(store: Store) -> Counter[int]:
    """How many rows have each status."""
    found = await store.query("SELECT {status}, count(*) FROM {rows} AS t GROUP BY {status}")
    return Counter(dict(found))


class Work:
    """A handler that is held up by the customer with the burst until it is released."""

    def __init__(self) -> None:
        self.done: dict[str, list[int]] = {}
        self.working: set[str] = set()
        self.released = asyncio.Event()

    async def __call__(self, event: dict[str, Any]) -> None:
        customer = event["customer"]
        assert customer not in self.working
        self.working.add(customer)
        if customer == "hot":
            await self.released.wait()
        self.done.setdefault(customer, []).append(event["n"])
        self.working.discard(customer)

    @property
    def others(self) -> int:
        return sum(len(done) for customer, done in self.done.items() if customer != "hot")

    def is_in_order(self) -> bool:
        return all(done == sorted(done) for done in self.done.values())


def reading(url: str, work: Any, key: Any = "customer", **options: Any) -> Any:
    return (
        read_table(url, by="customer", batch=20, follow=False, **options)
        .pipe(
            group_by(key, buffer=2 * SHARE, share=SHARE),
            spread(),
            adaptive_flat_map(work, Fixed(10)),
        )
        .to(collect([]))
    )


def of_group_by(running: Any) -> dict[str, Any]:
    (numbers,) = (one for one in running.statistics()["stages"] if one["name"] == "group_by")
    return dict(numbers)


@pytest.mark.parametrize("key", ["customer", lambda event: event["customer"]])
def test_rows_of_a_slow_customer_stay_unprocessed_and_others_go_on(database: str, key: Any) -> None:
    async def story() -> None:
        store, work = await filled(database), Work()
        async with reading(database, work, key).start() as running:
            await until(lambda: work.others == OTHERS)
            numbers = of_group_by(running)
            assert numbers["keys_left"] == 1
            assert numbers["spilled"] == 0
            await until(lambda: running.statistics()["finished"] == OTHERS)
            found = await statuses(store)
            assert found[9] <= SHARE
            assert found[0] == BURST - found[9]
            work.released.set()
            report = await running.wait()
        assert report.statistics["finished"] == BURST + OTHERS
        assert report.statistics["returned"] == 0
        assert work.done["hot"] == list(range(BURST))
        assert work.is_in_order()
        assert await statuses(store) == {1: BURST + OTHERS}
        await store.close()

    asyncio.run(story())


def test_a_second_reader_does_not_get_them_either(database: str) -> None:
    async def story() -> None:
        store, work = await filled(database), Work()
        async with reading(database, work).start() as one, reading(database, work).start() as other:
            await until(lambda: work.others == OTHERS)
            await asyncio.sleep(0.1)
            found = await statuses(store)
            assert found[0] >= BURST - SHARE
            work.released.set()
            reports = [await one.wait(), await other.wait()]
        assert sum(report.statistics["finished"] for report in reports) == BURST + OTHERS
        assert work.done["hot"] == list(range(BURST))
        assert await statuses(store) == {1: BURST + OTHERS}
        await store.close()

    asyncio.run(story())


def test_a_reader_does_not_end_while_rows_are_left_although_nothing_is_in_work(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/work.db"

    async def story() -> None:
        store = open_store(url, "queue")
        await store.open()
        await store.put([orjson.dumps({"customer": "hot", "n": n}) for n in range(5)])
        done: list[int] = []
        pipeline = (
            read_table(url, by="customer", batch=1, follow=False)
            .pipe(
                group_by("customer", share=2),
                spread(),
                rate_limit(1, per=0.25),
                adaptive_flat_map(lambda event: done.append(event["n"])),
            )
            .to(collect([]))
        )
        await pipeline.run()
        assert done == list(range(5))
        await store.close()

    asyncio.run(story())


def test_a_drain_leaves_them_and_another_reader_goes_on_with_them(database: str) -> None:
    async def story() -> None:
        store, work = await filled(database), Work()
        async with reading(database, work).start() as running:
            await until(lambda: work.others == OTHERS)
            draining = asyncio.create_task(running.drain(60))
            await asyncio.sleep(0.05)
            work.released.set()
            await draining
        assert len(work.done["hot"]) <= SHARE
        found = await statuses(store)
        assert found[9] == 0
        await reading(database, work).run()
        assert work.done["hot"] == list(range(BURST))
        await store.close()

    asyncio.run(story())


def test_a_row_that_is_tried_again_is_not_overtaken_by_those_that_were_left(database: str) -> None:
    async def story() -> None:
        store, work = await filled(database), Work()
        work.released.set()
        failed: set[int] = set()

        async def fails_at_first(event: dict[str, Any]) -> None:
            if event["customer"] == "hot" and event["n"] % 50 == 0 and event["n"] not in failed:
                failed.add(event["n"])
                raise ValueError("not yet")
            await work(event)

        pipeline = (
            read_table(
                database, by="customer", batch=20, follow=False, backoff=Backoff(0.01, cap=0.01)
            )
            .pipe(
                group_by("customer", buffer=2 * SHARE, share=SHARE),
                spread(),
                adaptive_flat_map(fails_at_first, Fixed(10), on_error="revert"),
            )
            .to(collect([]))
        )
        await pipeline.run()
        assert failed == set(range(0, BURST, 50))
        assert work.done["hot"] == list(range(BURST))
        await store.close()

    asyncio.run(story())


def test_rows_of_a_field_that_is_not_the_key_of_the_lease_are_read(database: str) -> None:
    """The rows of one customer may be of several accounts, and those go on."""

    async def story() -> None:
        store, work = await filled(database), Work()

        def account(event: dict[str, Any]) -> tuple[str, int]:
            return event["customer"], event["n"] // BURST

        async with reading(database, work, account).start() as running:
            await until(lambda: work.others == OTHERS)
            assert of_group_by(running)["keys_left"] == 0
            assert of_group_by(running)["spilled"] > 0
            running.cancel()
        await store.close()

    asyncio.run(story())


def test_a_left_key_keeps_its_lease(database: str) -> None:
    async def story() -> None:
        store = await filled(database)
        mine, others = ClaimTerms("mine", by="customer"), ClaimTerms("others", by="customer")
        claim = await store.claim(5, mine)
        assert {row.key for row in claim.rows} == {"hot"}
        left = await store.claim(1000, mine, left=["hot"])
        assert {row.key for row in left.rows} == {f"c{n}" for n in range(20)}
        longer = ClaimTerms("mine", by="customer", lease=300.0)
        assert await store.renew(claim.rows, longer) == []
        renewed = "SELECT count(*) FROM {rows} AS t WHERE {status} = 9 AND {seconds}{expires}) > "
        assert await store.query(renewed + "{seconds}{now}) + 100") == [(5,)]
        of_others = open_store(database, "queue")
        await of_others.open()
        assert (await of_others.claim(5, others)).rows == []
        await of_others.close()
        again = await store.claim(5, mine)
        assert [row.id for row in again.rows] == [row.id + 5 for row in claim.rows]
        assert {row.epoch for row in again.rows} == {row.epoch for row in claim.rows}
        await store.close()

    asyncio.run(story())


@seeds(40)
def test_no_claim_overtakes_rows_that_an_earlier_one_has_passed_by(
    database: str, seed: int
) -> None:
    """Two readers claim, finish and return rows of three keys, and leave some of the keys.

    On PostgreSQL rows of other transactions become visible later than rows with higher ids, others
    never, and finished rows are deleted.
    """
    rng = random.Random(seed)

    class Reader:
        def __init__(self, name: str) -> None:
            self.terms = ClaimTerms(name, by="customer")
            self.store = open_store(database, "queue")
            self.held: dict[str, list[Any]] = defaultdict(list)
            self.left: set[str] = set()

        async def claim(self) -> None:
            left = {key for key in self.held if rng.random() < 0.5}
            reclaim = rng.random() < 0.2 or not self.left <= left
            self.left = left
            claim = await self.store.claim(
                rng.randint(1, 4), self.terms, reclaim=reclaim, left=left
            )
            for row in claim.rows:
                # A key that has none here any more may have come from the other reader.
                assert row.key not in left
                self.held[str(row.key)].append(row)
                after[str(row.key)].append(row.id)

        async def settle(self) -> None:
            if self.held:
                key = rng.choice(list(self.held))
                rows = self.held[key]
                finished, returned = rows[: rng.randint(1, len(rows))], list[Any]()
                if rng.random() < 0.5:
                    finished, returned = [], rows
                self.held[key] = rows[len(finished) + len(returned) :]
                idle = [] if self.held[key] else [(key, rows[0].epoch)]
                if idle:
                    del self.held[key]
                settlement = Settlement(finished=finished, returned=returned, idle_keys=idle)
                assert await self.store.settle(settlement, self.terms) == []

    after: dict[str, list[Any]] = defaultdict(list)
    late, spare = list[psycopg.Connection[Any]](), list[psycopg.Connection[Any]]()

    def insert_late() -> None:
        db = spare.pop() if spare else psycopg.connect(database)
        payload = orjson.dumps({"customer": rng.choice("abc")}).decode()
        db.execute("INSERT INTO queue (payload) VALUES (%s)", [payload])
        late.append(db)

    def end_late() -> None:
        db = late.pop(rng.randrange(len(late)))
        if rng.random() < 0.8:
            db.commit()
        else:
            db.rollback()
        spare.append(db)

    async def story() -> None:
        readers = [Reader("one"), Reader("other")]
        for reader in readers:
            await reader.store.open()
        first = readers[0].store
        for _ in range(120):
            reader, what = rng.choice(readers), rng.random()
            if database.startswith("postgresql"):
                if rng.random() < 0.15:
                    insert_late()
                if late and rng.random() < 0.15:
                    end_late()
                if rng.random() < 0.05:
                    await first.query("DELETE FROM {table} WHERE {status} = 1")
            if what < 0.35:
                keys = [rng.choice("aaabc") for _ in range(rng.randint(1, 4))]
                await first.put([orjson.dumps({"customer": key}) for key in keys])
            elif what < 0.7:
                after.clear()
                before = await first.query(
                    "SELECT {id}, {payload} FROM {rows} AS t WHERE {status} = 0"
                )
                await reader.claim()
                for key, ids in after.items():
                    due = sorted(id for id, payload in before if key in str(payload)[-4:])
                    assert ids == due[: len(ids)]
            else:
                await reader.settle()
        while late:
            end_late()
        for db in spare:
            db.close()
        for reader in readers:
            while reader.held:
                await reader.settle()
        for reader in readers:
            # None is left behind.
            while (claim := await reader.store.claim(4, reader.terms)).rows:
                for row in claim.rows:
                    reader.held[str(row.key)].append(row)
                while reader.held:
                    await reader.settle()
        assert await first.query("SELECT 1 FROM {rows} AS t WHERE {status} <> 1") == []
        for reader in readers:
            await reader.store.close()

    asyncio.run(story())


def test_rows_that_are_set_back_by_hand_are_claimed_although_others_are_left(postgres: str) -> None:
    async def story() -> None:
        store, terms = await filled(postgres), ClaimTerms("mine", by="customer")
        await store.claim(5, terms)
        others = (await store.claim(OTHERS, terms, left=["hot"])).rows
        idle = [(str(row.key), row.epoch) for row in others]
        assert await store.settle(Settlement(finished=others, idle_keys=idle), terms) == []
        assert (await store.claim(5, terms, left=["hot"])).rows == []
        again = others[7]
        await store.query("UPDATE {table} SET {status} = 0 WHERE {id} = :id", id=again.id)
        store.__dict__["_look_at"] = 0.0
        claim = await store.claim(5, terms, left=["hot"])
        assert [row.id for row in claim.rows] == [again.id]
        await store.close()

    asyncio.run(story())


def test_a_key_that_is_released_in_the_middle_of_a_claim_is_not_claimed_from_the_middle(
    postgres: str,
) -> None:
    """Its first rows were passed by, and the claim looks only at those that came later."""
    mine, yours = ClaimTerms("mine", by="customer"), ClaimTerms("yours", by="customer")

    class Interrupted(PostgresStore):
        async def _all(self, db: Any, text: str, values: Any = None) -> list[Any]:
            if text == LEASE_KEYS and released:
                await released.pop()()
            return await super()._all(db, text, values)

    released: list[Any] = []

    async def story() -> None:
        store, other = Interrupted(postgres, Layout()), open_store(postgres, "queue")
        await store.open()
        await other.open()
        await store.put([orjson.dumps({"customer": key}) for key in "aaab"])
        held = (await other.claim(1, yours)).rows
        for _ in range(2):
            rows = (await store.claim(5, mine)).rows
            idle = [(str(row.key), row.epoch) for row in rows]
            assert await store.settle(Settlement(finished=rows, idle_keys=idle), mine) == []
        await store.put([orjson.dumps({"customer": "a"})])

        async def release() -> None:
            back = Settlement(returned=held, idle_keys=[("a", held[0].epoch)])
            assert await other.settle(back, yours) == []

        released.append(release)
        assert (await store.claim(5, mine)).rows == []
        assert not released
        assert [row.id for row in (await store.claim(5, mine)).rows] == [1, 2, 3, 5]
        await store.close()
        await other.close()

    asyncio.run(story())
