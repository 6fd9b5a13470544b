"""A call that fails ends like any other: behind those that ended before it, and with them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Fixed, adaptive_flat_map, batch, for_each, route
from penstock.streams.failures.policy import OnError
from penstock.streams.testing import MemorySource, run_virtual


def fails_at_2(value: int) -> int:
    if value % 10 == 2:
        raise ValueError(value)
    return value


async def fails_later(value: int) -> int:
    await asyncio.sleep(1)
    return fails_at_2(value)


async def fails_in_a_list(values: list[int]) -> list[int | Exception]:
    await asyncio.sleep(1)
    return [ValueError(value) if value % 10 == 2 else value for value in values]


def leaves_at_1(value: int) -> None:
    if value == 1:
        sys.exit()


def slots(on_error: OnError) -> Any:
    return adaptive_flat_map(fails_later, Fixed(7), on_error=on_error)


def plain(on_error: OnError) -> Any:
    return adaptive_flat_map(fails_at_2, on_error=on_error)


def batches(on_error: OnError) -> Any:
    return batch(fails_in_a_list, 7, on_error=on_error)


STAGES = pytest.mark.parametrize("stage", [slots, plain, batches])


@STAGES
def test_a_result_goes_on_before_a_failure_behind_it_is_settled(
    stage: Callable[[OnError], Any],
) -> None:
    seen: list[Any] = []
    letters = for_each(lambda letter: seen.append(("letter", letter.value)))
    run_virtual(MemorySource([1, 2]).pipe(stage(route(letters))).to(for_each(seen.append)).run())
    assert seen == [1, ("letter", 2)]


@STAGES
def test_what_ends_together_is_settled_in_the_order_of_the_ends(
    stage: Callable[[OnError], Any],
) -> None:
    seen: list[Any] = []
    letters = for_each(lambda letter: seen.append(("letter", letter.value)))
    # Lists grow: there are several events in one soon.
    source = MemorySource(range(100))
    run_virtual(source.pipe(stage(route(letters))).to(for_each(seen.append)).run())
    assert seen == [("letter", value) if value % 10 == 2 else value for value in range(100)]
    assert source.acked == list(range(100))


@STAGES
def test_an_event_that_has_failed_is_returned_where_a_result_before_it_ends_the_process(
    stage: Callable[[OnError], Any],
) -> None:
    # A plain handler has one event at first, then two, then four.
    source = MemorySource([7, 8, 9, 0, 1, 3, 2])
    with pytest.raises(SystemExit):
        run_virtual(source.pipe(stage("skip")).to(for_each(leaves_at_1)).run())
    assert source.acked == [7, 8, 9, 0]
    assert not source.unsettled
