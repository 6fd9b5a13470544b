from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Event,
    Flowable,
    adaptive_flat_map,
    dead_letters,
    from_async_iterable,
    from_iterable,
    in_threads,
    route,
)
from penstock.streams.base.errors import HandlerCancelled
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run as StreamRun
from penstock.streams.testing import MemorySource, Probe
from penstock.streams.testing.plugin import Run


def fails(value: int) -> int:
    raise ValueError(f"no {value}")


def opened(closed: list[str]) -> Flowable[int]:
    """A stream that opens something which takes a while to close."""
    numbers = from_iterable(range(10))

    def attach(downstream: Any, run: StreamRun) -> None:
        async def close() -> None:
            await asyncio.sleep(1)
            closed.append("closed")

        run.on_close(close)
        numbers.attach(downstream, run)

    return Flowable(attach, StageInfo("opened"), numbers)


def cancels(probe: Probe[int], event: Event[int]) -> None:
    probe.cancel()
    probe.cancel()


def raises(probe: Probe[int], event: Event[int]) -> None:
    raise RuntimeError("the subscriber is broken")


@pytest.mark.parametrize("on_event", [None, cancels, raises], ids=["end", "cancel", "raise"])
def test_what_was_opened_is_closed_when_a_subscriber_is_done(
    run: Run, on_event: Callable[[Probe[int], Event[int]], None] | None
) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: told.append(context))
        opened(closed).connect(Probe[int](request=10, on_event=on_event))
        await asyncio.sleep(2)

    closed: list[str] = []
    told: list[Any] = []
    run(story())
    assert closed == ["closed"]
    assert len(told) == (on_event is raises)


def test_what_was_opened_stays_open_until_the_end(run: Run) -> None:
    async def story() -> None:
        probe = Probe[int](request=9)
        opened(closed).connect(probe)
        await asyncio.sleep(60)
        assert (closed, len(probe.values)) == ([], 9)
        probe.request(1)
        await asyncio.sleep(60)
        assert closed == ["closed"]

    closed: list[str] = []
    run(story())


def test_what_was_opened_is_closed_when_the_loop_ends_meanwhile() -> None:
    async def lingers() -> None:
        try:
            await asyncio.Future[None]()
        finally:
            closed.append("task")

    numbers = from_iterable(range(10))

    def attach(downstream: Any, run: StreamRun) -> None:
        async def close(name: str) -> None:
            await asyncio.sleep(0)
            closed.append(name)

        run.spawn(lingers(), "lingers")
        run.on_close(partial(close, "first"))
        run.on_close(partial(close, "second"))
        numbers.attach(downstream, run)

    async def story() -> None:
        probe = Probe[int]()
        Flowable[int](attach, StageInfo("opened"), numbers).connect(probe)
        await asyncio.sleep(0)
        probe.request(10)
        await asyncio.sleep(0)  # The closing has begun.

    closed: list[str] = []
    asyncio.run(story())
    assert closed == ["task", "second", "first"]


def test_who_gives_a_run_closes_it(run: Run) -> None:
    async def story() -> None:
        from penstock.streams.boundary.strict_subscriber import connect

        own = StreamRun()
        connect(opened(closed), Probe[int](request=10), own)
        await asyncio.sleep(60)
        assert closed == []
        await own.close()
        assert closed == ["closed"]

    closed: list[str] = []
    run(story())


def test_an_error_while_closing_reaches_the_loops_exception_handler(run: Run) -> None:
    numbers = from_iterable(range(3))

    def attach(downstream: Any, run: StreamRun) -> None:
        async def close() -> None:
            raise OSError("the disk is gone")

        run.on_close(close)
        numbers.attach(downstream, run)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: told.append(context["exception"]))
        Flowable[int](attach, StageInfo("opened"), numbers).connect(Probe[int](request=10))
        await asyncio.sleep(1)

    told: list[Any] = []
    run(story())
    assert [str(error) for error in told] == ["the disk is gone"]


def test_threads_end_with_the_stream(run: Run) -> None:
    def double(value: int) -> int:
        return value * 2

    async def story() -> list[int]:
        got = asyncio.Semaphore(0)

        def release(probe: Probe[int], event: Event[int]) -> None:
            got.release()

        probe = Probe[int](request=100, on_event=release)
        from_iterable([1, 2]).pipe(adaptive_flat_map(in_threads(2)(double))).connect(probe)
        await got.acquire()
        await got.acquire()
        await asyncio.sleep(1)
        return probe.values

    assert sorted(run(story())) == [2, 4]


@pytest.mark.parametrize("leave", [False, True])
def test_dead_letters_are_out_and_their_file_closed_after_the_end(
    run: Run, tmp_path: Path, leave: bool
) -> None:
    async def story() -> None:
        probe = Probe[int](request=100)
        stream = from_iterable([1, 2]).pipe(
            adaptive_flat_map(fails, on_error=route(dead_letters(tmp_path / "dead.jsonl")))
        )
        stream.connect(probe)
        if leave:
            probe.cancel()
        await asyncio.sleep(10)

    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    run(story())
    assert len((tmp_path / "dead.jsonl").read_bytes().splitlines()) == 2
    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before


def test_a_generator_that_is_left_during_its_own_call_may_clean_up_in_peace(run: Run) -> None:
    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(10):
                yield number
                await asyncio.sleep(1)
        finally:
            await asyncio.sleep(1)
            cleaned.append("clean")

    async def story() -> None:
        from_async_iterable(numbers).connect(Probe[int](request=10, on_event=cancels))
        await asyncio.sleep(5)

    cleaned: list[str] = []
    run(story())
    assert cleaned == ["clean"]


@pytest.mark.parametrize("after_work", [True, False])
def test_a_subscriber_that_raises_a_cancellation_fails_its_event_as_with_any_error(
    run: Run, after_work: bool
) -> None:
    async def story() -> None:
        async def works(value: int) -> int:
            return value

        def cancelled(value: int) -> None:
            if value == 2:
                raise asyncio.CancelledError

        reported: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        source = MemorySource(range(4))
        stream = source.pipe(adaptive_flat_map(works)) if after_work else source
        stream.subscribe(cancelled)
        await asyncio.sleep(1)
        assert [type(error) for error in reported] == [HandlerCancelled]
        assert (source.failed, source.unsettled) == ([2], [])

    run(story())


class Broken:
    """A subscription that can neither be requested from nor cancelled."""

    def request(self, n: int, /) -> None:
        raise RecursionError("request")

    def cancel(self) -> None:
        raise RecursionError("cancel")


def test_the_error_of_a_request_reaches_the_reader_though_the_cancel_fails_too(run: Run) -> None:
    def attach(downstream: Subscriber[Any], run: StreamRun) -> None:
        downstream.on_subscribe(Broken())

    reported: list[str] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
        with pytest.raises(RecursionError, match="request"):
            await Flowable(attach, StageInfo("broken")).to_list()

    run(story())
    assert reported == ["cancel"]
