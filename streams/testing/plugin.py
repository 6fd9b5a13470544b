"""Fixtures for pytest: virtual time and a leak check in every test that asks for them.

pytest_plugins = ["penstock.streams.testing.plugin"]     # in the top conftest.py

def test_an_hour_passes(run: Run) -> None:
    run(asyncio.sleep(3600))
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, Protocol, TypeVar

import pytest

from penstock.streams.testing.leaks import no_leaks
from penstock.streams.testing.loop import VirtualTimeLoop
from penstock.streams.testing.player import VirtualClock

__all__ = ["Run", "VirtualClock", "clock", "run", "virtual_loop"]

T = TypeVar("T")


class Run(Protocol):
    """The type of the fixture `run`."""

    def __call__(self, coroutine: Coroutine[Any, Any, T], /) -> T: ...


@pytest.fixture
def clock() -> VirtualClock:
    """Plays marble diagrams: `clock.play("-1-2|", operator)`.

    See `penstock.streams.testing.play`.
    """
    return VirtualClock()


@pytest.fixture
def virtual_loop() -> Iterator[VirtualTimeLoop]:
    """A `VirtualTimeLoop` at time 0.0, closed at the end of the test.

    The test fails if the loop then has unfinished tasks, timers or generators, or if a thread
    that was started in the test is alive.
    """
    loop = VirtualTimeLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner, no_leaks(runner.get_loop()):
        yield loop


@pytest.fixture
def run(virtual_loop: VirtualTimeLoop) -> Run:
    """A function that runs a coroutine on `virtual_loop` and returns its result.

    Time goes on from call to call. Each call fails if the coroutine leaves anything behind.
    """

    async def checked(coroutine: Coroutine[Any, Any, T]) -> T:
        async with no_leaks():
            return await coroutine

    def run_checked(coroutine: Coroutine[Any, Any, T], /) -> T:
        return virtual_loop.run_until_complete(checked(coroutine))

    return run_checked
