"""A virtual machine: jobs share its cores, on the time of the running loop."""

from __future__ import annotations

import asyncio
import heapq
import random
from itertools import count

from penstock.command.santa.jobs import SECONDS, Job

__all__ = ["Machine"]

_SHAPE = 400
"""The shape of the gamma distribution of the jobs' lengths: they differ by 5 %."""


class Machine:
    """`work` is a handler; n jobs in work each go at full speed, or at cores / n of it.

    A job takes about `seconds` of one core. The k-th job to begin has the same length in every
    machine with the same `seed`. On a loop with virtual time the jobs take no real time.
    """

    def __init__(self, cores: int, seed: int = 7, seconds: float = SECONDS) -> None:
        self._cores = cores
        self._seconds = seconds
        # Sums of many times are not exact; chosen to be much larger than their error.
        self._rounding = 1e-8 * seconds
        self._random = random.Random(seed)
        # The seconds that a job which was there from the beginning would have progressed: all
        # jobs progress alike, so that each ends at a fixed reading of this.
        self._progress = 0.0
        self._at = 0.0
        # Of each job, since the last plan.
        self._speed = 1.0
        self._jobs: list[tuple[float, int, asyncio.Future[float]]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        # When it is due.
        self._ends = 0.0

    async def work(self, job: Job) -> tuple[Job, float]:
        """Do a job; returns it with the seconds from its beginning to its end."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._advance(began)
        done: asyncio.Future[float] = loop.create_future()
        length = self._random.gammavariate(_SHAPE, self._seconds / _SHAPE)
        heapq.heappush(self._jobs, (self._progress + length, next(self._numbers), done))
        self._plan(loop)
        return job, await done - began

    def use(self, cores: int) -> None:
        """From now on there are so many cores."""
        loop = asyncio.get_running_loop()
        self._advance(loop.time())
        self._cores = cores
        self._plan(loop)

    def _advance(self, now: float) -> None:
        self._progress += (now - self._at) * self._speed
        self._at = now

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs = self._jobs
        if not jobs:
            self._speed = 1.0
            return
        self._speed = 1.0 if len(jobs) <= self._cores else self._cores / len(jobs)
        left = (jobs[0][0] - self._progress) / self._speed
        ends = self._at + left if left > 0 else self._at
        # A timer that is too early makes a plan when it is there: most of them need not be moved.
        if self._timer is not None:
            if self._ends <= ends:
                return
            self._timer.cancel()
        self._ends = ends
        self._timer = loop.call_at(ends, self._end, loop)

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        self._advance(now)
        jobs = self._jobs
        while jobs:
            left = jobs[0][0] - self._progress
            # A rest that the clock is too coarse for has no end to wait for.
            if left > self._rounding and now + left / self._speed > now:
                break
            heapq.heappop(jobs)[2].set_result(now)
        self._plan(loop)
