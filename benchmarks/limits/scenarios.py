"""Scenarios: plants, the load on them, and for how long.

A scenario has several sizes: `size` multiplies the slots of the plant and the jobs that arrive, and
so the best level. Times are not scaled, because no limiter may depend on their unit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarks.limits.plants import (
    Broken,
    OneLock,
    Outage,
    Plant,
    Quota,
    Refusing,
    Servers,
    Shared,
    TokenBucket,
)

__all__ = ["EXTRAS", "PLANTS", "Arrivals", "Phase", "Scenario"]

Draw = Callable[[random.Random], Any]
"""A job: the seconds that it takes alone, or the input of `Scenario.seconds_at` for them."""

Arrivals = Callable[[random.Random, float], tuple[float, int]]
"""For a size: seconds until the next arrival, and how many jobs arrive then."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A time in which the plant does not change."""

    begins: float
    ends: float
    grace: float = 0.05
    """The share of the time at its beginning that does not count."""
    down: bool = False
    """Whether nothing succeeds, so that the fewest attempts are best."""

    @property
    def counts_from(self) -> float:
        return self.begins + self.grace * (self.ends - self.begins)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A plant, the load on it for how long, and the arrivals (None: a backlog)."""

    name: str
    plant: Callable[[float, int], Plant]
    """For a size and a seed."""
    draw: Draw
    phases: tuple[Phase, ...]
    best: tuple[int, ...]
    """Levels around which the best constant one is searched, at size 1."""
    arrivals: Arrivals | None = None
    from_arrival: bool = False
    """Whether latency counts from the arrival, because there is less work than capacity."""
    drifts: bool = False
    """Whether the question is only how high the limit drifts."""
    seconds_at: Callable[[Any, float], float] | None = None
    """The seconds that a job takes, if they depend on the time of its start."""

    @property
    def seconds(self) -> float:
        return self.phases[-1].ends


def _gamma(mean: float, cv: float) -> Draw:
    return lambda draw: draw.gammavariate(cv**-2, mean * cv**2)


def _pareto(alpha: float, mean: float, cap: float) -> Draw:
    scale = mean * (alpha - 1) / alpha
    return lambda draw: min(cap, scale * draw.paretovariate(alpha))


def _mixed(draw: random.Random) -> tuple[float, float]:
    """The position of a job among all, of which some are slow, and how much longer it takes."""
    return draw.random(), draw.uniform(0.8, 1.2)


def _slow(share: Callable[[float], float]) -> Callable[[tuple[float, float], float], float]:
    """A share of the jobs take half a second, the others 20 ms."""
    return lambda job, now: (0.5 if job[0] < share(now) else 0.02) * job[1]


def _whole(seconds: float) -> tuple[Phase, ...]:
    return (Phase(0, seconds),)


def _parts(seconds: float, number: int) -> tuple[Phase, ...]:
    return tuple(Phase(i * seconds, (i + 1) * seconds, 0.15) for i in range(number))


def _slots(number: float, size: float) -> int:
    return max(1, round(number * size))


def _servers(number: int) -> Callable[[float, int], Plant]:
    return lambda size, seed: Servers(lambda now: _slots(number, size))


def _alternating(low: int, high: int, seconds: float) -> Callable[[float, int], Plant]:
    def plant(size: float, seed: int) -> Plant:
        few, many = _slots(low, size), _slots(high, size)
        return Servers(lambda now: many if now // seconds % 2 else few)

    return plant


def _retrograde(size: float, seed: int) -> Plant:
    # The law of universal scalability; its coefficients stretched so that the peak moves.
    a, b = 0.05 / size, 0.002 / size**2
    return Shared(lambda n: n / (1 + a * (n - 1) + b * n * (n - 1)))


def _cores(number: int) -> Callable[[float, int], Plant]:
    def plant(size: float, seed: int) -> Plant:
        cores = _slots(number, size)
        return Shared(lambda n: min(n, cores))

    return plant


@cache
def _wobble(seed: int, low: float, high: float) -> Callable[[int], float]:
    """A share for each slice of time, the same for every limiter."""

    @cache
    def share(number: int) -> float:
        return random.Random(f"{seed} {number}").uniform(low, high)

    return share


def _noisy_cores(size: float, seed: int) -> Plant:
    cores = _slots(8, size)
    return Shared(lambda n: min(n, cores), _wobble(seed, 0.5, 1.0), 0.5)


def _noisy_servers(size: float, seed: int) -> Plant:
    share, known = _wobble(seed, 0.6, 1.0), dict[int, int]()

    def servers(now: float) -> int:
        number = int(now)
        if number not in known:
            known[number] = _slots(24 * share(number), size)
        return known[number]

    return Servers(servers)


def _few(name: str, number: int) -> Scenario:
    """So few servers in any size that there is no small step, and no other disturbance."""

    def servers(size: float, seed: int) -> Plant:
        return Servers(lambda now: number)

    return Scenario(name, servers, _gamma(0.1, 0.3), _whole(120), (number,))


PLANTS = (
    Scenario("P1 CPU", _cores(8), _gamma(0.05, 0.3), _whole(60), (8,)),
    Scenario("P2 retrograde", _retrograde, _gamma(0.05, 0.3), _whole(60), (17,)),
    Scenario("P3 I/O", _servers(40), _gamma(0.1, 0.3), _whole(40), (40,)),
    Scenario(
        "P4 rate limit",
        lambda size, seed: TokenBucket(50 * size, _slots(10, size), 0.02),
        _gamma(0.2, 0.2),
        _whole(160),
        (10,),
    ),
    Scenario("P5 shifting", _alternating(12, 48, 40), _gamma(0.2, 0.3), _parts(40, 4), (12, 48)),
    Scenario("P6 heavy tail", _servers(16), _pareto(1.6, 0.1, 20), _whole(100), (16,)),
    Scenario(
        "P7 batches",
        _cores(4),
        _gamma(5, 0.05),
        _whole(3600),
        (4,),
        lambda draw, size: (5.0, draw.randint(0, _slots(10, size))),
    ),
    Scenario(
        "P8 low load",
        _servers(16),
        _gamma(0.25, 0.5),
        _whole(1000),
        (5,),
        lambda draw, size: (draw.expovariate(4 * size), 1),
        from_arrival=True,
        drifts=True,
    ),
)
"""The plants by which limiters are judged."""

EXTRAS = (
    Scenario(
        "bursts",
        _retrograde,
        _gamma(0.05, 0.3),
        _whole(300),
        (17,),
        lambda draw, size: (draw.uniform(2, 6), _slots(draw.uniform(50, 200), size)),
        from_arrival=True,
    ),
    Scenario(
        "outage",
        lambda size, seed: Outage(_slots(40, size), 40, 70, 1.0),
        _gamma(0.1, 0.3),
        (Phase(0, 40), Phase(40, 70, 0.1, down=True), Phase(70, 110, 0.15)),
        (40,),
    ),
    Scenario(
        "mixture",
        _servers(16),
        _mixed,
        _whole(120),
        (16,),
        seconds_at=_slow(lambda now: 0.1),
    ),
    Scenario(
        "changing mixture",
        _servers(16),
        _mixed,
        _parts(40, 4),
        (16,),
        seconds_at=_slow(lambda now: 0.5 if now // 40 % 2 else 0.05),
    ),
    Scenario("noisy cores", _noisy_cores, _gamma(0.05, 0.3), _whole(80), (8,)),
    Scenario("noisy servers", _noisy_servers, _gamma(0.1, 0.3), _whole(80), (20,)),
    Scenario("tenfold", _alternating(8, 80, 40), _gamma(0.2, 0.3), _parts(40, 4), (8, 80)),
    Scenario(
        "threads",
        lambda size, seed: OneLock(_slots(32, size), 0.2 / size),
        _gamma(0.05, 0.3),
        _whole(120),
        (6,),
    ),
    Scenario(
        "refusing",
        lambda size, seed: Refusing(_slots(24, size), 0.005),
        _gamma(0.1, 0.3),
        _whole(80),
        (24,),
    ),
    Scenario(
        "quota",
        lambda size, seed: Quota(_slots(100, size), 0.02),
        _gamma(0.2, 0.2),
        _whole(80),
        (20,),
    ),
    Scenario(
        "broken",
        lambda size, seed: Broken(Servers(lambda now: _slots(24, size)), 0.05, seed),
        _gamma(0.1, 0.3),
        _whole(80),
        (24,),
    ),
    Scenario("exponential", _servers(32), _gamma(0.1, 1.0), _whole(60), (32,)),
    _few("one server", 1),
    _few("two servers", 2),
    _few("three servers", 3),
    _few("four servers", 4),
)
"""Others that came after the default was developed."""
