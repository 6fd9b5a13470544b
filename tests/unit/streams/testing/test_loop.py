from __future__ import annotations

import asyncio
import logging
import math
import socket
import sys
import threading
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.testing import Stalled, VirtualTimeLoop, run_virtual

seconds = st.floats(0, 1e5, allow_nan=False)


def now() -> float:
    return asyncio.get_running_loop().time()


def virtual() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def test_a_sleep_ends_exactly_when_its_time_is_up() -> None:
    async def story() -> list[float]:
        times = [now()]
        for pause in (0.5, 3600.0, 0.25):
            await asyncio.sleep(pause)
            times.append(now())
        return times

    assert run_virtual(story()) == [0.0, 0.5, 3600.5, 3600.75]


def test_ten_sleeps_of_a_tenth_make_a_second() -> None:
    async def story() -> float:
        for _ in range(10):
            await asyncio.sleep(0.1)
        return now()

    assert run_virtual(story()) == pytest.approx(1.0, abs=1e-9)


@given(st.lists(seconds))
def test_a_timer_sees_the_very_time_it_was_set_for(times: list[float]) -> None:
    async def story() -> list[float]:
        seen: list[float] = []
        for when in times:
            asyncio.get_running_loop().call_at(when, lambda: seen.append(now()))
        await asyncio.sleep(2e5)
        return seen

    assert run_virtual(story()) == sorted(times)


def test_timers_stay_exact_when_the_clock_reads_a_date_in_microseconds() -> None:
    async def story() -> float:
        virtual().advance(1e15)
        await asyncio.sleep(0.125)
        return now()

    assert run_virtual(story(), horizon=math.inf) == 1e15 + 0.125


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0])))
def test_timers_of_the_same_time_run_in_the_order_they_were_set(times: list[float]) -> None:
    async def story() -> list[int]:
        seen: list[int] = []
        for number, when in enumerate(times):
            asyncio.get_running_loop().call_later(when, seen.append, number)
        await asyncio.sleep(3)
        return seen

    assert run_virtual(story()) == sorted(range(len(times)), key=times.__getitem__)


@given(st.lists(st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), max_size=5), max_size=8))
def test_the_same_program_gives_the_same_times_in_the_same_order(plan: list[list[float]]) -> None:
    async def story() -> list[tuple[float, int]]:
        seen: list[tuple[float, int]] = []

        async def worker(number: int) -> None:
            for pause in plan[number]:
                await asyncio.sleep(pause)
                seen.append((now(), number))

        await asyncio.gather(*(worker(number) for number in range(len(plan))))
        return seen

    first = run_virtual(story())
    assert first == run_virtual(story())
    assert [time for time, _ in first] == sorted(time for time, _ in first)
    assert len(first) == sum(map(len, plan))


@given(st.lists(st.tuples(seconds, st.booleans())))
def test_a_cancelled_timer_neither_runs_nor_moves_time(timers: list[tuple[float, bool]]) -> None:
    seen: list[float] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        for when, keep in timers:
            timer = loop.call_at(when, seen.append, when)
            if not keep:
                timer.cancel()
        await asyncio.Event().wait()

    with pytest.raises(Stalled) as caught:
        run_virtual(story(), stall=0.0001)
    kept = sorted(when for when, keep in timers if keep)
    assert seen == kept
    assert caught.value.time == max(kept, default=0.0)


def test_a_handler_that_advances_time_makes_the_timers_it_passed_late() -> None:
    async def story() -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []
        loop = virtual()
        loop.call_at(2, lambda: seen.append(("second", now())))
        loop.call_at(1, lambda: seen.append(("first", now())))
        loop.advance(5)
        seen.append(("handler", now()))
        await asyncio.sleep(0)
        return seen

    assert run_virtual(story()) == [("handler", 5), ("first", 5), ("second", 5)]


