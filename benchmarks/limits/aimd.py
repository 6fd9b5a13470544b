"""Additive increase, multiplicative decrease: grow until work is dropped.

Source: `AIMDLimit` of Netflix's concurrency-limits,
https://github.com/Netflix/concurrency-limits (2018), after D. Chiu, R. Jain, Analysis of the
Increase and Decrease Algorithms for Congestion Avoidance (1989).

It reacts to drops only. A plant that queues without end drops nothing, so the limit and the latency
grow to the ceiling. It suits a rate limit, and is a yardstick elsewhere.
"""

from __future__ import annotations

from penstock.streams.base.validation import check_bounds, check_share
from penstock.streams.limits.limiter import Outcome

__all__ = ["AIMD"]


class AIMD:
    """One more for each success while at least half the limit is in use, a tenth less for a drop.

    `backoff` (0..1) is the share of the limit that a drop leaves, at least one less. It starts at
    10 as published, or at the bound nearest to it. The source also counts a call of five seconds as
    a drop; here the stage's `timeout=` decides. BadArgument for a value out of range.

    Time and memory: constant.
    """

    __slots__ = ("_backoff", "ceiling", "floor", "limit", "reason")

    def __init__(self, floor: int = 1, ceiling: int = 1000, *, backoff: float = 0.9) -> None:
        self.floor, self.ceiling = check_bounds(floor, ceiling)
        self._backoff = check_share("backoff", backoff)
        self.limit = min(max(10, self.floor), self.ceiling)
        self.reason = "start"

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        """Count one completion; an ordinary error changes nothing."""
        if outcome is Outcome.DROPPED:
            limit, reason = min(self.limit - 1, int(self.limit * self._backoff)), "work was dropped"
        elif outcome is Outcome.SUCCESS and 2 * in_flight_at_start >= self.limit:
            limit, reason = self.limit + 1, "nothing was dropped"
        else:
            return
        limit = min(max(limit, self.floor), self.ceiling)
        if limit != self.limit:
            self.limit, self.reason = limit, reason

    def __repr__(self) -> str:
        return f"AIMD(limit={self.limit})"
