"""A stage whose stream completes can tell the end of the input from a drain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Fixed, Flowable, adaptive_flat_map, collect, from_iterable, inbox, ops
from penstock.streams.protocol.stage import BaseStage, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.testing import run_virtual


class Noting(BaseStage):
    """Notes what the end of its stream is."""

    def __init__(self, downstream: Subscriber[Any], run: Run, noted: list[bool]) -> None:
        super().__init__(downstream)
        self._run, self._noted = run, noted

    def on_completed(self) -> None:
        self._noted.append(self._run.pauses.input_ended)
        super().on_completed()


def noting(source: Flowable[Any], noted: list[bool]) -> Flowable[Any]:
    return source.pipe(
        lambda one: one.then(lambda below, run, _: Noting(below, run, noted), StageInfo("noting"))
    )


async def slow(value: Any) -> Any:
    await asyncio.sleep(5)
    return value


SLOW = adaptive_flat_map(slow, Fixed(9))


@pytest.mark.parametrize(
    ("make", "ended"),
    [
        (lambda: from_iterable([1, 2]).pipe(SLOW), True),
        (lambda: from_iterable([1, 2]).pipe(ops.merge(from_iterable([3])), SLOW), True),
        (lambda: inbox(9).pipe(SLOW), False),
        (lambda: from_iterable([1, 2]).pipe(ops.merge(inbox(9)), SLOW), False),
        (lambda: inbox(9).pipe(ops.take(1)).pipe(SLOW), False),
        (lambda: from_iterable(range(99)).pipe(SLOW), False),
    ],
)
def test_a_drain_ends_no_input_that_it_has_cut_off(
    make: Callable[[], Flowable[Any]], ended: bool
) -> None:
    noted: list[bool] = []

    async def story() -> None:
        running = noting(make(), noted).to(collect([])).start()
        await asyncio.sleep(1)
        assert not noted
        await running.drain()

    run_virtual(story())
    assert noted == [ended]


def test_an_input_that_is_cancelled_has_no_end() -> None:
    noted: list[bool] = []

    async def story() -> None:
        running = noting(inbox(9), noted).to(collect([])).start()
        await asyncio.sleep(1)
        running.cancel()
        await running.wait()

    run_virtual(story())
    assert noted == []
