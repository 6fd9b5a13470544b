"""The two streams of `partition`, which share one reading."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Running, collect, from_iterable, inbox
from penstock import ops as _ops
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import CountedSource, MemorySource, Probe, run_virtual

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops

BOTH: dict[str, Any] = {
    "partition": ops.partition(lambda value: value % 2 == 0),
    "partition_indexed": ops.partition_indexed(lambda _, n: n % 2 == 0),
}


@pytest.mark.parametrize("name", BOTH)
@given(values=st.lists(st.integers()))
def test_each_event_is_in_one_of_the_two_streams(name: str, values: list[int]) -> None:
    async def story() -> list[Any]:
        one, other = from_iterable(values).pipe(BOTH[name])
        return await asyncio.gather(one.to_list(), other.to_list())

    even, odd = [v for v in values if v % 2 == 0], [v for v in values if v % 2]
    expected = [values[::2], values[1::2]] if name == "partition_indexed" else [even, odd]
    assert run_virtual(story()) == expected


def test_the_source_is_read_once_and_counted_once() -> None:
    async def story() -> tuple[list[int], dict[str, Any]]:
        into, source = list[int](), CountedSource(range(10))
        one, other = source.pipe(BOTH["partition"])
        report = await one.merge(other).to(collect(into)).run()
        assert source.emitted == 10
        return into, report.statistics

    into, numbers = run_virtual(story())
    assert sorted(into) == list(range(10))
    assert (numbers["in"], numbers["finished"], numbers["dropped"]) == (10, 10, {})


def test_the_slower_of_the_two_sets_the_demand() -> None:
    source = CountedSource(range(1000))
    one, other = source.pipe(ops.partition(lambda value: value % 2 == 0, prefetch=4))
    quick, slow = Probe[int](500), Probe[int](2)
    slow_first = [(other, slow), (one, quick)]
    for stream, probe in slow_first:
        stream.connect(probe)
    assert slow.values == [1, 3]
    # What belongs to the other stream takes no room in this one.
    assert source.emitted <= 4 + 4 * 2 + 1
    slow.request(2)
    assert slow.values == [1, 3, 5, 7]


def test_a_stream_that_leaves_no_longer_counts() -> None:
    source = MemorySource(range(20))
    one, other = source.pipe(BOTH["partition"])
    quick, slow = Probe[int](20), Probe[int](1)
    other.connect(slow)
    one.connect(quick)
    slow.cancel()
    # The first two were gone when it came.
    assert quick.values == [2, 4, 6, 8, 10, 12, 14, 16, 18]
    assert source.unsettled == []


def test_a_drain_finishes_what_was_taken_in() -> None:
    async def story() -> list[int]:
        entry, into = inbox(100), list[int]()
        one, other = entry.partition(lambda value: value % 2 == 0)
        running: Running = one.merge(other).to(collect(into)).start()
        await asyncio.sleep(0)
        for n in range(50):
            await entry.put(n)
        await running.drain(5)
        return sorted(into)

    assert run_virtual(story()) == list(range(50))


def test_a_number_that_is_no_prefetch_is_refused_when_it_is_built() -> None:
    for name in ("partition", "partition_indexed"):
        with pytest.raises(BuildError, match="prefetch"):
            getattr(ops, name)(bool, prefetch=0)
