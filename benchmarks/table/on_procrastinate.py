"""The job on procrastinate: its own worker, with the fastest number of jobs at once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import procrastinate

from benchmarks import case
from benchmarks.table.shared import URL, payloads

# Tried 1, 10, 50 and 200.
CONCURRENCY = 10

logging.disable()


def plain(options: case.Options) -> dict[str, Any]:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL))
    done = 0

    @app.task(name="work")
    async def work(payload: str) -> None:
        nonlocal done
        done += 1

    async def enqueue() -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            await work.batch_defer_async(*({"payload": text} for text in payloads(options.events)))

    async def drain() -> None:
        async with app.open_async():
            await app.run_worker_async(
                wait=False, concurrency=CONCURRENCY, install_signal_handlers=False
            )

    def job() -> dict[str, Any]:
        asyncio.run(drain())
        assert done == options.events
        return {"finished": done}

    asyncio.run(enqueue())
    return case.timed(job, options.events)


if __name__ == "__main__":
    case.main({"plain": plain})
