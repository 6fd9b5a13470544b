"""One window of completions at one limit, boiled down to what a comparison needs."""

from __future__ import annotations

from math import log, sqrt
from typing import NamedTuple

__all__ = ["Spread", "Window", "elasticity"]

# Added to every standard error: no plant is steadier than this from one window to the next.
_UNSTEADY = 0.02


class Spread:
    """The spread of latencies over recent windows, so that a lucky calm one looks no surer."""

    __slots__ = ("_logs", "_ratio")

    def __init__(self) -> None:
        self._ratio = 0.0
        self._logs = 0.0

    def pool(self, ratio: float, logs: float) -> tuple[float, float]:
        """Take in one window's squared cv and variance of logarithms; return the larger ones."""
        # 0.8 a window: recent windows decide, about five of them.
        self._ratio = 0.8 * self._ratio + 0.2 * ratio
        self._logs = 0.8 * self._logs + 0.2 * logs
        return max(ratio, self._ratio), max(logs, self._logs)


class Window(NamedTuple):
    """Goodput and latency at one limit, as logarithms with their standard errors."""

    limit: int
    goodput: float
    goodput_error: float
    latency: float
    latency_error: float
    dropped: bool

    @classmethod
    def measure(
        cls,
        limit: int,
        seconds: float,
        successes: int,
        drops: int,
        sums: tuple[float, float, float, float],
        spread: Spread,
    ) -> Window:
        """Boil down counts and the sums of W, W^2, ln W and (ln W)^2 over the successes.

        There must be more successes than drops, and some time.
        """
        busy, busy2, logs, logs2 = sums
        mean, mean_log = busy / successes, logs / successes
        ratio, variance = spread.pool(
            max(0.0, busy2 / successes / (mean * mean) - 1),
            max(0.0, logs2 / successes - mean_log * mean_log),
        )
        return cls(
            limit,
            log((successes - drops) / seconds),
            sqrt(ratio / successes) + _UNSTEADY,
            mean_log,
            sqrt(variance / successes) + _UNSTEADY,
            drops > 0,
        )

    def join(self, later: Window, joined: int) -> Window:
        """Return the mean of this, itself the mean of `joined` windows, and one more like it."""
        old, new = joined / (joined + 1), 1 / (joined + 1)
        return Window(
            self.limit,
            old * self.goodput + new * later.goodput,
            sqrt((old * self.goodput_error) ** 2 + (new * later.goodput_error) ** 2),
            old * self.latency + new * later.latency,
            sqrt((old * self.latency_error) ** 2 + (new * later.latency_error) ** 2),
            self.dropped or later.dropped,
        )


def elasticity(low: Window, high: Window) -> tuple[float, float]:
    """Return d ln goodput / d ln limit between two windows, and its standard error.

    By Little's law goodput and latency carry the same news, so both are read and weighted by
    their certainty; after a drop only goodput is, because drops hide in the latency.
    """
    step = log(high.limit / low.limit)
    error = sqrt(low.goodput_error**2 + high.goodput_error**2) / abs(step)
    slope = (high.goodput - low.goodput) / step
    if low.dropped or high.dropped:
        return slope, error
    error2 = sqrt(low.latency_error**2 + high.latency_error**2) / abs(step)
    slope2 = 1 - (high.latency - low.latency) / step
    w, w2 = error**-2, error2**-2
    return (w * slope + w2 * slope2) / (w + w2), (w + w2) ** -0.5
