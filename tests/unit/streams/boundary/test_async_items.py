from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.streams.boundary.async_items import NOT_YET, AsyncItems
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.testing import run_virtual

INFO = StageInfo("spread")


async def soon() -> None:
    await asyncio.sleep(0.001)


def test_an_item_is_pulled_when_it_is_requested_and_no_sooner() -> None:
    async def story() -> None:
        pulled: list[int] = []
        came: list[AsyncItems] = []

        async def numbers() -> AsyncIterator[int]:
            for n in range(2):
                pulled.append(n)
                yield n

        items = AsyncItems(numbers(), Run(), INFO, came.append)
        await soon()
        assert pulled == []
        assert next(items) is next(items) is NOT_YET
        assert items.is_new
        await soon()
        assert (pulled, came, items.is_new) == ([0], [items], False)
        assert next(items) == 0
        await soon()
        assert pulled == [0]
        assert next(items) is NOT_YET
        await soon()
        assert next(items) == 1
        assert next(items) is NOT_YET
        await soon()
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(items)
        assert came == [items] * 3

    run_virtual(story())


def test_one_that_is_closed_ends_its_task_although_the_run_goes_on() -> None:
    async def story() -> None:
        ended: list[str] = []
        came: list[AsyncItems] = []

        async def slow() -> AsyncIterator[int]:
            try:
                await asyncio.sleep(60)
                yield 1
            finally:
                ended.append("ended")

        run = Run()
        items = AsyncItems(slow(), run, INFO, came.append)
        assert next(items) is NOT_YET
        await soon()
        items.close()
        await soon()
        assert (ended, came) == (["ended"], [])
        assert not run.tasks

    run_virtual(story())


def test_one_that_is_closed_before_it_was_asked_has_begun_nothing() -> None:
    async def story() -> None:
        begun: list[str] = []

        async def items_of() -> AsyncIterator[int]:
            begun.append("begun")
            yield 1

        run = Run()
        AsyncItems(items_of(), run, INFO, print).close()
        await soon()
        assert begun == []
        assert not run.tasks

    run_virtual(story())


def test_the_end_of_the_run_is_not_an_error_of_the_iterable() -> None:
    async def story() -> None:
        came: list[AsyncItems] = []

        async def slow() -> AsyncIterator[int]:
            await asyncio.sleep(60)
            yield 1

        run = Run()
        items = AsyncItems(slow(), run, INFO, came.append)
        assert next(items) is NOT_YET
        await soon()
        await run.close()
        assert came == []
        assert next(items) is NOT_YET

    run_virtual(story())
