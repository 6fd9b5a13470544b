"""Sums over completions, from which a window is measured."""

from __future__ import annotations

from math import log

from streams.limits.rounds import Rounds

__all__ = ["Tally"]


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

    def add_all(self, other: Tally) -> None:
        """Take in all that `other` has."""
        self.successes += other.successes
        self.failed += other.failed
        self.seconds += other.seconds
        self.busy += other.busy
        self.busy2 += other.busy2
        self.logs += other.logs
        self.logs2 += other.logs2
        self.failed_busy += other.failed_busy
