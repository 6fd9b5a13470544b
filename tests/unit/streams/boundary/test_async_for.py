"""Reading a stream with `async for`."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock import from_iterable
from penstock.streams.testing.plugin import Run


def test_a_value_that_comes_at_once_needs_no_future(run: Run) -> None:
    async def futures() -> int:
        """How many are made for 1,000 values."""
        loop, count = asyncio.get_running_loop(), 0
        create_future = loop.create_future

        def counted() -> asyncio.Future[Any]:
            nonlocal count
            count += 1
            return create_future()

        loop.create_future = counted  # type: ignore[method-assign]
        assert [value async for value in from_iterable(range(1_000))] == list(range(1_000))
        return count

    assert run(futures()) < 10
