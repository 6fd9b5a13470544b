from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from penstock.streams.base.errors import BuildError
from penstock.streams.sql_queue import DEAD, IN_PROCESS, PROCESSED, UNPROCESSED, Store, open_store
from penstock.streams.sql_queue.analytics.statistics import Oldest, QueueStats, Times, measure

INSERT = """INSERT INTO {table} ({payload}, {status}, {enqueued}, {run_at}, {started}, {finished},
    {attempts}, {owner}, {expires}, {error})
SELECT '{{}}', :status, {now} - :enqueued * {second}, {now} - :run_at * {second},
    {now} - :started * {second}, {now} - :finished * {second}, :attempts, :owner,
    {now} - :expires * {second}, :error"""


@asynccontextmanager
async def queue(url: str) -> AsyncGenerator[Store, None]:
    store = open_store(url)
    await store.open()
    try:
        await store.query("DELETE FROM {table}")
        yield store
    finally:
        await store.close()


async def insert(
    store: Store,
    status: int,
    *,
    enqueued: float,
    run_at: float | None = None,
    started: float | None = None,
    finished: float | None = None,
    attempts: int = 0,
    owner: str | None = None,
    expires: float | None = None,
    error: str | None = None,
) -> None:
    """Insert a row; its times are seconds ago."""
    values = {
        "status": status,
        "enqueued": enqueued,
        "run_at": enqueued if run_at is None else run_at,
        "started": started,
        "finished": finished,
        "attempts": attempts,
        "owner": owner,
        "expires": expires,
        "error": error,
    }
    # A type for what is null, or else PostgreSQL would have to guess one.
    text = INSERT
    for name, value in values.items():
        if value is None:
            kind = "text" if name in ("owner", "error") else "float"
            text = text.replace(f":{name}", f"CAST(NULL AS {kind})")
    await store.query(text, **{name: value for name, value in values.items() if value is not None})


def look(url: str, rows: Sequence[dict[str, Any]], window: float = 60.0) -> QueueStats:
    async def work() -> QueueStats:
        async with queue(url) as store:
            for row in rows:
                await insert(store, **row)
            return await measure(store, window)

    return asyncio.run(work())


# Rows in every state; ids from 1 in this order.
ROWS: list[dict[str, Any]] = [
    {"status": UNPROCESSED, "enqueued": 50.0},
    {"status": UNPROCESSED, "enqueued": 500.0, "run_at": -3600.0},
    {"status": UNPROCESSED, "enqueued": 500.0, "run_at": -30.0, "attempts": 1, "error": "Boom"},
    {
        "status": IN_PROCESS,
        "enqueued": 90.0,
        "started": 5.0,
        "owner": "a",
        "expires": -25.0,
        "attempts": 1,
    },
    {
        "status": IN_PROCESS,
        "enqueued": 90.0,
        "started": 40.0,
        "owner": "b",
        "expires": 10.0,
        "attempts": 1,
    },
    {
        "status": PROCESSED,
        "enqueued": 30.0,
        "started": 20.0,
        "finished": 16.0,
        "owner": "a",
        "attempts": 3,
    },
    {
        "status": PROCESSED,
        "enqueued": 900.0,
        "run_at": 24.0,
        "started": 22.0,
        "finished": 20.0,
        "owner": "a",
        "attempts": 1,
    },
    {
        "status": PROCESSED,
        "enqueued": 900.0,
        "started": 800.0,
        "finished": 700.0,
        "owner": "c",
        "attempts": 1,
    },
    {
        "status": DEAD,
        "enqueued": 200.0,
        "started": 31.0,
        "finished": 30.0,
        "attempts": 5,
        "error": "Boom",
    },
]


