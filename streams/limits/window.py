"""Windows of completions at one limit: their statistics, comparison, and change detection."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from math import inf, log, log1p, sqrt
from typing import NamedTuple

from penstock.streams.limits.tally import NATURAL, Rounds, Tally, exceeds

__all__ = ["Spread", "Usual", "Window", "elasticity"]

# Added to every standard error: no service is steadier than this from one window to the next.
_UNSTEADY = 0.02

# Earlier rounds count less with every window that has new ones: about 14 decide.
_KEEP = 0.93

# Degrees of freedom below which their spread shows too little.
_FEWEST = 3

# A move of ln goodput at about one level that shows that the service itself has changed.
_CHANGED = 0.35

# Windows on hold of which the goodput is remembered.
_MEMORY = 6


class Spread:
    """The spread of recent windows, so that a lucky calm one looks no surer than the others.

    `correlation` is how alike the errors of goodput and latency of rounds are: 0 if they are
    independent, 1 if they are the same, as behind a queue.
    `wobble` is the standard deviation of ln goodput from one window at a limit to another, beyond
    what the spread of the single latencies explains: the service's own variation.
    """

    __slots__ = ("_both", "_freedom", "_goodputs", "_latencies", "_ratio", "_wobble", "variance")

    def __init__(self) -> None:
        self.variance = 0.0
        """The variance of ln latency within a window; 0 if nothing is known."""
        self._ratio = self._wobble = 0.0
        # Degrees of freedom of the rounds, and sums of their squared deviations.
        self._freedom = self._goodputs = self._latencies = self._both = 0.0

    @property
    def correlation(self) -> float:
        squares = self._goodputs * self._latencies
        return min(1.0, max(0.0, self._both / sqrt(squares))) if squares else 0.0

    @property
    def wobble(self) -> float:
        return sqrt(max(0.0, self._wobble))

    def compare(self, window: Window, others: Collection[float], at_most: float = inf) -> None:
        """Learn from the goodput of other windows at about the same limit."""
        # The mean of a few varies too.
        size = len(others)
        away = min(at_most, abs(window.goodput - sum(others) / size))
        square = away**2 * size / (size + 1)
        self._wobble = 0.88 * self._wobble + 0.12 * (square - window.goodput_error**2)

    def learn(self, rounds: Rounds) -> None:
        """Add the rounds of one window."""
        if rounds.number < 2:
            return
        self._freedom = _KEEP * self._freedom + rounds.number - 1
        goodputs, latencies, both = rounds.deviations()
        self._goodputs = _KEEP * self._goodputs + goodputs
        self._latencies = _KEEP * self._latencies + latencies
        self._both = _KEEP * self._both + both

    def pool(self, ratio: float, logs: float) -> tuple[float, float]:
        """Add one window's squared cv and variance of logarithms; return the larger ones.

        The first is at least what the rounds show.
        """
        # 0.8 a window: recent windows decide, about five of them.
        self._ratio = 0.8 * self._ratio + 0.2 * ratio
        self.variance = 0.8 * self.variance + 0.2 * logs
        ratio = max(ratio, self._ratio)
        if self._freedom > _FEWEST:
            ratio = max(ratio, self._goodputs / self._freedom)
        return ratio, max(logs, self.variance)


class Window(NamedTuple):
    """Goodput and latency at one limit, as logarithms with their standard errors.

    `latency` is the cost of a success, in seconds in a slot, including its share of failures.
    """

    limit: int
    goodput: float
    goodput_error: float
    latency: float
    latency_error: float
    wobble: float = 0.0
    calls: int = 0
    failed: int = 0
    correlation: float = 0.0

    @classmethod
    def measure(cls, limit: int, tally: Tally, spread: Spread) -> Window:
        """Compute it from sums, in which there must be a success."""
        successes = tally.successes
        busy, busy2, logs, logs2 = tally.busy, tally.busy2, tally.logs, tally.logs2
        spread.learn(tally.rounds)
        mean, mean_log = busy / successes, logs / successes
        ratio, variance = spread.pool(
            max(0.0, busy2 / successes / (mean * mean) - 1),
            max(0.0, logs2 / successes - mean_log * mean_log),
        )
        return cls(
            limit,
            log(successes / tally.seconds),
            sqrt(ratio / successes) + _UNSTEADY,
            mean_log + log1p(tally.failed_busy / busy),
            sqrt(variance / successes) + _UNSTEADY,
            spread.wobble,
            successes + tally.failed,
            tally.failed,
            spread.correlation,
        )

    @property
    def error(self) -> float:
        """The standard error of goodput and latency taken together."""
        squares = self.goodput_error**2, self.latency_error**2
        return sqrt(_together(*squares, self.correlation))

    def fails_more(self, base: Window) -> bool:
        """Whether more of the calls failed than in `base`, beyond chance."""
        return exceeds(self.failed, self.calls, max(NATURAL, base.failed / max(1, base.calls)))

    def join(self, later: Window, joined: int) -> Window:
        """Return the mean of this, itself the mean of `joined` windows, and one more."""
        old, new = joined / (joined + 1), 1 / (joined + 1)
        return Window(
            self.limit,
            old * self.goodput + new * later.goodput,
            sqrt((old * self.goodput_error) ** 2 + (new * later.goodput_error) ** 2),
            old * self.latency + new * later.latency,
            sqrt((old * self.latency_error) ** 2 + (new * later.latency_error) ** 2),
            sqrt((old * self.wobble) ** 2 + (new * later.wobble) ** 2),
            self.calls + later.calls,
            self.failed + later.failed,
            later.correlation,
        )


class Usual:
    """The goodput of the last windows on hold, whatever their limits: those differ little.

    One window proves nothing: two in a row must be off. Memory: constant.
    """

    __slots__ = ("_drift", "_goodputs", "_odd", "_spread")

    def __init__(self, spread: Spread) -> None:
        self._spread = spread
        self.clear()

    def clear(self) -> None:
        """Forget: the next window will be the first."""
        self._goodputs: deque[float] = deque(maxlen=_MEMORY)
        self._odd = 0  # windows in a row that were far off
        self._drift = 0  # which way the last window was a little off: -1, 0 or 1

    @property
    def goodput(self) -> float | None:
        """The mean of ln goodput; None if nothing is known."""
        return sum(self._goodputs) / len(self._goodputs) if self._goodputs else None

    def add(self, window: Window) -> None:
        """Add a window on hold."""
        if self._goodputs:
            self._spread.compare(window, self._goodputs)
        self._goodputs.append(window.goodput)

    def odd(self, window: Window, away: float) -> bool:
        """Whether a window is far off; `away` is the deviation that its limit alone may explain.

        Call it once for each window, then `changed`.
        """
        usual = self.goodput
        if usual is None:
            return False
        far = abs(window.goodput - usual) > max(_CHANGED, 3 * self._noise(window)) + away
        self._odd = self._odd + 1 if far else 0
        if far:
            self._spread.compare(window, self._goodputs, at_most=_CHANGED)
        return far

    @property
    def changed(self) -> bool:
        """Whether the last two windows were odd."""
        return self._odd >= 2

    def drifts(self, window: Window) -> int:
        """-1 or 1 if the goodputs of two windows on hold were a little too low or high, else 0."""
        usual = self.goodput
        moved = 0.0 if usual is None else window.goodput - usual
        before, self._drift = self._drift, 0
        if abs(moved) > 2 * self._noise(window):
            self._drift = 1 if moved > 0 else -1
        return self._drift if self._drift == before else 0

    def _noise(self, window: Window) -> float:
        own = window.goodput_error**2 + window.wobble**2
        return sqrt(own * (1 + 1 / max(1, len(self._goodputs))))


def elasticity(low: Window, high: Window) -> tuple[float, float]:
    """Return d ln goodput / d ln limit between two windows, and its standard error.

    By Little's law goodput and latency show the same, so both are read and weighted by their
    certainty. Where calls wait for one another they also err alike, and two are no surer than one.
    """
    step = abs(log(high.limit / low.limit))
    sign = 1 if high.limit > low.limit else -1
    error2 = (low.goodput_error**2 + high.goodput_error**2) / step**2
    slope = sign * (high.goodput - low.goodput) / step
    error2b = (low.latency_error**2 + high.latency_error**2) / step**2
    slope2 = 1 - sign * (high.latency - low.latency) / step
    slope = (error2b * slope + error2 * slope2) / (error2 + error2b)
    error2 = _together(error2, error2b, max(low.correlation, high.correlation))
    # When the service slows down both show it, so averaging does not reduce this.
    return slope, sqrt(error2 + (low.wobble**2 + high.wobble**2) / step**2)


def _together(one: float, other: float, correlation: float) -> float:
    """The variance of a mean weighted by certainty, from the variances of its parts."""
    weight = other / (one + other)
    mixed = 2 * weight * (1 - weight) * correlation * sqrt(one * other)
    return weight**2 * one + (1 - weight) ** 2 * other + mixed
