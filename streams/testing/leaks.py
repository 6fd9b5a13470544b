"""Leak checks: fail a test that leaves tasks, timers, generators, threads or counts behind.

    async with no_leaks():
        await pipeline.run()

Anything that existed before the block is ignored. A check costs time and memory in proportion to
the tasks, timers, generators and threads that exist.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar

from penstock.streams.base.clock import running_loop
from penstock.streams.testing.loop import VirtualTimeLoop
from penstock.streams.testing.where import describe_task

__all__ = ["LeakCheck", "Leaked", "no_leaks", "register"]

T = TypeVar("T")

# A cancelled task ends, its waiters wake and their callbacks run: three loop iterations, and as
# many again for each layer of clean-up that itself waits.
ITERATIONS = 10

# Real seconds that a finished thread may take to disappear.
THREAD_GRACE = 1.0

_counters: dict[str, Callable[[], int]] = {}


class Leaked(AssertionError):
    """A block left something behind; `left` has one line for each thing."""

    def __init__(self, left: list[str]) -> None:
        super().__init__("\n  ".join(["left behind:", *left]))
        self.left = left


def register(what: str, count: Callable[[], int]) -> Callable[[], None]:
    """Let every later check compare `count()` after a block with `count()` before it.

    `what` names the counted things in the plural ("turns held"); a second registration of the
    same name replaces the first. Returns a function that undoes the registration.
    """
    _counters[what] = count

    def unregister() -> None:
        if _counters.get(what) is count:
            del _counters[what]

    return unregister


def no_leaks(loop: asyncio.AbstractEventLoop | None = None) -> LeakCheck:
    """A check to be used as `async with no_leaks():` or `with no_leaks():`; see `LeakCheck`."""
    return LeakCheck(loop)


class LeakCheck:
    """A context manager that raises `Leaked` if its block leaves anything behind.

    `loop` is the loop to check: by default the running one; with neither, only threads and
    registered counts are checked. A block that raises is not checked: its error comes first.

    These count as left behind if the block made them: tasks that are not done, timers that have
    neither run nor been cancelled, asynchronous generators that were begun and are neither
    exhausted nor closed, threads that are alive (except those of the loop's default executor), and
    an increase of anything registered with `register`. The timers and generators of a uvloop loop
    cannot be seen.

    `async with` first runs the loop for up to ten iterations, without any time passing, so that
    cancelled tasks can end; a plain `with` does not.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop

    def __enter__(self) -> LeakCheck:
        self._loop = self._loop or running_loop()
        self._tasks = set(_tasks(self._loop))
        self._timers = _timers(self._loop)
        self._generators = _generators(self._loop)
        self._threads = set(threading.enumerate())
        self._counts = {what: count() for what, count in _counters.items()}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None and (left := [*self._left_on_the_loop(), *self._left_elsewhere()]):
            raise Leaked(left)

    async def __aenter__(self) -> LeakCheck:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for _ in range(ITERATIONS):
            if error is not None or not self._left_on_the_loop():
                break
            await asyncio.sleep(0)
        self.__exit__(kind, error, traceback)

    def _left_on_the_loop(self) -> list[str]:
        tasks = _new(_tasks(self._loop), self._tasks)
        timers = _new(_timers(self._loop), self._timers)
        generators = _new(_generators(self._loop), self._generators)
        return [
            *sorted(f"task {describe_task(task)}" for task in tasks),
            *(f"timer {timer!r}" for timer in timers),
            *(f"asynchronous generator {generator!r}" for generator in generators),
        ]

    def _left_elsewhere(self) -> list[str]:
        left: list[str] = []
        for thread in _new(threading.enumerate(), self._threads):
            if thread not in _executor_threads(self._loop):
                thread.join(THREAD_GRACE)
                if thread.is_alive():
                    left.append(f"thread {thread!r}")
        for what, count in _counters.items():
            if more := max(0, count() - self._counts.get(what, 0)):
                left.append(f"{more} {what}")
        return left


def _new(now: Iterable[T], before: Iterable[T]) -> list[T]:
    known = {id(thing) for thing in before}
    return [thing for thing in now if id(thing) not in known]


def _tasks(loop: asyncio.AbstractEventLoop | None) -> list[asyncio.Task[Any]]:
    return [] if loop is None else list(asyncio.all_tasks(loop))


# asyncio has no public list of the following three; other loops may lack them.


def _timers(loop: asyncio.AbstractEventLoop | None) -> list[asyncio.TimerHandle]:
    timers: Iterable[asyncio.TimerHandle] = getattr(loop, "_scheduled", ())
    if isinstance(loop, VirtualTimeLoop):
        timers = loop.timers
    return sorted((timer for timer in timers if not timer.cancelled()), key=lambda t: t.when())


def _generators(loop: asyncio.AbstractEventLoop | None) -> list[AsyncGenerator[Any, Any]]:
    begun: Iterable[Any] = getattr(loop, "_asyncgens", ())
    return [generator for generator in begun if generator.ag_frame is not None]


def _executor_threads(loop: asyncio.AbstractEventLoop | None) -> Iterable[threading.Thread]:
    executor: object = getattr(loop, "_default_executor", None)
    threads: Iterable[threading.Thread] = getattr(executor, "_threads", ())
    return threads
