"""The jobs: batches of random size, each job the factors of a prime by trial division."""

from __future__ import annotations

import random
from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import NamedTuple

__all__ = [
    "MOST",
    "PUBLISHED",
    "SECONDS",
    "Job",
    "batches",
    "factorize",
    "largest_factor",
    "seconds_for",
    "solve",
    "value_for",
]

PUBLISHED = 2_130_093_701
"""The article's number, a prime, which took its machine 5.5 seconds."""

SECONDS = 5.5
MOST = 10
"""A batch has 0 to so many jobs."""

# Python is slower than the article's F#, and a minute is long enough to watch: at 20 times the
# article's speed each job is about a quarter of a second of a core.
_AT_CLOCK_SPEED = 42_601_220
_TRIAL, _TRIALS = 200_003, 9


class Job(NamedTuple):
    """One letter: the `number`-th of its batch, `arrived` at a time of the loop's clock."""

    batch: int
    number: int
    value: int
    arrived: float


def batches(seed: int = 0, most: int = MOST) -> Iterator[int]:
    """How many jobs each batch has: 0 to `most`, half of it on average, for ever."""
    rng = random.Random(seed)
    while True:
        yield rng.randint(0, most)


def factorize(x: int) -> list[int]:
    """The prime factors of `x`, largest first, and 1: the article's way, one number at a time."""
    factors = [1]
    factor = 2
    rest = x
    while factor <= rest:
        if rest % factor == 0:
            factors.insert(0, factor)
            rest //= factor
        else:
            factor += 1
    return factors


def solve(job: Job) -> tuple[Job, float]:
    """Do a job; returns it with the seconds that it took."""
    return job, _seconds_for(job.value)


def value_for(speed: float) -> int:
    """The number for a story that goes `speed` times as fast as the clock.

    A prime, at most the article's, and a constant: two runs do the same work on any machine.
    """
    return _prime_below(int(min(PUBLISHED, max(3.0, _AT_CLOCK_SPEED / speed))))


def largest_factor(x: int) -> int:
    """The largest prime factor, to which the time of `factorize` is proportional; 1 of 1."""
    largest, factor, rest = 1, 2, x
    while factor * factor <= rest:
        if rest % factor == 0:
            largest, rest = factor, rest // factor
        else:
            factor += 1
    return max(largest, rest)


def seconds_for(value: int) -> float:
    """About how many seconds `value` takes to factorize here.

    A small prime is tried, several times, so that what else the machine does just then changes
    little.
    """
    trial = median(_seconds_for(_TRIAL) for _ in range(_TRIALS))
    return trial * largest_factor(value) / _TRIAL


def _seconds_for(x: int) -> float:
    began = perf_counter()
    factorize(x)
    return perf_counter() - began


def _prime_below(x: int) -> int:
    while largest_factor(x) != x:
        x -= 1
    return x