def test_every_row_is_in_one_state_and_rates_are_of_the_window(database: str) -> None:
    stats = look(database, ROWS)
    states = (stats.waiting, stats.failed, stats.in_work, stats.finished, stats.dead)
    assert states == (2, 1, 2, 3, 1)
    assert sum(states) == len(ROWS)
    assert (stats.delayed, stats.expired) == (2, 1)
    assert stats.arrival_rate == 2 / 60
    assert stats.service_rate == 2 / 60
    assert stats.death_rate == 1 / 60
    assert stats.repeated == 2 + 4


def test_the_oldest_waiting_row_is_the_first_that_is_due(database: str) -> None:
    oldest = look(database, ROWS).oldest_waiting
    assert oldest is not None
    assert oldest == Oldest(1, pytest.approx(50.0, abs=5.0))
    assert look(database, ROWS[1:2]).oldest_waiting is None


def test_a_row_waits_from_when_it_was_due_until_it_was_claimed_for_the_last_time(
    database: str,
) -> None:
    stats = look(database, ROWS)
    assert stats.time_waiting == _about(Times(6.0, 2.0, 10.0, 10.0, 10.0))
    assert stats.time_in_work == _about(Times(3.0, 2.0, 4.0, 4.0, 4.0))


def test_pollers_are_listed_by_what_they_hold_and_have_finished_in_the_window(
    database: str,
) -> None:
    a, b = look(database, ROWS).pollers
    assert (a.owner, a.in_work, a.expired, a.finished, a.service_rate) == ("a", 1, 0, 2, 2 / 60)
    assert a.in_work_seconds == pytest.approx(3.0, abs=0.01)
    assert (b.owner, b.in_work, b.expired, b.finished, b.in_work_seconds) == ("b", 1, 1, 0, None)


def test_a_clock_that_was_set_back_makes_no_time_negative(database: str) -> None:
    row = {"status": PROCESSED, "enqueued": -100.0, "started": -50.0, "finished": 10.0}
    stats = look(database, [{**row, "owner": "a", "attempts": 1}])
    assert stats.time_waiting == stats.time_in_work == Times(0.0, 0.0, 0.0, 0.0, 0.0)


def test_an_empty_queue_has_no_times_and_no_oldest_row(database: str) -> None:
    stats = look(database, [])
    assert (stats.time_waiting, stats.time_in_work, stats.oldest_waiting) == (None, None, None)
    assert (stats.waiting, stats.arrival_rate, stats.repeated, stats.pollers) == (0, 0, 0, ())


@given(seconds=st.lists(st.integers(0, 1000), min_size=1, max_size=30))
@hypothesis_settings(max_examples=10)
def test_percentiles_are_the_nearest_rank_of_the_sorted_times(
    seconds: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = f"sqlite:///{tmp_path_factory.getbasetemp()}/percentiles.db"
    rows = [
        {"status": PROCESSED, "enqueued": 2000.0, "started": 1500.0, "finished": 1500.0 - one}
        for one in seconds
    ]
    times = look(url, rows, window=3000.0).time_in_work
    ranked = sorted(seconds)
    expected = [float(ranked[ceil(p * len(ranked) / 100) - 1]) for p in (50, 95, 99, 100)]
    mean = sum(seconds) / len(seconds)
    assert times == _about(Times(mean, *expected))


def test_a_window_must_be_positive(database: str) -> None:
    with pytest.raises(BuildError, match="positive"):
        look(database, [], window=0.0)


def test_looking_waits_for_nobody_who_writes(tmp_path: Any) -> None:
    async def work() -> None:
        async with queue(f"sqlite:///{tmp_path}/work.db") as store:
            await store.put(["{}"])
            with closing(sqlite3.connect(tmp_path / "work.db", isolation_level=None)) as db:
                db.execute("BEGIN IMMEDIATE")
                assert (await measure(store, 60.0)).waiting == 1

    asyncio.run(work())


def _about(times: Times) -> Times:
    """Equal to the clock's resolution."""
    numbers = (times.mean, times.p50, times.p95, times.p99, times.max)
    return Times(*(pytest.approx(number, abs=0.01) for number in numbers))
