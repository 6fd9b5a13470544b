"""Sums over completions, from which a window is measured."""

from __future__ import annotations

from math import log

__all__ = ["Tally"]


class Tally:
    """Sums of W, W^2, ln W and (ln W)^2 over successes (W: time in the slot, in seconds), and of W
    over those that failed ordinarily, which are counted; `seconds` passed meanwhile.
    """

    __slots__ = ("busy", "busy2", "ignored", "ignored_busy", "logs", "logs2", "seconds")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self.ignored = 0
        self.seconds = self.busy = self.busy2 = self.logs = self.logs2 = self.ignored_busy = 0.0

    def add(self, took: float, success: bool) -> None:
        """Take in one completion; it took some time."""
        if success:
            logged = log(took)
            self.busy += took
            self.busy2 += took * took
            self.logs += logged
            self.logs2 += logged * logged
        else:
            self.ignored += 1
            self.ignored_busy += took

    def add_all(self, other: Tally) -> None:
        """Take in all that `other` has."""
        self.seconds += other.seconds
        self.busy += other.busy
        self.busy2 += other.busy2
        self.logs += other.logs
        self.logs2 += other.logs2
        self.ignored += other.ignored
        self.ignored_busy += other.ignored_busy
