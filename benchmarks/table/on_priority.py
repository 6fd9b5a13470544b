"""Claims of a table with a million rows that wait: by priority, or a table without priorities."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from itertools import count
from typing import Any

import psycopg

from benchmarks import case
from benchmarks.table.shared import URL
from penstock.streams.sql_queue import ClaimTerms, Settlement, open_store

WAITING = 1_000_000
ROWS_EACH, SECONDS = 500, 5.0
PRIORITIES = 10

# Ten priorities are spread over all of the table: rows of a claim are in ten times as many pages.
FILL = {
    "sqlite": f"""WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {WAITING})
        INSERT INTO queue (payload{{column}})
        SELECT '{{{{"n": 1}}}}'{{value}} FROM n""",
    "postgresql": f"""INSERT INTO queue (payload{{column}})
        SELECT '{{{{"n": 1}}}}'{{value}} FROM generate_series(1, {WAITING}) AS i""",
}
WITHOUT = ("DROP INDEX queue_priority", "ALTER TABLE queue DROP COLUMN priority")


def execute(*statements: str) -> None:
    if URL.startswith("sqlite"):
        with closing(sqlite3.connect(URL.removeprefix("sqlite:///"))) as lite, lite:
            for statement in statements:
                lite.execute(statement)
    else:
        with psycopg.connect(URL, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())


async def claims(priority: str | None) -> dict[str, Any]:
    """Claim and finish rows for some seconds; `priority` is that of row `i`, in SQL."""
    ranked = priority is not None
    store, terms = open_store(URL), ClaimTerms("one")
    await store.open()
    fill = FILL[URL.partition(":")[0]]
    if ranked:
        execute(fill.format(column=", priority", value=f", {priority}"))
    else:
        await store.close()
        execute(*WITHOUT, fill.format(column="", value=""))
        await store.open()
    execute("ANALYZE")
    assert store.is_ranked is ranked
    began, rows = time.perf_counter(), 0
    for turn in count():
        # As a reader does: all that is due once per second, otherwise behind the last row.
        found = (await store.claim(ROWS_EACH, terms, reclaim=turn % 50 == 0)).rows
        assert len(found) == ROWS_EACH
        assert not ranked or found[-1].priority == 0
        assert await store.settle(Settlement(found), terms) == []
        rows += len(found)
        took = time.perf_counter() - began
        if took >= SECONDS or rows >= WAITING // PRIORITIES - ROWS_EACH:
            break
    await store.close()
    return {"events": rows, "wall_seconds": took}


if __name__ == "__main__":
    case.main(
        {
            "one priority": lambda _: asyncio.run(claims("0")),
            "ten priorities": lambda _: asyncio.run(claims(f"i % {PRIORITIES}")),
            "none": lambda _: asyncio.run(claims(None)),
        }
    )
