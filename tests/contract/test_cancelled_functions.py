"""A plain function that raises CancelledError, such as one that reads a cancelled future, fails its
event: the pipeline cannot cancel what it does not await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Fixed,
    Flowable,
    Sink,
    SinkStage,
    adaptive_flat_map,
    distinct_within,
    for_each,
    from_iterable,
    group_by,
    rate_limit,
    spread,
)
from penstock import ops as _ops
from penstock.streams.base.errors import HandlerCancelled
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.testing import MemorySink, MemorySource, no_leaks, run_virtual

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops

Operator = Callable[[Flowable[Any]], Flowable[Any]]


def reads_a_cancelled_future(value: int) -> int:
    if value == 3:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        future.result()
    return value


f = reads_a_cancelled_future


class _Accepting(Sink[Any]):
    info = StageInfo("accepting")

    def open(self, run: Any, closed: Any) -> SinkStage[Any]:
        return _Stage(closed)


class _Stage(SinkStage[Any]):
    def accept(self, event: Any) -> None:
        f(event.value)


OPERATORS: dict[str, tuple[Any, ...]] = {
    "map": (ops.map(f),),
    "filter": (ops.filter(lambda value: f(value) is not None),),
    "flat_map": (ops.flat_map(lambda value: [f(value)]),),
    "flat_map of streams": (ops.flat_map(lambda value: from_iterable([value]).pipe(ops.map(f))),),
    "concat_map": (ops.concat_map(lambda value: from_iterable([f(value)])),),
    "switch_map": (ops.switch_map(lambda value: from_iterable([f(value)])),),
    "exhaust_map": (ops.exhaust_map(lambda value: from_iterable([f(value)])),),
    "scan": (ops.scan(lambda _, value: f(value), 0),),
    "buffer of scan": (ops.buffer_with_count(2), ops.map(lambda values: [f(v) for v in values])),
    "sequence_equal": (ops.sequence_equal(from_iterable(range(9)), lambda a, b: f(a) == b),),
    "distinct_within": (distinct_within(10, f),),
    "group_by": (group_by(f), spread()),
    "each": (group_by(lambda v: v % 2, each=lambda g: g.pipe(ops.map(f)), idle=9.0), spread()),
    "rate_limit": (rate_limit(100, cost=lambda value: 1 + 0 * f(value)),),
    "adaptive_flat_map": (adaptive_flat_map(f),),
}
SINKS: dict[str, Callable[[], Sink[Any]]] = {"for_each": lambda: for_each(f), "own": _Accepting}


async def _soon(value: int) -> int:
    await asyncio.sleep(0.1)
    return value


def _acknowledged(operators: tuple[Any, ...], sink: Sink[Any], *, is_async: bool) -> list[int]:
    """What a source is told to forget; everything that it has sent is settled."""
    source = MemorySource(range(9))

    async def story() -> None:
        stream: Flowable[Any] = source
        if is_async:
            stream = stream.pipe(adaptive_flat_map(_soon, Fixed(4)))
        async with no_leaks():
            await stream.pipe(*operators).to(sink).run()

    with pytest.raises(HandlerCancelled, match="cancelled from inside"):
        run_virtual(story())
    assert source.unsettled == []
    return source.acked


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_function_of_an_operator_that_is_cancelled_fails_its_event(
    name: str, is_async: bool
) -> None:
    assert 3 not in _acknowledged(OPERATORS[name], MemorySink(), is_async=is_async)


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
@pytest.mark.parametrize("name", SINKS)
def test_a_function_of_a_sink_that_is_cancelled_fails_its_event(name: str, is_async: bool) -> None:
    assert 3 not in _acknowledged((), SINKS[name](), is_async=is_async)


def test_a_timeout_of_an_event_that_has_passed_fails_the_stream() -> None:
    def timer(value: int) -> Flowable[int]:
        return from_iterable([f(value)]).pipe(ops.delay(9))

    operators = (ops.timeout_with_mapper(None, timer),)
    assert _acknowledged(operators, MemorySink(), is_async=True) == [0, 1, 2, 3]
