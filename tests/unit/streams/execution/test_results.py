"""The order of results whose calls end together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from penstock import Backoff, Fixed, adaptive_flat_map, collect, from_iterable, retry
from penstock.streams.testing import run_virtual


def test_what_a_failed_attempt_has_sent_comes_before_the_result_of_the_next() -> None:
    attempts: list[int] = []

    async def handler(value: int) -> Any:
        attempts.append(value)
        if attempts.count(2) == 1 and value == 2:
            return broken()
        # Both end in one iteration of the loop, the head of the order first.
        await asyncio.sleep(5.0 - asyncio.get_running_loop().time())
        return value

    async def broken() -> AsyncIterator[str]:
        yield "first attempt"
        raise ValueError

    into: list[Any] = []
    calls = adaptive_flat_map(
        handler, Fixed(2), ordered=True, on_error=retry(2, Backoff(1.0, cap=1.0))
    )
    run_virtual(from_iterable([1, 2]).pipe(calls).to(collect(into)).run())
    assert into == [1, "first attempt", 2]
