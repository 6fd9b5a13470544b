"""Operators for which the events of another stream are signals: its demand, and how events end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
import reactivex
from hypothesis import given
from reactivex import operators as stock
from reactivex.subject import Subject

from penstock import (
    Fixed,
    Running,
    adaptive_flat_map,
    collect,
    from_async_iterable,
    from_iterable,
    inbox,
)
from penstock import ops as _ops
from penstock.streams.testing import (
    CountedSource,
    ManualPublisher,
    MemorySource,
    Probe,
    run_virtual,
)
from tests.helpers.like_stock import assert_like_stock, messages

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops

BY_SIGNALS: dict[str, Callable[[Any], Any]] = {
    "sample": ops.sample,
    "skip_until": ops.skip_until,
    "take_until": ops.take_until,
}


def read(stream: Any, request: int | None = None, **options: Any) -> Probe[Any]:
    probe = Probe[Any](request, **options)
    stream.connect(probe)
    return probe


@pytest.mark.parametrize("operator", [stock.sample, stock.skip_until, stock.take_until])
@given(source=messages(), other=messages(later=0.25))
def test_they_do_to_the_tick_what_those_of_reactivex_do(
    operator: Any, source: Any, other: Any
) -> None:
    assert_like_stock(lambda make: operator(make()), source, other)


@pytest.mark.parametrize("name", BY_SIGNALS)
def test_the_signals_are_read_from_the_beginning_and_the_source_when_it_is_requested(
    name: str,
) -> None:
    source, signals = CountedSource(range(9)), ManualPublisher[str]()
    probe = read(source.pipe(BY_SIGNALS[name](signals)))
    assert (source.emitted, signals.demand) == (0, 1)
    probe.request(1)
    assert source.emitted > 0


@pytest.mark.parametrize("name", BY_SIGNALS)
def test_the_source_is_asked_for_no_more_than_it_says(name: str) -> None:
    source, signals = CountedSource(range(10_000)), ManualPublisher[str]()
    probe = read(source.pipe(BY_SIGNALS[name](signals)), 3)
    if name == "take_until":
        assert (probe.values, source.emitted) == ([0, 1, 2], 3)
    else:
        # What is skipped, or replaced, is requested again.
        assert (probe.values, source.emitted) == ([], 10_000)


def test_a_signal_is_taken_however_slow_the_reader_is() -> None:
    source, signals = ManualPublisher[int](), ManualPublisher[str]()
    probe = read(source.pipe(ops.sample(signals)), 1)
    source.send(1)
    for _ in range(100):
        signals.send("tick")
    assert (probe.values, signals.demand) == ([1], 1)


def test_a_tick_that_finds_no_request_waits_for_one() -> None:
    source, signals = MemorySource([1, 2]), ManualPublisher[str]()
    probe = read(source.pipe(ops.sample(signals)), 1, hold=True)
    signals.send("tick")
    assert probe.values == [2]


def test_an_event_that_a_newer_one_replaces_is_dropped() -> None:
    source, signals = MemorySource([1, 2, 3]), ManualPublisher[str]()
    probe = read(source.pipe(ops.sample(signals)), 9, hold=True)
    assert source.unsettled == [3]
    signals.send("tick")
    assert (probe.values, source.unsettled) == ([3], [3])
    probe.events[0].finish()
    assert (source.unsettled, probe.completed) == ([], True)


def test_a_cancel_returns_the_newest_event_of_a_sample() -> None:
    source, signals = MemorySource([1, 2, 3]), ManualPublisher[str]()
    probe = read(source.pipe(ops.sample(signals)), 9)
    probe.cancel()
    assert (source.returned, source.unsettled, signals.cancels) == ([3], [], 1)


def test_what_is_skipped_is_dropped_and_what_signals_is_too() -> None:
    source, signals = ManualPublisher[int](), MemorySource(["now", "later"])
    gate = ManualPublisher[int]()
    probe = read(source.pipe(ops.skip_until(gate.pipe(ops.merge(signals, prefetch=1)))), 9)
    source.send(1)
    assert probe.values == [1]
    assert (signals.unsettled, gate.cancels) == ([], 1)


def test_an_event_after_the_one_that_ends_take_until_is_returned() -> None:
    signals = Subject[int]()

    def signal(value: int) -> int:
        if value == 2:
            signals.on_next(0)
        return value

    source = MemorySource([1, 2, 3, 4])
    probe = read(source.pipe(ops.map(signal), ops.take_until(signals)), 9, hold=True)
    assert probe.completed
    for event in probe.events:
        event.finish()
    assert sorted([*source.acked, *source.returned]) == [1, 2, 3, 4]
    assert source.unsettled == []
    assert source.returned


@pytest.mark.parametrize("name", BY_SIGNALS)
def test_a_drain_of_the_pipeline_stops_the_signals_too(name: str) -> None:
    async def story() -> dict[str, Any]:
        source, signals = inbox(9), inbox(9)
        running: Running = source.pipe(BY_SIGNALS[name](signals)).to(collect([])).start()
        await asyncio.sleep(0)
        await source.put(1)
        await asyncio.sleep(1)
        return (await running.drain(5)).statistics

    numbers = run_virtual(story())
    assert (numbers["in"], numbers["unfinished"], numbers["state"]) == (1, 0, "closed")


@pytest.mark.parametrize("name", BY_SIGNALS)
def test_signals_may_come_from_another_thread(name: str) -> None:
    async def story() -> list[int]:
        signals, source, probe = Subject[int](), ManualPublisher[int](), Probe[int](9)
        source.pipe(BY_SIGNALS[name](signals)).connect(probe)
        source.send(1)
        thread = threading.Thread(target=signals.on_next, args=[0])
        thread.start()
        thread.join()
        await asyncio.sleep(0)
        if name != "take_until":
            source.send(2)
        return probe.values

    assert asyncio.run(story()) == {"sample": [1], "skip_until": [2], "take_until": [1]}[name]


async def paced(first: float) -> AsyncIterator[float]:
    for n in range(5):
        await asyncio.sleep(1 if n else first)
        yield n


@pytest.mark.parametrize("name", BY_SIGNALS)
def test_the_numbers_of_the_signals_are_in_the_account(name: str) -> None:
    async def story() -> dict[str, Any]:
        into = list[Any]()
        source, signals = (from_async_iterable(partial(paced, first)) for first in (1, 1.5))
        stream = source.pipe(BY_SIGNALS[name](signals))
        return (await stream.to(collect(into)).run()).statistics

    numbers = run_virtual(story())
    assert numbers["dropped"][name] >= 1
    ended = numbers["finished"] + numbers["returned"] + sum(numbers["dropped"].values())
    assert numbers["in"] == ended


def test_an_error_of_the_signals_ends_the_stream_and_cancels_the_source() -> None:
    for operator in BY_SIGNALS.values():
        source, signals = ManualPublisher[int](), ManualPublisher[str]()
        probe = read(source.pipe(operator(signals)), 1)
        signals.fail(error := ValueError("no"))
        assert (probe.error, source.cancels) == (error, 1)


def test_a_sample_by_the_clock_is_the_one_of_reactivex() -> None:
    async def story() -> list[int]:
        ticking = reactivex.interval(1).pipe(stock.take(6))
        return (
            await from_iterable([7])
            .pipe(ops.flat_map(lambda _: ticking), ops.sample(2.6))
            .to_list()
        )

    assert run_virtual(story()) == [1, 4, 5]


@pytest.mark.parametrize("sampler", [3600, 2], ids=["long", "short"])
def test_a_drain_waits_for_no_tick_of_the_clock(sampler: float) -> None:
    async def story() -> tuple[list[int], float, int]:
        entry = inbox(10)
        into = list[int]()
        running: Running = entry.pipe(ops.sample(sampler)).to(collect(into)).start()
        await asyncio.sleep(0)
        for n in range(5):
            await entry.put(n)
        loop = asyncio.get_running_loop()
        began = loop.time()
        report = await running.drain(20)
        return into, loop.time() - began, report.statistics["finished"]

    into, seconds, finished = run_virtual(story())
    assert (into, seconds, finished) == ([4], 0, 5)


def test_a_sample_by_the_clock_that_ends_by_itself_ends_with_the_next_tick_as_in_rx() -> None:
    async def story() -> tuple[list[int], float]:
        into = list[int]()
        await from_iterable([1, 2]).pipe(ops.sample(2)).to(collect(into)).run()
        return into, asyncio.get_running_loop().time()

    assert run_virtual(story()) == ([2], 2)


def _fails(value: object) -> Any:
    raise ValueError(value)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda f: [ops.map(_fails), ops.catch(f)], [7]),
        (lambda f: [ops.sample(f), ops.take(1)], [1]),
        (lambda f: [ops.take_until(f)], [0, 1]),
        (lambda f: [ops.merge(f)], [0, 1, 7, 2, 3]),
        (lambda f: [ops.buffer(f), ops.first()], [[0, 1]]),
        (lambda f: [ops.timeout(0.5, f)], [7]),
        (lambda f: [ops.timeout_with_mapper(f), ops.take(1)], [0]),
    ],
)
def test_another_stream_may_be_a_future(made: Any, expected: Any) -> None:
    async def story() -> list[Any]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_later(2.5, future.set_result, 7)
        source: Any = from_iterable(range(4)).pipe(adaptive_flat_map(_in_a_second, limit=Fixed(1)))
        into: list[Any] = await source.pipe(*made(future)).to_list()
        return into

    assert run_virtual(story()) == expected


async def _in_a_second(value: int) -> int:
    await asyncio.sleep(1)
    return value
