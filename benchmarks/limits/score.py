"""How near a limiter comes to an oracle that knows the plant: from 0 to 1.

The oracle of a phase is the smallest constant level with at least 98 % of the best goodput times
share of successes, found by simulation on a grid of 12 %; where there is less work than capacity,
also with a latency within 2 % of the best.

    score = 0.8 Q + 0.2 C
    Q = min(1, goodput ratio) x min(1, 1.5 / latency ratio) x min(1, success share ratio)

each against the oracle on the same jobs. C is 1 if the mean of 40 limits in a row enters the band
of levels with Q >= 0.9 within 100 + 10 x level completions, falling with the logarithm to 0 at 20
times that. Where a limit can only drift, C is the limit that it may reach (twice the most that was
in flight) over the one it reached, and multiplies Q too. While a plant is down, the score is the
part of the previous oracle's level that is left free.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from statistics import fmean
from typing import NamedTuple

from benchmarks.limits.scenarios import Phase, Scenario
from benchmarks.limits.simulate import Completion, simulate
from penstock.streams.limits import Fixed

__all__ = ["Oracle", "oracle", "score"]

_SEED = 17  # of the search for the best level


class Figures(NamedTuple):
    goodput: float
    latency: float
    share: float

    @classmethod
    def of(cls, run: Sequence[Completion], phase: Phase) -> Figures:
        counted = _between(run, phase.counts_from, phase.ends)
        done = [c.latency for c in counted if c.success]
        if not done:
            return cls(0.0, math.inf, 0.0)
        seconds = phase.ends - phase.counts_from
        return cls(len(done) / seconds, fmean(done), len(done) / len(counted))

    def quality(self, best: Figures) -> float:
        return (
            min(1, self.goodput / best.goodput)
            * min(1, 1.5 * best.latency / self.latency)
            * min(1, self.share / best.share)
        )


def _between(run: Sequence[Completion], begin: float, end: float) -> Sequence[Completion]:
    first, last = (bisect_left(run, time, key=lambda c: c.time) for time in (begin, end))
    return run[first:last]


class Oracle(NamedTuple):
    """The best constant level of a phase, and the lowest and highest that are nearly as good."""

    level: int
    low: int
    high: int


def _grid(bests: tuple[int, ...], size: float) -> list[int]:
    # Half a level has half the goodput, twice a level twice the latency: further is not needed.
    steps = range(math.ceil(math.log(4) / math.log(1.12)) + 1)
    around = {round(best * size / 2 * 1.12**step) for best in bests for step in steps}
    # A service that refuses calls above its capacity is at its best at exactly one level.
    return sorted({max(1, n) for n in around | {round(best * size) for best in bests}})


@cache
def oracle(scenario: Scenario, size: float) -> tuple[Oracle | None, ...]:
    """The oracles of a scenario's phases, None for a phase in which the plant is down."""
    levels = _grid(scenario.best, size)
    columns = zip(*(_constant(scenario, size, _SEED, n) for n in levels), strict=True)
    return tuple(
        None if phase.down else _oracle(scenario, dict(zip(levels, column, strict=True)))
        for phase, column in zip(scenario.phases, columns, strict=True)
    )


def _oracle(scenario: Scenario, figures: dict[int, Figures]) -> Oracle:
    enough = 0.98 * max(f.goodput * f.share for f in figures.values())
    soon = 1.02 * min(f.latency for f in figures.values()) if scenario.from_arrival else math.inf
    level = next(
        level for level, f in figures.items() if f.goodput * f.share >= enough and f.latency <= soon
    )
    band = [n for n, f in figures.items() if f.quality(figures[level]) >= 0.9]
    return Oracle(level, min(band), max(band))


def score(scenario: Scenario, size: float, seed: int, run: list[Completion], initial: int) -> float:
    """The mean score of the phases of one run of a limiter that began at `initial`."""
    scores: list[float] = []
    level = 1
    for number, (phase, best) in enumerate(
        zip(scenario.phases, oracle(scenario, size), strict=True)
    ):
        if best is None:
            scores.append(_restraint(run, phase, level))
            continue
        level = best.level
        constant = _constant(scenario, size, seed, level)[number]
        quality = Figures.of(run, phase).quality(constant)
        if scenario.drifts:
            steadiness = _steadiness(run, initial)
            scores.append((0.8 * quality + 0.2) * steadiness)
        else:
            scores.append(0.8 * quality + 0.2 * _convergence(run, phase, best))
    return fmean(scores)


@cache
def _constant(scenario: Scenario, size: float, seed: int, level: int) -> tuple[Figures, ...]:
    """The figures of a fixed limit in each phase."""
    run = simulate(scenario, Fixed(level), size, seed)
    return tuple(Figures.of(run, phase) for phase in scenario.phases)


def _convergence(run: list[Completion], phase: Phase, best: Oracle) -> float:
    limits = [c.limit for c in _between(run, phase.begins, phase.ends)]
    allowed = 100 + 10 * best.level
    total = sum(limits[:40])
    for i in range(40, len(limits) + 1):
        if best.low <= total / 40 <= best.high:
            return max(0.0, 1 - max(0.0, math.log(i / allowed)) / math.log(20))
        if i < len(limits):
            total += limits[i] - limits[i - 40]
    return 0.0


def _steadiness(run: list[Completion], initial: int) -> float:
    peak = max(c.in_flight for c in run) + 1
    highest = max(c.limit for c in run[len(run) // 2 :])
    return min(1.0, max(initial, 2 * peak) / highest)


def _restraint(run: list[Completion], phase: Phase, level: int) -> float:
    tried = [c.in_flight for c in _between(run, phase.counts_from, phase.ends)]
    return max(0.0, 1 - fmean(tried) / level) if tried else 1.0
