from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from penstock.streams.testing import Leaked, no_leaks, register, run_virtual


async def forever() -> None:
    await asyncio.Event().wait()


async def numbers() -> AsyncIterator[int]:
    yield 1
    yield 2


def test_a_block_that_cleans_up_passes() -> None:
    async def story() -> float:
        async with no_leaks():
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(1))
            asyncio.get_running_loop().call_later(9, print).cancel()
            exhausted = numbers()
            assert [number async for number in exhausted] == [1, 2]
            await asyncio.to_thread(int)
            thread = threading.Thread(target=int)
            thread.start()
            thread.join()
        return asyncio.get_running_loop().time()

    assert run_virtual(story()) == 1.0


def test_a_task_left_running_is_named_with_its_place() -> None:
    async def story() -> str:
        tasks: list[asyncio.Task[None]] = []
        with pytest.raises(Leaked) as caught:
            async with no_leaks():
                tasks.append(asyncio.create_task(forever(), name="forgotten"))
        tasks[0].cancel()
        return "\n".join(caught.value.left)

    report = run_virtual(story())
    assert report.startswith("task forgotten (forever) waits at ")
    assert report.endswith("in Event.wait")


def test_a_timer_left_set_is_named() -> None:
    async def story() -> list[str]:
        with pytest.raises(Leaked) as caught:
            async with no_leaks():
                asyncio.get_running_loop().call_later(9, print)
        return caught.value.left

    (timer,) = run_virtual(story())
    assert "when=9.0" in timer
    assert "print" in timer


def test_a_generator_left_open_is_named() -> None:
    async def story() -> list[str]:
        generator = numbers()
        with pytest.raises(Leaked) as caught:
            async with no_leaks():
                await anext(generator)
        await generator.aclose()  # type: ignore[attr-defined]
        return caught.value.left

    (generator,) = run_virtual(story())
    assert "numbers" in generator


def test_a_generator_dropped_on_the_way_is_closed_in_time() -> None:
    async def story() -> int:
        async with no_leaks():
            async for number in numbers():
                return number
        return 0

    assert run_virtual(story()) == 1


def test_a_thread_left_alive_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.streams.testing.leaks.THREAD_GRACE", 0.01)
    released = threading.Event()
    thread = threading.Thread(target=released.wait, name="busy")
    try:
        with pytest.raises(Leaked, match="busy"), no_leaks():
            thread.start()
    finally:
        released.set()
        thread.join()


def test_a_cancelled_task_gets_the_turns_it_needs_to_end() -> None:
    ended: list[float] = []

    async def slow_to_end() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            ended.append(asyncio.get_running_loop().time())

    async def story() -> None:
        async with no_leaks():
            task = asyncio.create_task(slow_to_end())
            await asyncio.sleep(0)
            task.cancel()

    run_virtual(story())
    assert ended == [0.0]


def test_what_existed_before_the_block_is_not_blamed_on_it() -> None:
    async def story() -> str:
        loop = asyncio.get_running_loop()
        task, timer = asyncio.create_task(forever()), loop.call_later(9, print)
        async with no_leaks():
            await asyncio.sleep(1)
        timer.cancel()
        task.cancel()
        return "clean"

    assert run_virtual(story()) == "clean"


def test_the_error_of_the_block_comes_before_its_leaks() -> None:
    async def story() -> None:
        async with no_leaks():
            asyncio.get_running_loop().call_later(9, print)
            raise KeyError("first")

    with pytest.raises(KeyError, match="first"):
        run_virtual(story())


def test_a_plain_with_checks_the_running_loop() -> None:
    async def story() -> None:
        with no_leaks():
            asyncio.get_running_loop().call_later(9, print)

    with pytest.raises(Leaked, match="timer"):
        run_virtual(story())


@pytest.mark.parametrize(("before", "after", "left"), [(2, 5, ["3 turns held"]), (5, 2, [])])
def test_a_registered_count_may_not_rise(before: int, after: int, left: list[str]) -> None:
    held = before
    unregister: Callable[[], None] = register("turns held", lambda: held)
    found: list[str] = []
    try:
        with no_leaks():
            held = after
    except Leaked as leaked:
        found = leaked.left
    finally:
        unregister()
    assert found == left


def test_a_count_taken_back_is_no_longer_looked_at() -> None:
    calls: list[str] = []

    def count() -> int:
        calls.append("asked")
        return len(calls)

    register("calls", count)()
    with no_leaks():
        pass
    assert calls == []
