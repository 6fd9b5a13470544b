"""The future of a stream's last value."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from reactivex import operators as stock
from reactivex.internal import SequenceContainsNoElementsError

from penstock import Flowable, adaptive_flat_map, from_async_iterable, from_iterable
from penstock import ops as _ops
from penstock.streams.base.errors import BuildError, NoLoop
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.testing import MemorySource, run_virtual

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops


async def later(value: int) -> int:
    await asyncio.sleep(1)
    return value


@pytest.mark.parametrize("operator", [ops.to_future(), stock.to_future()])
def test_it_has_the_last_value(operator: Any) -> None:
    async def story() -> tuple[int, list[int]]:
        source = MemorySource([1, 2, 3])
        value: int = await source.pipe(adaptive_flat_map(later, ordered=True), operator)
        return value, source.unsettled

    assert run_virtual(story()) == (3, [])


def test_it_is_not_done_before_the_loop_goes_on() -> None:
    async def story() -> bool:
        future = from_iterable([1]).to_future()
        was_done = future.done()
        await future
        return was_done

    assert run_virtual(story()) is False


@pytest.mark.parametrize("after", [0, 1.5])
def test_cancelling_it_cancels_the_stream(after: float) -> None:
    async def story() -> tuple[list[int], list[int]]:
        source = MemorySource([1, 2, 3])
        future = source.pipe(adaptive_flat_map(later, limit=(1, 1))).to_future()
        await asyncio.sleep(after)
        future.cancel()
        await asyncio.sleep(1)
        return source.acked, source.unsettled

    assert run_virtual(story()) == ([] if after == 0 else [1], [])


def test_one_that_is_cancelled_at_once_reads_nothing() -> None:
    async def story() -> list[int]:
        read = list[int]()

        async def numbers() -> AsyncIterator[int]:
            read.append(1)
            yield 1

        from_async_iterable(numbers).to_future().cancel()
        await asyncio.sleep(1)
        return read

    assert run_virtual(story()) == []


def test_it_has_the_error_of_the_stream_or_of_none() -> None:
    async def story() -> None:
        with pytest.raises(ZeroDivisionError):
            await from_iterable([0]).map(lambda n: 1 / n).to_future()
        with pytest.raises(SequenceContainsNoElementsError):
            await from_iterable([]).to_future()

    run_virtual(story())


def test_it_has_the_error_of_a_stream_that_cannot_begin() -> None:
    def refuse(downstream: object, run: object) -> None:
        raise BuildError("not today")

    async def story() -> None:
        with pytest.raises(BuildError, match="not today"):
            await Flowable[int](refuse, StageInfo("refusing")).pipe(ops.to_future())

    run_virtual(story())


def test_without_a_loop_it_says_that_it_needs_one() -> None:
    with pytest.raises(NoLoop):
        from_iterable([1]).to_future()
