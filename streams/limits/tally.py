"""Sums over completions, from which a window is measured: of all, by rounds, and of refills."""

from __future__ import annotations

from math import log

__all__ = ["Refill", "Rounds", "Tally"]


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


class Refill:
    """Completions that began below the limit, but only while a burst was filling it up again.

    Calls of equal length that begin together end together. Where the next events come one after
    the other only then, from a source that is asynchronous, all but the last begin below the
    limit, though it is the limit that holds the work back.

    So these are completions in a row, each with one more in flight at its start than the one
    before. Between the starts of two such calls nothing ended. Once the row has come up to the
    limit, all of it counts. Calls of different lengths end in another order than they began in;
    but those end one by one as well, and are replaced one by one. Memory: constant.
    """

    __slots__ = ("_in_flight", "_started", "size", "tally")

    def __init__(self) -> None:
        self.tally = Tally()
        self._started = 0.0
        self.clear()

    def clear(self) -> None:
        """Forget the row."""
        self.size = self._in_flight = 0
        self.tally.clear()

    def continues(self, started: float, in_flight: int) -> bool:
        """Whether a call of which this is told at its end is the next one of the row."""
        return started >= self._started and 0 < self._in_flight == in_flight - 1

    def add(self, gap: float, started: float, in_flight: int, took: float, success: bool) -> None:
        """Take in one completion, `gap` seconds after the last one of any kind."""
        self._started, self._in_flight = started, in_flight
        self.size += 1
        self.tally.seconds += gap
        self.tally.add(took, success)
