from __future__ import annotations

import asyncio

from penstock.streams.errors import HandlerCancelled
from penstock.streams.runtime.tasks import Tasks
from penstock.streams.testing.plugin import Run


async def cancelled_from_inside() -> None:
    awaited = asyncio.get_running_loop().create_future()
    awaited.cancel()
    await awaited


def test_a_task_that_is_cancelled_from_inside_has_failed(run: Run) -> None:
    async def story() -> None:
        failed: list[tuple[str, BaseException]] = []
        tasks = Tasks(lambda name, error: failed.append((name, error)))
        tasks.spawn(asyncio.get_running_loop(), cancelled_from_inside(), "leases")
        await asyncio.sleep(1)
        ((name, error),) = failed
        assert name == "leases"
        assert isinstance(error, HandlerCancelled)
        assert str(error) == "the task 'leases' was cancelled from inside"

    run(story())


def test_a_task_that_its_owner_cancels_has_not_failed(run: Run) -> None:
    async def story() -> None:
        failed: list[str] = []
        tasks = Tasks(lambda name, _: failed.append(name))
        tasks.spawn(asyncio.get_running_loop(), asyncio.sleep(100), "leases")
        await asyncio.sleep(1)
        assert await tasks.end() == ""
        assert failed == []

    run(story())
