"""The work of the server for a statement is in proportion to the rows of the statement.

Statistics are those of the last vacuum, when the table may have held anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import psycopg
import pytest
from orjson import dumps

from penstock.streams.sql_queue import ClaimTerms, Failure, Layout, Row, Settlement
from penstock.streams.sql_queue.postgres.claims import PostgresStore
from penstock.streams.sql_queue.postgres.table import Connection

CLAIM = 200
HELD = 6 * CLAIM
# Reclaiming reads all rows in process once; comparing all pairs would be far more.
MOST = 2 * HELD


class Explaining(PostgresStore):
    """Records how many rows the busiest step of each statement processes."""

    def __init__(self, url: str) -> None:
        super().__init__(url, Layout())
        self.steps: dict[str, float] = {}

    async def _all(
        self, db: Connection, text: str, values: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        await self._explain(db, text, values)
        return await super()._all(db, text, values)

    async def _count(self, db: Connection, text: str, values: Mapping[str, Any]) -> int:
        await self._explain(db, text, values)
        return await super()._count(db, text, values)

    async def _explain(self, db: Connection, text: str, values: Mapping[str, Any] | None) -> None:
        if not text.startswith(("WITH", "UPDATE", "INSERT", "DELETE")):
            return
        async with db.transaction(force_rollback=True):
            explain: Any = f"EXPLAIN (ANALYZE, FORMAT JSON) {self._text(text)}"
            ((plans,),) = await (await db.execute(explain, values or {})).fetchall()
        self.steps[text] = max(self.steps.get(text, 0.0), _most(plans[0]["Plan"]))


def _most(node: dict[str, Any]) -> float:
    removed = sum(count for name, count in node.items() if name.startswith("Rows Removed"))
    own = (node["Actual Rows"] + removed) * node["Actual Loops"]
    return max([own, *map(_most, node.get("Plans", ()))])


def idle(rows: list[Row]) -> list[tuple[str, int | None]]:
    return [(row.key, row.epoch) for row in rows if row.key is not None]


@pytest.mark.parametrize("by", [None, "key"])
@pytest.mark.parametrize("seen", ["an empty table", "a full table", "rows that are processed"])
def test_no_statement_compares_each_row_with_each_whatever_the_statistics_know(
    postgres: str, seen: str, by: str | None
) -> None:
    mine, yours = ClaimTerms("me", by=by), ClaimTerms("you", by=by)

    async def fill(store: PostgresStore) -> None:
        await store.put([dumps({"key": f"k{n}"}) for n in range(3 * HELD)])

    def analyze() -> None:
        with psycopg.connect(postgres, autocommit=True) as db:
            db.execute("VACUUM ANALYZE")

    async def work(store: Explaining, other: PostgresStore) -> None:
        await store.claim(1, mine)
        if seen != "an empty table":
            await fill(store)
        if seen == "rows that are processed":
            await store.query("UPDATE {table} SET {status} = 1")
        await asyncio.to_thread(analyze)
        if seen != "a full table":
            await fill(store)
        for _ in range(HELD // CLAIM):
            await other.claim(CLAIM, yours)
        store.steps.clear()
        claims = [(await store.claim(CLAIM, mine, reclaim=n == 0)).rows for n in range(6)]
        assert [len(rows) for rows in claims] == [CLAIM] * 6
        await store.renew([row for rows in claims for row in rows], mine)
        finished, failed, returned = claims[:3]
        assert not await store.settle(Settlement(finished, idle_keys=idle(finished)), mine)
        failures = [Failure(row, "because", 1.0) for row in failed]
        assert not await store.settle(Settlement(failed=failures), mine)
        settlement = Settlement(returned=returned, idle_keys=idle(returned))
        assert not await store.settle(settlement, mine)

    async def story() -> dict[str, float]:
        store, other = Explaining(postgres), PostgresStore(postgres, Layout())
        await store.open()
        await other.open()
        try:
            await work(store, other)
        finally:
            await store.close()
            await other.close()
        return store.steps

    steps = asyncio.run(story())
    assert len(steps) >= 6
    assert {text: rows for text, rows in steps.items() if rows > MOST} == {}


def test_a_claim_looks_at_no_rows_that_are_left_whose_ids_are_between_those_of_others(
    postgres: str,
) -> None:
    async def story() -> None:
        store, terms = Explaining(postgres), ClaimTerms("one", by="key")
        other = ClaimTerms("other", by="key")
        await store.open()
        keys = ["hot", "hot", *(f"c{n}" for n in range(4))]
        await store.put([dumps({"key": keys[n % 6]}) for n in range(6 * CLAIM)])
        assert len((await store.claim(1, terms)).rows) == 1
        for _ in range(5):
            rows = (await store.claim(CLAIM, terms, left=["hot"])).rows
            assert await store.settle(Settlement(finished=rows, idle_keys=idle(rows)), terms) == []
        second = Explaining(postgres)
        await second.open()
        for reader, its in (store, terms), (second, other):
            left = ["hot"] if reader is store else []
            assert (await reader.claim(CLAIM, its, left=left)).rows == []
            reader.steps.clear()
            await store.put([dumps({"key": "c1"})] * 3)
            rows = (await reader.claim(CLAIM, its, left=left)).rows
            assert len(rows) == 3
            assert max(reader.steps.values()) <= 20
            assert await store.settle(Settlement(finished=rows, idle_keys=idle(rows)), its) == []
        await store.close()
        await second.close()

    asyncio.run(story())
