"""A StopIteration from a user's function, which Python would turn into the end of an iterator, or
into a RuntimeError that says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from reactivex import operators as ops

from penstock import (
    Flowable,
    Inbox,
    adaptive_flat_map,
    batch,
    collect,
    count_over_time,
    distinct_within,
    for_each,
    from_iterable,
    group_by,
    in_processes,
    in_threads,
    inbox,
    monitor,
    rate_limit,
    spread,
    stateful,
)
from penstock.streams.base.errors import as_raised
from penstock.streams.temporal import sequenced
from penstock.streams.testing import VirtualTimeLoop, run_virtual
from penstock.streams.testing.plugin import Run


def out_of_items(value: Any) -> Any:
    return next(iter([value] if value != 2 else []))


async def async_out_of_items(value: Any) -> Any:
    return out_of_items(value)


NAMED = {
    "map": [ops.map(out_of_items)],
    "filter": [ops.filter(out_of_items)],
    "scan": [ops.scan(lambda _, n: out_of_items(n), 0)],
    "flat_map": [ops.flat_map(lambda n: [out_of_items(n)])],
    "flat_map of streams": [ops.flat_map(lambda n: from_iterable([n]).pipe(ops.map(out_of_items)))],
    "group_by": [group_by(out_of_items), spread()],
    "distinct_within": [distinct_within(9, by=out_of_items)],
    "adaptive_flat_map": [adaptive_flat_map(out_of_items)],
    "adaptive_flat_map async": [adaptive_flat_map(async_out_of_items)],
    "batch": [batch(lambda values: [out_of_items(n) for n in values])],
    "count_over_time": [count_over_time(by=out_of_items, begin=lambda n: n, end=lambda n: n + 1)],
    "stateful": [stateful(lambda count, _: (count, ()), out_of_items, start=0)],
    "rate_limit": [rate_limit(9, burst=9, cost=out_of_items)],
    "monitor": [monitor("G a", a=lambda n: out_of_items(n) > 0)],
}


@pytest.mark.parametrize("name", NAMED)
def test_it_is_an_error_of_the_stage_whose_function_raised_it(run: Run, name: str) -> None:
    flow = from_iterable([1, 2, 3]).pipe(*NAMED[name])
    with pytest.raises(RuntimeError, match="StopIteration") as raised:
        run(flow.to(collect([])).run())
    stage = name.split()[0]
    assert any(f"'{stage}', on the event 2" in note for note in raised.value.__notes__)


def test_a_sink_is_named_as_well(run: Run) -> None:
    with pytest.raises(RuntimeError, match="StopIteration") as raised:
        run(from_iterable([1, 2, 3]).to(for_each(out_of_items)).run())
    assert raised.value.__notes__ == ["in stage 2 'for_each', on the event 2"]


@pytest.mark.parametrize("pool", [in_threads, in_processes])
def test_no_call_in_a_pool_waits_for_ever(
    virtual_loop: VirtualTimeLoop, pool: Callable[[int], Any]
) -> None:
    flow = from_iterable([2]).pipe(adaptive_flat_map(pool(1)(out_of_items)))

    async def story() -> None:
        with virtual_loop.hold():
            await flow.to(collect([])).run()

    with pytest.raises(RuntimeError, match="StopIteration") as raised:
        virtual_loop.run_until_complete(story())
    assert raised.value.__notes__ == ["in stage 2 'adaptive_flat_map', on the event 2"]


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration])
def test_a_loop_over_the_stream_gets_the_stage_in_the_error(kind: type[Exception]) -> None:
    def fails(_: int) -> None:
        raise kind

    async def story() -> None:
        async for _ in from_iterable([1]).pipe(ops.map(fails)):
            pass

    with pytest.raises(RuntimeError, match=kind.__name__) as raised:
        run_virtual(story())
    assert raised.value.__notes__ == ["in stage 2 'map', on the event 1"]


def test_a_caller_that_waits_for_an_event_of_an_inbox_gets_the_stage(run: Run) -> None:
    async def story() -> None:
        numbers: Inbox[int] = inbox(1)
        running = numbers.pipe(ops.map(out_of_items)).to(collect([])).start()
        with pytest.raises(RuntimeError, match="StopIteration") as raised:
            await numbers.put(2, wait=True)
        assert raised.value.__notes__ == ["in stage 2 'map', on the event 2"]
        with pytest.raises(RuntimeError, match="StopIteration"):
            await running.wait()

    run(story())


def test_no_row_of_a_table_gets_lost() -> None:
    with pytest.raises(StopIteration):
        list(sequenced([1, 2, 3], begin=lambda n: n, end=lambda n: n + 1, by=out_of_items))


def test_every_other_error_is_raised_as_it_is() -> None:
    error = ValueError("no")
    assert as_raised(error) is error


def test_the_end_of_an_iterator_is_not_an_error(run: Run) -> None:
    into: list[int] = []
    flow: Flowable[int] = from_iterable([1, 2]).pipe(ops.flat_map(lambda n: iter(range(n))))
    run(asyncio.wait_for(flow.to(collect(into)).run(), 1))
    assert into == [0, 0, 1]
