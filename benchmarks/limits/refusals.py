"""The default limiter among refusals, through a whole pipeline with retries, in virtual time.

A service has a number of places and refuses further calls at once. Its calls take 0.1 s on average
(lognormal, sigma 0.2), a refusal 2 % of that; `retry` with a back-off of one service time tries
again. `python -m benchmarks.limits.refusals` prints goodput against the best fixed limit and the
share of refused calls, both after settling, over random seeds.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count
from statistics import fmean
from typing import NamedTuple

from penstock import Backoff, Fixed, adaptive_flat_map, for_each, from_iterable, retry
from penstock.streams.base.errors import PenstockError
from penstock.streams.execution.limit_control import Overload
from penstock.streams.limits.choice import Limit
from penstock.streams.testing.loop import VirtualTimeLoop

__all__ = ["Broken", "Judgement", "Refused", "Service", "judge", "work"]

_MEAN, _SIGMA, _REFUSAL = 0.1, 0.2, 0.002

# Simulated seconds by the number of places, so that each run has some thousand calls.
_CALLS, _LEAST = 2000, 4.0

# The share of a run in which the limit may settle.
_SETTLING = 1 / 3


class Refused(Exception):
    """No place is free, or the quota is used up."""


class Broken(Exception):
    """An error that has nothing to do with load."""


class Service:
    """Refuses calls without a free place or above the `quota` (per second), and records ends.

    A share of the accepted calls is `broken`, at random.
    """

    def __init__(
        self, places: int, seed: int, *, quota: float = math.inf, broken: float = 0.0
    ) -> None:
        self.ends: list[tuple[float, bool]] = []
        self.places = places
        self._quota, self._broken = quota, broken
        self._random = random.Random(seed)
        self._busy = 0
        self._second = self._used = 0

    async def __call__(self, number: int) -> int:
        now = asyncio.get_running_loop().time
        if int(now()) != self._second:
            self._second, self._used = int(now()), 0
        if self._busy >= self.places or self._used >= self._quota:
            await asyncio.sleep(_REFUSAL)
            self.ends.append((now(), False))
            raise Refused
        self._used += 1
        self._busy += 1
        try:
            mean = math.log(_MEAN) - _SIGMA**2 / 2
            await asyncio.sleep(self._random.lognormvariate(mean, _SIGMA))
            if self._random.random() < self._broken:
                raise Broken
        finally:
            self._busy -= 1
        self.ends.append((now(), True))
        return number


def work(
    service: Service,
    limit: Limit,
    seconds: float,
    *,
    overload: Overload | None = None,
    on_limit_change: Callable[[int, int, str], object] | None = None,
) -> None:
    """Let a pipeline with endless work call `service` for a number of simulated seconds."""
    operator = adaptive_flat_map(
        service,
        limit,
        on_error=retry(50, Backoff(_MEAN), "skip"),
        overload=overload,
        on_limit_change=on_limit_change,
    )
    pipeline = from_iterable(count()).pipe(operator).to(for_each(_forget))

    async def story() -> None:
        running = pipeline.start()
        await asyncio.sleep(seconds)
        running.cancel()
        try:
            await running.wait()
        except (asyncio.CancelledError, PenstockError):
            return

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(story())


def _forget(_: object) -> None:
    """Discard a result."""


class Judgement(NamedTuple):
    """After settling: goodput over that of the best fixed limit, and the share of refused calls."""

    goodput: float
    refused: float


def judge(places: int, seed: int, *, overload: bool) -> Judgement:
    """One run of the default limiter on a service with a number of places."""
    seconds = max(_LEAST, _CALLS * _MEAN / places)
    service, best = Service(places, seed), Service(places, seed)
    work(service, None, seconds, overload=_is_refusal if overload else None)
    work(best, Fixed(places), seconds)
    ends = [success for time, success in service.ends if time > _SETTLING * seconds]
    most = sum(success for time, success in best.ends if time > _SETTLING * seconds)
    return Judgement(sum(ends) / most, 1 - sum(ends) / max(1, len(ends)))


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, Refused)


def _row(places: int, overload: bool, judgements: Sequence[Judgement]) -> str:
    goodputs, refused = zip(*judgements, strict=True)
    return (
        f"{places:6}  {'overload=' if overload else 'no word':10}"
        f"{fmean(goodputs):9.3f}{min(goodputs):9.3f}{fmean(refused):10.1%}{max(refused):9.1%}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits.refusals")
    parser.add_argument("--places", type=int, nargs="+", default=[5, 20, 100])
    parser.add_argument("--runs", type=int, default=20, help="of each, with different seeds")
    parser.add_argument("--seed", type=int, help="the first seed (random by default)")
    arguments = parser.parse_args()
    first = random.randrange(1_000_000) if arguments.seed is None else arguments.seed
    seeds = range(first, first + arguments.runs)
    print(f"seeds {first} to {seeds[-1]}")
    print("places  told       goodput    worst   refused    worst")
    with ProcessPoolExecutor() as pool:
        for places in arguments.places:
            for overload in (True, False):
                one = partial(judge, places, overload=overload)
                print(_row(places, overload, list(pool.map(one, seeds))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
