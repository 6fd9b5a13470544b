"""An error that is no Exception ends the run, and every event goes back to its source."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from penstock import (
    Fixed,
    Flowable,
    Shared,
    Sink,
    SinkStage,
    adaptive_flat_map,
    batch,
    chunk,
    collect,
    distinct_within,
    for_each,
    from_iterable,
    group_by,
    monitor,
    rate_limit,
    retry,
    route,
    spread,
)
from penstock import ops as _ops
from penstock.streams.protocol.acknowledgement import NOBODY, Family
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.testing import MemorySink, MemorySource, run_virtual

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops

Function = Callable[[Any], Any]


class Halt(BaseException):
    """The user's own."""


class _Accepting(Sink[Any]):
    info = StageInfo("accepting")

    def __init__(self, function: Function) -> None:
        self._function = function

    def open(self, run: Any, closed: Any) -> SinkStage[Any]:
        return _Stage(closed, self._function)


class _Stage(SinkStage[Any]):
    def __init__(self, closed: Any, function: Function) -> None:
        super().__init__(closed)
        self._function = function

    def accept(self, event: Any) -> None:
        self._function(event.value)


class _Limiter:
    """A limiter that calls the function, where a call has ended or where its limit is read."""

    floor, ceiling, reason = 1, 4, ""

    def __init__(self, function: Function, *, at_end: bool) -> None:
        self._function = function
        self._at_end = at_end
        self._ended = 0

    @property
    def limit(self) -> int:
        if self._ended and not self._at_end:
            self._function(3)
        return 2

    def on_complete(self, *_: Any) -> None:
        self._ended += 1
        if self._at_end:
            self._function(3)


def later(function: Function) -> Function:
    async def call(value: Any) -> Any:
        await asyncio.sleep(0.1)
        return function(value)

    return call


def calls(function: Function) -> Function:
    return lambda values: list(map(function, values))


def keyed(function: Function) -> Function:
    def operators(group: Any) -> Any:
        function(group.key)
        return group.pipe(ops.map(same))

    return operators


def ending(function: Function) -> Function:
    def operators(group: Any) -> Any:
        if group.key == 0:
            return group.pipe(ops.to_list())
        return group.pipe(ops.do_action(on_completed=lambda: function(3)), ops.count())

    return operators


def fails(value: Any) -> Any:
    raise OSError(value)


def same(value: Any) -> Any:
    return value


def again(f: Function) -> Any:
    return retry(2, wait=lambda _: f(3))


def pairs(value: Any) -> Any:
    return from_iterable([value, value])


async def rows(value: int) -> AsyncIterator[int]:
    for number in range(1 + value % 3):
        await asyncio.sleep(0.1 * ((value + number) % 2))
        yield value


