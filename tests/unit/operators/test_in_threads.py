from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Fixed, adaptive_flat_map, in_threads, retry
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import MemorySink, MemorySource, VirtualTimeLoop


@pytest.fixture
def really(virtual_loop: VirtualTimeLoop) -> Callable[[Any], Any]:
    """Runs a coroutine while time stands still: threads take real time."""

    async def held(coroutine: Any) -> Any:
        with virtual_loop.hold():
            return await coroutine

    return lambda coroutine: virtual_loop.run_until_complete(held(coroutine))


def test_as_many_calls_as_threads_run_at_once(really: Callable[[Any], Any]) -> None:
    # No call passes before three are there.
    barrier = threading.Barrier(3, timeout=10)

    def meet(value: int) -> tuple[int, str]:
        barrier.wait()
        return value, threading.current_thread().name

    sink = MemorySink()
    flow = MemorySource(range(6)).pipe(adaptive_flat_map(in_threads(3)(meet), Fixed(9)))
    really(flow.to(sink).run())
    assert sorted(value for value, _ in sink.values) == list(range(6))
    assert len({name for _, name in sink.values}) == 3
    assert all(name.startswith("penstock") for _, name in sink.values)


def test_threads_end_with_the_running(really: Callable[[Any], Any]) -> None:
    before = threading.active_count()
    pipeline = MemorySource(range(4)).pipe(adaptive_flat_map(in_threads(2)(abs))).to(MemorySink())
    really(pipeline.run())
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("penstock")]
    assert len(names) >= before


def test_each_running_has_its_own_threads(really: Callable[[Any], Any]) -> None:
    pipeline = (
        MemorySource(range(4))
        .pipe(adaptive_flat_map(in_threads(2)(str), Fixed(2)))
        .to(MemorySink())
    )

    async def twice() -> None:
        await asyncio.gather(pipeline.run(), pipeline.run())
        await pipeline.run()

    really(twice())


def test_an_error_keeps_its_type_and_traceback(really: Callable[[Any], Any]) -> None:
    def fails(value: int) -> int:
        raise ValueError(value)

    flow = MemorySource([7]).pipe(adaptive_flat_map(in_threads(1)(fails), on_error=retry(1)))
    with pytest.raises(ValueError, match="7") as raised:
        really(flow.to(MemorySink()).run())
    assert "in fails" in "".join(str(entry) for entry in raised.traceback)
    assert raised.value.__notes__ == ["in stage 2 'adaptive_flat_map', on the event 7"]


def test_a_cancel_takes_back_calls_that_wait_for_a_thread(
    virtual_loop: VirtualTimeLoop,
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    called: list[int] = []

    def waits(value: int) -> None:
        called.append(value)
        begun.set()
        assert go_on.wait(10)

    async def story() -> None:
        source = MemorySource(range(9))
        flow = source.pipe(adaptive_flat_map(in_threads(1)(waits), Fixed(3)))
        running = flow.to(MemorySink()).start()
        with virtual_loop.hold():
            await asyncio.to_thread(begun.wait, 10)
            running.cancel()
            # A thread cannot be interrupted: its call ends when it does.
            virtual_loop.call_soon(go_on.set)
            await running.wait()
        assert called == [0]
        assert sorted(source.returned) == [0, 1, 2]

    virtual_loop.run_until_complete(story())


def test_an_error_after_the_call_was_given_up_is_not_left_unseen(
    virtual_loop: VirtualTimeLoop, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def fails_late(value: int) -> None:
        begun.set()
        assert go_on.wait(10)
        raise ValueError("late")

    async def story() -> None:
        flow = MemorySource([1]).pipe(adaptive_flat_map(in_threads(1)(fails_late), Fixed(1)))
        running = flow.to(MemorySink()).start()
        with virtual_loop.hold():
            await asyncio.to_thread(begun.wait, 10)
            running.cancel()
            virtual_loop.call_soon(go_on.set)
            assert (await running.wait()).outcome == "cancelled"

    virtual_loop.run_until_complete(story())
    assert "never retrieved" not in caplog.text


def test_a_wrapped_handler_can_be_called_by_itself(really: Callable[[Any], Any]) -> None:
    assert really(in_threads(1)(abs)(-3)) == 3


async def asynchronous(value: int) -> int:
    return value


@pytest.mark.parametrize("n", [0, -1, True])
def test_at_least_one_thread_is_needed(n: Any) -> None:
    with pytest.raises(BuildError, match="at least 1"):
        in_threads(n)


def test_asynchronous_handlers_need_no_threads() -> None:
    with pytest.raises(BuildError, match="'asynchronous' is asynchronous"):
        in_threads(1)(asynchronous)
