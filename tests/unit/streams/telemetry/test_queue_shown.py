"""What the live page says of a queue: jobs, priorities, and rows that are put off or over."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock import Periodic, Running, Snooze, adaptive_flat_map, collect, read_table
from penstock.streams.sql_queue import open_store
from penstock.streams.sql_queue.upkeep import cancel
from tests.helpers.page_in_node import lines_of, looked_at, opened
from tests.helpers.until import until


def numbers_of(running: Running) -> dict[str, Any]:
    found: dict[str, Any] = running.statistics()["stages"][0]
    return found


def test_the_page_shows_when_jobs_are_due_and_how_many_rows_were_snoozed_or_cancelled(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    begun: list[int] = []

    async def handler(value: dict[str, Any]) -> None:
        if value["n"] == 1:
            raise Snooze(3600)
        begun.append(value["n"])
        await asyncio.Event().wait()

    async def story() -> list[Any]:
        store = open_store(url)
        await store.open()
        await store.put(['{"n": 1}', '{"n": 2}'])
        # Two hundred hours ahead.
        first = await store.now() + 720_000
        job = Periodic({"n": 3}, every=1e9)
        await store.plan("sweep", job.text, first)
        await store.move("sweep", first, first, [], 4)
        rows = read_table(url, periodic={"sweep": job})
        pipeline = rows.pipe(adaptive_flat_map(handler, limit=2)).to(collect([]))
        async with pipeline.start() as running:
            running.record()
            await until(lambda: bool(begun and numbers_of(running)["snoozed"]))
            await until(lambda: bool(numbers_of(running)["periodic"]))
            await cancel(store, [2], [])
            await until(lambda: bool(numbers_of(running)["cancelled"]))
            lines = await lines_of(running, 0.5)
            running.cancel()
        await store.close()
        return lines

    lines = asyncio.run(story())
    (source, *_) = looked_at(opened(*lines))[0]["boxes"]
    for fact in ("1 snoozed", "1 cancelled", "sweep in 200.0 h, 4 missed"):
        assert fact in str(source)


@pytest.mark.parametrize("kinds", [None, {"kind": ["a"]}])
def test_the_page_shows_the_lowest_priorities_of_a_queue_and_rows_that_are_not_due_or_dead(
    database: str, kinds: dict[str, list[str]] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.streams.sql_queue.reader._COUNTED_EVERY", 0.01)

    async def handler(value: dict[str, Any]) -> None:
        if value["n"] == 0:
            raise ValueError("no address")
        await asyncio.Event().wait()

    def payloads(*numbers: int, kind: str = "a") -> list[bytes]:
        return [orjson.dumps({"n": n, "kind": kind}) for n in numbers]

    async def story() -> list[Any]:
        store = open_store(database)
        await store.open()
        # Two rows of the highest priority are begun, and those left are counted.
        await store.put(payloads(0, 1), priority=-9)
        for priority in (-3, 4, 5, 6):
            await store.put(payloads(2, 3), priority=priority)
        await store.put(payloads(4, 5, 6), 3600)
        await store.put(payloads(7), priority=7)
        await store.put(payloads(8, 9), priority=8)
        if kinds is not None:
            await store.put(payloads(10, 11, kind="b"), 3600)
            await store.put(payloads(12, kind="b"), priority=-4)
        rows = read_table(database, only=kinds, batch=1)
        pipeline = rows.pipe(adaptive_flat_map(handler, limit=1, on_error="skip")).to(collect([]))
        async with pipeline.start() as running:
            running.record()
            await asyncio.sleep(0)
            await until(lambda: numbers_of(running)["pending"] == 11)
            await until(lambda: bool(numbers_of(running)["dead"]))
            assert numbers_of(running)["priorities"] == [(-3, 2), (0, 3), (4, 2), (5, 2), (6, 2)]
            lines = await lines_of(running, 0.5)
            running.cancel()
        await store.close()
        return lines

    lines = asyncio.run(story())
    (source, *_) = looked_at(opened(*lines))[0]["boxes"]
    for fact in (
        "11 pending",
        "3 not due yet",
        "priorities: 2 of -3, 3 of 0, 2 of 4, 2 of 5, 2 of 6, 3 of others",
        "1 dead",
    ):
        assert fact in str(source)


def test_the_page_shows_no_priorities_where_all_rows_have_the_usual_one(database: str) -> None:
    async def story() -> list[Any]:
        store = open_store(database)
        await store.open()
        await store.put(['{"n": 1}', '{"n": 2}'], 3600)
        async with read_table(database).to(collect([])).start() as running:
            running.record()
            await asyncio.sleep(0)
            await until(lambda: numbers_of(running)["delayed"] == 2)
            lines = await lines_of(running, 0.5)
            running.cancel()
        await store.close()
        return lines

    (source, *_) = looked_at(opened(*asyncio.run(story())))[0]["boxes"]
    assert "2 not due yet" in str(source)
    assert "priorities" not in str(source)
