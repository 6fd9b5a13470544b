"""Databases that are killed, locked or full while readers work, and come back or do not."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.helpers.servers.postgres import Postgres
from tests.helpers.system.poller import Orders
from tests.helpers.system.pollers import Pollers

# Long enough that there is still work to do when something happens.
SECONDS = 0.3


@pytest.fixture
def mortal() -> Generator[Postgres]:
    """A server to be killed."""
    server = Postgres()
    yield server
    server.stop()


@contextmanager
def one_at_work(orders: Orders, folder: Path) -> Generator[tuple[Pollers, str]]:
    with Pollers(orders, folder) as pollers:
        poller = pollers.start()
        pollers.until(lambda: pollers.arrived() > 20)
        yield pollers, poller


@pytest.mark.parametrize("by", [False, True])
def test_a_server_that_is_killed_and_comes_back_gives_no_key_to_two_readers(
    mortal: Postgres, tmp_path: Path, run_seed: int, by: bool
) -> None:
    random_ = random.Random(run_seed)
    with Pollers(Orders(mortal.url, by=by, results=bool(run_seed % 2)), tmp_path) as pollers:
        names = pollers.start_two()
        for _ in range(2):
            time.sleep(random_.uniform(0, 0.4))
            mortal.kill()
            mortal.start()
        pollers.check()
        told = [pollers.drained(name) for name in names]
        assert all(one["reconnects"] > 0 for one in told)


CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock'"


@pytest.mark.parametrize("by", [False, True])
def test_readers_whose_connections_are_cut_again_and_again_go_on(
    mortal: Postgres, tmp_path: Path, run_seed: int, by: bool
) -> None:
    random_ = random.Random(run_seed)
    # No test waits for a lease: a slow machine loses none by itself.
    orders = Orders(mortal.url, by=by, results=bool(run_seed % 2), lease=30.0, seconds=0.1)
    with Pollers(orders, tmp_path) as pollers:
        names = pollers.start_two()
        with psycopg.connect(mortal.url, autocommit=True) as connection:
            for _ in range(10):
                time.sleep(random_.uniform(0, 0.2))
                connection.execute(CUT)
        pollers.check()
        told = [pollers.drained(name) for name in names]
        assert all(one["reconnects"] > 0 for one in told)


def test_a_server_that_stays_away_ends_its_reader_and_the_next_one_does_the_rest(
    mortal: Postgres, tmp_path: Path, run_seed: int
) -> None:
    time_ = random.Random(run_seed).uniform(0, 0.2)
    orders = Orders(mortal.url, results=True, seconds=SECONDS, patience=0.2)
    with one_at_work(orders, tmp_path) as (pollers, poller):
        time.sleep(time_)
        mortal.kill()
        assert pollers.ended(poller) == 1
        assert "DatabaseUnavailable" in pollers.said(poller)
        assert "could not be used for 0.2 s" in pollers.said(poller)
        mortal.start()
        pollers.start()
        pollers.check()


def answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def is_alive(connection: psycopg.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def test_a_reader_outlives_the_process_of_the_server_that_works_for_it(
    mortal: Postgres, tmp_path: Path, run_seed: int
) -> None:
    orders = Orders(mortal.url, by=bool(run_seed % 2), results=True, seconds=SECONDS)
    with one_at_work(orders, tmp_path) as (pollers, poller):
        connection = psycopg.connect(mortal.url, autocommit=True)
        pids = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'penstock'"
        ).fetchall()
        os.kill(pids[run_seed % len(pids)][0], signal.SIGKILL)
        # The server ends all others too, and recovers.
        pollers.until(lambda: not is_alive(connection))
        pollers.until(lambda: answers(mortal.url))
        pollers.check()
        assert pollers.drained(poller)["reconnects"] > 0


def locked(file: Path) -> sqlite3.Connection:
    """A connection that keeps all others from writing."""
    db = sqlite3.connect(file, isolation_level=None, timeout=20.0)
    db.execute("BEGIN IMMEDIATE")
    return db


def test_a_reader_goes_on_when_a_lock_on_its_file_is_released(
    tmp_path: Path, run_seed: int
) -> None:
    url, by = f"sqlite:///{tmp_path}/work.db", bool(run_seed % 2)
    orders = Orders(url, by=by, results=True, lease=30.0, seconds=SECONDS, locked_for=0.05)
    with one_at_work(orders, tmp_path) as (pollers, poller):
        db = locked(tmp_path / "work.db")
        time.sleep(0.3)
        db.close()
        pollers.check(repeats=False)
        assert pollers.drained(poller)["reconnects"] > 0


def test_what_a_lock_that_stays_leaves_undone_is_done_by_the_next_reader(
    tmp_path: Path, run_seed: int
) -> None:
    url, by = f"sqlite:///{tmp_path}/work.db", bool(run_seed % 2)
    orders = Orders(url, by=by, results=True, seconds=SECONDS, locked_for=0.05, patience=0.2)
    with one_at_work(orders, tmp_path) as (pollers, poller):
        db = locked(tmp_path / "work.db")
        assert pollers.ended(poller) == 1
        assert "is locked" in pollers.said(poller)
        db.close()
        pollers.start()
        pollers.check()


@pytest.mark.parametrize("what", ["pages", "files"])
def test_a_reader_goes_on_when_its_disk_has_room_again(
    tmp_path: Path, run_seed: int, what: str
) -> None:
    filling = (f"client {run_seed % 20}", 2)
    url, by = f"sqlite:///{tmp_path}/work.db", bool(run_seed % 2)
    orders = Orders(url, by=by, results=True, lease=30.0, seconds=SECONDS)
    special = {filling: {"fills": what}}
    with Pollers(orders, tmp_path, events=20, special=special, padding=4_000) as pollers:
        poller = pollers.start()
        pollers.check(repeats=False)
        # The disk failed, not a lease.
        told = pollers.drained(poller)
        assert told["reconnects"] > 0
        assert told["lost_leases"] == 0


# A row for each page of 8 KiB, and more pages than the server's log has in a file.
LARGE = """ALTER TABLE results ADD filler text DEFAULT repeat('x', 5000);
ALTER TABLE results ALTER filler SET STORAGE PLAIN, SET (autovacuum_enabled = false);
INSERT INTO results (seq) SELECT n FROM generate_series(1, 2100) n;
DELETE FROM results"""


def test_a_reader_goes_on_when_the_disk_of_its_server_has_room_again(
    mortal: Postgres, tmp_path: Path, run_seed: int
) -> None:
    by = bool(run_seed % 2)
    orders = Orders(mortal.url, by=by, results=True, lease=30.0, seconds=SECONDS)
    with Pollers(orders, tmp_path) as pollers:
        with psycopg.connect(mortal.url) as connection:
            connection.execute(LARGE)
        poller = pollers.start()
        pollers.until(lambda: pollers.arrived() > 20)
        with psycopg.connect(mortal.url) as connection:
            ((size,),) = connection.execute("SELECT pg_relation_size('results')").fetchall()
        mortal.limit_files(size)
        time.sleep(0.2)
        mortal.limit_files(None)
        pollers.check(repeats=False)
        told = pollers.drained(poller)
        assert told["reconnects"] > 0
        assert told["lost_leases"] == 0
