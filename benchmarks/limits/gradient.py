"""The gradient limiter: shrinks by the ratio of usual to present latency, adds room for a queue.

Source: `Gradient2Limit` of Netflix's concurrency-limits, in a `WindowedLimit`,
https://github.com/Netflix/concurrency-limits (2018):

    gradient = max(0.5, min(1, usual latency / present latency))
    limit = (1 - smoothing) x limit + smoothing x (gradient x limit + queue)

The usual latency is a slow average, so it follows a lasting overload, and then the limit grows by
the queue again. Drops do not count: where all calls time out alike, nothing seems to change. It is
implemented as published, including these two flaws, for comparison.
"""

from __future__ import annotations

from penstock.streams.base.validation import check_bounds, check_count, check_share
from penstock.streams.limits.limiter import Outcome

__all__ = ["Gradient"]

_WINDOW = 10  # completions; the source also has a second, but no unit of time may matter
_WARM_UP = 10  # windows whose plain mean is the first usual latency
_MEMORY = 600  # windows of the exponential average after that
_FORGET = 0.9  # the factor for the usual latency when latency fell to less than half of it


class Gradient:
    """Follow the gradient of latency, measured over windows of ten completions.

    `queue` is the room for a queue, `smoothing` (0..1) the weight of a new limit. It starts at 20
    as published, or at the bound nearest to it. BadArgument for a value out of range.

    Time and memory: constant.
    """

    __slots__ = (
        "_estimate",
        "_present",
        "_queue",
        "_seen",
        "_size",
        "_smoothing",
        "_used",
        "_usual",
        "ceiling",
        "floor",
        "limit",
        "reason",
    )

    def __init__(
        self, floor: int = 1, ceiling: int = 1000, *, queue: int = 4, smoothing: float = 0.2
    ) -> None:
        self.floor, self.ceiling = check_bounds(floor, ceiling)
        self._queue = check_count("queue", queue)
        self._smoothing = check_share("smoothing", smoothing)
        self.limit = min(max(20, self.floor), self.ceiling)
        self.reason = "start"
        self._estimate = float(self.limit)
        self._usual = 0.0
        self._seen = 0  # windows, up to the end of the warm-up
        self._present, self._size, self._used = 0.0, 0, 0

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        """Count one completion, unless it is an ordinary error."""
        if outcome is Outcome.IGNORED or now <= started:
            return
        self._present += now - started
        self._size += 1
        self._used = max(self._used, in_flight_at_start)
        if self._size == _WINDOW:
            self._update(self._present / _WINDOW, self._used)
            self._present, self._size, self._used = 0.0, 0, 0

    def _update(self, present: float, used: int) -> None:
        if self._seen < _WARM_UP:
            self._seen += 1
            weight = 1 / self._seen
        else:
            weight = 2 / (_MEMORY + 1)
        usual = self._usual = (1 - weight) * self._usual + weight * present
        if usual > 2 * present:
            self._usual *= _FORGET
        if used < self._estimate / 2:
            return
        gradient = max(0.5, min(1.0, usual / present))
        proposed = gradient * self._estimate + self._queue
        estimate = (1 - self._smoothing) * self._estimate + self._smoothing * proposed
        self._estimate = min(max(estimate, float(self.floor)), float(self.ceiling))
        limit = int(self._estimate)
        if limit != self.limit:
            self.reason = "latency is as usual" if limit > self.limit else "latency has grown"
            self.limit = limit

    def __repr__(self) -> str:
        return f"Gradient(limit={self.limit})"
