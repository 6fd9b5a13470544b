"""Memory follows what is in flight and in the window, not the events that have passed."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from penstock import (
    Backoff,
    Fixed,
    Flowable,
    adaptive_flat_map,
    batch,
    distinct_within,
    for_each,
    from_iterable,
    group_by,
    retry,
    spread,
)
from penstock.streams.testing import run_virtual

Event = dict[str, float]

# Events per second of their own time.
A_SECOND = 20_000


class Keys:
    """`n` events, each with a different key; counts the live objects now and then."""

    def __init__(self, n: int) -> None:
        self._n = n
        # Objects of earlier tests must not be freed meanwhile.
        gc.collect()
        self._before = sys.getallocatedblocks()
        self.peak = 0

    def __iter__(self) -> Iterator[Event]:
        for number in range(self._n):
            if number % 1_000 == 0:
                self.peak = max(self.peak, sys.getallocatedblocks() - self._before)
            yield {"uuid": number, "client_id": number, "at": number / A_SECOND}


def peak_of(n: int) -> int:
    """The most blocks of memory that are in use at a time while `n` keys go through."""
    keys = Keys(n)
    pipeline = (
        from_iterable(keys)
        .pipe(
            distinct_within(1, by="uuid", time="at"),
            group_by("client_id"),
            spread(),
            adaptive_flat_map(lambda event: event, Fixed(4)),
        )
        .to(for_each(lambda event: None))
    )
    report = run_virtual(pipeline.run())
    assert report.statistics["finished"] == n
    return keys.peak


class Trouble(Exception):
    """An error that is counted while it exists."""

    alive = 0

    def __init__(self) -> None:
        Trouble.alive += 1

    def __del__(self) -> None:
        Trouble.alive -= 1


def fails(_: int) -> None:
    raise Trouble


async def fails_later(_: int) -> None:
    raise Trouble


async def fails_in_the_end(_: int) -> AsyncIterator[int]:
    yield 0
    raise Trouble


async def fails_for_all(_: list[int]) -> None:
    raise Trouble


@pytest.mark.parametrize(
    "flow",
    [
        adaptive_flat_map(fails, on_error="skip"),
        adaptive_flat_map(fails_later, on_error="skip"),
        adaptive_flat_map(fails_in_the_end, on_error="skip"),
        adaptive_flat_map(fails_later, on_error=retry(3, Backoff(0), then="skip")),
        batch(fails_for_all, on_error="skip"),
        None,
    ],
    ids=["plain", "async", "iterator", "retry", "batch", "sink"],
)
def test_the_error_of_an_event_that_has_failed_is_gone_without_the_garbage_collector(
    flow: Any,
) -> None:
    events: Flowable[Any] = from_iterable(range(50))
    if flow is not None:
        pipeline = events.pipe(flow).to(for_each(lambda _: None))
    else:
        pipeline = events.to(for_each(fails, on_error="skip"))
    gc.collect()
    gc.disable()
    try:
        assert run_virtual(pipeline.run()).statistics["failed"] == 50
        assert Trouble.alive == 0
    finally:
        gc.enable()


def test_a_million_keys_take_no_more_memory_than_those_of_a_few_seconds() -> None:
    peak_of(1_000)
    a_few_seconds = peak_of(4 * A_SECOND)
    assert a_few_seconds > A_SECOND
    assert peak_of(1_000_000) < 1.1 * a_few_seconds
