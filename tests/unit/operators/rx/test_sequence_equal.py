from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as stock

from penstock import adaptive_flat_map, collect, from_iterable, ops
from penstock.streams.testing import (
    COMPLETED,
    CountedSource,
    ManualPublisher,
    MemorySink,
    MemorySource,
    Probe,
    play,
    run_virtual,
)
from tests.helpers.like_stock import assert_like_stock, messages


def are_near(value: int, other: int) -> bool:
    return abs(value - other) < 9


LISTS = st.lists(st.integers(0, 2), max_size=4)


def test_the_answer_comes_at_the_first_pair_that_differs() -> None:
    assert play("-1-2-3|", ops.sequence_equal([1, 5, 3])) == [(3.0, False), (3.0, COMPLETED)]
    assert play("-1-2-3|", ops.sequence_equal([1, 2, 3])) == [(6.0, True), (6.0, COMPLETED)]


@given(LISTS, LISTS)
def test_it_is_whether_the_lists_are_equal(one: list[int], other: list[int]) -> None:
    answer = run_virtual(from_iterable(one).pipe(ops.sequence_equal(other)).to_list())
    assert answer == [one == other]


# An error waits behind values that are not requested yet.
@given(messages(may_fail=False), messages(may_fail=False))
def test_it_is_like_stock(source: Any, other: Any) -> None:
    assert_like_stock(lambda make: stock.sequence_equal(make(), are_near), source, other)


def test_nothing_is_read_before_the_answer_is_requested_and_then_one_by_one() -> None:
    one, other = CountedSource(itertools.count()), CountedSource(itertools.count())
    probe = Probe[bool]()
    one.pipe(ops.sequence_equal(other, lambda a, b: a < 5)).connect(probe)
    assert (one.emitted, other.emitted) == (0, 0)
    probe.request(1)
    assert probe.values == [False]
    assert (one.emitted, other.emitted) == (6, 6)
    assert one.ledger.unsettled == other.ledger.unsettled == []


def test_a_fast_stream_waits_for_a_slow_one() -> None:
    fast, slow, probe = CountedSource(itertools.count()), ManualPublisher[int](), Probe[bool](1)
    fast.pipe(ops.sequence_equal(slow)).connect(probe)
    slow.send(0)
    slow.send(1)
    assert (fast.emitted, slow.requests) == (3, [1, 1, 1])
    slow.complete()
    assert (probe.values, probe.completed) == ([False], True)
    assert fast.ledger.unsettled == []


def test_a_pair_that_differs_is_finished_with_the_answer() -> None:
    source, probe = MemorySource([1, 2]), Probe[bool](request=1, hold=True)
    source.pipe(ops.sequence_equal([1, 3])).connect(probe)
    assert (probe.values, source.acked) == ([False], [1])
    probe.events[0].finish()
    assert source.acked == [1, 2]


def test_an_error_of_either_stream_or_of_the_comparer_passes() -> None:
    failing = from_iterable([0]).pipe(ops.map(lambda value: 1 // value))
    for stream in (
        failing.pipe(ops.sequence_equal([1])),
        from_iterable([1]).pipe(ops.sequence_equal(failing)),
        from_iterable([1]).pipe(ops.sequence_equal([1], lambda a, b: b < 1 // 0)),
    ):
        with pytest.raises(ZeroDivisionError):
            run_virtual(stream.to_list())


def test_cancelling_releases_both_streams() -> None:
    one, other, probe = ManualPublisher[int](), ManualPublisher[int](), Probe[bool](request=1)
    one.pipe(ops.sequence_equal(other)).connect(probe)
    one.send(1)
    probe.cancel()
    assert (one.cancels, other.cancels, one.returned) == (1, 1, [1])


def test_the_sum_has_both_streams() -> None:
    into: list[bool] = []
    numbers = run_virtual(
        from_iterable("ab").pipe(ops.sequence_equal("ab")).to(collect(into)).run()
    ).statistics
    assert into == [True]
    assert (numbers["in"], numbers["dropped"]) == (4, {"sequence_equal": 4})


def test_events_that_end_after_the_answer_are_counted() -> None:
    async def story() -> dict[str, Any]:
        async def handler(value: bool) -> bool:
            await asyncio.sleep(1)
            return value

        compared = from_iterable([1, 2]).pipe(ops.sequence_equal([1, 3]))
        stream = compared.pipe(adaptive_flat_map(handler))
        return (await stream.to(MemorySink()).run()).statistics

    numbers = run_virtual(story())
    assert (numbers["in"], numbers["finished"], numbers["unfinished"]) == (4, 2, 0)