def test_a_timer_that_is_late_does_not_move_time_back() -> None:
    async def story() -> list[float]:
        loop, seen = virtual(), list[float]()
        loop.call_at(1.5, lambda: seen.append(now()))
        await asyncio.sleep(1)
        loop.advance(2)
        await asyncio.sleep(1)
        return [*seen, now()]

    assert run_virtual(story()) == [3, 4]


def test_timers_that_were_cancelled_take_no_memory_until_their_time() -> None:
    async def story() -> int:
        loop = virtual()
        kept = [loop.call_later(9, int) for _ in range(50)]
        for _ in range(10_000):
            loop.call_later(9, int).cancel()
        assert sorted(map(id, loop.timers)) == sorted(map(id, kept))
        return sys.getsizeof(vars(loop)["_timers"])

    assert run_virtual(story()) < 10_000


def test_the_timers_that_are_left_when_most_were_cancelled_run_once_each() -> None:
    loop = VirtualTimeLoop()
    ran: list[int] = []
    timers = [loop.call_at(n, ran.append, n) for n in range(400)]

    def cancel() -> None:
        for timer in timers[:300]:
            timer.cancel()

    loop.call_soon(cancel)
    loop.call_at(1000, loop.stop)
    loop.run_forever()
    loop.close()
    assert ran == list(range(300, 400))


def test_a_loop_that_is_stopped_runs_no_later_timer_until_it_runs_again() -> None:
    loop = VirtualTimeLoop()
    ran: list[int] = []
    for at in (1, 2, 3):
        loop.call_at(at, ran.append, at)
    loop.call_at(1, loop.stop)
    loop.run_forever()
    assert (ran, loop.time()) == ([1], 1)
    loop.stop()
    loop.run_forever()
    assert (ran, loop.time()) == ([1], 1)
    loop.call_at(3, loop.stop)
    loop.run_forever()
    loop.close()
    assert ran == [1, 2, 3]


def test_asyncio_in_debug_mode_warns_of_a_handler_that_advanced_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        asyncio.get_running_loop().set_debug(True)
        await asyncio.sleep(0)
        virtual().advance(7)
        await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING, "asyncio"):
        run_virtual(story())
    assert "took 7.000 seconds" in caplog.text


def test_a_loop_that_others_starve_reports_how_long_it_was_kept_from_running() -> None:
    async def story() -> tuple[float, float]:
        virtual().advance(7)
        virtual().starve(2)
        virtual().starve(3)
        return now(), virtual().queued(threading.get_native_id())

    assert run_virtual(story()) == (12, 5)


@pytest.mark.parametrize("wrong", [-1, math.inf, math.nan])
def test_time_never_moves_backward_nor_to_no_number(wrong: float) -> None:
    async def story() -> None:
        virtual().advance(wrong)

    with pytest.raises(ValueError, match="moves forward"):
        run_virtual(story())


def test_a_timer_without_a_time_is_refused() -> None:
    async def story() -> None:
        asyncio.get_running_loop().call_at(math.nan, print)

    with pytest.raises(ValueError, match="nan"):
        run_virtual(story())


@pytest.mark.parametrize("wrong", [{"stall": 0.0}, {"stall": math.inf}, {"horizon": 0.0}])
def test_bounds_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        VirtualTimeLoop(**wrong)


def keep_waking(loop: VirtualTimeLoop) -> None:
    """Wake the loop from a thread, again and again: each time it might jump."""

    async def turn() -> None: ...

    for _ in range(20):
        asyncio.run_coroutine_threadsafe(turn(), loop).result()


def test_time_stands_still_while_a_thread_works() -> None:
    async def story() -> float:
        timer = virtual().call_later(1, int)
        await asyncio.to_thread(keep_waking, virtual())
        timer.cancel()
        return now()

    assert run_virtual(story()) == 0.0


def test_a_job_in_a_thread_may_claim_to_take_time() -> None:
    async def story() -> float:
        loop = virtual()
        released = threading.Event()

        def job() -> None:
            loop.call_soon_threadsafe(loop.advance, 5)
            released.wait(10)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(job), 3)
        released.set()
        return now()

    assert run_virtual(story()) == 5.0


