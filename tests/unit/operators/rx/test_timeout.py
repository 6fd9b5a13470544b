from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
import reactivex
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as stock
from reactivex.subject import Subject

from penstock import Fixed, Flowable, adaptive_flat_map, buffer, collect, from_iterable, ops
from penstock.streams.protocol.event import Ending
from penstock.streams.testing import (
    COMPLETED,
    CountedSource,
    ManualPublisher,
    MemorySource,
    Probe,
    play,
    run_virtual,
)
from tests.helpers.like_stock import assert_like_stock, messages


def test_the_other_stream_begins_when_no_event_comes_in_time() -> None:
    other = from_iterable("a")
    seen = [(1.0, 1), (3.0, 2), (8.0, "a"), (8.0, COMPLETED)]
    assert play("-1-2------3|", ops.timeout(5, other)) == seen
    assert play("-1-2------3|", ops.timeout(timedelta(seconds=5), other)) == seen


def test_without_another_stream_it_fails() -> None:
    (_, (time, error)) = play("-1-------3|", ops.timeout(5))
    assert (time, type(error), str(error)) == (6.0, TimeoutError, "Timeout")
    assert error.__notes__ == ["in stage 2 'timeout': no event came in time"]


@given(messages(), messages(), st.integers(1, 40))
def test_it_is_like_stock(source: Any, other: Any, wait: int) -> None:
    assert_like_stock(lambda make: stock.timeout(wait, make()), source, other)


@given(messages(), st.integers(1, 40))
def test_it_is_like_stock_without_another_stream(source: Any, wait: int) -> None:
    assert_like_stock(lambda: stock.timeout(wait), source)


@given(messages(), messages(20), messages(20), messages())
def test_with_a_mapper_it_is_like_stock(source: Any, first: Any, each: Any, other: Any) -> None:
    assert_like_stock(
        lambda one, two, three: stock.timeout_with_mapper(one(), lambda _: two(), three()),
        source,
        first,
        each,
        other,
    )


def test_a_slow_reader_is_not_a_slow_source() -> None:
    async def story() -> list[Any]:
        seen = list[Any]()
        async for value in from_iterable(range(3)).pipe(ops.timeout(5)):
            await asyncio.sleep(100)
            seen.append(value)
        return seen

    assert run_virtual(story()) == [0, 1, 2]


@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 12))
def test_no_more_is_requested_of_either_stream_than_of_it(first: int, other: int, n: int) -> None:
    async def story() -> None:
        publisher, fallback = ManualPublisher[int](), CountedSource(range(other))
        probe = Probe[int](request=n)
        publisher.pipe(ops.timeout(5, fallback)).connect(probe)
        sent = min(first, n)
        publisher.send(*range(sent))
        await asyncio.sleep(6)
        assert probe.values == [*range(sent), *range(min(other, n - sent))]
        assert fallback.emitted == min(other, n - sent)
        # Once all that was requested has come, the time stands still.
        assert publisher.cancels == (1 if sent < n else 0)
        probe.cancel()

    run_virtual(story())


def test_the_source_is_cancelled_when_the_time_is_over() -> None:
    async def story() -> None:
        publisher, probe = ManualPublisher[int](), Probe[int](request=2)
        publisher.pipe(ops.timeout(5, from_iterable([7]))).connect(probe)
        publisher.send(1)
        await asyncio.sleep(6)
        assert publisher.cancels == 1
        assert (probe.values, probe.completed) == ([1, 7], True)

    run_virtual(story())


def test_an_observable_on_another_thread_is_passed_to_the_loop() -> None:
    async def story() -> list[int]:
        subject = Subject[int]()
        stream = Flowable.of(reactivex.never(), on_overflow=buffer(1)).pipe(
            ops.timeout_with_mapper(subject, None, from_iterable([7]))
        )
        reading = asyncio.create_task(stream.to_list())
        await asyncio.sleep(0)
        thread = threading.Thread(target=subject.on_next, args=(1,))
        thread.start()
        thread.join()
        return await reading

    assert asyncio.run(story()) == [7]


def test_with_a_mapper_that_emits_at_once_the_rest_of_a_list_is_returned() -> None:
    source, probe = CountedSource(range(10)), Probe[int](request=5)
    at_once = reactivex.just(0)
    late = ops.timeout_with_mapper(None, lambda _: at_once, from_iterable([7]))
    source.pipe(late).connect(probe)
    assert (probe.values, probe.completed) == ([0, 7], True)
    assert source.ledger.ended(Ending.RETURNED) == list(range(1, source.emitted))
    assert source.ledger.unsettled == []


def test_what_the_mapper_raises_ends_the_stream() -> None:
    def broken(value: int) -> Any:
        raise KeyError(value)

    with pytest.raises(KeyError):
        run_virtual(from_iterable([1]).pipe(ops.timeout_with_mapper(None, broken)).to_list())


def test_of_a_timing_stream_with_demand_one_event_is_requested() -> None:
    async def story() -> tuple[list[Any], MemorySource[int], Any]:
        timing, into = MemorySource(range(1000)), list[Any]()
        silent: Any = from_iterable([]).pipe(ops.concat(reactivex.timer(1)))
        timed = silent.pipe(ops.timeout_with_mapper(timing, None, from_iterable("xyz")))
        return into, timing, (await timed.to(collect(into)).run()).statistics

    into, timing, numbers = run_virtual(story())
    assert (into, timing.acked, timing.unsettled) == (["x", "y", "z"], [0], [])
    assert numbers["dropped"] == {"timeout_with_mapper": 1}


def test_a_timing_stream_with_demand_is_cancelled_when_the_event_has_come() -> None:
    async def story() -> tuple[list[int], list[MemorySource[int]]]:
        made = list[MemorySource[int]]()

        def timing(value: int) -> Any:
            made.append(MemorySource([1, 2]))
            return made[-1].pipe(ops.delay(5))

        source: Any = from_iterable(range(3)).pipe(adaptive_flat_map(_in_a_second, Fixed(1)))
        return await source.pipe(ops.timeout_with_mapper(None, timing)).to_list(), made

    into, made = run_virtual(story())
    assert into == [0, 1, 2]
    # All that `delay` has requested is returned.
    assert [(one.acked, one.returned, one.unsettled) for one in made] == [([], [1, 2], [])] * 3


async def _in_a_second(value: int) -> int:
    await asyncio.sleep(1)
    return value
