"""Handlers that return a stream: what can be awaited and read is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import reactivex
from reactivex import operators as rx

from penstock import (
    Fixed,
    adaptive_flat_map,
    batch,
    distinct_within,
    for_each,
    from_iterable,
    group_by,
    in_threads,
    monitor,
    ops,
    retry,
    spread,
    using,
)
from penstock.streams.base.errors import BufferFull, PenstockError, UnfinishedResult
from penstock.streams.testing import MemorySink, MemorySource
from penstock.streams.testing.plugin import Run


def observable(n: int) -> Any:
    return reactivex.of(n, 10 * n, 100 * n)


async def later(n: int) -> Any:
    await asyncio.sleep(1)
    return observable(n)


class Cursor:
    """As those of some databases: `await cursor` opens it, `async for` reads it."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __await__(self) -> Iterator[Any]:
        raise AssertionError("it is read")

    async def __aiter__(self) -> AsyncIterator[int]:
        for factor in (1, 10, 100):
            yield self._n * factor


class Nothing:
    async def __aenter__(self) -> Nothing:
        return self

    async def __aexit__(self, *_: object) -> None: ...


async def with_resource(_: Nothing, n: int) -> Any:
    return observable(n)


HANDLERS: dict[str, Any] = {
    "an Observable": observable,
    "an Observable, later": later,
    "a future of an Observable": lambda n: asyncio.ensure_future(later(n)),
    "a stream": lambda n: from_iterable([n, 10 * n, 100 * n]),
    "a cursor": Cursor,
    "an Observable of a resource": using(Nothing)(with_resource),
}


@pytest.mark.parametrize("name", HANDLERS)
@pytest.mark.parametrize("ordered", [False, True])
def test_each_value_of_a_stream_is_a_result(run: Run, name: str, ordered: bool) -> None:
    source, sink = MemorySource([1, 2]), MemorySink()
    stage = adaptive_flat_map(HANDLERS[name], Fixed(1), ordered=ordered)
    run(source.pipe(stage).to(sink).run())
    assert sink.values == [1, 10, 100, 2, 20, 200]
    assert source.acked == [1, 2]


def test_an_observable_that_a_thread_returns_is_read_on_the_loop() -> None:
    stage = adaptive_flat_map(in_threads(1)(observable), Fixed(1))
    assert asyncio.run(from_iterable([1]).pipe(stage).to_list()) == [1, 10, 100]


def test_the_events_of_a_stream_are_finished_when_the_results_are(run: Run) -> None:
    async def story() -> None:
        inner, source, sink = MemorySource("ab"), MemorySource([1]), MemorySink(hold=True)
        pipeline = source.pipe(adaptive_flat_map(lambda _: inner)).to(sink)
        async with pipeline.start():
            await asyncio.sleep(1)
            assert (sink.values, inner.acked) == ([], [])
            sink.accept(1)
            await asyncio.sleep(1)
            assert (sink.values, inner.acked, source.acked) == (["a"], ["a"], [])
            sink.accept(1)
        assert (inner.acked, source.acked) == (["a", "b"], [1])

    run(story())


def test_a_stream_is_read_as_far_as_its_results_are_requested(run: Run) -> None:
    async def story() -> None:
        taken: list[int] = []
        sink = MemorySink(hold=True)
        stage = adaptive_flat_map(
            lambda _: from_iterable(range(1000)).pipe(ops.do_action(taken.append)),
            Fixed(1),
            window=4,
        )
        async with from_iterable([1]).pipe(stage).to(sink).start() as running:
            await asyncio.sleep(1)
            # One with the sink, those of the window, and one in the hand of the call.
            assert len(taken) == 6
            running.cancel()

    run(story())


def test_a_stream_that_is_read_pauses_with_the_pipeline(run: Run) -> None:
    async def story() -> None:
        def ticks(_: int) -> Any:
            return from_iterable(range(3)).pipe(adaptive_flat_map(lambda n: asyncio.sleep(1, n)))

        sink = MemorySink()
        async with from_iterable([1]).pipe(adaptive_flat_map(ticks)).to(sink).start() as running:
            await asyncio.sleep(0.5)
            running.pause()
            await asyncio.sleep(10)
            assert sink.values == [0]
            running.resume()
        assert sink.values == [0, 1, 2]

    run(story())


