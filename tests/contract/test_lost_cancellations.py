"""A task that is cancelled ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.streams.runtime.tasks import cancellable

HOME = Path(__file__).parents[2]
PACKAGES = ("streams", "operators", "sources", "sinks", "penstock")


def test_the_library_waits_by_no_function_that_may_lose_a_cancellation() -> None:
    # `asyncio.timeout` loses none; `asyncio.wait_for` may, before Python 3.12.
    modules = [module for package in PACKAGES for module in (HOME / package).rglob("*.py")]
    assert len(modules) > 400
    assert [str(one) for one in modules if "asyncio.wait_for(" in one.read_text("utf-8")] == []


async def _ignores(result: Exception | str) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if isinstance(result, str):
            return result
        raise result from None
    raise AssertionError


async def _cancelled(task: asyncio.Task[str]) -> bool:
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


async def _outcome(result: Exception | str) -> bool:
    async def waiting() -> str:
        return await cancellable(_ignores(result))

    return await _cancelled(asyncio.create_task(waiting()))


def test_work_that_ignores_a_cancellation_does_not_hide_it_from_its_caller() -> None:
    assert asyncio.run(_outcome("result"))
    assert asyncio.run(_outcome(ValueError("error")))


def test_work_that_is_begun_after_a_cancellation_can_end() -> None:
    async def story() -> str:
        async def waiting() -> str:
            return await cancellable(asyncio.sleep(0, await _ignores("result")))

        task = asyncio.create_task(waiting())
        await _cancelled(task)
        return task.result()

    assert asyncio.run(story()) == "result"
