from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from streams.table.analytics import measure
from tests.table.outcome import opened, prepare, until_idle
from tests.table.poller import Orders, started

ROWS = 600
KEYS = 40


@pytest.mark.parametrize("by", [None, "key"])
def test_no_row_is_given_to_two_of_four_pollers(
    database: str, by: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    async def rate(pollers: int) -> float:
        """Rows a second that so many pollers finish, each of them once."""
        async with opened(database, make=True) as store:
            await store.query("DROP TABLE IF EXISTS results")
            await store.query("DELETE FROM {table}")
            await prepare(database, [{"n": n, "key": n % KEYS} for n in range(ROWS)])
            with started(Orders(database, by, batch=20, at_once=10, seconds=0.01), pollers):
                await until_idle(store)
            stats = await measure(store, 60.0)
            assert (stats.finished, stats.dead, stats.repeated) == (ROWS, 0, 0)
            written = Counter(n for (n,) in await store.read("SELECT n FROM results"))
            assert written == Counter(range(ROWS))
            span = "SELECT {seconds}max({finished}) - min({started})) FROM {table}"
            ((seconds,),) = await store.read(span)
        return ROWS / float(seconds)

    async def story() -> tuple[float, float]:
        return await rate(1), await rate(4)

    one, four = asyncio.run(story())
    with capsys.disabled():
        kind = database.partition(":")[0]
        print(f"\n{kind}, by={by}: {one:,.0f} rows/s with one poller, {four:,.0f} with four")
