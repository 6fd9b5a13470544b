"""A server that does not answer, and does not refuse either."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import adaptive_flat_map, collect, from_iterable, read_table, write_table
from penstock.streams.runtime import tasks
from penstock.streams.sql_queue import claims, ledger
from tests.helpers.servers.wire import Wire
from tests.helpers.until import until


@pytest.mark.parametrize("by", [None, "n"])
@pytest.mark.parametrize("during", ["claim", "settlement"])
def test_a_pipeline_whose_server_does_not_answer_can_be_ended(
    postgres: str, by: str | None, during: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((tasks, "_GRACE"), (claims, "_GRACE"), (ledger, "_LAST")):
        monkeypatch.setattr(module, name, 0.1)

    async def story() -> None:
        await from_iterable({"n": n} for n in range(8)).to(write_table(postgres)).run()
        wire = Wire(postgres)
        await wire.lay()
        done: list[Any] = []
        cut = asyncio.Event()

        async def handler(event: dict[str, Any]) -> dict[str, Any]:
            if event["n"] >= 4:
                await cut.wait()
            return event

        async def some_are_done() -> bool:
            return len(done) == 4

        rows = read_table(wire.url, by=by, batch=4 if during == "settlement" else 100, poll=0.01)
        running = rows.pipe(adaptive_flat_map(handler)).to(collect(done)).start()
        await until(some_are_done)
        wire.cut()
        if during == "settlement":
            cut.set()
        await asyncio.sleep(0.05)
        running.cancel()
        async with asyncio.timeout(20):
            await running.wait()
        await wire.remove()

    asyncio.run(story())
