"""Databases that are killed, locked or full in the middle of a run, and come back or do not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from streams.errors import DatabaseUnavailable
from streams.table import sqlite_table
from tests.servers.postgres import Postgres
from tests.table.outcome import Outcome, finish, numbered, opened, prepare, until_some_results
from tests.table.poller import Orders, ended, pipeline_of, started

ROWS = 300


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server to be killed."""
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture
def mortal(server: Postgres) -> str:
    """The URL of an empty database of that server."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return server.url


def answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize("by", [None, "key"])
def test_a_run_outlives_its_server_that_is_killed_and_started_again(
    server: Postgres, mortal: str, by: str | None
) -> None:
    async def kill() -> None:
        server.kill()
        await asyncio.sleep(0.1)
        await asyncio.to_thread(server.start)

    async def story() -> None:
        await prepare(mortal, numbered(ROWS))
        end = await finish(Orders(mortal, by, seconds=0.005), kill)
        end.check(ROWS)
        assert end.read["reconnects"] > 0
        assert end.stats.repeated == end.read["redelivered"]

    asyncio.run(story())


def test_a_server_that_stays_away_ends_the_run_and_the_next_one_does_the_rest(
    server: Postgres, mortal: str
) -> None:
    async def story() -> None:
        await prepare(mortal, numbered(ROWS))
        with pytest.raises(DatabaseUnavailable, match=r"could not be used for 0\.2 s"):  # noqa: PT012
            async with pipeline_of(Orders(mortal, seconds=0.005, lease=0.5, patience=0.2)).start():
                async with opened(mortal) as store:
                    await until_some_results(store)
                server.kill()
        await asyncio.to_thread(server.start)
        (await finish(Orders(mortal))).check(ROWS)

    asyncio.run(story())


def test_a_run_outlives_the_process_of_the_server_that_works_for_it(mortal: str) -> None:
    async def kill() -> None:
        with psycopg.connect(mortal) as connection:
            pids = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'penstock'"
            ).fetchall()
        os.kill(pids[0][0], signal.SIGKILL)
        # The server ends all others too, and recovers.
        async with asyncio.timeout(20):
            while not await asyncio.to_thread(answers, mortal):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def story() -> None:
        await prepare(mortal, numbered(ROWS))
        end = await finish(Orders(mortal, seconds=0.005), kill)
        end.check(ROWS)
        assert end.read["reconnects"] > 0

    asyncio.run(story())


def locked(file: Path) -> sqlite3.Connection:
    """A connection that keeps everybody else from writing."""
    db = sqlite3.connect(file, isolation_level=None, timeout=20.0, check_same_thread=False)
    db.execute("BEGIN IMMEDIATE")
    return db


def test_a_run_goes_on_when_a_lock_on_its_file_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Seconds that a transaction waits for a lock.
    monkeypatch.setattr(sqlite_table, "_PATIENCE", 0.05)
    url = f"sqlite:///{tmp_path}/work.db"

    async def lock() -> None:
        db = await asyncio.to_thread(locked, tmp_path / "work.db")
        await asyncio.sleep(0.3)
        db.close()

    async def story() -> None:
        await prepare(url, numbered(ROWS))
        end = await finish(Orders(url, seconds=0.005), lock)
        end.check(ROWS)
        assert end.read["reconnects"] > 0
        assert end.stats.repeated == 0

    asyncio.run(story())


def test_what_a_lock_that_stays_leaves_undone_is_done_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_table, "_PATIENCE", 0.05)
    url = f"sqlite:///{tmp_path}/work.db"

    async def story() -> None:
        await prepare(url, numbered(ROWS))
        with pytest.raises(DatabaseUnavailable, match="is locked"):  # noqa: PT012 - it ends there
            async with pipeline_of(Orders(url, seconds=0.005, lease=0.5, patience=0.2)).start():
                async with opened(url) as store:
                    await until_some_results(store)
                db = await asyncio.to_thread(locked, tmp_path / "work.db")
        db.close()
        (await finish(Orders(url))).check(ROWS)

    asyncio.run(story())


def test_a_run_goes_on_when_its_disk_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    connections: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def known(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connections.append(connect(*arguments, **options, check_same_thread=False))
        return connections[-1]

    async def give_room(pages: int) -> None:
        for db in connections:
            with suppress(sqlite3.ProgrammingError):  # Closed in the meantime.
                await asyncio.to_thread(db.execute, f"PRAGMA max_page_count = {pages}")

    async def fill() -> None:
        # Not below what there is already.
        await give_room(1)
        await asyncio.sleep(0.3)
        await give_room(1_000_000)

    async def story() -> None:
        await prepare(url, numbered(ROWS, text="x" * 500))
        monkeypatch.setattr(sqlite3, "connect", known)
        end = await finish(Orders(url, seconds=0.005), fill)
        end.check(ROWS)
        assert end.read["reconnects"] > 0

    asyncio.run(story())


def test_a_poller_goes_on_when_the_system_lets_it_write_again(tmp_path: Path) -> None:
    url, report = f"sqlite:///{tmp_path}/work.db", tmp_path / "report"

    async def story() -> None:
        payloads = numbered(ROWS, text="x" * 500)
        payloads[20]["fill"] = True
        await prepare(url, payloads)
        orders = Orders(url, seconds=0.002, follow=False, report=str(report))
        with started(orders) as (poller,):
            assert await ended(poller) == 0
        # What was lost was the disk, not a lease.
        told = json.loads(report.read_text())
        assert told["reconnects"] > 0
        assert told["lost_leases"] == 0
        (await finish(Orders(url))).check(ROWS)

    asyncio.run(story())


# A row for each page of 8 KiB, and more pages than the server's log has in a file.
LARGE = """ALTER TABLE results ADD filler text DEFAULT repeat('x', 5000);
ALTER TABLE results ALTER filler SET STORAGE PLAIN, SET (autovacuum_enabled = false);
INSERT INTO results SELECT n, n FROM generate_series(1, 2100) n;
DELETE FROM results"""


def test_a_run_goes_on_when_the_disk_of_its_server_has_room_again(
    server: Postgres, mortal: str
) -> None:
    async def fill() -> None:
        with psycopg.connect(mortal) as connection:
            ((size,),) = connection.execute("SELECT pg_relation_size('results')").fetchall()
        await asyncio.to_thread(server.limit_files, size)
        await asyncio.sleep(0.2)
        await asyncio.to_thread(server.limit_files, None)

    async def story() -> Outcome:
        await prepare(mortal, numbered(ROWS))
        with psycopg.connect(mortal) as connection:
            connection.execute(LARGE)
        return await finish(Orders(mortal, seconds=0.005), fill)

    end = asyncio.run(story())
    end.check(ROWS)
    assert end.read["reconnects"] > 0
    assert end.read["lost_leases"] == 0
    assert end.stats.repeated == 0