GROUPS = (group_by(lambda value: value % 2), spread())
OPERATORS: dict[str, Callable[[Function], tuple[Any, ...]]] = {
    "map": lambda f: (ops.map(f),),
    "filter": lambda f: (ops.filter(lambda value: f(value) is not None),),
    "flat_map": lambda f: (ops.flat_map(lambda value: [f(value)]),),
    "a stream of flat_map": lambda f: (
        ops.flat_map(lambda value: from_iterable([value]).pipe(ops.map(f))),
    ),
    "concat_map": lambda f: (ops.concat_map(lambda value: from_iterable([f(value)])),),
    "switch_map": lambda f: (ops.switch_map(lambda value: from_iterable([f(value)])),),
    "exhaust_map": lambda f: (ops.exhaust_map(lambda value: from_iterable([f(value)])),),
    "scan": lambda f: (ops.scan(lambda _, value: f(value), 0),),
    "reduce": lambda f: (ops.reduce(lambda _, value: f(value), 0),),
    "take_while": lambda f: (ops.take_while(lambda value: f(value) is not None),),
    "distinct_until_changed": lambda f: (ops.distinct_until_changed(f),),
    "sequence_equal": lambda f: (
        ops.sequence_equal(from_iterable(range(9)), lambda a, b: f(a) == b),
    ),
    "key": lambda f: (group_by(f), spread()),
    "each": lambda f: (group_by(same, each=lambda g: g.pipe(ops.map(f)), idle=9.0), spread()),
    "each, while built": lambda f: (group_by(same, each=keyed(f), idle=9.0), spread()),
    "each, at the end of a group": lambda f: (
        group_by(lambda value: value % 2, each=ending(f), idle=9.0),
        spread(),
    ),
    "distinct_within": lambda f: (distinct_within(9, f),),
    "distinct_within, skipping": lambda f: (distinct_within(9, f, on_error="skip"),),
    "cost": lambda f: (rate_limit(99, cost=lambda value: 1 + 0 * f(value)),),
    "monitor": lambda f: (monitor("G a", a=lambda value: f(value) >= 0),),
    "handler": lambda f: (adaptive_flat_map(f),),
    "handler, skipping": lambda f: (adaptive_flat_map(f, on_error="skip"),),
    "async handler": lambda f: (adaptive_flat_map(later(f)),),
    "async handler, retrying": lambda f: (adaptive_flat_map(later(f), on_error=retry(2)),),
    "batch": lambda f: (batch(calls(f)),),
    "async batch": lambda f: (batch(later(calls(f))),),
    "wait": lambda f: (adaptive_flat_map(later(fails), on_error=again(f)),),
    "wait of batch": lambda f: (batch(later(fails), on_error=again(f)),),
    "overload": lambda f: (adaptive_flat_map(later(fails), overload=lambda _: f(3)),),
    "overload, plain": lambda f: (adaptive_flat_map(fails, overload=lambda _: f(3)),),
    "limit": lambda f: (adaptive_flat_map(later(same), _Limiter(f, at_end=False)),),
    "limiter": lambda f: (adaptive_flat_map(later(same), _Limiter(f, at_end=True)),),
    "on_limit_change": lambda f: (adaptive_flat_map(later(same), on_limit_change=lambda *_: f(3)),),
    "letters": lambda f: (
        adaptive_flat_map(fails, on_error=route(for_each(lambda letter: f(letter.value)))),
    ),
    "after a list": lambda f: (ops.buffer_with_count(2), ops.map(calls(f))),
    "after a chunk": lambda f: (chunk(2), ops.map(calls(f))),
    "at the end": lambda f: (ops.to_list(), ops.map(calls(f))),
    "after spread": lambda f: (*GROUPS, ops.map(f)),
    "before a call in its group": lambda f: (
        *GROUPS,
        ops.map(f),
        adaptive_flat_map(later(same)),
    ),
    "after a call in its group": lambda f: (*GROUPS, adaptive_flat_map(later(same)), ops.map(f)),
    "after calls with several results": lambda f: (
        adaptive_flat_map(rows, Fixed(4), ordered=True, window=1),
        ops.map(f),
    ),
    "after flat_map": lambda f: (ops.flat_map(pairs), ops.map(f)),
    "after concat_map": lambda f: (ops.concat_map(pairs), ops.map(f)),
    "after merge": lambda f: (ops.merge(from_iterable(range(20, 29))), ops.map(f)),
    "after zip": lambda f: (ops.zip(from_iterable(range(9))), ops.map(lambda two: f(two[0]))),
    "after with_latest_from": lambda f: (
        ops.with_latest_from(from_iterable(range(9))),
        ops.map(lambda two: f(two[0])),
    ),
    "after share": lambda f: (ops.share(), ops.map(f)),
    "before catch": lambda f: (ops.map(f), ops.catch(from_iterable([1]))),
    "before retry": lambda f: (ops.map(f), ops.retry(2)),
}
SINKS: dict[str, Callable[[Function], tuple[Sink[Any], ...]]] = {
    "for_each": lambda f: (for_each(f),),
    "for_each, skipping": lambda f: (for_each(f, on_error="skip"),),
    "for_each, async": lambda f: (for_each(later(f)),),
    "own": lambda f: (_Accepting(f),),
    "the first of two": lambda f: (_Accepting(f), MemorySink()),
    "the last of two": lambda f: (MemorySink(), _Accepting(f)),
}


def _run(
    kind: type[BaseException],
    operators: Callable[[Function], tuple[Any, ...]],
    sinks: Callable[[Function], tuple[Sink[Any], ...]],
    *,
    is_async: bool,
) -> list[int]:
    """What the source is told to forget; everything else has come back to it."""
    source = MemorySource(range(9))
    numbers: list[dict[str, Any]] = []

    def function(value: Any) -> Any:
        if value == 3:
            raise kind
        return value

    async def story() -> None:
        stream: Flowable[Any] = source
        if is_async:
            stream = stream.pipe(adaptive_flat_map(later(same), Fixed(4)))
        running = stream.pipe(*operators(function)).to(*sinks(function)).start()
        try:
            async with asyncio.timeout(60):
                await running.wait()
        finally:
            numbers.append(running.statistics())

    with pytest.raises(kind):
        run_virtual(story())
    assert source.unsettled == []
    (counts,) = numbers
    ended = counts["finished"] + counts["failed"] + counts["returned"]
    assert counts["in"] == ended + sum(counts["dropped"].values())
    return source.acked


