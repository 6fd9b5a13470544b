"""What the live page says of a queue: its periodic jobs, and rows that are put off or cancelled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from penstock import Periodic, Snooze, adaptive_flat_map, collect, read_table
from penstock.streams.sql_queue import open_store
from penstock.streams.sql_queue.upkeep import cancel
from tests.helpers.page_in_node import lines_of, looked_at, opened
from tests.helpers.until import until


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

            def numbers() -> dict[str, Any]:
                found: dict[str, Any] = running.statistics()["stages"][0]
                return found

            await until(lambda: bool(begun and numbers()["snoozed"] and numbers()["periodic"]))
            await cancel(store, [2], [])
            await until(lambda: bool(numbers()["cancelled"]))
            lines = await lines_of(running, 0.5)
            running.cancel()
        await store.close()
        return lines

    lines = asyncio.run(story())
    (source, *_) = looked_at(opened(*lines))[0]["boxes"]
    for fact in ("1 snoozed", "1 cancelled", "sweep in 200.0 h, 4 missed"):
        assert fact in str(source)
