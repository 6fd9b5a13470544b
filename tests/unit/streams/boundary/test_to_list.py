from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from penstock import (
    Flowable,
    adaptive_flat_map,
    from_async_iterable,
    from_iterable,
    group_by,
    spread,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.protocol.event import Ending
from penstock.streams.testing import CountedSource, MemorySource, run_virtual


async def listed(stream: Flowable[int], limit: int | None = None) -> list[int]:
    return await stream.to_list(limit)


def test_awaiting_it_gives_all_values_however_many() -> None:
    assert run_virtual(listed(from_iterable(range(5000)))) == list(range(5000))


def test_with_a_limit_it_gives_the_first_values_of_an_endless_stream() -> None:
    assert run_virtual(listed(from_iterable(lambda: itertools.count()), 3)) == [0, 1, 2]


def test_a_stream_that_is_shorter_than_the_limit_is_given_whole() -> None:
    assert run_virtual(listed(from_iterable([1, 2]), 3)) == [1, 2]
    assert run_virtual(listed(from_iterable([]), 3)) == []


def test_a_stream_that_ends_with_the_last_value_leaves_no_error_behind() -> None:
    errors: list[object] = []

    async def story() -> list[int]:
        asyncio.get_running_loop().set_exception_handler(lambda _, error: errors.append(error))
        return await from_iterable([1, 2]).to_list(limit=2)

    assert (run_virtual(story()), errors) == ([1, 2], [])


def test_it_requests_no_more_than_the_limit() -> None:
    source = CountedSource(range(10))
    assert run_virtual(listed(source, 3)) == [0, 1, 2]
    assert source.emitted == 3
    assert run_virtual(listed(CountedSource(range(3)), 3)) == [0, 1, 2]


def test_what_is_in_the_list_is_finished_and_what_is_under_way_is_returned() -> None:
    source = MemorySource(range(10))
    began: list[int] = []

    async def work(n: int) -> int:
        began.append(n)
        return await asyncio.sleep(n, n)

    async def story() -> list[int]:
        return await source.pipe(adaptive_flat_map(work, limit=(4, 4))).to_list(limit=2)

    assert run_virtual(story()) == [0, 1]
    assert source.ledger.ended(Ending.FINISHED) == [0, 1]
    assert sorted(source.ledger.ended(Ending.RETURNED)) == began[2:]
    assert len(began) > 2


def test_it_ends_at_the_last_value_without_waiting_for_the_next() -> None:
    async def one_and_then_silence() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    assert run_virtual(listed(from_async_iterable(one_and_then_silence), 1)) == [1]


def test_an_error_of_the_stream_is_raised() -> None:
    stream = from_iterable([1, 0]).map(lambda n: 1 // n)
    with pytest.raises(ZeroDivisionError):
        run_virtual(listed(stream))
    assert run_virtual(listed(stream, 1)) == [1]


def test_cancelling_the_wait_cancels_the_stream() -> None:
    source = MemorySource([1])

    async def story() -> None:
        stream = source.pipe(adaptive_flat_map(lambda n: asyncio.sleep(100, n)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await stream.to_list()

    run_virtual(story())
    assert source.ledger.ended(Ending.RETURNED) == [1]


def test_groups_that_have_been_spread_can_be_listed() -> None:
    stream = from_iterable([1, 2, 3]).pipe(group_by(lambda n: n % 2), spread())
    assert run_virtual(listed(stream)) == [1, 2, 3]


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "3"])
def test_a_limit_that_is_no_number_of_values_is_an_error(limit: int) -> None:
    with pytest.raises(BuildError, match=r"to_list\(limit=.*at least 1"):
        run_virtual(listed(from_iterable([1]), limit))
