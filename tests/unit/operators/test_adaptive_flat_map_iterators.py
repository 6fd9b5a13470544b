"""Handlers that are async iterators, and give several results or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock import Backoff, Fixed, adaptive_flat_map, from_iterable, retry
from penstock.streams.testing import ManualPublisher, MemorySink, MemorySource, Probe
from penstock.streams.testing.plugin import Run


async def count(value: int) -> AsyncIterator[int]:
    for n in range(value):
        yield n


class Counting:
    """An async iterator that is not a generator."""

    def __init__(self, value: int) -> None:
        self._left = value

    def __aiter__(self) -> Counting:
        return self

    async def __anext__(self) -> int:
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        return self._left


async def made_later(value: int) -> AsyncIterator[int]:
    await asyncio.sleep(0)
    return count(value)


@pytest.mark.parametrize(
    "handler", [count, lambda n: count(n), made_later, lambda n: made_later(n)]
)
@pytest.mark.parametrize("ordered", [False, True])
def test_an_async_iterator_gives_several_results(run: Run, handler: Any, ordered: bool) -> None:
    source, sink = MemorySource([2, 3]), MemorySink()
    run(source.pipe(adaptive_flat_map(handler, Fixed(1), ordered=ordered)).to(sink).run())
    assert sink.values == [0, 1, 0, 1, 2]
    assert source.acked == [2, 3]


def test_an_async_iterator_need_not_be_a_generator(run: Run) -> None:
    sink = MemorySink()
    run(MemorySource([2, 3]).pipe(adaptive_flat_map(Counting, Fixed(1))).to(sink).run())
    assert sink.values == [1, 0, 2, 1, 0]


@pytest.mark.parametrize("ordered", [False, True])
def test_an_event_without_results_is_dropped_on_purpose(run: Run, ordered: bool) -> None:
    source, sink = MemorySource([0, 2, 0]), MemorySink()
    report = run(source.pipe(adaptive_flat_map(count, Fixed(2), ordered=ordered)).to(sink).run())
    assert sink.values == [0, 1]
    assert report.statistics["dropped"] == {"no results": 2}
    assert report.exit_status == 0
    assert sorted(source.acked) == [0, 0, 2]


def test_an_event_is_finished_when_all_its_results_are(run: Run) -> None:
    async def story() -> None:
        source, sink = MemorySource([2]), MemorySink(hold=True)
        async with source.pipe(adaptive_flat_map(count, Fixed(1))).to(sink).start():
            await asyncio.sleep(1)
            sink.accept(1)
            await asyncio.sleep(1)
            assert source.acked == []
            sink.accept(1)
            await asyncio.sleep(0)
            assert source.acked == [2]

    run(story())


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("limit", "window"), [(1, 1), (3, 4), (3, 1)])
def test_an_iterator_is_suspended_when_its_share_is_full(
    run: Run, limit: int, window: int, ordered: bool
) -> None:
    produced = 0

    async def endless(value: int) -> AsyncIterator[int]:
        nonlocal produced
        while True:
            produced += 1
            yield produced

    async def story() -> None:
        sink = MemorySink(hold=True)
        operator = adaptive_flat_map(endless, Fixed(limit), ordered=ordered, window=window)
        async with MemorySource(range(9)).pipe(operator).to(sink).start() as running:
            await asyncio.sleep(10)
            stage = running.statistics()["stages"][1]
            assert stage["in_flight"] == limit
            assert stage["undelivered"] <= window + (limit - 1 if ordered else 0)
            # One result with the sink, and one in the hand of each suspended iterator.
            assert produced <= 1 + stage["undelivered"] + limit
            before = produced
            sink.accept(5)
            await asyncio.sleep(10)
            assert produced == before + 5
            running.cancel()

    run(story())


def test_iterators_are_closed_on_cancel(run: Run) -> None:
    closed: list[int] = []

    async def endless(value: int) -> AsyncIterator[int]:
        try:
            while True:
                yield value
                if value % 2:
                    await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0)
            closed.append(value)

    async def story() -> None:
        source, sink = MemorySource(range(4)), MemorySink(hold=True)
        operator = adaptive_flat_map(endless, Fixed(4), window=2)
        running = source.pipe(operator).to(sink).start()
        await asyncio.sleep(1)
        running.cancel()
        await running.wait()
        assert sorted(closed) == [0, 1, 2, 3]
        assert sorted(source.returned) == [0, 1, 2, 3]

    run(story())


def test_an_iterator_that_fails_fails_its_event_and_keeps_what_it_gave(run: Run) -> None:
    async def two_and_no_more(value: int) -> AsyncIterator[int]:
        yield 1
        yield 2
        raise ValueError(value)

    source, sink = MemorySource([7]), MemorySink()
    with pytest.raises(ValueError, match="7"):
        run(source.pipe(adaptive_flat_map(two_and_no_more, Fixed(1))).to(sink).run())
    assert sink.values == [1, 2]
    assert source.failed == [7]


async def one_and_no_more(value: int) -> AsyncIterator[int]:
    yield value
    raise ValueError(value)


def test_an_event_that_fails_waits_for_the_results_that_it_gave_before(run: Run) -> None:
    async def story() -> None:
        source, probe = MemorySource([1]), Probe[int](request=9, hold=True)
        source.pipe(adaptive_flat_map(one_and_no_more, on_error="skip")).connect(probe)
        await asyncio.sleep(1)
        (result,) = probe.events
        assert source.unsettled == [1]
        result.finish()
        assert source.unsettled == []

    run(story())


@pytest.mark.parametrize("fails", [False, True])
def test_an_event_waits_for_the_results_of_earlier_attempts_however_these_end(
    run: Run, fails: bool
) -> None:
    attempts = 0

    async def second_time(value: int) -> AsyncIterator[int]:
        nonlocal attempts
        attempts += 1
        yield attempts
        if attempts == 1:
            raise ValueError(value)

    async def story() -> None:
        source, probe = MemorySource([7]), Probe[int](request=9, hold=True)
        work = adaptive_flat_map(second_time, on_error=retry(2, Backoff(0.1)))
        source.pipe(work).connect(probe)
        await asyncio.sleep(1)
        first, second = probe.events
        second.finish()
        assert source.acked == []
        if fails:
            first.fail(ValueError(), acknowledged=True)
        else:
            first.finish()
        assert source.acked == [7]

    run(story())


def test_results_carry_the_times_of_their_own(run: Run) -> None:
    async def slow(value: int) -> AsyncIterator[int]:
        for n in range(2):
            await asyncio.sleep(1)
            yield n

    async def story() -> None:
        source, probe = ManualPublisher[int](), Probe[int](request=9, hold=True)
        source.pipe(adaptive_flat_map(slow, Fixed(1))).connect(probe)
        source.send(7)
        source.complete()
        await asyncio.sleep(3)
        assert [(event.started, event.ended) for event in probe.events] == [(0, 1), (0, 2)]
        for event in probe.events:
            event.finish()

    run(story())


@pytest.mark.parametrize("ordered", [False, True])
def test_results_of_calls_in_flight_together_leave_together_when_they_are_given(
    run: Run, ordered: bool
) -> None:
    lists: list[tuple[float, list[int]]] = []

    class Lists(MemorySink):
        def open(self, run: Any, closed: Any) -> Any:
            stage = super().open(run, closed)
            accept = stage.on_events

            def on_events(events: Any) -> None:
                time = asyncio.get_running_loop().time()
                lists.append((time, [event.value for event in events]))
                accept(events)

            stage.on_events = on_events
            return stage

    async def given_and_waited(value: int) -> AsyncIterator[int]:
        await asyncio.sleep(1)
        yield value
        await asyncio.sleep(2)
        if value == 2:
            yield 20

    stage = adaptive_flat_map(given_and_waited, Fixed(3), ordered=ordered)
    run(from_iterable(range(3)).pipe(stage).to(Lists()).run())
    if ordered:
        given = [(time, value) for time, values in lists for value in values]
        assert given == [(1, 0), (3, 1), (3, 2), (3, 20)]
    else:
        assert lists == [(1, [0, 1, 2]), (3, [20])]


def test_an_event_ends_with_the_last_of_its_results_whichever_were_given_together(
    run: Run,
) -> None:
    async def twice(value: int) -> AsyncIterator[int]:
        yield value
        await asyncio.sleep(1)
        yield value + 10

    async def story() -> None:
        source, probe = MemorySource([1, 2]), Probe[int](request=9, hold=True)
        source.pipe(adaptive_flat_map(twice, Fixed(2))).connect(probe)
        await asyncio.sleep(2)
        assert [event.value for event in probe.events] == [1, 2, 11, 12]
        first, *rest = probe.events
        for event in rest:
            event.finish()
        assert source.acked == [2]
        first.fail(ValueError())
        assert source.failed == [1]

    run(story())


def test_a_call_that_lacked_room_goes_on_although_another_result_came_at_the_same_time(
    run: Run,
) -> None:
    async def story() -> None:
        given, never = asyncio.Event(), asyncio.Event()

        async def head_and_other(value: int) -> AsyncIterator[int]:
            if not value:
                for number in range(3):
                    yield number
            else:
                await given.wait()
                yield 10
            await never.wait()

        probe = Probe[int](request=1)
        stage = adaptive_flat_map(head_and_other, Fixed(2), ordered=True, window=1)
        from_iterable(range(2)).pipe(stage).connect(probe)
        await asyncio.sleep(1)
        assert probe.values == [0]
        given.set()
        probe.request(2)
        await asyncio.sleep(1)
        assert probe.values == [0, 1, 2]
        probe.cancel()

    run(story())
