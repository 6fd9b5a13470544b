"""Memory follows what is in flight and in the window, not the events that have passed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

from penstock import (
    Fixed,
    adaptive_flat_map,
    distinct_within,
    for_each,
    from_iterable,
    group_by,
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


def test_a_million_keys_take_no_more_memory_than_those_of_a_few_seconds() -> None:
    peak_of(1_000)
    a_few_seconds = peak_of(4 * A_SECOND)
    assert a_few_seconds > A_SECOND
    assert peak_of(1_000_000) < 1.1 * a_few_seconds
