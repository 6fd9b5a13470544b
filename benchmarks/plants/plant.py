"""Services with a limited capacity ("plants"), and the comparison of limits on them in rotation.

A plant does real work and has a limited capacity, which is constant within each of its phases.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from math import inf
from statistics import mean, median
from typing import Any, NamedTuple

from penstock import adaptive_flat_map, for_each, from_async_iterable
from penstock.streams.base.clock import clock_of
from penstock.streams.limits import Limiter, Outcome

__all__ = ["Contestant", "Figures", "Phase", "Plant", "Recording", "contest", "typical"]


@dataclass(frozen=True)
class Phase:
    """A time in which nothing changes: how it begins, and which fixed limits to try."""

    name: str
    begin: Callable[[], Awaitable[None]]
    levels: tuple[int, ...]


@dataclass(frozen=True)
class Plant:
    """`opened` gives the handler for as long as the plant is running."""

    name: str
    opened: Callable[[], AbstractAsyncContextManager[Any]]
    phases: tuple[Phase, ...]


class Figures(NamedTuple):
    """Calls per second, the 99th percentile of their seconds, and the mean limit."""

    rate: float
    p99: float
    limit: float


def typical(several: Sequence[Figures]) -> Figures:
    """The medians of the figures of some slices."""
    return Figures(*map(median, zip(*several, strict=True)))


class Recording:
    """A limiter that records completions, and leaves the decisions to another one."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._calls: list[tuple[float, float, int]] = []
        self.ended = asyncio.Event()
        """Set when a call has ended."""

    @property
    def done(self) -> int:
        """Calls that have ended."""
        return len(self._calls)

    @property
    def limit(self) -> int:
        """The limit of the other one."""
        return self._limiter.limit

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        """Record a completion, and report it to the other one."""
        self._limiter.on_complete(now, started, in_flight_at_start, outcome)
        self._calls.append((now, now - started, self._limiter.limit))
        self.ended.set()

    def figures(self, begin: float, end: float) -> Figures:
        """The figures of the calls that ended between two times."""
        calls = [call for call in self._calls if begin <= call[0] < end]
        if not calls:
            return Figures(0.0, inf, self._limiter.limit)
        seconds = sorted(took for _, took, _ in calls)
        p99 = seconds[min(len(seconds) - 1, len(seconds) * 99 // 100)]
        return Figures(len(calls) / (end - begin), p99, mean(limit for _, _, limit in calls))

    def __deepcopy__(self, memo: object) -> Recording:
        # It is read after the running, which would otherwise get a copy.
        return self


class Contestant:
    """A pipeline under one limit, with a backlog during its slices and nothing in between."""

    def __init__(self, handler: Any, limiter: Limiter) -> None:
        self._handler = handler
        self._recording = Recording(limiter)
        self._active = asyncio.Event()
        self._begun, self._over = 0, False

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Contestant]:
        """The pipeline runs for as long as this is open."""
        numbers = from_async_iterable(self._numbers())
        calls = numbers.pipe(adaptive_flat_map(self._handler, self._recording))
        async with calls.to(for_each(_forget)).start() as running:
            yield self
            self._over = True
            self._active.set()
            await running.drain(10)

    async def work(self, settle: float, seconds: float) -> Figures:
        """Run one slice, to the end of its last call; its figures begin after `settle` seconds.

        Nothing is measured before the very first call has ended, because processes take time to
        start.
        """
        now = clock_of(asyncio.get_running_loop())
        self._active.set()
        await self._recording.ended.wait()
        await asyncio.sleep(settle)
        begin = now()
        await asyncio.sleep(seconds)
        end = now()
        self._active.clear()
        while self._recording.done < self._begun:
            self._recording.ended.clear()
            await self._recording.ended.wait()
        return self._recording.figures(begin, end)

    async def _numbers(self) -> AsyncIterator[int]:
        for number in count():
            await self._active.wait()
            if self._over:
                return
            self._begun += 1
            yield number


async def contest(
    contestants: Sequence[Contestant], rounds: int, settle: float, seconds: float
) -> list[list[Figures]]:
    """Run a slice of each in each round; return the figures of the slices of each."""
    slices: list[list[Figures]] = [[] for _ in contestants]
    for number in range(rounds):
        # In alternating order, so that a steady drift favours none of them.
        order = list(enumerate(contestants))
        for place, contestant in order if number % 2 == 0 else reversed(order):
            slices[place].append(await contestant.work(settle, seconds))
    return slices


def _forget(_: object) -> None: ...
