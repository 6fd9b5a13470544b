"""What a plant is, and how a limit does on it.

A plant is something that does real work and can do only so much at once. It goes through phases,
in each of which it can do as much all the time. A backlog always waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import count
from math import inf
from statistics import mean
from typing import Any, NamedTuple

from operators import adaptive_flat_map
from sinks import for_each
from streams import from_iterable
from streams.clock import clock_of
from streams.limits import Limiter, Outcome

__all__ = ["Figures", "Phase", "Plant", "Recording", "average", "measure"]


@dataclass(frozen=True)
class Phase:
    """A time in which nothing changes: how it begins, and which fixed limits to try in it."""

    name: str
    begin: Callable[[], Awaitable[None]]
    levels: tuple[int, ...]


@dataclass(frozen=True)
class Plant:
    """`opened` gives the handler for as long as the plant stands."""

    name: str
    opened: Callable[[], AbstractAsyncContextManager[Any]]
    phases: tuple[Phase, ...]


class Figures(NamedTuple):
    """Calls a second, the 99th percentile of their seconds, and the mean limit."""

    rate: float
    p99: float
    limit: float


def average(several: Sequence[Figures]) -> Figures:
    """The means of the figures of some rounds."""
    return Figures(*map(mean, zip(*several, strict=True)))


class Recording:
    """A limiter that writes down what it is told, and leaves the thinking to another one."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._calls: list[tuple[float, float, int]] = []
        self.first = asyncio.Event()
        """Set once a call has ended."""

    @property
    def limit(self) -> int:
        """That of the other one."""
        return self._limiter.limit

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        """Write it down, and tell the other one."""
        self._limiter.on_complete(now, started, in_flight_at_start, outcome)
        self._calls.append((now, now - started, self._limiter.limit))
        self.first.set()

    def figures(self, begin: float, end: float) -> Figures:
        """Of the calls that ended between two times."""
        calls = [call for call in self._calls if begin <= call[0] < end]
        if not calls:
            return Figures(0.0, inf, self._limiter.limit)
        seconds = sorted(took for _, took, _ in calls)
        p99 = seconds[min(len(seconds) - 1, len(seconds) * 99 // 100)]
        return Figures(len(calls) / (end - begin), p99, mean(limit for _, _, limit in calls))

    def __deepcopy__(self, memo: object) -> Recording:
        # It is asked after the running, which would otherwise get a copy.
        return self


async def measure(
    handler: Any, limiter: Limiter, phases: tuple[Phase, ...], settle: float, seconds: float
) -> list[Figures]:
    """Run through `phases` without a break, and measure each for so long after it has settled.

    Nothing is measured before the first call has ended: processes take their time to start.
    """
    recording = Recording(limiter)
    numbers = from_iterable(count()).pipe(adaptive_flat_map(handler, recording))
    now = clock_of(asyncio.get_running_loop())
    figures: list[Figures] = []
    async with numbers.to(for_each(_forget)).start() as running:
        for phase in phases:
            await phase.begin()
            await recording.first.wait()
            await asyncio.sleep(settle)
            begin = now()
            await asyncio.sleep(seconds)
            figures.append(recording.figures(begin, now()))
        await running.drain(10)
    return figures


def _forget(_: object) -> None: ...
