"""The counting half of a limiter that starts slowly, then decides by windows of completions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import ceil, log

from streams.limits.checks import check_bounds
from streams.limits.outcome import Outcome
from streams.limits.slow_start import SlowStart
from streams.limits.window import Spread, Window

__all__ = ["Windowed"]

# The least latency: on a virtual clock a handler may take no time at all.
_INSTANT = 1e-12

# Where to start: as far as a start at 1 would get with its first event, backlog or not.
_FEW = 2

# Quick refusals come before the first success of the same moment: only after well over one latency
# do the shares of time tell what they will be.
_SETTLED = 1.5


class Windowed(ABC):
    """Start slowly, then count completions at one limit into windows, each handed to `decide`.

    A window is whole rounds of the limit, at least two and at least 16 completions, and lasts at
    least the latency of the job that is in service at a random moment. After a change of limit as
    many completions are skipped as were in flight.

    `floor` and `ceiling` bound the limit, which starts at 2, or at the bound nearest to it.
    TypeError if one is not an int, ValueError if not 1 <= floor <= ceiling. Memory: constant.
    """

    def __init__(self, floor: int, ceiling: int) -> None:
        self.floor, self.ceiling = check_bounds(floor, ceiling)
        self.limit = min(max(_FEW, self.floor), self.ceiling)
        self._slow_start: SlowStart | None = None
        self._spread = Spread()
        self._latency = 0.0
        self._opened = 0.0
        self._skipping = False
        # Completions of this window: in all, and still to come.
        self._total = self._left = 0
        # Those that started below the limit, those dropped and those that failed ordinarily.
        self._below = self._drops = self._ignored = 0
        # Sums of W, W^2, ln W and (ln W)^2 over successes (W: time in the slot), of W over others.
        self._busy = self._busy2 = self._logs = self._logs2 = 0.0
        self._dropped_busy = self._ignored_busy = 0.0
        self._start_slowly(self.ceiling)

    @abstractmethod
    def adopt(self, start: SlowStart) -> None:
        """Hear of a step of the slow start, or of its end; the limit is already the new one."""

    @abstractmethod
    def decide(self, window: Window) -> None:
        """Hear of a window throughout which the limit was in use."""

    @abstractmethod
    def unused(self, share: float) -> None:
        """Hear of a window in which only `share` of the work started at the limit."""

    @abstractmethod
    def give_way(self, share: float) -> None:
        """Hear that work was dropped; `share` of the time in slots still went into successes."""

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        """Count one completion; at the end of a window, decide."""
        start = self._slow_start
        if start is not None:
            if start.on_complete(now, started, in_flight_at_start, outcome):
                self._follow(start, now)
            return
        # The common path counts only what cannot be had by subtraction: it runs for every event.
        took = now - started
        if outcome is Outcome.SUCCESS:
            if took < _INSTANT:
                took = _INSTANT
            logged = log(took)
            self._busy += took
            self._busy2 += took * took
            self._logs += logged
            self._logs2 += logged * logged
        elif outcome is Outcome.DROPPED:
            self._drops += 1
            self._dropped_busy += took
        else:
            self._ignored += 1
            self._ignored_busy += took
        if in_flight_at_start < self.limit:
            self._below += 1
        self._left -= 1
        if self._left <= 0:
            self._close(now)
        elif self._drops and not self._skipping and self._overloaded(now):
            self._drop_work()

    def _start_slowly(self, ceiling: int) -> None:
        self._skip(self.limit)
        if self.limit < ceiling:
            self._slow_start = SlowStart(self.limit, self.floor, ceiling)

    def _follow(self, start: SlowStart, now: float) -> None:
        if start.over:
            self._slow_start = None
            self._latency = start.latency or self._latency
            if start.limit == self.limit:
                self._open(now)
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

    def _lengthen(self, rounds: int) -> None:
        """Go on counting into the same window, for `rounds` times what it has."""
        self._left = rounds * self._total
        self._total += self._left

    @property
    def _lengthened(self) -> bool:
        return self._total > 2 * self._least()

    def _least(self) -> int:
        # Whole rounds: jobs of equal length finish in bursts of the limit.
        return self.limit * ceil(max(16, 2 * self.limit) / self.limit)

    def _skip(self, completions: int) -> None:
        self._open(0.0)
        self._skipping = True
        self._left = completions

    def _open(self, now: float) -> None:
        self._skipping = False
        self._opened = now
        self._total = self._left = self._least()
        self._below = self._drops = self._ignored = 0
        self._busy = self._busy2 = self._logs = self._logs2 = 0.0
        self._dropped_busy = self._ignored_busy = 0.0

    def _close(self, now: float) -> None:
        if self._skipping:
            self._open(now)
            return
        seconds = now - self._opened
        # In a shorter window only the short jobs of a mixture would have had time to finish.
        mixed = seconds * self._busy < self._busy2
        if seconds <= 0 or mixed or seconds < _SETTLED * self._latency:
            self._left = self.limit
            self._total += self.limit
            return
        successes = self._total - self._drops - self._ignored
        if self._drops and self._overloaded(now):
            self._drop_work()
        elif self._below > 0.2 * self._total:
            self.unused(1 - self._below / self._total)
        elif successes > self._drops:
            self._latency = self._busy / successes
            # Ordinary errors held slots and produced nothing: their share of the time is taken off.
            working = self._busy + self._dropped_busy
            self.decide(
                Window.measure(
                    self.limit,
                    seconds * working / (working + self._ignored_busy),
                    successes,
                    self._drops,
                    (self._busy, self._busy2, self._logs, self._logs2),
                    self._spread,
                )
            )
        if self._left <= 0:
            self._open(now)

    def _overloaded(self, now: float) -> bool:
        return (
            self._drops >= min(3, self.limit)
            and self._drops * 10 >= self._total - self._left
            and now - self._opened >= _SETTLED * self._latency
        )

    def _drop_work(self) -> None:
        # By time in a slot: quick refusals would outnumber the work that does get done.
        working = self._busy + self._dropped_busy
        self.give_way(self._busy / working if working else 0.0)
        if not self._skipping:
            self._skip(self.limit)
