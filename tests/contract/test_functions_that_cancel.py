"""A function of the user's that cancels its own pipeline, and then returns or raises: every event
is settled, and none is acknowledged whose results the sink has not accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import reactivex

from penstock import (
    Backoff,
    Fixed,
    Running,
    adaptive_flat_map,
    batch,
    chunk,
    count_over_time,
    distinct_within,
    for_each,
    from_iterable,
    group_by,
    monitor,
    rate_limit,
    retry,
    spread,
    violations,
)
from penstock import ops as _ops
from penstock.streams.protocol.event import Ending
from penstock.streams.testing import CountedSource, MemorySink, MemorySource, no_leaks, run_virtual

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops

Function = Callable[[Any], Any]


async def fails(value: Any) -> Any:
    raise ValueError(value)


async def fails_on_all(values: list[Any]) -> Any:
    raise ValueError(values)


async def works(value: Any) -> Any:
    return value


async def at_once(value: int) -> int:
    """All results come together, because they wait for the first."""
    await asyncio.sleep(0 if value else 1)
    return value


class Rising:
    """A limiter with a function in it, whose limit is one more after each call."""

    limit = 1

    def __init__(self, function: Function) -> None:
        self._function = function

    def on_complete(self, *_: object) -> None:
        self._function(2)
        self.limit += 1


def whole(group: Any, f: Function) -> Any:
    return group.pipe(ops.count(), ops.map(lambda _: f(2)))


def streams(f: Function) -> Function:
    return lambda value: from_iterable([f(value)])


# Stages with a function; it gets the value of an event where it has one.
PLACES: dict[str, Callable[[Function], tuple[Any, ...]]] = {
    "map": lambda f: (ops.map(f),),
    "filter": lambda f: (ops.filter(lambda value: f(value) is not None),),
    "scan": lambda f: (ops.scan(lambda _, value: f(value), 0),),
    "do_action": lambda f: (ops.do_action(f),),
    "take_while": lambda f: (ops.take_while(lambda value: f(value) is not None),),
    "distinct_until_changed": lambda f: (ops.distinct_until_changed(f),),
    "reduce": lambda f: (ops.reduce(lambda _, value: f(value), 0),),
    "buffer": lambda f: (ops.buffer_with_count(2), ops.map(lambda values: f(values[0]))),
    "delay": lambda f: (ops.delay(0.1), ops.map(f)),
    "delay_with_mapper": lambda f: (
        ops.delay_with_mapper(lambda value: reactivex.timer(0.1 + 0 * f(value))),
    ),
    "timeout_with_mapper": lambda f: (
        ops.timeout_with_mapper(None, lambda value: reactivex.timer(9 + 0 * f(value))),
    ),
    "window": lambda f: (ops.window_with_count(2), ops.merge_all(), ops.map(f)),
    "flat_map": lambda f: (ops.flat_map(lambda value: [f(value)]),),
    "an iterable of flat_map": lambda f: (ops.flat_map(lambda value: map(f, [value, value])),),
    "flat_map of streams": lambda f: (ops.flat_map(streams(f)),),
    "a stream of flat_map": lambda f: (
        ops.flat_map(lambda value: from_iterable([value]).pipe(ops.map(f))),
    ),
    "concat_map": lambda f: (ops.concat_map(streams(f)),),
    "switch_map": lambda f: (ops.switch_map(streams(f)),),
    "exhaust_map": lambda f: (ops.exhaust_map(streams(f)),),
    "sequence_equal": lambda f: (
        ops.sequence_equal(from_iterable(range(9)), lambda a, b: f(a) == b),
    ),
    "catch": lambda f: (
        ops.map(lambda value: 1 // (2 - value)),
        ops.catch(lambda error, _: (f(2), from_iterable([7]))[1]),
    ),
    "chunk": lambda f: (chunk(3), ops.map(lambda values: f(values[-1]))),
    "distinct_within": lambda f: (distinct_within(10, f),),
    "rate_limit": lambda f: (rate_limit(100, cost=lambda value: 1 + 0 * f(value)),),
    "monitor": lambda f: (monitor("G a", a=lambda value: f(value) is not None),),
    "on_violation": lambda f: (
        monitor("G a", a=lambda value: value != 2, on_violation=lambda _: f(2)),
    ),
    "violations": lambda f: (violations("G a", a=lambda value: f(value) is None),),
    "count_over_time": lambda f: (
        ops.map(lambda value: {"from": value, "to": value + 1}),
        count_over_time(lambda row: f(row["from"])),
    ),
    "key": lambda f: (group_by(f), spread()),
    "key of groups with work": lambda f: (group_by(f), spread(), adaptive_flat_map(works)),
    "key of a group that waits": lambda f: (
        group_by(lambda value: 0 * f(value), each=lambda g: g.pipe(ops.delay(0.1)), idle=9),
        spread(),
    ),
    "key of groups with operators": lambda f: (group_by(f, each=lambda g: g, idle=9), spread()),
    "each": lambda f: (
        group_by(lambda value: value, each=lambda g: (f(g.key), g)[1], idle=9),
        spread(),
    ),
    "each of groups with an operator": lambda f: (
        group_by(lambda v: v, each=lambda g: g.pipe(ops.delay(0 * f(g.key))), idle=9),
        spread(),
    ),
    "in each": lambda f: (
        group_by(lambda value: value % 2, each=lambda g: g.pipe(ops.map(f)), idle=9),
        spread(),
    ),
    "at the end of each": lambda f: (
        group_by(
            lambda v: v % 2, each=lambda g: g.pipe(ops.count(), ops.map(lambda _: f(2))), idle=9
        ),
        spread(),
    ),
    "handler": lambda f: (adaptive_flat_map(f),),
    "later handler": lambda f: (adaptive_flat_map(lambda value: works(f(value))),),
    "batch": lambda f: (batch(lambda values: list(map(f, values))),),
    "overload": lambda f: (adaptive_flat_map(fails, overload=lambda _: f(2)),),
    "overload and retry": lambda f: (
        adaptive_flat_map(fails, on_error=retry(2), overload=lambda _: f(2)),
    ),
    "wait": lambda f: (adaptive_flat_map(fails, on_error=retry(2, wait=lambda _: f(2))),),
    "wait of a batch": lambda f: (batch(fails_on_all, on_error=retry(2, wait=lambda _: f(2))),),
    "wait of groups": lambda f: (
        group_by(lambda value: value % 2),
        spread(),
        adaptive_flat_map(
            fails, Fixed(2), ordered=True, on_error=retry(2, Backoff(0), wait=lambda _: f(2))
        ),
    ),
    "on_limit_change": lambda f: (
        adaptive_flat_map(works, Rising(lambda _: None), on_limit_change=lambda *_: f(2)),
    ),
    "limiter": lambda f: (adaptive_flat_map(works, Rising(f)),),
}


# The results of these are the values themselves.
ACKNOWLEDGED = (Ending.FINISHED, Ending.DROPPED, Ending.FORGIVEN)
SENDS_ALL = ("map", "scan", "do_action", "delay", "delay_with_mapper", "timeout_with_mapper", "key")


@pytest.mark.parametrize("after", ["returns", "raises"])
@pytest.mark.parametrize("in_a_list", [False, True], ids=["one by one", "in a list"])
@pytest.mark.parametrize("name", [*PLACES, "sink", "async sink"])
def test_a_function_that_cancels_its_pipeline_loses_no_event(
    name: str, in_a_list: bool, after: str
) -> None:
    # What is acknowledged may not be counted.
    counts = name == "count_over_time"
    source: Any = CountedSource(range(9)) if counts else MemorySource(range(9))
    sink = MemorySink()
    began: list[Running] = []

    def cancels(value: Any) -> Any:
        if value == 2:
            began[0].cancel()
            if after == "raises":
                raise OSError("gone")
        return value

    async def cancels_later(value: Any) -> None:
        cancels(value)

    async def story() -> None:
        stream: Any = source
        if in_a_list:
            stream = source.pipe(adaptive_flat_map(at_once, Fixed(9), ordered=True))
        if name in PLACES:
            pipeline = stream.pipe(*PLACES[name](cancels)).to(sink)
        else:
            pipeline = stream.to(for_each(cancels if name == "sink" else cancels_later))
        async with no_leaks():
            began.append(pipeline.start())
            await began[0].wait()

    run_virtual(story())
    assert source.ledger.unsettled == []
    numbers = began[0].statistics()
    assert (numbers["unfinished"], began[0].report().outcome) == (0, "cancelled")
    assert [stage for stage in numbers["stages"] if stage.get("waiting")] == []
    if after == "raises" or name in SENDS_ALL:
        assert 2 not in source.ledger.ended(*ACKNOWLEDGED) or 2 in sink.values
