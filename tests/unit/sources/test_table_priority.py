"""Rows with priorities, and rows that are due later."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from penstock import collect, from_iterable, read_table, write_table
from penstock.streams.base.errors import BuildError, CannotOpen, ColumnMissing
from penstock.streams.sql_queue import Claim, ClaimTerms, Failure, Settlement, Store, open_store
from penstock.streams.sql_queue.analytics.statistics import measure
from penstock.streams.sql_queue.schema import Required
from penstock.streams.sql_queue.upkeep import peek
from tests.helpers.statements import execute
from tests.helpers.walks import seeds

MINE = ClaimTerms("me")


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@asynccontextmanager
async def opened(url: str, *, ranked: bool = False, **options: Any) -> AsyncGenerator[Store, None]:
    store = open_store(url, **options)
    try:
        await store.open(Required(ranked=ranked))
        yield store
    finally:
        await store.close()


def ids(claim: Claim) -> list[Any]:
    return [row.id for row in claim.rows]


def without_priorities(url: str) -> None:
    """Make the table as version 0.1.0 made it."""
    execute(url, "DROP INDEX queue_priority", "ALTER TABLE queue DROP COLUMN priority")


def test_rows_of_lower_priority_numbers_are_claimed_first_and_of_these_the_oldest(
    database: str,
) -> None:
    async def work() -> None:
        async with opened(database) as store:
            for priority in (0, 5, -1, 0, -1):
                await store.put(["{}"], priority=priority)
            assert ids(await store.claim(2, MINE)) == [3, 5]
            assert ids(await store.claim(9, MINE)) == [1, 4, 2]

    run(work())


def test_a_claim_behind_the_last_one_finds_urgent_rows_that_have_come_since(database: str) -> None:
    async def work() -> None:
        async with opened(database) as store:
            await store.put(["{}"] * 6)
            assert ids(await store.claim(2, MINE)) == [1, 2]
            await store.put(["{}"], priority=-3)
            await store.put(["{}"], priority=3)
            assert ids(await store.claim(2, MINE, reclaim=False)) == [7, 3]
            assert ids(await store.claim(9, MINE, reclaim=False)) == [4, 5, 6, 8]

    run(work())


@seeds(20)
@pytest.mark.parametrize("by", [None, "key"])
def test_every_row_is_claimed_once_in_the_order_of_priorities_whatever_comes_and_goes(
    database: str, by: str | None, seed: int
) -> None:
    rng = Random(seed)
    terms = ClaimTerms("me", by=by)

    async def work() -> None:
        waiting: dict[int, tuple[int, str]] = {}
        held: dict[int, Any] = {}
        done: set[int] = set()
        async with opened(database) as store:
            for _ in range(40):
                for _ in range(rng.randrange(3)):
                    rank, key = rng.choice((-2, 0, 0, 0, 7)), rng.choice("abc")
                    (id,) = await store.put([orjson.dumps({"key": key})], priority=rank)
                    waiting[id] = rank, key
                count = rng.randrange(1, 5)
                rows = (await store.claim(count, terms, reclaim=rng.random() < 0.5)).rows
                found = [row.id for row in rows]
                assert len(found) == len(set(found))
                assert set(found) <= set(waiting)
                assert len(found) == min(count, len(waiting))
                if by is None:
                    first = sorted(waiting, key=lambda id: (waiting[id][0], id))[:count]
                    assert found == first
                else:
                    # No row of a key before an earlier one; and of the urgent rows those whose
                    # keys have nothing earlier.
                    of = defaultdict[str, list[int]](list)
                    for id in sorted(waiting):
                        of[waiting[id][1]].append(id)
                    for key, expected in of.items():
                        taken = [id for id in found if waiting[id][1] == key]
                        assert taken == expected[: len(taken)]
                    places = sorted(waiting, key=lambda id: (waiting[id][0], id))[:count]
                    assert sorted(waiting[id][1] for id in places) == sorted(
                        waiting[id][1] for id in found
                    )
                for row in rows:
                    held[row.id] = row, waiting.pop(row.id)
                some = rng.sample(list(held), rng.randrange(len(held) + 1))
                ends = Settlement()
                for id in some:
                    row, was = held.pop(id)
                    if by is None and rng.random() < 0.3:
                        ends.returned.append(row)
                        waiting[id] = was
                    else:
                        ends.finished.append(row)
                        done.add(id)
                ends.idle_keys = [
                    (row.key, row.epoch)
                    for row in ends.rows()
                    if row.key is not None and not any(h.key == row.key for h, _ in held.values())
                ]
                assert await store.settle(ends, terms) == []
            while rows := (await store.claim(9, terms)).rows:
                for row in rows:
                    held[row.id] = row, waiting.pop(row.id)
            assert not waiting

    run(work())


def test_an_urgent_row_of_a_key_waits_for_the_earlier_ones_of_it_and_takes_them_along(
    database: str,
) -> None:
    terms = ClaimTerms("me", by="key")

    async def work() -> None:
        async with opened(database) as store:
            for key, priority in (("a", 0), ("b", 0), ("a", -1), ("b", 0), ("c", 1)):
                await store.put([orjson.dumps({"key": key})], priority=priority)
            first = await store.claim(1, terms)
            # The place of the urgent row is taken by the oldest one of its key.
            assert ids(first) == [1]
            rest = await store.claim(9, terms)
            assert ids(rest) == [3, 2, 4, 5]

    run(work())


def test_claims_of_sqlite_begin_behind_the_last_one_by_the_index(tmp_path: Path) -> None:
    async def work() -> None:
        from penstock.streams.sql_queue.sqlite import statements

        async with opened(f"sqlite:///{tmp_path}/work.db") as store:
            names: Any = store._names  # type: ignore[attr-defined]  # pyright: ignore
            words = ("count", "reclaim", "now", "owner", "token", "expires", "exhausted")
            values = dict.fromkeys([*words, "attempts", "suspect", "urgent", "behind"], 1)
            text = "EXPLAIN QUERY PLAN " + statements.CLAIM
            assert names["by_index"] == '"priority", "id"'
            plan = "\n".join(row[3] for row in await store.query(text, **values))
        for part in ("(priority<?)", "(priority=? AND id>?)", "(priority>?)"):
            assert f"SEARCH queue USING INDEX queue_priority {part}" in plan
        assert "SCAN queue" not in plan

    run(work())


def test_write_table_takes_priority_and_time_from_fields_or_functions(database: str) -> None:
    now = datetime.now(UTC)
    later = (now + timedelta(hours=1)).isoformat()
    values: list[dict[str, Any]] = [
        {"n": 1, "rank": 4},
        {"n": 2, "at": later, "rank": -9},
        {"n": 3},
        {"n": 4, "rank": -1, "at": now.timestamp() - 5},
        {"n": 5, "at": None, "rank": None},
    ]

    async def work() -> None:
        sink = write_table(database, run_at="at", priority=lambda value: value.get("rank"))
        await from_iterable(values).to(sink).run()
        done: list[dict[str, Any]] = []
        await read_table(database, follow=False).to(collect(done)).run()
        assert [one["n"] for one in done] == [4, 3, 5, 1]
        async with opened(database) as store:
            (left,) = await peek(store, 9)
            assert left.run_at is not None
            assert left.run_at - now.timestamp() == pytest.approx(3600, abs=1)
            assert left.priority == -9
            stats = await measure(store, 60)
            assert (stats.delayed, stats.priorities) == (1, ((-9, 1),))

    run(work())


def test_write_table_with_beside_takes_a_time(database: str) -> None:
    execute(database, "CREATE TABLE jobs (id INTEGER PRIMARY KEY, payload TEXT, status INTEGER)")
    if not database.startswith("sqlite"):
        execute(database, "ALTER TABLE jobs ALTER id ADD GENERATED BY DEFAULT AS IDENTITY")

    async def work() -> None:
        later = datetime.now(UTC) + timedelta(days=1)
        values = [{"n": 1, "at": later}, {"n": 2}]
        sink = write_table(database, "jobs", beside=True, run_at="at")
        await from_iterable(values).to(sink).run()
        done: list[dict[str, Any]] = []
        source = read_table(database, "jobs", beside=True, follow=False)
        await source.to(collect(done)).run()
        assert done == [{"n": 2}]

    run(work())


@pytest.mark.parametrize(
    "value",
    [{"at": "soon"}, {"at": [1]}, {"at": 1e30}, {"rank": "high"}, {"rank": 1.5}, {"rank": 2**40}],
)
def test_what_is_no_time_or_no_priority_fails_its_event(tmp_path: Any, value: Any) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    sink = write_table(url, run_at="at", priority="rank", on_error="skip")
    report = asyncio.run(from_iterable([value, {}]).to(sink).run())
    assert report.statistics["failed"] == 1
    assert report.statistics["finished"] == 1


def test_a_table_of_an_older_version_works_as_before_and_upgrade_gives_it_priorities(
    database: str,
) -> None:
    async def work() -> None:
        async with opened(database) as store:
            await store.put(["{}"] * 2)
        without_priorities(database)
        async with opened(database) as store:
            assert not store.is_ranked
            assert ids(await store.claim(1, MINE)) == [1]
            stats = await measure(store, 60)
            assert (stats.waiting, stats.priorities) == (1, ())
            await store.put(["{}"], priority=-1)
            with pytest.raises(ColumnMissing, match="penstock queue upgrade"):
                async with opened(database, ranked=True):
                    pass
            assert await store.upgrade()
            assert not await store.upgrade()
            await store.put(["{}"], priority=-1)
            assert ids(await store.claim(9, MINE)) == [4, 2, 3]

    run(work())


def test_a_reader_that_runs_while_its_table_is_upgraded_goes_on(database: str) -> None:
    async def work() -> None:
        async with opened(database) as store:
            await store.put(["{}"] * 2)
        without_priorities(database)
        async with opened(database) as old, opened(database) as new:
            first = (await old.claim(1, MINE)).rows
            assert await new.upgrade()
            await new.put(["{}"], priority=-1)
            assert await old.settle(Settlement(failed=[Failure(first[0], "no", 0.0)]), MINE) == []
            assert ids(await old.claim(9, MINE)) == [1, 2, 3]

    run(work())


def test_ones_own_table_has_priorities_only_if_a_column_is_named(database: str) -> None:
    async def work() -> None:
        async with opened(database) as store:
            await store.put(["{}", "{}"])
        execute(database, "ALTER TABLE queue RENAME COLUMN priority TO urgency")
        execute(database, "UPDATE queue SET urgency = -id")
        async with opened(database, columns={"id": "id"}) as plain:
            assert ids(await plain.claim(1, MINE)) == [1]
            with pytest.raises(CannotOpen, match="your own"):
                await plain.upgrade()
        async with opened(database, columns={"priority": "urgency"}) as ranked:
            await ranked.put(["{}"], priority=-7)
            assert ids(await ranked.claim(9, MINE)) == [3, 2]
        with pytest.raises(ColumnMissing, match="'rank'"):
            async with opened(database, columns={"priority": "rank"}):
                pass
        with pytest.raises(ColumnMissing, match="serves as 'priority'"):
            async with opened(database, columns={"id": "id"}, ranked=True):
                pass

    run(work())


def test_wrong_options_are_refused() -> None:
    with pytest.raises(BuildError, match="run_at= is for the rows of a queue"):
        write_table("sqlite:///x.db", columns=["a"], run_at="a")
    with pytest.raises(BuildError, match="has no priorities"):
        write_table("sqlite:///x.db", beside=True, priority="a")
    with pytest.raises(BuildError, match="a function of the value"):
        write_table("sqlite:///x.db", run_at=datetime.now(UTC))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
