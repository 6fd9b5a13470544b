"""The Vegas limiter: keeps a short queue, estimated from the least latency seen.

Source: `VegasLimit` of Netflix's concurrency-limits,
https://github.com/Netflix/concurrency-limits (2018), after L. Brakmo, L. Peterson, TCP Vegas:
End to End Congestion Avoidance on a Global Internet (1995):

    queue = limit x (1 - least latency / latency)

Where work differs in length the least latency is that of the shortest job, all others seem to
queue, and the limit stays too low. It is here for comparison.
"""

from __future__ import annotations

from math import ceil, log10

from penstock.streams.base.validation import check_bounds
from penstock.streams.limits.limiter import Outcome

__all__ = ["Vegas"]

_PROBE = 30  # times the limit: completions after which the least latency is measured again


class Vegas:
    """Up while the estimated queue is short, down while it is long, by log10 of the limit.

    With s = max(1, log10 of the limit): a queue of at most s adds 6 s, of less than 3 s adds s, of
    more than 6 s takes s away, and so does a drop. It starts at 20 as published, or at the bound
    nearest to it; `seed` sets the jitter of the times at which the least latency is measured again.
    BadArgument for a bound out of range.

    Time and memory: constant.
    """

    __slots__ = (
        "_count",
        "_estimate",
        "_jitter",
        "_least",
        "_random",
        "ceiling",
        "floor",
        "limit",
        "reason",
    )

    def __init__(self, floor: int = 1, ceiling: int = 1000, *, seed: int = 0) -> None:
        # Imported here: slow to import, and the default limiter needs none.
        import random

        self.floor, self.ceiling = check_bounds(floor, ceiling)
        self.limit = min(max(20, self.floor), self.ceiling)
        self.reason = "start"
        self._estimate = float(self.limit)
        self._random = random.Random(seed)
        self._jitter = self._random.uniform(0.5, 1)
        self._count = 0
        self._least = 0.0

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        """Count one completion, unless it is an ordinary error."""
        took = now - started
        if outcome is Outcome.IGNORED or took <= 0:
            return
        self._count += 1
        if self._jitter * _PROBE * self._estimate <= self._count:
            self._jitter = self._random.uniform(0.5, 1)
            self._count = 0
            self._least = took
        elif self._least == 0 or took < self._least:
            self._least = took
        else:
            self._update(took, in_flight_at_start, outcome)

    def _update(self, took: float, in_flight: int, outcome: Outcome) -> None:
        step = max(1, int(log10(self._estimate)))
        queue = ceil(self._estimate * (1 - self._least / took))
        if outcome is Outcome.DROPPED:
            self._move(-step, "work was dropped")
        elif 2 * in_flight < self._estimate:
            return
        elif queue <= step:
            self._move(6 * step, "there is no queue")
        elif queue < 3 * step:
            self._move(step, "the queue is short")
        elif queue > 6 * step:
            self._move(-step, "the queue is long")

    def _move(self, by: int, reason: str) -> None:
        self._estimate = min(max(self._estimate + by, float(self.floor)), float(self.ceiling))
        limit = int(self._estimate)
        if limit != self.limit:
            self.limit, self.reason = limit, reason

    def __repr__(self) -> str:
        return f"Vegas(limit={self.limit})"
