from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from penstock import (
    Fixed,
    adaptive_flat_map,
    batch,
    collect,
    for_each,
    from_async_iterable,
    from_iterable,
    group_by,
    ops,
    spread,
)
from penstock.streams.base.errors import HandlerCancelled
from penstock.streams.runtime.tasks import Tasks
from penstock.streams.testing import MemorySink
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


def refused(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **_: Any) -> Any:
    work.close()
    raise AssertionError("a task of the pipeline is made by the factory of the loop")


# A factory may begin tasks at once, in the middle of a call: Python 3.12 has one that does.
FACTORIES = [refused, *filter(None, [getattr(asyncio, "eager_task_factory", None)])]


@pytest.mark.parametrize("factory", FACTORIES)
def test_a_pipeline_works_on_a_loop_with_a_factory_for_tasks(factory: Any, run: Run) -> None:
    done: list[int] = []

    async def double(number: int) -> int:
        if number % 3 == 0:
            await asyncio.sleep(1)
        return number * 2

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(factory)
        stream = from_iterable(range(100)).pipe(
            group_by(lambda number: number % 7), spread(), adaptive_flat_map(double, Fixed(4))
        )
        report = await stream.to(collect(done)).run()
        assert report.outcome == "completed"
        assert [number async for number in stream.pipe(ops.take(3))] == done[:3]
        loop.set_task_factory(None)

    run(story())
    assert sorted(done) == [2 * number for number in range(100)]


def test_a_task_that_somebody_else_cancels_has_failed(run: Run) -> None:
    async def story() -> None:
        failed: list[tuple[str, str]] = []
        tasks = Tasks(lambda name, error: failed.append((name, str(error))))
        loop = asyncio.get_running_loop()
        task = tasks.spawn(loop, asyncio.sleep(100), "leases")
        another = tasks.spawn(loop, asyncio.sleep(100), "slot", replaced=True)
        task.cancel()
        another.cancel()
        await asyncio.sleep(1)
        ((name, message),) = failed
        assert name == "leases"
        assert message.startswith("the task 'leases' was cancelled, and not by the pipeline")

    run(story())


def numbers() -> Any:
    return from_async_iterable(lambda: aiter(from_iterable(range(9)).pipe(ops.delay(1))))


@pytest.mark.parametrize("seconds", [0, 0.5])
@pytest.mark.parametrize("name", ["source", "handler", "batch", "sink"])
def test_a_pipeline_of_which_somebody_cancels_a_task_ends(
    name: str, seconds: float, run: Run
) -> None:
    async def works(value: Any) -> Any:
        return await asyncio.sleep(1, value)

    streams = {
        "source": numbers(),
        "handler": from_iterable(range(9)).pipe(adaptive_flat_map(works)),
        "batch": from_iterable(range(9)).pipe(batch(works)),
        "sink": from_iterable(range(9)),
    }

    async def story() -> None:
        sink = for_each(works) if name == "sink" else MemorySink()
        running = streams[name].to(sink).start()
        await asyncio.sleep(seconds)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        if name in ("handler", "batch") and not seconds:
            # No call has begun, so others take the places of these tasks.
            assert (await running.wait()).outcome == "completed"
        else:
            with pytest.raises(HandlerCancelled, match="was cancelled, and not by the pipeline"):
                await running.wait()
        assert running.statistics()["unfinished"] == 0

    run(story())
