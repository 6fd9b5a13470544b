"""A table that somebody else has locked: who waits for it says so, and for whom."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import psycopg
import pytest

from penstock import Flowable, collect, for_each, from_iterable, read_table, write_table
from penstock.streams.failures.backoff import Backoff
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.sql_queue import ClaimTerms, reconnect
from penstock.streams.sql_queue.reader import ReaderOptions, TableReader
from penstock.streams.testing import run_virtual
from tests.helpers.memory_store import MemoryStore
from tests.helpers.until import until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect, "_SILENT", 0.05)


async def said(caplog: pytest.LogCaptureFixture, text: str) -> None:
    await until(lambda: text in caplog.text)


@pytest.mark.parametrize("by", [None, "n"])
@pytest.mark.parametrize("locks", ["table", "rows"])
def test_a_reader_says_which_process_of_the_server_it_waits_for(
    postgres: str, caplog: pytest.LogCaptureFixture, locks: str, by: str | None
) -> None:
    async def story() -> None:
        await from_iterable({"n": n} for n in range(3)).to(write_table(postgres)).run()
        began, go_on = asyncio.Event(), asyncio.Event()

        async def handle(event: dict[str, Any]) -> None:
            began.set()
            await go_on.wait()

        with psycopg.connect(postgres) as other:
            if locks == "table":
                other.execute("LOCK TABLE queue")
            running = read_table(postgres, by=by, follow=False).to(for_each(handle)).start()
            if locks == "rows":
                await began.wait()
                other.execute("SELECT 1 FROM queue FOR UPDATE")
            go_on.set()
            await said(caplog, f"waiting for process {other.info.backend_pid} of the server")
            assert "table 'queue' has not answered for" in caplog.text
            other.rollback()
        report = await running.wait()
        assert report.statistics["finished"] == 3
        assert report.statistics["stages"][0]["waited"] > 0

    asyncio.run(story())


def test_a_writer_says_so_too(postgres: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        await from_iterable([{"n": 1}]).to(write_table(postgres)).run()
        with psycopg.connect(postgres) as other:
            other.execute("LOCK TABLE queue")
            running = from_iterable([{"n": 2}]).to(write_table(postgres)).start()
            await said(caplog, f"waiting for process {other.info.backend_pid} of the server")
            other.rollback()
        report = await running.wait()
        assert report.statistics["stages"][-1]["waited"] > 0

    asyncio.run(story())


def test_a_reader_of_a_file_says_that_it_waits_for_the_lock(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/work.db"

    async def story() -> None:
        await from_iterable([{"n": 1}]).to(write_table(url)).run()
        other = sqlite3.connect(f"{tmp_path}/work.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        done: list[Any] = []
        # On a busy machine the writer has said it, too.
        caplog.clear()
        running = read_table(url, follow=False).to(collect(done)).start()
        await said(caplog, "waiting for the lock of the file")
        other.execute("ROLLBACK")
        other.close()
        report = await running.wait()
        assert done == [{"n": 1}]
        assert report.statistics["stages"][0]["waited"] > 0

    asyncio.run(story())


def test_a_reader_whose_table_is_only_empty_does_not_wait_for_anybody() -> None:
    async def story() -> None:
        terms, info = ClaimTerms("me"), StageInfo("read_table")
        manner = ReaderOptions(Backoff(), batch=100, follow=True, poll=60.0, patience=60.0)

        def attach(downstream: Subscriber[Any], run: Run) -> None:
            TableReader(downstream, run, info, MemoryStore([]), terms, manner).start()

        running = Flowable[Any](attach, info).to(collect([])).start()
        await asyncio.sleep(600)
        assert running.statistics()["stages"][0]["waited"] == 0
        running.cancel()
        await running.wait()

    run_virtual(story())
