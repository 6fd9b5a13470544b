"""A queue to begin with, and what came of it in the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from orjson import dumps

from streams.running import Report
from streams.table import Store, open_store
from streams.table.analytics import QueueStats, measure
from streams.table.upkeep import Found, peek
from tests.table.poller import Orders, pipeline_of

__all__ = [
    "Outcome",
    "end_leases",
    "finish",
    "numbered",
    "opened",
    "prepare",
    "until",
    "until_idle",
]


@dataclass(frozen=True)
class Outcome:
    """`results` counts how often each number was written; `read` is what the last poller says."""

    stats: QueueStats
    results: Counter[int]
    dead: list[Found]
    read: dict[str, Any]

    def check(self, count: int, dead: int = 0) -> None:
        """Every row is finished or dead with its error; what finished has one result each."""
        states = (self.stats.waiting, self.stats.failed, self.stats.in_work)
        assert states == (0, 0, 0)
        assert (self.stats.finished, self.stats.dead) == (count - dead, dead)
        assert len(self.results) == count - dead
        assert set(self.results.values()) <= {1}
        assert all(row.error for row in self.dead)


def numbered(count: int, **fields: Any) -> list[dict[str, Any]]:
    """Payloads with numbers from 0, of five keys."""
    return [{"n": n, "key": n % 5, **fields} for n in range(count)]


@asynccontextmanager
async def opened(url: str, *, make: bool = False) -> AsyncGenerator[Store, None]:
    store = open_store(url)
    try:
        await store.open(make=make)
        yield store
    finally:
        await store.close()


async def prepare(url: str, payloads: Sequence[dict[str, Any]]) -> None:
    """Make the queue, and the table for the results."""
    async with opened(url, make=True) as store:
        await store.put([dumps(payload) for payload in payloads])
        await store.query("CREATE TABLE results (n integer, poller integer)")


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await true():  # noqa: ASYNC110 - others are waited for, and they tell nobody
            await asyncio.sleep(0.03)


async def end_leases(store: Store, by: str | None) -> None:
    """Let all leases have run out."""
    await store.query("UPDATE {table} SET {expires} = {now} - {second} WHERE {status} = 9")
    if by is not None:
        await store.query("UPDATE {keys} SET expires = {now} - {second}")


async def until_idle(store: Store) -> None:
    """Wait until every row is finished or dead."""

    async def idle() -> bool:
        stats = await measure(store, 60.0)
        return not (stats.waiting or stats.failed or stats.in_work)

    await until(idle)


async def finish(orders: Orders, meanwhile: Callable[[], Awaitable[None]] | None = None) -> Outcome:
    """Let a poller in this process do what is left, and look at the outcome.

    `meanwhile` is called when it has written some results, and may do to the database whatever
    it likes.
    """
    running = pipeline_of(orders).start()
    async with running:
        if meanwhile is not None:
            async with opened(orders.url) as store:
                await until_some_results(store)
            await meanwhile()
        async with opened(orders.url) as store:
            await until_idle(store)
        report = await running.drain()
    return await outcome(orders.url, report)


async def until_some_results(store: Store) -> None:
    async def some() -> bool:
        return bool(await store.read("SELECT n FROM results LIMIT 1"))

    await until(some)


async def outcome(url: str, report: Report) -> Outcome:
    async with opened(url) as store:
        results = Counter(n for (n,) in await store.read("SELECT n FROM results"))
        stats = await measure(store, 60.0)
        return Outcome(stats, results, await peek(store, 100, -1), report.statistics["stages"][0])
