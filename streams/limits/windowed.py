"""The counting half of a limiter that starts slowly, then decides by windows of completions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import ceil, exp, inf, sqrt

from streams.limits.checks import check_bounds
from streams.limits.outcome import Outcome
from streams.limits.refill import Refill
from streams.limits.slow_start import SlowStart
from streams.limits.tally import Tally
from streams.limits.window import Spread, Window

__all__ = ["Windowed"]

# Quick refusals come before the first success of the same moment: only after well over one latency
# do the shares of time tell what they will be.
_SETTLED = 1.5

# A window that takes so many times as long as usual is enough to say that the plant has changed.
_OVERDUE = 3.0

# A share of drops that any busy service may have.
_NATURAL = 0.1


class Windowed(ABC):
    """Start slowly, then count completions at one limit into windows, each handed to `decide`.

    Only work that began at the limit counts, or in a burst that came up to it: the rest says
    nothing about the limit. A window is whole rounds of the limit, at least two and at least 16
    completions, and lasts at least the latency of the job that is in service at a random moment.
    After a change of limit as many completions are skipped as were in flight.

    `floor` and `ceiling` bound the limit, which starts at `floor`. BadArgument unless they are ints
    with 1 <= floor <= ceiling. Memory: constant.
    """

    def __init__(self, floor: int, ceiling: int) -> None:
        self.floor, self.ceiling = check_bounds(floor, ceiling)
        self.limit = self.floor
        self._slow_start: SlowStart | None = None
        self._spread = Spread()
        self._refill = Refill()
        self._latency = 0.0
        self._now = float("-inf")
        self._opened = 0.0
        # Since when the limit has been what it is, and its jobs in flight.
        self._steady = float("-inf")
        self._skipping = False
        # Completions of this window: in all, and still to come.
        self._total = self._left = 0
        # Of those that began at the limit, and the time in which it was in use.
        self._tally = Tally()
        # Those that began below the limit and those dropped, and their time in the slots.
        self._below = self._drops = 0
        self._below_busy = self._dropped_busy = 0.0
        # How much time is too much for this window.
        self._overdue = self._per_completion = inf
        self._start_slowly(self.ceiling)

    @abstractmethod
    def adopt(self, start: SlowStart) -> None:
        """Hear of a step of the slow start, or of its end; the limit is already the new one."""

    @abstractmethod
    def decide(self, window: Window) -> None:
        """Hear of a window throughout which the limit was in use."""

    @abstractmethod
    def give_way(self, share: float) -> None:
        """Hear that work was dropped; `share` of the time in slots still went into successes."""

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        """Count one completion; at the end of a window, decide."""
        gap, self._now = now - self._now, now
        start = self._slow_start
        if start is not None:
            if start.on_complete(now, started, in_flight_at_start, outcome):
                self._follow(start)
            return
        if gap < 0:
            # The clock was set back.
            self._opened, gap = min(self._opened, now), 0.0
            self._steady = min(self._steady, now)
        took = now - started
        if outcome is Outcome.DROPPED:
            self._drops += 1
            self._dropped_busy += took
        elif took <= 0:
            # What took no time shows none.
            return
        elif in_flight_at_start < self.limit:
            if not self._skipping and started >= self._steady:
                if not self._refill.continues(started, in_flight_at_start):
                    self._forgo_refill()
                self._refill.add(gap, started, in_flight_at_start, took, outcome is Outcome.SUCCESS)
                return
            self._below += 1
            self._below_busy += took
            if not self._skipping:
                # It began while a change of the limit was still under way.
                return
        else:
            self._tally.add(took, outcome is Outcome.SUCCESS)
        if self._refill.size:
            full = in_flight_at_start >= self.limit
            if full and self._refill.continues(started, in_flight_at_start):
                self._count_refill()
            else:
                self._forgo_refill()
        self._tally.seconds += gap
        self._left -= 1
        if self._left <= 0 or (self._tally.seconds > self._overdue and not self._skipping):
            self._close()
        elif self._drops and not self._skipping and self._overloaded():
            self._drop_work()

    def _count_refill(self) -> None:
        refill = self._refill
        self._left -= refill.size
        self._tally.add_all(refill.tally)
        refill.clear()

    def _forgo_refill(self) -> None:
        refill = self._refill
        self._below += refill.size
        self._below_busy += refill.tally.busy + refill.tally.ignored_busy
        refill.clear()

    def _start_slowly(self, ceiling: int) -> None:
        self._skip(self.limit)
        if self.limit < ceiling:
            self._slow_start = SlowStart(
                self.limit, self.floor, ceiling, self._now, self._spread.variance
            )

    def _follow(self, start: SlowStart) -> None:
        if start.over:
            self._slow_start = None
            self._latency = start.latency or self._latency
            if start.limit == self.limit:
                self._open()
            else:
                self._skip(max(self.limit, start.limit))
        self.limit = start.limit
        self.adopt(start)

    def _change(self, limit: int) -> bool:
        """Set the limit; True if that changed it, and then a new window waits for its jobs."""
        old, self.limit = self.limit, min(max(limit, self.floor), self.ceiling)
        if old == self.limit:
            return False
        self._skip(max(old, self.limit))
        return True

    def _expect(self, goodput: float | None) -> None:
        """Close a window early, from the next one on, if it takes much longer than at this."""
        self._per_completion = inf if goodput is None else exp(-goodput)

    def _least(self) -> int:
        # Whole rounds: jobs of equal length finish in bursts of the limit.
        return self.limit * ceil(max(16, 2 * self.limit) / self.limit)

    def _skip(self, completions: int) -> None:
        self._open()
        self._skipping = True
        self._left = completions

    def _open(self) -> None:
        self._skipping = False
        self._opened = self._now
        self._total = self._left = self._least()
        self._overdue = _OVERDUE * self._total * self._per_completion
        self._refill.clear()
        self._tally.clear()
        self._below = self._drops = 0
        self._below_busy = self._dropped_busy = 0.0

    def _close(self) -> None:
        if self._skipping:
            self._open()
            self._steady = self._now
            return
        tally = self._tally
        seconds = tally.seconds
        overdue = seconds > self._overdue
        if overdue or self._left < 0:
            self._total -= self._left
            self._left = 0
        # In a shorter window only the short jobs of a mixture would have had time to finish.
        mixed = seconds * tally.busy < tally.busy2
        if not overdue and (seconds <= 0 or mixed or seconds < _SETTLED * self._latency):
            self._left = self.limit
            self._total += self.limit
            return
        successes = self._total - self._drops - tally.ignored
        if self._drops and self._overloaded():
            self._drop_work()
        elif successes > self._drops:
            self._latency = tally.busy / successes
            # Ordinary errors held slots and produced nothing: their share of the time is taken off.
            working = tally.busy + self._dropped_busy
            self.decide(
                Window.measure(
                    self.limit,
                    seconds * working / (working + tally.ignored_busy),
                    successes,
                    self._drops,
                    (tally.busy, tally.busy2, tally.logs, tally.logs2),
                    self._spread,
                )
            )
        if self._left <= 0:
            self._open()

    def _overloaded(self) -> bool:
        natural = _NATURAL * (self._total - self._left + self._below)
        return (
            self._drops >= min(3, self.limit)
            # Beyond chance, too: of a few completions two sigma more than that share.
            and self._drops > natural + 2 * sqrt(natural)
            and self._now - self._opened >= _SETTLED * self._latency
        )

    def _drop_work(self) -> None:
        # By time in a slot: quick refusals would outnumber the work that does get done.
        useful = self._tally.busy + self._below_busy
        working = useful + self._dropped_busy
        self.give_way(useful / working if working else 0.0)
        if not self._skipping:
            self._skip(self.limit)
