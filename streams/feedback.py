"""What a limiter is told: of arrivals, and of calls that ended well or badly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.event import Event
from streams.limits import ArrivalLimiter, Limiter, Outcome

__all__ = ["Feedback"]


class Feedback:
    """Tells one limiter about the calls of one stage.

    `overload` says which errors are the limiter's business beside timeouts. When it or the
    limiter raises, `broke(error, what)` hears of it: no event is to blame.
    """

    def __init__(
        self,
        limiter: Limiter,
        overload: Callable[[Exception], bool] | None,
        broke: Callable[[Exception, str], None],
    ) -> None:
        self._limiter = limiter
        self._overload = overload
        self._broke = broke
        self.arrivals = limiter if isinstance(limiter, ArrivalLimiter) else None
        """The limiter, if it wants to hear of events from their arrival on."""

    def arrived(self, arrivals: ArrivalLimiter) -> None:
        """An event has come."""
        try:
            arrivals.on_arrive()
        except Exception as error:
            self._broke(error, "limiter")

    def ended(
        self,
        event: Event[Any],
        now: float,
        started: float,
        began_among: int,
        ended_among: int,
        outcome: Outcome,
    ) -> None:
        """A call has ended. So many, with itself, were in flight when it began and ended."""
        try:
            if self.arrivals is not None:
                self.arrivals.on_depart(now, event.created, ended_among, outcome)
            else:
                self._limiter.on_complete(now, started, began_among, outcome)
        except Exception as error:
            self._broke(error, "limiter")

    def outcome(self, error: BaseException) -> Outcome:
        """What a call that ended with `error` tells of the load."""
        if isinstance(error, TimeoutError):
            return Outcome.DROPPED
        if self._overload is not None and isinstance(error, Exception):
            try:
                if self._overload(error):
                    return Outcome.DROPPED
            except Exception as raised:
                self._broke(raised, "function given as overload=")
        return Outcome.IGNORED
