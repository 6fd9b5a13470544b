"""Plants: simulated services whose capacity is known, in virtual time.

A plant accepts jobs with `start` and ends them with `finish`, each when it is due (`due`, infinite
if none is in work). Jobs are identified by their number.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

from penstock.streams.limits import Outcome

__all__ = [
    "Broken",
    "OneLock",
    "Outage",
    "Plant",
    "Quota",
    "Refusing",
    "Servers",
    "Shared",
    "TokenBucket",
]

_SUCCESS, _DROPPED = Outcome.SUCCESS, Outcome.DROPPED


class Plant(Protocol):
    def start(self, now: float, number: int, demand: float) -> None:
        """Begin a job that would take `demand` seconds if it were alone."""
        ...

    def due(self) -> float:
        """The time at which the next job ends, if none begins before."""
        ...

    def finish(self, now: float) -> tuple[int, Outcome]:
        """End the job that is due `now`."""
        ...


class Shared:
    """All jobs in work share one rate, which depends on their number.

    `pace(slice)` slows everything in each `slice` seconds, as other programs on the machine do.
    """

    def __init__(
        self,
        rate: Callable[[int], float],
        pace: Callable[[int], float] | None = None,
        slice: float = math.inf,
    ) -> None:
        self._rate, self._pace, self._slice = rate, pace, slice
        self._now = self._done = 0.0
        self._jobs: list[tuple[float, int]] = []

    def start(self, now: float, number: int, demand: float) -> None:
        self._advance(now)
        heapq.heappush(self._jobs, (self._done + demand, number))

    def due(self) -> float:
        if not self._jobs:
            return math.inf
        left, now = max(0.0, self._jobs[0][0] - self._done), self._now
        while True:
            speed, until = self._speed(now)
            if now + left / speed <= until:
                return now + left / speed
            left -= (until - now) * speed
            now = until

    def finish(self, now: float) -> tuple[int, Outcome]:
        self._advance(now)
        return heapq.heappop(self._jobs)[1], _SUCCESS

    def _advance(self, now: float) -> None:
        while self._jobs and self._now < now:
            speed, until = self._speed(self._now)
            self._done += (min(now, until) - self._now) * speed
            self._now = min(now, until)
        self._now = now

    def _speed(self, now: float) -> tuple[float, float]:
        """The rate of one job, and the time until which it holds."""
        speed = self._rate(len(self._jobs)) / len(self._jobs)
        if self._pace is None:
            return speed, math.inf
        number = int(now / self._slice + 1e-9)
        return speed * self._pace(number), (number + 1) * self._slice


class Servers:
    """Servers with one queue in front, first come, first served."""

    def __init__(self, servers: Callable[[float], int]) -> None:
        self._servers = servers
        self._queue: deque[tuple[int, float]] = deque()
        self._busy: list[tuple[float, int]] = []

    def start(self, now: float, number: int, demand: float) -> None:
        self._queue.append((number, demand))
        self._serve(now)

    def due(self) -> float:
        return self._busy[0][0] if self._busy else math.inf

    def finish(self, now: float) -> tuple[int, Outcome]:
        number = heapq.heappop(self._busy)[1]
        self._serve(now)
        return number, _SUCCESS

    def _serve(self, now: float) -> None:
        while self._queue and len(self._busy) < self._servers(now):
            number, demand = self._queue.popleft()
            heapq.heappush(self._busy, (now + demand, number))


class Outage:
    """Servers that hang for a time; jobs that hang are given up after `timeout`.

    The jobs in work when the outage begins, and those that begin in it, are lost.
    """

    def __init__(self, servers: int, begins: float, ends: float, timeout: float) -> None:
        self._servers: Callable[[float], int] = lambda now: servers
        self._plant = Servers(self._servers)
        self._begins, self._ends, self._timeout = begins, ends, timeout
        self._in_work: set[int] = set()
        self._lost: list[tuple[float, int]] = []
        self._struck = False

    def start(self, now: float, number: int, demand: float) -> None:
        if self._begins <= now:
            self._hang()
        if self._begins <= now < self._ends:
            heapq.heappush(self._lost, (now + self._timeout, number))
        else:
            self._in_work.add(number)
            self._plant.start(now, number, demand)

    def due(self) -> float:
        due = self._plant.due()
        if not self._struck and self._begins <= due < math.inf:
            due = self._begins + self._timeout
        return min(due, self._lost[0][0] if self._lost else math.inf)

    def finish(self, now: float) -> tuple[int, Outcome]:
        if self._begins <= now:
            self._hang()
        if self._lost and self._lost[0][0] <= now:
            return heapq.heappop(self._lost)[1], _DROPPED
        number, outcome = self._plant.finish(now)
        self._in_work.remove(number)
        return number, outcome

    def _hang(self) -> None:
        if not self._struck:
            self._struck = True
            self._lost = [(self._begins + self._timeout, number) for number in self._in_work]
            heapq.heapify(self._lost)
            self._in_work.clear()
            self._plant = Servers(self._servers)


class _Admitting:
    """Admitted jobs take their time, and all others are refused after `refusal` seconds."""

    def __init__(self, refusal: float) -> None:
        self._refusal = refusal
        self._jobs: list[tuple[float, int, Outcome]] = []

    def _begin(self, now: float, number: int, demand: float, *, admitted: bool) -> None:
        outcome = _SUCCESS if admitted else _DROPPED
        heapq.heappush(self._jobs, (now + (demand if admitted else self._refusal), number, outcome))

    def due(self) -> float:
        return self._jobs[0][0] if self._jobs else math.inf

    def finish(self, now: float) -> tuple[int, Outcome]:
        _, number, outcome = heapq.heappop(self._jobs)
        return number, outcome


class TokenBucket(_Admitting):
    """A number of jobs per second, and a burst; a job without a token is refused soon."""

    def __init__(self, rate: float, burst: float, refusal: float) -> None:
        super().__init__(refusal)
        self._rate, self._burst = rate, burst
        self._tokens, self._now = burst, 0.0

    def start(self, now: float, number: int, demand: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._now) * self._rate)
        self._now = now
        admitted = self._tokens >= 1
        self._tokens -= admitted
        self._begin(now, number, demand, admitted=admitted)


class Refusing(_Admitting):
    """Servers that soon refuse jobs above their number."""

    def __init__(self, servers: int, refusal: float) -> None:
        super().__init__(refusal)
        self._servers = servers
        self._busy = 0

    def start(self, now: float, number: int, demand: float) -> None:
        admitted = self._busy < self._servers
        self._busy += admitted
        self._begin(now, number, demand, admitted=admitted)

    def finish(self, now: float) -> tuple[int, Outcome]:
        number, outcome = super().finish(now)
        self._busy -= outcome is _SUCCESS
        return number, outcome


class Quota(_Admitting):
    """A number of jobs in each second of the clock; all others are refused soon."""

    def __init__(self, jobs: int, refusal: float) -> None:
        super().__init__(refusal)
        self._quota = jobs
        self._second = self._used = 0

    def start(self, now: float, number: int, demand: float) -> None:
        if int(now) != self._second:
            self._second, self._used = int(now), 0
        admitted = self._used < self._quota
        self._used += admitted
        self._begin(now, number, demand, admitted=admitted)


class Broken:
    """Another plant, in which a share of the jobs fails at random, whatever the load."""

    def __init__(self, plant: Plant, share: float, seed: int) -> None:
        self._plant, self._share, self._random = plant, share, random.Random(seed)

    def start(self, now: float, number: int, demand: float) -> None:
        self._plant.start(now, number, demand)

    def due(self) -> float:
        return self._plant.due()

    def finish(self, now: float) -> tuple[int, Outcome]:
        number, outcome = self._plant.finish(now)
        return number, Outcome.IGNORED if self._random.random() < self._share else outcome


class OneLock:
    """Threads that each wait without a lock, then compute under one shared lock.

    `computing` is the share of a job's time that needs the lock; more than `threads` jobs queue.
    """

    def __init__(self, threads: int, computing: float) -> None:
        self._computing = computing
        self._lock = Servers(lambda now: 1)
        self._demands: dict[int, float] = {}
        self._busy: list[tuple[float, int]] = []
        self._free = threads
        self._queue: deque[int] = deque()

    def start(self, now: float, number: int, demand: float) -> None:
        self._demands[number] = demand
        self._queue.append(number)
        self._serve(now)

    def due(self) -> float:
        # A job that ends its wait takes the lock at once; that is not the end of the job.
        while self._busy and self._busy[0][0] <= self._lock.due():
            now, number = heapq.heappop(self._busy)
            self._lock.start(now, number, self._computing * self._demands.pop(number))
        return self._lock.due()

    def finish(self, now: float) -> tuple[int, Outcome]:
        ended = self._lock.finish(now)
        self._free += 1
        self._serve(now)
        return ended

    def _serve(self, now: float) -> None:
        while self._queue and self._free:
            number = self._queue.popleft()
            self._free -= 1
            waits = (1 - self._computing) * self._demands[number]
            heapq.heappush(self._busy, (now + waits, number))
