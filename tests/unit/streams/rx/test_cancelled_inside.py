"""Streams that are cancelled, or drained, by a function of their own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import reactivex

from penstock import Fixed, Flowable, Running, adaptive_flat_map, from_iterable
from penstock import ops as _ops
from penstock.streams.testing import (
    ManualPublisher,
    MemorySink,
    MemorySource,
    Probe,
    no_leaks,
    run_virtual,
)

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops


@pytest.mark.parametrize("name", ["flat_map", "concat_map", "switch_map"])
def test_a_function_that_cancels_its_own_stream_returns_its_event(name: str) -> None:
    source, probe = MemorySource([1, 2, 3]), Probe[Any](9)

    def function(value: int) -> Any:
        probe.cancel()
        return from_iterable([value])

    source.pipe(getattr(ops, name)(function)).connect(probe)
    assert (source.returned, source.unsettled, probe.values) == ([1], [], [])


@pytest.mark.parametrize("name", ["flat_map", "concat_map", "switch_map", "merge_all"])
def test_an_inner_stream_that_cancels_the_outer_one_returns_the_events_of_both(name: str) -> None:
    source, inner, probe = MemorySource([1, 2, 3]), MemorySource("abc"), Probe[Any](9)

    def cancels(value: str) -> str:
        probe.cancel()
        return value

    def function(value: int) -> Any:
        return inner.pipe(ops.map(cancels))

    operator = ops.merge_all() if name == "merge_all" else getattr(ops, name)(function)
    stream = source.pipe(ops.map(function)) if name == "merge_all" else source
    stream.pipe(operator).connect(probe)
    assert (source.returned, source.unsettled) == ([1], [])
    assert (inner.returned, inner.unsettled, probe.values) == (["a"], [], [])


def test_nothing_follows_the_end_if_a_function_begins_a_drain() -> None:
    async def story() -> tuple[list[Any], list[Any], dict[str, Any]]:
        running: Running

        def drains(value: int) -> int:
            running.begin_drain()
            return value

        source, sink = MemorySource(range(9)), MemorySink()
        numbers: Flowable[int] = from_iterable(range(9))
        both = numbers.pipe(ops.filter(lambda value: drains(value) >= 0), ops.merge(source))
        running = both.to(sink).start()
        report = await running.wait()
        return sink.values, source.unsettled, report.statistics

    values, unsettled, numbers = run_virtual(story())
    # What had been emitted is finished, and not returned.
    assert 0 in values
    assert (unsettled, numbers["returned"], numbers["in"]) == ([], 0, len(values))


def test_what_a_function_cancels_while_the_stages_are_being_connected_is_released() -> None:
    async def story() -> list[int]:
        running: Running

        def cancels(value: int) -> int:
            running.cancel()
            return value

        async def handler(value: int) -> int:
            return value

        source = MemorySource(range(9))
        # A working stage requests ahead, before its own stream has been connected.
        ahead = source.pipe(ops.map(cancels), adaptive_flat_map(handler, Fixed(1)))
        async with no_leaks():
            running = ahead.pipe(ops.timeout(9.0)).to(MemorySink(seconds=1)).start()
            await running.wait()
        return source.unsettled

    assert run_virtual(story()) == []


def test_what_has_lost_before_it_was_read_is_not_read() -> None:
    async def story() -> bool:
        async def handler(value: int) -> int:
            return value

        # A working stage requests ahead, so that its end comes as it is connected.
        nothing: Flowable[int] = from_iterable(list[int]()).pipe(adaptive_flat_map(handler))
        other = ManualPublisher[int]()
        await nothing.pipe(ops.amb(other)).to_list()
        return other.active

    assert not run_virtual(story())


def test_a_shared_stream_whose_readers_leave_while_it_is_connected_is_released() -> None:
    async def story() -> list[int]:
        running: Running

        def drains(value: int) -> int:
            running.begin_drain()
            return value

        async def handler(value: int) -> int:
            await asyncio.sleep(1)
            return value

        source = MemorySource(range(9))
        ahead = source.pipe(ops.map(drains), adaptive_flat_map(handler, Fixed(1)))
        shared = ahead.pipe(ops.merge(from_iterable([1])), ops.share())
        async with no_leaks():
            running = shared.pipe(ops.merge(shared)).to(MemorySink(seconds=1)).start()
            await running.wait()
        return source.unsettled

    assert run_virtual(story()) == []


@pytest.mark.parametrize("name", ["concat", "catch", "on_error_resume_next", "timeout", "merge"])
def test_what_the_other_stream_holds_is_part_of_what_draw_prints(name: str) -> None:
    other = from_iterable(range(9)).pipe(ops.delay(1))
    arguments = (1.0, other) if name == "timeout" else (other,)
    stream = from_iterable(range(9)).pipe(getattr(ops, name)(*arguments))
    (column,) = stream.info.inputs
    assert [info.name for info in column] == ["from_iterable", "delay"]
    assert column[-1].holds == 1025


def test_a_function_that_cancels_its_own_stream_leaves_no_timer() -> None:
    async def story() -> None:
        def cancels(_: int) -> Any:
            running.cancel()
            return reactivex.timer(60)

        timed = from_iterable([1, 2]).pipe(ops.timeout_with_mapper(None, cancels))
        async with no_leaks():
            running: Running = timed.to(MemorySink()).start()
            await running.wait()

    run_virtual(story())
