"""Means over rounds of completions, and how they vary from one round to another."""

from __future__ import annotations

__all__ = ["Rounds"]


class Rounds:
    """Rates and latencies of the rounds of a window: the method of batch means.

    Where calls wait for one another their latencies are alike, so that many of them tell as little
    as few: the spread of single latencies makes a window look surer than it is. Means over rounds,
    in each of which every slot is used about once, are nearly independent of one another. See Law,
    Simulation Modeling and Analysis (5th edition, 2015), chapter 9.5.3.

    `successes` are those of all rounds that have ended, which are `number`. Memory: constant.
    """

    __slots__ = ("_l", "_ll", "_logs", "_s", "_seconds", "_sl", "_ss", "number", "successes")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.number = self.successes = 0
        self._seconds = self._logs = 0.0
        # Sums over rounds, by their successes: s is the seconds a success, l the mean of ln W.
        self._s = self._l = self._ss = self._ll = self._sl = 0.0

    def add(self, successes: int, seconds: float, logs: float) -> None:
        """Take in the round that ends where the window's sums are these."""
        size = successes - self.successes
        took, logged = seconds - self._seconds, logs - self._logs
        self.number += 1
        self._s += took
        self._l += logged
        self._ss += took * took / size
        self._ll += logged * logged / size
        self._sl += took * logged / size
        self.successes, self._seconds, self._logs = successes, seconds, logs

    def deviations(self) -> tuple[float, float, float]:
        """Sums of the squared deviations, by successes: of the seconds a success over their mean,
        of the mean ln W, and of both multiplied.

        Zeros if no time passed, or no round has ended.
        """
        if not self._s:
            return 0.0, 0.0, 0.0
        n = self.successes
        per_success = self._s / n
        return (
            max(0.0, self._ss / (per_success * per_success) - n),
            max(0.0, self._ll - self._l * self._l / n),
            (self._sl - self._s * self._l / n) / per_success,
        )
