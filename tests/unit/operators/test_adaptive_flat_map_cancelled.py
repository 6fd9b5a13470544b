"""Handlers that are cancelled, by the pipeline or from inside, and those that end the process."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import pytest

from penstock import Backoff, Fixed, Running, adaptive_flat_map, from_iterable, retry
from penstock.streams.base.errors import HandlerCancelled
from penstock.streams.protocol.event import Ending, Event
from penstock.streams.testing import MemorySink, MemorySource, Probe
from penstock.streams.testing.ledger import Ledger
from penstock.streams.testing.plugin import Run
from tests.helpers.failing import BOTH, fails_inline
from tests.helpers.reactive_streams.between import counted


@BOTH
@pytest.mark.parametrize("policy", ["stop", "skip", retry(3)])
def test_a_base_exception_stops_whatever_the_policy(run: Run, make: Any, policy: Any) -> None:
    class Fatal(BaseException):
        pass

    source = MemorySource(range(9))
    operator = adaptive_flat_map(make({2}, Fatal), Fixed(2), on_error=policy)
    with pytest.raises(Fatal):
        run(source.pipe(operator).to(MemorySink()).run())
    assert source.failed == [2]
    assert source.unsettled == []


@pytest.mark.parametrize("leave", [KeyboardInterrupt, SystemExit])
@BOTH
def test_leaving_the_process_gives_back_what_was_at_work(
    virtual_loop: asyncio.AbstractEventLoop, make: Any, leave: Any
) -> None:
    source = MemorySource(range(9))
    started: list[Running] = []

    async def story() -> None:
        operator = adaptive_flat_map(make({5}, leave), Fixed(2), on_error="skip")
        started.append(source.pipe(operator).to(MemorySink()).start())
        await started[0].wait()

    task = virtual_loop.create_task(story())
    with pytest.raises(leave):
        virtual_loop.run_until_complete(task)
    virtual_loop.call_soon(started[0].cancel)
    with suppress(leave):
        virtual_loop.run_until_complete(task)
    assert source.unsettled == []
    assert 5 in source.returned
    assert source.failed == []


@pytest.mark.parametrize("kind", ["async", "plain", "later"])
@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_a_handler_that_is_cancelled_from_inside_has_failed(
    run: Run, kind: str, policy: Any
) -> None:
    async def inside(value: int) -> int:
        if value == 2:
            task = asyncio.ensure_future(asyncio.sleep(10))
            asyncio.get_running_loop().call_later(1, task.cancel)
            await task
        return value

    def plain(value: int) -> int:
        if value == 2:
            raise asyncio.CancelledError
        return value

    handler: Any = {"async": inside, "plain": plain, "later": lambda value: inside(value)}[kind]
    source, sink = MemorySource(range(5)), MemorySink()
    pipeline = source.pipe(adaptive_flat_map(handler, Fixed(1), on_error=policy)).to(sink)
    if policy == "skip":
        assert run(pipeline.run()).statistics["failed"] == 1
        assert sink.values == [0, 1, 3, 4]
    else:
        with pytest.raises(HandlerCancelled, match="was cancelled from inside") as raised:
            run(pipeline.run())
        assert isinstance(raised.value.__cause__, asyncio.CancelledError)
        assert source.failed == [2]


@pytest.mark.parametrize("policy", ["stop", "skip", retry(2)])
def test_a_handler_that_cancels_its_own_task_ends_the_pipeline_and_loses_nothing(
    run: Run, policy: Any
) -> None:
    async def handler(value: int) -> int:
        if value == 2:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)
        return value

    source = MemorySource(range(5))
    operator = adaptive_flat_map(handler, Fixed(1), on_error=policy)
    with pytest.raises(HandlerCancelled, match=r"^the task that calls 'handler' was cancelled"):
        run(source.pipe(operator).to(MemorySink()).run())
    assert (source.acked, source.returned) == ([0, 1], [2])


def test_a_pipeline_whose_loop_ends_before_it_says_what_to_await(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def slow(value: int) -> None:
        await asyncio.sleep(5)

    async def starts_and_forgets() -> None:
        from_iterable([1]).pipe(adaptive_flat_map(slow)).to(MemorySink()).start()
        await asyncio.sleep(0.02)

    asyncio.run(starts_and_forgets())
    (message,) = [record.getMessage() for record in caplog.records]
    assert "the task that calls 'slow' was cancelled, and not by the pipeline" in message
    assert "await running.wait()" in message


def test_an_error_in_the_clean_up_after_a_cancel_is_reported_and_changes_nothing(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(value: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            raise OSError(f"clean-up {value}")

    async def story() -> None:
        source = MemorySource(range(3))
        running = source.pipe(adaptive_flat_map(handler, Fixed(2))).to(MemorySink()).start()
        await asyncio.sleep(1)
        running.cancel()
        report = await running.wait()
        assert (report.outcome, report.error) == ("cancelled", None)
        assert sorted(source.returned) == [0, 1]

    run(story())
    assert ["clean-up" in record.getMessage() for record in caplog.records] == [True, True]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_the_clean_up_of_a_cancelled_call_may_take_a_moment(run: Run) -> None:
    cleaned: list[int] = []

    async def handler(value: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(3)
            cleaned.append(value)

    async def story() -> float:
        running = (
            MemorySource(range(3)).pipe(adaptive_flat_map(handler, Fixed(2))).to(MemorySink())
        ).start()
        await asyncio.sleep(1)
        running.cancel()
        await running.wait()
        return asyncio.get_running_loop().time()

    assert run(story()) == 4
    assert sorted(cleaned) == [0, 1]


def test_without_a_loop_a_cancelled_plain_handler_has_failed() -> None:
    probe = Probe[int](request=9)
    handler = fails_inline({2}, asyncio.CancelledError)
    from_iterable([1, 2, 3]).pipe(adaptive_flat_map(handler)).connect(probe)
    assert isinstance(probe.error, HandlerCancelled)


def test_a_cancelled_stage_keeps_back_what_waited_behind_an_event_to_be_tried_again(
    run: Run,
) -> None:
    wrong: list[str] = []

    async def handler(value: int) -> int:
        if value == 0:
            raise ValueError
        return value

    async def story() -> None:
        operator = adaptive_flat_map(handler, Fixed(4), ordered=True, on_error=retry(2, Backoff(9)))
        stream = counted(MemorySource(range(3)).pipe(operator), wrong.append)
        running = stream.to(MemorySink()).start()
        await asyncio.sleep(1)
        running.cancel()
        await running.wait()

    run(story())
    assert wrong == []


def test_a_plain_call_that_cancels_its_pipeline_brings_no_result(run: Run) -> None:
    wrong: list[str] = []

    async def story() -> None:
        stream = MemorySource(range(3)).pipe(adaptive_flat_map(lambda _: running.cancel()))
        running = counted(stream, wrong.append).to(MemorySink()).start()
        await running.wait()

    run(story())
    assert wrong == []


def test_an_iterator_that_cancels_its_pipeline_leaves_no_result(run: Run) -> None:
    async def handler(value: int) -> Any:
        running.cancel()
        yield value

    async def story() -> None:
        nonlocal running
        source = MemorySource(range(3))
        running = source.pipe(adaptive_flat_map(handler)).to(MemorySink()).start()
        report = await running.wait()
        assert source.returned == [0]
        assert [stage.get("undelivered", 0) for stage in report.statistics["stages"]] == [0, 0, 0]

    running: Any = None
    run(story())


def test_an_iterator_that_cancels_behind_another_one_in_order_returns_its_event(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(value: int) -> Any:
        if value == 1:
            running.cancel()
        else:
            await asyncio.sleep(1)
        yield value

    async def story() -> None:
        nonlocal running
        source = MemorySource(range(2))
        operator = adaptive_flat_map(handler, Fixed(2), ordered=True)
        running = source.pipe(operator).to(MemorySink()).start()
        await running.wait()
        assert sorted(source.returned) == [0, 1]
        assert caplog.messages == []

    running: Any = None
    run(story())


@pytest.mark.parametrize("ordered", [False, True])
def test_results_behind_a_call_whose_end_cancels_are_returned(run: Run, ordered: bool) -> None:
    async def handler(value: int) -> Any:
        # All end in one iteration of the loop.
        await asyncio.sleep(1)
        return numbers(0) if value == 0 else value

    async def numbers(n: int) -> Any:
        for number in range(n):
            yield number

    class Cancelling(Ledger):
        """Of a source that cancels when its first event has ended."""

        def end(self, events: list[Event[Any]], ending: Ending) -> list[Any]:
            values = super().end(events, ending)
            running.cancel()
            return values

    async def story() -> None:
        nonlocal running
        source, sink = MemorySource(range(3)), MemorySink()
        source.ledger = Cancelling()
        operator = adaptive_flat_map(handler, Fixed(3), ordered=ordered)
        running = source.pipe(operator).to(sink).start()
        report = await running.wait()
        assert (source.acked, source.returned, source.unsettled) == ([0], [1, 2], [])
        assert [stage.get("undelivered", 0) for stage in report.statistics["stages"]] == [0, 0, 0]
        assert sink.values == []

    running: Any = None
    run(story())


def test_a_plain_call_that_is_cancelled_inside_of_a_cancel_cancels_nobody_else(run: Run) -> None:
    def handler(value: int) -> None:
        running.cancel()
        raise asyncio.CancelledError

    async def story() -> list[int]:
        nonlocal running
        source = MemorySource(range(3))
        running = source.pipe(adaptive_flat_map(handler)).to(MemorySink()).start()
        running.pause()
        await asyncio.sleep(1)
        running.resume()
        await running.wait()
        return source.returned

    running: Any = None
    assert run(story()) == [0]
