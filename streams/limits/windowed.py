"""The counting base of a limiter that starts slowly, then decides by windows of completions."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, inf, log

from penstock.streams.base.validation import check_bounds
from penstock.streams.limits.limiter import Completion, Outcome
from penstock.streams.limits.slow_start import SlowStart
from penstock.streams.limits.tally import NATURAL, Failures, Tally, refused
from penstock.streams.limits.window import Spread, Window

__all__ = ["Windowed"]

_SUCCESS = Outcome.SUCCESS

# Quick refusals come before the first success of the same moment: only after well over one latency
# do the shares of time show what they will be.
_SETTLED = 1.5

# A window that takes this many times as long as usual shows that the service has changed.
_OVERDUE = 3.0


# A share of drops that is too large even where they cost no time.
_OFTEN = 0.2

# A share that is an outage, whatever was usual before.
_MOST = 0.5


# A completion that began below the limit: seconds after the last one of any kind, how many were in
# flight when it began, how long it took, and whether it was a success.
_Refilled = tuple[float, float, int, float, bool]


class Windowed:
    """Start slowly, then count completions at one limit into windows, each handed to `decide`.

    Only work that began at the limit counts, or in a burst that reached it: the rest shows
    nothing about the limit. A window is whole rounds of the limit, at least two and at least 16
    completions, and lasts at least the latency of the job that is in service at a random moment.
    After a change of the limit as many completions are skipped as were in flight.

    Calls of equal length that begin together end together. If an asynchronous source then gives
    the next events one after the other, all but the last begin below the limit, although the limit
    holds the work back. So completions in a row, each with one more in flight at its start than
    the one before, are kept (`_refill`): between the starts of two of them nothing ended. Once the
    row has reached the limit, all of it counts. Calls of different lengths end in a different order
    than they began; but these also end, and are replaced, one by one.

    `floor` and `ceiling` bound the limit, which starts at `floor`. BadArgument unless they are ints
    with 1 <= floor <= ceiling. Memory: constant, except for that row, which is at most as long as
    the limit.
    """

    def __init__(self, floor: int, ceiling: int) -> None:
        self.floor, self.ceiling = check_bounds(floor, ceiling)
        self.limit = self.floor
        self._slow_start: SlowStart | None = None
        self._spread = Spread()
        self._refill: list[_Refilled] = []
        self._latency = 0.0
        self._now = float("-inf")
        self._opened = 0.0
        # Since when the limit has been in force, with its jobs in flight.
        self._steady = float("-inf")
        self._skipping = False
        self._changed = float("-inf")
        # Successes that this window still needs; while skipping, completions.
        self._left = 0
        # Of those that began at the limit, and the time in which it was in use.
        self._tally = Tally()
        # Of those that began below the limit, and of those that were dropped: time in the slots.
        self._below_busy = self._dropped_busy = 0.0
        # The time after which this window takes too long.
        self._overdue = self._per_success = inf
        # The limit before it was raised, until the first window after that; what failed since.
        self._risen_from: int | None = None
        self._trial = Failures()
        # What was dropped at this limit, and in this window; what usually fails.
        self._drops, self._window_drops = Failures(), Failures()
        self._usual_failures = Failures()
        self._start_slowly(self.ceiling)

    def adopt(self, start: SlowStart) -> None:
        """Called for each step of the slow start, and for its end, with the new limit set."""
        raise NotImplementedError

    def decide(self, window: Window) -> None:
        """Called for a window throughout which the limit was in use."""
        raise NotImplementedError

    def give_way(self, share: float, *, often: bool) -> None:
        """Called when work was dropped; `share` of the time in slots still went into successes.

        `often`: many calls were dropped, however little time that took.
        """
        raise NotImplementedError

    def take_back(self, level: int, reason: str) -> None:
        """Called when more calls fail since the limit was raised; `level` may be low enough."""
        raise NotImplementedError

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        """Count one completion; at the end of a window, decide."""
        self.on_completions([(now, started, in_flight_at_start, outcome)])

    def on_completions(self, completions: Sequence[Completion]) -> None:
        """Count completions, in their order; at the end of each window, decide."""
        at, end = 0, len(completions)
        while at < end:
            start = self._slow_start
            if start is not None:
                at = start.count(completions, at)
                self._now = completions[at - 1][0]
                if start.over or start.limit != self.limit:
                    self._follow(start)
                continue
            at, complete = self._add_successes(completions, at)
            if complete:
                self._close()
            elif at < end:
                now, started, in_flight, outcome = completions[at]
                if outcome is _SUCCESS:
                    self._end_refill(started, in_flight)
                else:
                    self._add_failure(now, started, in_flight, outcome)
                    at += 1

    def _add_successes(self, completions: Sequence[Completion], at: int) -> tuple[int, bool]:
        """Count from index `at` on, until the window is complete, or there is more to do first.

        There is if the next one failed, or reached the limit after others of a refill. Returns
        the index of the next one, and whether the window is complete.
        """
        # In local variables: this runs for each call that ends.
        limit, skipping, left = self.limit, self._skipping, self._left
        changed, steady, refill = self._changed, self._steady, self._refill
        last, overdue = self._now, inf if skipping else self._overdue
        tally, rounds = self._tally, self._tally.rounds
        successes, seconds, busy, busy2 = tally.successes, tally.seconds, tally.busy, tally.busy2
        logs, logs2, round_ends = tally.logs, tally.logs2, rounds.successes + limit
        calls, fresh = self._drops.calls, 0
        complete = False
        for now, started, in_flight, outcome in completions[at:] if at else completions:
            took = now - started
            if outcome is not _SUCCESS or (refill and in_flight >= limit and took > 0):
                break
            at += 1
            gap = now - last
            last = now
            if gap < 0:
                self._set_back(now)
                changed, steady, gap = self._changed, self._steady, 0.0
            if not skipping:
                calls += 1
            if started >= changed:
                fresh += 1
            if took <= 0:
                continue  # A call that took no time shows no latency.
            if in_flight >= limit:
                logged = log(took)
                successes += 1
                busy += took
                busy2 += took * took
                logs += logged
                logs2 += logged * logged
            elif not skipping:
                if started >= steady:
                    if refill and not self._is_refilled(started, in_flight):
                        self._forgo_refill()
                    refill.append((gap, started, in_flight, took, True))
                else:
                    # It began while a change of the limit was in progress.
                    self._below_busy += took
                continue
            else:
                self._below_busy += took
            seconds += gap
            if successes >= round_ends:
                rounds.add(successes, seconds, logs)
                round_ends = successes + limit
            left -= 1
            if left <= 0 or seconds > overdue:
                complete = True
                break
        self._now, self._left = last, left
        tally.successes, tally.seconds, tally.busy, tally.busy2 = successes, seconds, busy, busy2
        tally.logs, tally.logs2 = logs, logs2
        self._drops.calls = calls
        self._window_drops.calls += fresh
        if self._risen_from is not None:
            self._trial.calls += fresh
        return at, complete

    def _add_failure(self, now: float, started: float, in_flight: int, outcome: Outcome) -> None:
        gap, self._now = now - self._now, now
        if gap < 0:
            self._set_back(now)
            gap = 0.0
        took, dropped = max(0.0, now - started), outcome is Outcome.DROPPED
        if self._risen_from is not None and started >= self._changed:
            self._trial.add(in_flight, failed=True)
            if self._trial.exceed(refused(self._usual_failures.share)):
                self._take_back(dropped)
                return
        if not self._skipping:
            self._drops.add(in_flight, failed=dropped)
        if started >= self._changed:
            self._window_drops.add(in_flight, failed=dropped)
        if dropped:
            self._dropped_busy += took
            if self._overloaded():
                self._drop_work()
                return
        if in_flight >= self.limit:
            self._end_refill(started, in_flight)
            self._tally.add(took, success=False)
        elif not self._skipping and started >= self._steady:
            if not self._is_refilled(started, in_flight):
                self._forgo_refill()
            self._refill.append((gap, started, in_flight, took, False))
            return
        else:
            self._below_busy += took
            if not self._skipping:
                return
        self._tally.seconds += gap
        self._tally.end_round(self.limit)
        self._left -= self._skipping
        if self._left <= 0 or (self._tally.seconds > self._overdue and not self._skipping):
            self._close()

    def _set_back(self, now: float) -> None:
        """The clock was set back."""
        self._opened = min(self._opened, now)
        self._steady, self._changed = min(self._steady, now), min(self._changed, now)

    def _is_refilled(self, started: float, in_flight: int) -> bool:
        """Whether a completed call is the next one of the row."""
        if not self._refill:
            return False
        _, before, among, _, _ = self._refill[-1]
        return started >= before and in_flight == among + 1

    def _end_refill(self, started: float, in_flight: int) -> None:
        """A call that began at the limit has ended: the row counts if this is the next one."""
        if not self._is_refilled(started, in_flight):
            self._forgo_refill()
            return
        for gap, _, _, took, success in self._refill:
            self._tally.seconds += gap
            self._tally.add(took, success)
            self._left -= success
        self._refill.clear()

    def _forgo_refill(self) -> None:
        for _, _, _, took, success in self._refill:
            if success:
                self._below_busy += took
        self._refill.clear()

    def _start_slowly(self, ceiling: int) -> None:
        self._skip(self.limit)
        if self.limit < ceiling:
            known = self._spread.variance, self._usual_failures
            self._slow_start = SlowStart(self.limit, self.floor, ceiling, self._now, *known)

    def _follow(self, start: SlowStart) -> None:
        if start.over:
            self._slow_start = None
            self._latency = start.latency or self._latency
            if start.limit == self.limit:
                self._open()
            else:
                self._skip(max(self.limit, start.limit))
        self._set(start.limit)
        self.adopt(start)

    def _change(self, limit: int) -> bool:
        """Set the limit; True if it changed, and then a new window waits for its jobs."""
        old = self.limit
        self._set(min(max(limit, self.floor), self.ceiling))
        if old == self.limit:
            return False
        self._risen_from = old if self.limit > old else None
        self._skip(max(old, self.limit))
        return True

    def _set(self, limit: int) -> None:
        if limit != self.limit:
            self.limit = limit
            self._changed = self._now
            self._risen_from = None
            self._trial.clear()
            self._drops.clear()

    def _expect(self, goodput: float | None) -> None:
        """From the next window on, close one early if it takes much longer than at this latency."""
        self._per_success = inf if goodput is None else exp(-goodput)

    def _skip(self, completions: int) -> None:
        self._open()
        self._skipping = True
        self._left = completions

    def _open(self) -> None:
        self._skipping = False
        self._opened = self._now
        # Whole rounds: jobs of equal length finish in bursts of the limit.
        self._left = self.limit * ceil(max(16, 2 * self.limit) / self.limit)
        self._overdue = _OVERDUE * self._left * self._per_success
        self._refill.clear()
        self._tally.clear()
        self._window_drops.clear()
        self._below_busy = self._dropped_busy = 0.0

    def _close(self) -> None:
        if self._skipping:
            self._open()
            self._steady = self._now
            return
        tally = self._tally
        overdue = tally.seconds > self._overdue
        # In a shorter window only the short jobs of a mixture would have had time to finish.
        mixed = tally.seconds * tally.busy < tally.busy2
        short = mixed or tally.seconds <= 0 or tally.seconds < _SETTLED * self._latency
        if short and not overdue:
            self._left = self.limit
            return
        if tally.successes:
            self._latency = tally.busy / tally.successes
            window = Window.measure(self.limit, tally, self._spread)
            self._risen_from = None
            self._drops.fade()
            self.decide(window)
        if not self._skipping:
            self._open()

    def _overloaded(self) -> bool:
        if self._now - self._opened < _SETTLED * self._latency:
            return False
        return self._drops.exceed(NATURAL) or self._window_drops.exceed(_MOST)

    def _drop_work(self) -> None:
        # By time in a slot: quick refusals would outnumber the work that does get done.
        useful = self._tally.busy + self._below_busy
        working = useful + self._dropped_busy
        share = useful / working if working else 0.0
        self.give_way(share, often=self._drops.exceed(_OFTEN))

    def _take_back(self, dropped: bool) -> None:
        assert self._risen_from is not None
        level = max(self._risen_from, min(self.limit, self._trial.fewest) - 1)
        self.take_back(level, "work was dropped" if dropped else "more calls failed")
