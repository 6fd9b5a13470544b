"""The slow start of a limiter: doubles the limit every round until latency grows.

A window of completions is a careful judge, but far too slow for a small limit under full load:
what arrives meanwhile waits. As in TCP (V. Jacobson, Congestion Avoidance and Control, 1988;
leaving by latency as in S. Ha, I. Rhee, Taming the elephants: HyStart, 2011), the limit doubles
after about as many completions as it allows at once, as long as it holds the work back.

By Little's law goodput is limit / latency: where doubling the limit surely lengthens latency by
more than a quarter, goodput has almost stopped growing, and the start is over. The time of failed
calls is part of the cost of the successes beside them; if more fail than before, the start is over
at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import exp, log, log1p, sqrt
from typing import NamedTuple

from penstock.streams.limits.limiter import Completion, Outcome
from penstock.streams.limits.tally import Failures, refused

__all__ = ["SlowStart"]

_SUCCESS = Outcome.SUCCESS

# d ln goodput / d ln limit that is worth another doubling: latency grows by 2^0.3 at most. It asks
# for more than half because a first round sees little of the queue that it fills.
_PAYS = 0.7

# The variance of ln latency that is assumed at first, and how many observations it counts for: a
# first round of one completion shows no spread at all.
_PRIOR_VARIANCE, _PRIOR_WEIGHT, _KNOWN_WEIGHT = 0.25, 2, 16

# In standard errors. One round too many is soon over; one too few leaves the work to the windows.
_SURE = 2.2


class _Round(NamedTuple):
    """A limit that paid: the mean of ln latency over its completions."""

    limit: int
    latency: float
    size: int


class SlowStart:
    """Propose limits from `limit` up to `ceiling`, until `over`; at `floor` no drop ends it.

    `limit` is what to allow now. After the end it stays: where latency grew, at what is needed for
    the same goodput at the former latency; where calls began to fail, below the number in flight
    at which they did (`failed` is then True), but no lower than the last limit that paid. If as
    many are dropped there, that is still to be judged. `elasticity` is the last one measured
    (1 before that), `latency` the typical one at the last limit that paid, in the unit of the times
    (0 before that). `usual` is the share that failed before.

    Time: a few additions and one logarithm per completion. Memory: constant.
    """

    def __init__(
        self,
        limit: int,
        floor: int,
        ceiling: int,
        since: float = float("-inf"),
        variance: float = 0.0,
        usual: Failures | None = None,
    ) -> None:
        self.limit = limit
        self.elasticity = 1.0
        self.over = self.failed = False
        self.reason = "start"
        self._floor, self._ceiling = floor, ceiling
        self._paid: deque[_Round] = deque()
        # Of all rounds: the squares of the deviations of ln latency from a round's mean.
        self._freedom = _KNOWN_WEIGHT if variance else _PRIOR_WEIGHT
        self._squares = self._freedom * (variance or _PRIOR_VARIANCE)
        self._failures = Failures()
        self._usual = Failures()
        if usual is not None:
            self._usual.add_all(usual)
        self._begin(since, filling=True)

    def _begin(self, now: float, *, filling: bool = False) -> None:
        self._filling = filling
        self._since = now
        self._size = self._full = 0
        self._logs = self._logs2 = 0.0
        self._failed_busy = self._succeeded_busy = 0.0
        self._failures.clear()

    @property
    def latency(self) -> float:
        return exp(self._paid[-1].latency) if self._paid else 0.0

    def count(self, completions: Sequence[Completion], at: int) -> int:
        """Count completions from index `at` on, until one changes `limit` or ends the start.

        Returns the index after it, or that of the end.
        """
        end = len(completions)
        while at < end:
            at, due = self._add_successes(completions, at)
            if due:
                self._judge(completions[at - 1][0])
                break
            if at < end:
                at += 1
                if self._add_failure(*completions[at - 1]):
                    break
        return at

    def _add_successes(self, completions: Sequence[Completion], at: int) -> tuple[int, bool]:
        """Count from index `at` on, until it is due to judge a round, or the next one failed.

        Returns the index of the next one, and whether it is due.
        """
        # In local variables: this runs for each call that ends.
        limit, filling, since, failures = self.limit, self._filling, self._since, self._failures
        calls, size, full = failures.calls, self._size, self._full
        busy, logs, logs2 = self._succeeded_busy, self._logs, self._logs2
        due, half = False, limit // 2
        for now, started, in_flight, outcome in completions[at:] if at else completions:
            if outcome is not _SUCCESS:
                break
            at += 1
            if now < since:
                since = now  # The clock was set back.
            # A call that began under the former limit shows that limit's latency.
            if started < since:
                continue
            calls += 1
            took = now - started
            if took <= 0:
                continue  # A call that took no time shows no latency.
            logged = log(took)
            busy += took
            logs += logged
            logs2 += logged * logged
            size += 1
            if in_flight >= limit:
                full += 1
            if size <= half:
                continue
            # A new limit is filled by a burst that begins below it: reaching it is enough. Later
            # on, most of the work must begin at the limit, or something else holds the work back.
            if 2 * full >= size or (filling and full):
                due = True
                break
            if size >= limit:
                self._begin(now)
                filling, since, calls, size, full = False, now, 0.0, 0, 0
                busy = logs = logs2 = 0.0
        failures.calls, self._since, self._size, self._full = calls, since, size, full
        self._succeeded_busy, self._logs, self._logs2 = busy, logs, logs2
        return at, due

    def _add_failure(self, now: float, started: float, in_flight: int, outcome: Outcome) -> bool:
        """Count one completion; True if that ended the start."""
        if now < self._since:
            self._since = now
        if outcome is Outcome.DROPPED and self.limit == self._floor:
            # There is nothing to give back.
            self._begin(now)
            return False
        if started < self._since:
            return False
        self._failures.add(in_flight, failed=True)
        self._failed_busy += max(0.0, now - started)  # The clock may have been set back.
        return self._fail(outcome)

    def _fail(self, outcome: Outcome) -> bool:
        """End the start if more fail than before, because of the last doubling, or of drops."""
        dropped = outcome is Outcome.DROPPED
        if not (dropped or self._paid) or not self._failures.exceed(refused(self._usual.share)):
            return False
        self.failed = True
        lowest = self._paid[-1].limit if self._paid else self.limit // 2
        self.limit = max(self._floor, min(self.limit - 1, max(lowest, self._failures.fewest - 1)))
        self._end("work was dropped" if dropped else "more calls failed")
        return True

    def _judge(self, now: float) -> None:
        """Compare a round with those before: the limit changes, or the start ends."""
        size, mean = self._size, self._logs / self._size
        self._squares += max(0.0, self._logs2 - size * mean * mean)
        self._freedom += size - 1
        # The cost of a success: failures beside it occupied slots too.
        mean += log1p(self._failed_busy / self._succeeded_busy)
        # Over two doublings too: while a queue is still filling, one shows less than its cost.
        for paid in self._paid:
            if not self._pays(paid, mean, size):
                # If the limit was not in use meanwhile, the latencies may differ for other reasons.
                level = max(paid.limit, round(self.limit * exp(paid.latency - mean)))
                level = level if self._filling else self._paid[-1].limit
                self.limit = max(self._floor, level)
                self._end("doubling paid too little")
                return
        if self.limit >= self._ceiling:
            self._end("at the ceiling")
        else:
            self._paid.append(_Round(self.limit, mean, size))
            self._usual.add_all(self._failures)
            self.limit = min(2 * self.limit, self._ceiling)
            self.reason = "doubling pays"
            self._begin(now, filling=True)

    def _pays(self, paid: _Round, mean: float, size: int) -> bool:
        step = log(self.limit / paid.limit)
        self.elasticity = 1 - (mean - paid.latency) / step
        variance = self._squares / self._freedom
        error = sqrt(variance * (1 / size + 1 / paid.size)) / step
        return self.elasticity + _SURE * error > _PAYS

    def _end(self, reason: str) -> None:
        self.over = True
        self.reason = reason
