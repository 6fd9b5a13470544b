"""flat_map over Observables, which cannot be asked for less than they emit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import reactivex as rx
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops

from streams import from_iterable
from streams.errors import HoldExceeded
from streams.lift import HOLD
from streams.testing import MemorySource, Probe

# What reactivex says of its type does not fit a lambda.
flat_map: Any = ops.flat_map


class Counted:
    """An endless iterable that counts what was taken of it."""

    taken = 0

    def __iter__(self) -> Iterator[int]:
        for self.taken in count(1):
            yield self.taken - 1


def read(source: Any, *operators: Any, **options: Any) -> Probe[Any]:
    probe = Probe[Any](**{"request": 10_000, **options})
    source.pipe(*operators).connect(probe)
    return probe


def test_no_more_of_an_observable_is_kept_than_a_stage_may_hold() -> None:
    values = [Counted(), Counted()]
    probe = read(MemorySource([0, 1]), flat_map(lambda i: rx.from_iterable(values[i])), ops.take(3))
    assert probe.values == [0, 1, 2]
    assert probe.completed
    assert (values[0].taken, values[1].taken) == (HOLD + 1, 0)


def test_an_observable_that_emits_more_than_may_be_held_is_an_error_when_more_is_asked_for() -> (
    None
):
    source = MemorySource(["many"])
    probe = read(source, flat_map(lambda _: rx.range(0, HOLD + 1)), request=HOLD)
    assert probe.values == list(range(HOLD))
    assert probe.error is None
    probe.request(1)
    assert isinstance(probe.error, HoldExceeded)
    assert "stage 2 'flat_map'" in str(probe.error.__notes__)
    assert source.failed == ["many"]


@given(st.lists(st.sampled_from([0, 1, 7, HOLD - 1, HOLD]), max_size=3))
def test_an_observable_that_fits_is_emitted_whole(sizes: list[int]) -> None:
    probe = read(from_iterable(sizes), flat_map(lambda n: rx.range(0, n)))
    assert probe.values == [value for n in sizes for value in range(n)]
    assert probe.completed
