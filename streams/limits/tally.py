"""Sums over completions, from which a window is measured: of all, and by rounds."""

from __future__ import annotations

from math import log

__all__ = ["Rounds", "Tally"]


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


class Tally:
    """Sums over completions: W, W^2, ln W and (ln W)^2 of successes (W: time in the slot, in
    seconds), the number of both sorts, and W of those that failed. `seconds` passed meanwhile.
    `rounds` are means over parts of them.
    """

    __slots__ = (
        "busy",
        "busy2",
        "failed",
        "failed_busy",
        "logs",
        "logs2",
        "rounds",
        "seconds",
        "successes",
    )

    def __init__(self) -> None:
        self.rounds = Rounds()
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.successes = self.failed = 0
        self.seconds = self.busy = self.busy2 = self.logs = self.logs2 = self.failed_busy = 0.0
        self.rounds.clear()

    def add(self, took: float, success: bool) -> None:
        """Take in one completion; a success took some time."""
        if success:
            logged = log(took)
            self.successes += 1
            self.busy += took
            self.busy2 += took * took
            self.logs += logged
            self.logs2 += logged * logged
        else:
            self.failed += 1
            self.failed_busy += took

    def end_round(self, size: int) -> None:
        """Note where a round ended, if at least `size` successes came since the last one."""
        if self.successes - self.rounds.successes >= size:
            self.rounds.add(self.successes, self.seconds, self.logs)
