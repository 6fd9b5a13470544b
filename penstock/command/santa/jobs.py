"""The jobs: batches of random size, each job the factors of a prime by trial division."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from time import perf_counter

__all__ = ["MOST", "PUBLISHED", "SECONDS", "Job", "batches", "factorize", "number_for", "solve"]

PUBLISHED = 2_130_093_701
"""The article's number, a prime, which took its machine 5.5 seconds."""

SECONDS = 5.5
MOST = 10
"""A batch has 0 to so many jobs."""

_TRIAL, _TRIALS = 200_003, 9


@dataclass(frozen=True, slots=True)
class Job:
    """One letter: the `number`-th of its batch, `arrived` at a time of the loop's clock."""

    batch: int
    number: int
    value: int
    arrived: float


def batches(seed: int = 0) -> Iterator[int]:
    """How many jobs each batch has: 5 on average, for ever."""
    rng = random.Random(seed)
    while True:
        yield rng.randint(0, MOST)


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


def number_for(seconds: float) -> int:
    """A prime that takes about so many seconds to factorize here, at most the article's.

    Trial division of a prime takes a time in proportion to it; a small one is tried first, several
    times, so that what else the machine does just then changes little.
    """
    rate = _TRIAL / median(_seconds_for(_TRIAL) for _ in range(_TRIALS))
    return _prime_below(min(PUBLISHED, max(3, int(seconds * rate))))


def _seconds_for(x: int) -> float:
    began = perf_counter()
    factorize(x)
    return perf_counter() - began


def _prime_below(x: int) -> int:
    while not _is_prime(x):
        x -= 1
    return x


def _is_prime(x: int) -> bool:
    return x >= 2 and all(x % factor for factor in range(2, int(x**0.5) + 1))
