"""The order of results whose calls end together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any
from weakref import WeakSet

from penstock import Backoff, Fixed, adaptive_flat_map, collect, for_each, from_iterable, retry
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


def test_nothing_is_kept_of_an_event_whose_result_was_sent_on_in_order() -> None:
    class Value:
        pass

    values: WeakSet[Value] = WeakSet()
    most = begun = 0

    def source() -> Iterator[Value]:
        for _ in range(1_000):
            value = Value()
            values.add(value)
            yield value

    async def handler(value: Value) -> Value:
        nonlocal most, begun
        most = max(most, len(values))
        begun += 1
        # The second of two ends first, and its result waits.
        await asyncio.sleep(1 + begun % 2)
        return value

    calls = adaptive_flat_map(handler, Fixed(2), ordered=True)
    run_virtual(from_iterable(source()).pipe(calls).to(for_each(id)).run())
    assert 0 < most < 100