def test_time_goes_on_once_a_job_is_done() -> None:
    async def story() -> float:
        await asyncio.to_thread(int)
        await asyncio.sleep(60)
        return now()

    assert run_virtual(story()) == 60.0


def test_time_stands_still_inside_a_hold() -> None:
    async def story() -> float:
        done = asyncio.Event()
        loop = virtual()

        def work() -> None:
            keep_waking(loop)
            loop.call_soon_threadsafe(done.set)

        thread = threading.Thread(target=work)
        with loop.hold():
            thread.start()
            await asyncio.wait_for(done.wait(), 1)
        thread.join()
        return now()

    assert run_virtual(story()) == 0.0


def test_input_from_a_socket_comes_before_the_next_timer() -> None:
    async def story() -> tuple[bytes, float]:
        here, there = socket.socketpair()
        with here, there:
            reader, writer = await asyncio.open_connection(sock=here)
            # Sent once the loop has nothing else to do.
            asyncio.get_running_loop().call_soon(there.sendall, b"line\n")
            line = await asyncio.wait_for(reader.readline(), 1)
            writer.close()
            await writer.wait_closed()
        return line, now()

    assert run_virtual(story()) == (b"line\n", 0.0)


if sys.platform != "win32":  # where a selector loop has no child processes

    def test_a_child_process_is_waited_for() -> None:
        # May take over 50 ms, as a process starts: that its pipes work is what is promised.
        async def story() -> tuple[bytes, float]:
            child = await asyncio.create_subprocess_exec("echo", "hello", stdout=-1)
            output, _ = await child.communicate()
            return output, now()

        assert run_virtual(story()) == (b"hello\n", 0.0)


def test_a_deadlock_is_reported_with_every_task_and_its_place() -> None:
    async def lines() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    async def feed() -> None:
        async for _ in lines():
            pass

    async def story() -> None:
        await asyncio.sleep(3)
        feeding = asyncio.create_task(feed(), name="feeder")
        await asyncio.gather(feeding)

    with pytest.raises(Stalled) as caught:
        run_virtual(story(), stall=0.01)
    assert caught.value.time == 3.0
    assert len(caught.value.waiting) == 2
    assert "in Event.wait" in str(caught.value)
    assert "feeder (" in str(caught.value)


def test_a_job_that_hangs_is_reported_instead_of_waited_for() -> None:
    released = threading.Event()

    async def story() -> None:
        async with asyncio.timeout(5):
            await asyncio.to_thread(released.wait, 10)

    try:
        with pytest.raises(Stalled, match="1 jobs in executors") as caught:
            run_virtual(story(), stall=0.01)
        # Shutting the executor down would stall a second time.
        assert caught.value.__context__ is None
    finally:
        released.set()


def test_a_timer_at_infinity_is_not_a_timer() -> None:
    with pytest.raises(Stalled, match="no timer"):
        run_virtual(asyncio.sleep(math.inf), stall=0.01)


def test_a_periodic_timer_cannot_hide_a_deadlock() -> None:
    async def story() -> None:
        def tick() -> None:
            asyncio.get_running_loop().call_later(1, tick)

        tick()
        await asyncio.Event().wait()

    with pytest.raises(Stalled, match="beyond the horizon") as caught:
        run_virtual(story(), horizon=100)
    assert caught.value.time == 100


def test_what_is_left_at_the_end_is_cancelled_and_closed() -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("task")

    async def story() -> VirtualTimeLoop:
        kept.append(asyncio.create_task(forever()))
        await asyncio.sleep(1)
        return virtual()

    kept: list[asyncio.Task[None]] = []
    assert run_virtual(story()).is_closed()
    assert ended == ["task"]


def test_a_closed_loop_takes_no_timer() -> None:
    async def story() -> VirtualTimeLoop:
        return virtual()

    with pytest.raises(RuntimeError, match="closed"):
        run_virtual(story()).call_later(1, print)
