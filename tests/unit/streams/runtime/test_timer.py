from __future__ import annotations

import asyncio

from penstock.streams.runtime.context import Run as StreamRun
from penstock.streams.runtime.timer import Timer
from penstock.streams.testing import run_virtual


def test_a_timer_that_is_set_again_calls_once_at_the_later_time_or_the_sooner_one() -> None:
    async def story() -> list[float]:
        run = StreamRun()
        called: list[float] = []
        sooner = Timer(run, None, lambda: called.append(run.now() - began))
        later = Timer(run, None, lambda: called.append(run.now() - began))
        began = run.now()
        sooner.set(5.0)
        sooner.set(1.0)
        later.set_at(began + 1.0)
        later.set_at(began + 5.0)
        assert (sooner.left, later.left) == (1.0, 5.0)

        await asyncio.sleep(9.0)
        assert [timer.is_set for timer in (sooner, later)] == [False, False]
        await run.close()
        return called

    assert run_virtual(story()) == [1.0, 5.0]


def test_a_timer_that_is_cancelled_does_not_call_and_can_be_set_inside_its_call() -> None:
    async def story() -> list[str]:

        run = StreamRun()
        called: list[str] = []

        def again() -> None:
            called.append("again")
            if len(called) < 3:
                repeated.set(1.0)

        repeated, cancelled = Timer(run, None, again), Timer(run, None, lambda: called.append("no"))
        repeated.set(1.0)
        cancelled.set(1.0)
        cancelled.cancel()
        assert (cancelled.is_set, cancelled.left) == (False, 0.0)
        await asyncio.sleep(1.5)
        assert repeated.is_set
        await asyncio.sleep(9.0)
        assert not repeated.is_set
        await run.close()
        return called

    assert run_virtual(story()) == ["again"] * 3