KINDS = [Halt, GeneratorExit, KeyboardInterrupt, SystemExit]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATORS)
def test_an_exit_in_a_function_of_an_operator_returns_every_event(
    name: str, kind: type[BaseException], is_async: bool
) -> None:
    acked = _run(kind, OPERATORS[name], lambda _: (MemorySink(),), is_async=is_async)
    assert 3 not in acked


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SINKS)
def test_an_exit_in_a_function_of_a_sink_returns_every_event(
    name: str, kind: type[BaseException], is_async: bool
) -> None:
    assert 3 not in _run(kind, lambda _: (), SINKS[name], is_async=is_async)


@pytest.mark.parametrize("kind", KINDS)
def test_an_exit_that_passes_through_a_stream_that_has_ended_ends_the_run(
    kind: type[BaseException],
) -> None:
    source = MemorySource(range(9))
    second = from_iterable(range(9))

    def function(value: int) -> int:
        if value == 3:
            raise kind
        return value

    async def story() -> None:
        first = source.pipe(adaptive_flat_map(later(same), Fixed(4)))
        stream = first.pipe(ops.concat(second.pipe(ops.map(function))))
        async with asyncio.timeout(60):
            await stream.to(MemorySink()).run()

    with pytest.raises(kind):
        run_virtual(story())
    assert source.unsettled == []


@pytest.mark.parametrize("kind", [Halt, GeneratorExit])
def test_an_exit_ends_its_own_run_and_not_one_that_shares_its_limit(
    kind: type[BaseException],
) -> None:
    source = MemorySource(range(9))
    results: list[int] = []

    def function(value: int) -> int:
        raise kind

    async def story() -> None:
        shared = Shared(Fixed(1))
        other = from_iterable(range(9)).pipe(adaptive_flat_map(later(same), shared))
        another = other.to(collect(results)).start()
        stages = adaptive_flat_map(same, shared), ops.map(function)
        with pytest.raises(kind):
            async with asyncio.timeout(60):
                await source.pipe(*stages).to(MemorySink()).run()
        await another.wait()

    run_virtual(story())
    assert results == list(range(9))
    assert source.unsettled == []


def test_an_exit_that_is_raised_while_somebody_resumes_the_run_ends_it() -> None:
    source = MemorySource(range(9))

    def function(value: int) -> int:
        raise Halt

    async def story() -> None:
        running = source.pipe(ops.map(function)).to(MemorySink()).start()
        running.pause()
        await asyncio.sleep(1)
        running.resume()
        with pytest.raises(Halt):
            async with asyncio.timeout(60):
                await running.wait()

    run_virtual(story())
    assert source.unsettled == []


@pytest.mark.parametrize(
    "work",
    [
        adaptive_flat_map(same),
        adaptive_flat_map(later(same), Fixed(4)),
        batch(lambda values: values, 4),
    ],
)
@pytest.mark.parametrize("call", [1, 2, 3, 7])
def test_an_exit_behind_a_working_stage_leaves_no_place_in_groups_taken(
    work: Any, call: int
) -> None:
    source, calls = MemorySource(range(20)), iter(range(1, 99))

    def function(value: int) -> int:
        if next(calls) == call:
            raise Halt
        return value

    def inside(group: Any) -> Any:
        twice: Any = ops.flat_map(lambda value: [value, value + 100])
        return group.pipe(group_by(lambda value: value % 6), spread(), twice)

    async def story() -> None:
        groups = group_by(lambda value: value % 3, each=inside, idle=5)
        stages = groups, spread(), work, ops.map(function)
        running = source.pipe(*stages).to(MemorySink()).start()
        with pytest.raises(Halt):
            await running.wait()
        assert [stage.get("waiting") for stage in running.statistics()["stages"]][1] == 0

    run_virtual(story())
    assert source.unsettled == []


def test_an_event_ends_although_an_exit_is_raised_for_the_next_one_of_its_group() -> None:
    class Turn:
        """That of a group whose next event leaves it, for a function that raises."""

        holders = 1

        def end(self) -> None:
            raise Halt

    parent: Event[int] = Event(1, 0.0, NOBODY)
    turn: Any = Turn()
    parent.turn = turn
    with pytest.raises(Halt):
        Family(parent, "no children").close()
    assert parent.pending == 0


@pytest.mark.filterwarnings("error")
def test_what_a_sink_function_has_begun_when_it_cancels_its_pipeline_is_not_left_behind() -> None:
    source = MemorySource(range(9))

    async def unfinished() -> None:
        await asyncio.sleep(1)

    def function(_: int) -> Any:
        running[0].cancel()
        return unfinished()

    running: list[Any] = []

    async def story() -> None:
        running.append(source.to(for_each(function)).start())
        await running[0].wait()

    run_virtual(story())
    gc.collect()
    assert source.unsettled == []
