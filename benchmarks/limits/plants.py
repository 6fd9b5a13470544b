"""Plants whose capacity is known, in virtual time.

A plant takes jobs in with `start` and gives them back with `finish`, each when it is due
(`due`, infinite where none is in work). Jobs are told apart by their number.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from streams.limits import Outcome

__all__ = ["PLANTS", "Arrivals", "Plant", "Scenario"]

Draw = Callable[[random.Random], float]
Arrivals = Callable[[random.Random], tuple[float, int]]
"""Seconds until the next arrival, and how many jobs arrive then."""


class Plant(Protocol):
    def start(self, now: float, number: int, demand: float) -> None: ...
    def due(self) -> float: ...
    def finish(self, now: float) -> tuple[int, Outcome]: ...


class Shared:
    """All jobs in work share one rate, which depends on how many they are."""

    def __init__(self, rate: Callable[[int], float]) -> None:
        self._rate = rate
        self._now = self._done = 0.0
        self._jobs: list[tuple[float, int]] = []

    def start(self, now: float, number: int, demand: float) -> None:
        self._advance(now)
        heapq.heappush(self._jobs, (self._done + demand, number))

    def due(self) -> float:
        jobs = len(self._jobs)
        if not jobs:
            return math.inf
        return self._now + max(0.0, self._jobs[0][0] - self._done) * jobs / self._rate(jobs)

    def finish(self, now: float) -> tuple[int, Outcome]:
        self._advance(now)
        return heapq.heappop(self._jobs)[1], Outcome.SUCCESS

    def _advance(self, now: float) -> None:
        if jobs := len(self._jobs):
            self._done += (now - self._now) * self._rate(jobs) / jobs
        self._now = now


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
        return number, Outcome.SUCCESS

    def _serve(self, now: float) -> None:
        while self._queue and len(self._busy) < self._servers(now):
            number, demand = self._queue.popleft()
            heapq.heappush(self._busy, (now + demand, number))


class TokenBucket:
    """So many jobs a second, and a burst; what finds no token is refused after a moment."""

    def __init__(self, rate: float, burst: float, refusal: float) -> None:
        self._rate, self._burst, self._refusal = rate, burst, refusal
        self._tokens, self._now = burst, 0.0
        self._jobs: list[tuple[float, int, Outcome]] = []

    def start(self, now: float, number: int, demand: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._now) * self._rate)
        self._now = now
        admitted = self._tokens >= 1
        self._tokens -= admitted
        outcome = Outcome.SUCCESS if admitted else Outcome.DROPPED
        heapq.heappush(self._jobs, (now + (demand if admitted else self._refusal), number, outcome))

    def due(self) -> float:
        return self._jobs[0][0] if self._jobs else math.inf

    def finish(self, now: float) -> tuple[int, Outcome]:
        _, number, outcome = heapq.heappop(self._jobs)
        return number, outcome


def _gamma(mean: float, cv: float) -> Draw:
    return lambda draw: draw.gammavariate(cv**-2, mean * cv**2)


def _pareto(alpha: float, mean: float, cap: float) -> Draw:
    scale = mean * (alpha - 1) / alpha
    return lambda draw: min(cap, scale * draw.paretovariate(alpha))


@dataclass(frozen=True, slots=True)
class Scenario:
    """A plant, what is asked of it for how long, and the arrivals (None: a backlog)."""

    name: str
    plant: Callable[[], Plant]
    demand: Draw
    seconds: float
    arrivals: Arrivals | None = None


PLANTS = (
    Scenario("8 cores", lambda: Shared(lambda n: min(n, 8)), _gamma(0.05, 0.3), 60),
    Scenario(
        "contention",
        lambda: Shared(lambda n: n / (1 + 0.05 * (n - 1) + 0.002 * n * (n - 1))),
        _gamma(0.05, 0.3),
        60,
    ),
    Scenario("40 servers", lambda: Servers(lambda now: 40), _gamma(0.1, 0.3), 40),
    Scenario("rate limit", lambda: TokenBucket(50, 10, 0.02), _gamma(0.2, 0.2), 160),
    Scenario(
        "12/48 servers",
        lambda: Servers(lambda now: 48 if now % 80 >= 40 else 12),
        _gamma(0.2, 0.3),
        160,
    ),
    Scenario("heavy tail", lambda: Servers(lambda now: 16), _pareto(1.6, 0.1, 20), 100),
    Scenario(
        "batches",
        lambda: Shared(lambda n: min(n, 4)),
        _gamma(5, 0.05),
        3600,
        lambda draw: (5.0, draw.randint(0, 10)),
    ),
    Scenario(
        "low load",
        lambda: Servers(lambda now: 16),
        _gamma(0.25, 0.5),
        1000,
        lambda draw: (draw.expovariate(4), 1),
    ),
    Scenario("1 server", lambda: Servers(lambda now: 1), _gamma(0.1, 0.3), 60),
)
"""Best constant levels: 8, about 17, 40, 10, 12 and 48, 16, 4, any from 3 on, and 1."""
