"""The linger of a batch: how long its first event waits for others. Arithmetic, without a clock."""

from __future__ import annotations

__all__ = ["Linger"]


class Linger:
    """Whether the first event of a batch should wait for others, `max_wait` seconds at most.

    Waiting delays every event already in the batch by one gap between arrivals; an event that
    misses the batch is delayed by a whole call, unless another call is free. So waiting pays only
    before the last free call, while (waiting events x gap) is less than the time of a call, and
    never for longer than a call: a lone event in a quiet stream does not wait at all. With several
    calls in `parallel` others end soon, so the next event must be expected within `max_wait`, too.
    Both times are means that fade over about 16 observations.
    """

    def __init__(self, max_wait: float, parallel: int = 1) -> None:
        self._max_wait = max_wait
        self._parallel = parallel
        self._gap, self._call = _Mean(), _Mean()
        self._last: float | None = None

    def on_arrive(self, now: float) -> None:
        """Record one arrival, in seconds of one clock."""
        last, self._last = self._last, now
        if last is not None:
            self._gap.add(now - last)

    def on_complete(self, seconds: float) -> None:
        """Record how long a call took."""
        self._call.add(seconds)

    def patience(self, waiting: int, free: int = 1) -> float:
        """Seconds that the first of `waiting` events may wait in all, counted from its arrival.

        `free` is the number of calls that could begin now.
        """
        gap = self._gap
        if free > 1 or not gap.count or waiting * gap.value >= self._call.value:
            return 0.0
        if self._parallel > 1 and gap.value > self._max_wait:
            return 0.0
        return min(self._max_wait, self._call.value)


class _Mean:
    """Of all that there was at first, so that a slow first call does not count for long."""

    __slots__ = ("count", "value")

    def __init__(self) -> None:
        self.count, self.value = 0, 0.0

    def add(self, value: float) -> None:
        self.count = min(16, self.count + 1)
        self.value += (value - self.value) / self.count
