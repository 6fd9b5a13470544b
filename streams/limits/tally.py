"""Sums over completions, and counts of failures, from which a window is measured."""

from __future__ import annotations

from math import log, sqrt

__all__ = ["NATURAL", "Failures", "Rounds", "Tally", "exceeds", "refused"]

_CALM = 10

# This few may be chance, whatever the share.
_FEWEST = 3

NATURAL = 0.1
"""A share of failures that any busy service may have."""

# A share of failures by which to know, soon after a limit was raised, that it is too high.
_REFUSED = 0.2


def exceeds(failed: float, calls: float, share: float) -> bool:
    """Whether `failed` of `calls` is more than `share`, beyond chance (two standard errors)."""
    expected = share * calls
    return failed >= _FEWEST and failed > expected + 2 * sqrt(expected)


def refused(usual: float) -> float:
    """The share above which calls fail because of the limit, where `usual` failed before."""
    return max(_REFUSED, 2 * usual)


class Failures:
    """Calls, how many of them failed, and the fewest in flight at the start of one that failed.

    If a service refuses every call above its capacity, that is the first number above it.
    """

    __slots__ = ("calls", "failed", "fewest")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.calls = self.failed = 0.0
        self.fewest = 0

    @property
    def share(self) -> float:
        """The share that failed, as if some more had succeeded: one failure is not a habit."""
        return self.failed / (self.calls + _CALM)

    def add(self, in_flight: int, *, failed: bool) -> None:
        """Count one call, which began as one of `in_flight`."""
        self.calls += 1
        if failed:
            self.failed += 1
            self.fewest = in_flight if self.failed == 1 else min(self.fewest, in_flight)

    def exceed(self, share: float) -> bool:
        """Whether more than this share of the calls failed, beyond chance."""
        return exceeds(self.failed, self.calls, share)

    def fade(self) -> None:
        """Reduce the weight of earlier calls to about ten calls of `fade`."""
        self.calls *= 0.9
        self.failed *= 0.9

    def add_all(self, other: Failures) -> None:
        """Add all calls of `other`."""
        self.calls += other.calls
        self.failed += other.failed

    def learn(self, calls: int, failed: int) -> None:
        """Add several calls at once, and reduce the weight of those before."""
        self.fade()
        self.calls += calls
        self.failed += failed


class Rounds:
    """Rates and latencies of the rounds of a window: the method of batch means.

    Where calls wait for one another their latencies are alike, so many of them show as little as
    few: the spread of single latencies makes a window look surer than it is. Means over rounds,
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
        # Sums over rounds, by their successes: s is the seconds per success, l the mean of ln W.
        self._s = self._l = self._ss = self._ll = self._sl = 0.0

    def add(self, successes: int, seconds: float, logs: float) -> None:
        """Add the round that ends where the window's sums are these."""
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
        """Sums of the squared deviations, by successes: of the seconds per success over their mean,
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

    def __init__(self) -> None:
        self.rounds = Rounds()
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.successes = self.failed = 0
        self.seconds = self.busy = self.busy2 = self.logs = self.logs2 = self.failed_busy = 0.0
        self.rounds.clear()

    def add(self, took: float, success: bool) -> None:
        """Add one completion; a success took some time."""
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