def test_the_error_of_a_stream_fails_its_event_and_is_tried_again(run: Run) -> None:
    attempts: list[int] = []

    def handler(n: int) -> Any:
        attempts.append(n)
        good = reactivex.of(n)
        return good if len(attempts) > 1 else good.pipe(rx.concat(reactivex.throw(OSError())))

    source, sink = MemorySource([7]), MemorySink()
    run(source.pipe(adaptive_flat_map(handler, on_error=retry(2))).to(sink).run())
    assert (attempts, sink.values, source.acked) == ([7, 7], [7, 7], [7])


def test_an_observable_of_more_than_a_buffer_is_an_error_and_loses_nothing_in_silence(
    run: Run,
) -> None:
    stage = adaptive_flat_map(lambda _: reactivex.range(0, 5000))
    with pytest.raises(BufferFull, match=r"with a larger buffer\(n\)"):
        run(from_iterable([1]).pipe(stage).to(MemorySink()).run())


def test_a_cancel_disposes_of_the_observable_that_is_read(run: Run) -> None:
    over: list[str] = []

    async def story() -> None:
        endless: Any = reactivex.never().pipe(rx.finally_action(lambda: over.append("disposed")))
        source = MemorySource([1])
        stage = adaptive_flat_map(lambda _: endless)
        async with source.pipe(stage).to(MemorySink()).start() as running:
            await asyncio.sleep(1)
            running.cancel()
        assert source.returned == [1]

    run(story())
    assert over == ["disposed"]


@pytest.mark.parametrize("function", [observable, later, lambda n: from_iterable([n]), Cursor])
def test_a_sink_refuses_a_stream_that_it_would_not_read(run: Run, function: Any) -> None:
    with pytest.raises(UnfinishedResult, match="a stream, which is never read"):
        run(from_iterable([1]).to(for_each(function)).run())


@pytest.mark.parametrize("handler", [observable, later, Cursor])
def test_a_batch_refuses_a_stream_in_place_of_a_list(run: Run, handler: Any) -> None:
    stage = batch(lambda values: handler(values[0]))
    with pytest.raises(PenstockError, match="return a list of as many results"):
        run(from_iterable([1]).pipe(stage).to(MemorySink()).run())


def future(_: Any) -> Any:
    return asyncio.get_running_loop().create_future()


async def values(_: Any) -> AsyncIterator[int]:
    yield 1


ANSWERS: dict[str, Any] = {
    "group_by": lambda by: group_by(by),
    "distinct_within": lambda by: distinct_within(1, by=by),
    "filter": lambda by: ops.filter(by),
    "take_while": lambda by: ops.take_while(by),
    "distinct_until_changed": lambda by: ops.distinct_until_changed(by),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize(
    "answer",
    [observable, future, lambda n: values(n), lambda n: iter([n])],
    ids=["observable", "future", "async iterator", "iterator"],
)
def test_what_is_worked_out_later_is_no_key_and_no_answer(run: Run, name: str, answer: Any) -> None:
    stream: Any = from_iterable([1, 2]).pipe(ANSWERS[name](answer))
    if name == "group_by":
        stream = stream.pipe(spread())
    with pytest.raises(UnfinishedResult, match="does not await"):
        run(stream.to(MemorySink()).run())


def test_a_function_of_violations_that_returns_a_coroutine_is_an_error(run: Run) -> None:
    async def tell(_: object) -> None: ...

    stage: Any = monitor("G !bad", bad=lambda n: n == 2, on_violation=lambda found: tell(found))
    with pytest.raises(UnfinishedResult, match="on_violation=for_each"):
        run(from_iterable([1, 2]).pipe(stage).to(MemorySink()).run())


def test_an_event_of_a_stream_that_is_no_result_is_returned(run: Run) -> None:
    inner, sink = MemorySource([1, 2]), MemorySink()

    def awaited(value: Any) -> Any:
        return future(value) if value == 2 else value

    stage = adaptive_flat_map(lambda _: inner.pipe(ops.map(awaited)), on_error="skip")
    report = run(from_iterable([1]).pipe(stage).to(sink).run())
    assert sink.values == [1]
    assert (inner.acked, report.statistics["unfinished"]) == ([1], 0)
