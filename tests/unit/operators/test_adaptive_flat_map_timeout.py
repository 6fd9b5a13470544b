from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from penstock import Fixed, adaptive_flat_map, from_iterable, group_by, in_threads, retry, spread
from penstock.streams.base.errors import HandlerTimeout
from penstock.streams.limits import Outcome
from penstock.streams.testing import MemorySink, MemorySource, Probe, VirtualTimeLoop
from penstock.streams.testing.plugin import Run


async def sleeps(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


async def stubborn(seconds: float) -> float:
    """Does not let itself be cancelled."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left := until - loop.time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(left)
    return seconds


def test_a_call_past_its_timeout_is_cancelled_and_fails(run: Run) -> None:
    source, sink = MemorySource([1, 5, 1]), MemorySink()
    operator = adaptive_flat_map(sleeps, Fixed(1), timeout=2, on_error="skip")
    report = run(source.pipe(operator).to(sink).run())
    assert sink.accepted == [(1, 1), (4, 1)]
    assert report.statistics["failed"] == 1


def test_the_error_names_the_handler_its_time_and_the_event(run: Run) -> None:
    operator = adaptive_flat_map(sleeps, Fixed(1), timeout=2.5)
    with pytest.raises(HandlerTimeout, match=r"'sleeps' did not end within 2\.5 s") as raised:
        run(MemorySource([5]).pipe(operator).to(MemorySink()).run())
    assert isinstance(raised.value, TimeoutError)
    assert raised.value.__notes__ == ["in stage 2 'adaptive_flat_map', on the event 5"]


def test_each_attempt_has_its_own_timeout(run: Run) -> None:
    seconds = iter([5, 1])

    async def handler(value: int) -> int:
        await asyncio.sleep(next(seconds))
        return value

    sink = MemorySink()
    operator = adaptive_flat_map(handler, Fixed(1), timeout=2, on_error=retry(2))
    run(MemorySource([7]).pipe(operator).to(sink).run())
    assert sink.values == [7]


def test_slot_and_turn_are_kept_until_the_call_has_really_ended(run: Run) -> None:
    sink = MemorySink()

    async def story() -> None:
        flow = MemorySource([(1, 10), (1, 0), (2, 0), (3, 0)]).pipe(
            group_by(0),
            spread(),
            adaptive_flat_map(
                lambda_of(stubborn), Fixed(2), timeout=2, on_error="skip", ordered=False
            ),
        )
        async with flow.to(sink).start() as running:
            await asyncio.sleep(1)
            assert running.statistics()["stages"][-2]["stuck"] == 0
            await asyncio.sleep(2)
            stage = running.statistics()["stages"][-2]
            assert (stage["stuck"], stage["in_flight"]) == (1, 1)
        assert running.statistics()["failed"] == 1

    run(story())
    # The second event of the group waited for the stuck one.
    assert sink.accepted == [(0, 2), (0, 3), (10, 1)]


def lambda_of(handler: Any) -> Any:
    async def first_of(event: tuple[int, float]) -> int:
        await handler(event[1])
        return event[0]

    return first_of


def test_a_late_result_does_not_count(run: Run) -> None:
    source, sink = MemorySource([3]), MemorySink()
    operator = adaptive_flat_map(stubborn, Fixed(1), timeout=2)
    with pytest.raises(HandlerTimeout):
        run(source.pipe(operator).to(sink).run())
    assert sink.values == []
    assert source.failed == [3]


def test_an_error_in_a_late_calls_clean_up_is_the_cause(run: Run) -> None:
    async def handler(value: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            raise OSError("clean-up")

    operator = adaptive_flat_map(handler, Fixed(1), timeout=2)
    with pytest.raises(HandlerTimeout) as raised:
        run(MemorySource([3]).pipe(operator).to(MemorySink()).run())
    assert str(raised.value.__cause__) == "clean-up"


def test_the_handlers_own_timeout_error_stays_what_it_is(run: Run) -> None:
    async def handler(value: int) -> None:
        raise TimeoutError("of its own")

    operator = adaptive_flat_map(handler, Fixed(1), timeout=2)
    with pytest.raises(TimeoutError, match="of its own") as raised:
        run(MemorySource([3]).pipe(operator).to(MemorySink()).run())
    assert not isinstance(raised.value, HandlerTimeout)


def test_the_limiter_gets_a_dropped_call(run: Run) -> None:
    told: list[tuple[float, Outcome]] = []

    class Listening:
        limit = 1

        def on_complete(self, now: float, started: float, in_flight: int, outcome: Outcome) -> None:
            told.append((now, outcome))

    operator = adaptive_flat_map(sleeps, Listening(), timeout=2, on_error="skip")
    run(MemorySource([5, 1]).pipe(operator).to(MemorySink()).run())
    assert told == [(2, Outcome.DROPPED), (3, Outcome.SUCCESS)]


def test_a_cancel_is_not_a_timeout(run: Run) -> None:
    async def story() -> None:
        source = MemorySource([5])
        operator = adaptive_flat_map(sleeps, Fixed(1), timeout=2)
        running = source.pipe(operator).to(MemorySink()).start()
        await asyncio.sleep(1)
        running.cancel()
        assert (await running.wait()).outcome == "cancelled"
        assert source.returned == [5]

    run(story())


def test_the_time_for_which_an_iterator_is_suspended_does_not_count(run: Run) -> None:
    async def three(value: int) -> Any:
        for n in range(3):
            await asyncio.sleep(0.5)
            yield n

    sink = MemorySink(seconds=10)
    operator = adaptive_flat_map(three, Fixed(1), timeout=2, window=1)
    run(MemorySource([0, 1]).pipe(operator).to(sink).run())
    assert sink.values == [0, 1, 2, 0, 1, 2]


def test_a_slow_iterator_fails_after_its_own_time(run: Run) -> None:
    closed: list[float] = []

    async def slow(value: int) -> Any:
        try:
            for n in range(9):
                await asyncio.sleep(0.75)
                yield n
        finally:
            closed.append(asyncio.get_running_loop().time())

    source, sink = MemorySource([0]), MemorySink()
    operator = adaptive_flat_map(slow, Fixed(1), timeout=2)
    with pytest.raises(HandlerTimeout):
        run(source.pipe(operator).to(sink).run())
    assert sink.accepted == [(0.75, 0), (1.5, 1)]
    assert closed == [2]
    assert source.failed == [0]


def test_a_thread_past_its_timeout_keeps_its_slot_until_it_ends(
    virtual_loop: VirtualTimeLoop,
) -> None:
    ended = threading.Event()
    started: list[float] = []

    def handler(value: int) -> int:
        started.append(virtual_loop.time())
        if value == 0:
            assert ended.wait(10)
        return value

    async def story() -> None:
        source, sink = MemorySource([0, 1]), MemorySink()
        operator = adaptive_flat_map(in_threads(1)(handler), Fixed(1), timeout=2, on_error="skip")
        async with source.pipe(operator).to(sink).start() as running:
            await asyncio.sleep(5)
            assert running.statistics()["stages"][1]["stuck"] == 1
            with virtual_loop.hold():
                ended.set()
                await running.wait()
        assert sink.values == [1]
        assert started == [0, 5]
        assert running.statistics()["failed"] == 1

    virtual_loop.run_until_complete(story())


def test_a_stubborn_call_does_not_keep_a_cancelled_pipeline_for_ever(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> float:
        source = MemorySource([60])
        running = source.pipe(adaptive_flat_map(stubborn, Fixed(1))).to(MemorySink()).start()
        await asyncio.sleep(1)
        running.cancel()
        assert (await running.wait()).outcome == "cancelled"
        ended = asyncio.get_running_loop().time()
        await asyncio.sleep(100)
        assert source.returned == [60]
        return ended

    assert run(story()) == 11
    assert "left behind, because it does not end when cancelled" in caplog.text
    assert "adaptive_flat_map stubborn" in caplog.text


def test_a_call_that_has_waited_for_room_does_not_put_off_the_timeout_of_another(run: Run) -> None:
    ended: list[float] = []

    async def work(value: int) -> AsyncIterator[int]:
        if not value:
            for number in range(3):
                yield number
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(asyncio.get_running_loop().time())

    async def story() -> None:
        probe = Probe[int](request=1)
        stage = adaptive_flat_map(work, Fixed(2), timeout=10, on_error="skip", window=1)
        from_iterable(range(2)).pipe(stage).connect(probe)
        await asyncio.sleep(5)
        # The first call has 10 s left from now on, the second one 5.
        probe.request(5)
        await asyncio.sleep(20)
        assert ended == [10, 15]
        assert probe.completed

    run(story())
