"""Work that keeps a core busy, in as many processes as there are cores."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.plants.plant import Phase, Plant
from penstock import in_processes

__all__ = ["PROCESSES", "factorize"]

_CORES = os.cpu_count() or 1

# Two primes, whose product takes some 10 ms by trial division.
_NUMBER = 200_003 * 200_009


def factorize(number: int) -> list[int]:
    """The prime factors of a number that does not depend on `number`."""
    left, factors, divisor = _NUMBER, [], 2
    while divisor * divisor <= left:
        if left % divisor:
            divisor += 1 if divisor == 2 else 2
        else:
            left //= divisor
            factors.append(divisor)
    return [*factors, left]


@asynccontextmanager
async def _opened() -> AsyncIterator[Any]:
    yield in_processes(_CORES)(factorize)


async def _nothing() -> None: ...


PROCESSES = Plant(
    "processes",
    _opened,
    (
        Phase(
            f"{_CORES} cores",
            _nothing,
            (max(1, _CORES // 2), _CORES, _CORES + 1, 2 * _CORES),
        ),
    ),
)
