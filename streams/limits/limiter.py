"""What a limiter is: a number, and a way to hear how the work went.

A limiter proposes how many events may be worked on at once; the operator enforces it. A limiter is
pure arithmetic: it reads no clock, starts no thread, does no I/O, and takes randomness only from a
seed, so the same calls always give the same limits. A limiter belongs to one run of one stage.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from streams.limits.outcome import Outcome

__all__ = ["ArrivalLimiter", "Limiter"]


class Limiter(Protocol):
    """The least a limiter needs.

    >>> class Cautious:
    ...     limit = 10
    ...     def on_complete(self, now, started, in_flight_at_start, outcome):
    ...         self.limit = max(1, self.limit - 1) if outcome == "dropped" else self.limit
    """

    @property
    def limit(self) -> int:
        """Events that may be in flight now, at least 1. Read after every completion."""
        ...

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        """Hear of one completion, in the order of completion.

        `now` and `started` are seconds on one monotonic clock. `in_flight_at_start` counts the
        event itself: equal to the limit it tells that the limit held the work back. Cancelled
        events are not reported. Called for every event, so it should cost well under 1 µs.
        """
        ...


@runtime_checkable
class ArrivalLimiter(Protocol):
    """A limiter that measures from arrival instead of from the start of the work.

    Where a limiter has these two methods, the operator calls them in place of `on_complete`.
    """

    def on_arrive(self) -> None:
        """Hear that an event arrived in front of the stage, before it may start."""
        ...

    def on_depart(self, now: float, arrived: float, in_flight: int, outcome: Outcome) -> None:
        """Hear of one completion: when the event arrived, and how many are in flight at `now`.

        `in_flight` counts the departing event itself.
        """
        ...
