"""Limit control of a stage: reports arrivals and ended calls to a limiter, follows its limit."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from typing import Any

from penstock.streams.errors import BadOverload, cancelled_inside, describe
from penstock.streams.execution.settings import Settings
from penstock.streams.limits import ArrivalLimiter, Completion, Limiter, Outcome
from penstock.streams.limits.choice import limit_of
from penstock.streams.limits.limiter import list_form, one_by_one
from penstock.streams.protocol.event import Event
from penstock.streams.validation import is_at_least

__all__ = ["LimitControl"]

# Seconds; a service that asks for more is asked again by then.
_LONGEST = 60.0

# Nobody can cancel a function that awaits nothing: who raises that does so by itself.
_RAISED = (Exception, CancelledError)


class LimitControl:
    """Reports the calls of one stage to one limiter, and follows its limit.

    `settings.overload` says which errors are the limiter's business beside timeouts. When it,
    the limiter or `settings.on_limit_change` raises, `broke(error, what)` is called: no event is
    to blame, and the limiter hears no more of that list. The last valid limit stays.
    """

    def __init__(
        self, limiter: Limiter, settings: Settings, broke: Callable[[Exception, str], None]
    ) -> None:
        self.limit = limit_of(limiter)
        self.reason = reason_of(limiter)
        """Why it changed last, in the limiter's words, or that it was retuned."""
        self._limiter = limiter
        self._settings = settings
        self._broke = broke
        arrivals = limiter if isinstance(limiter, ArrivalLimiter) else None
        self.from_arrival = arrivals is not None
        """Whether the limiter measures from the arrival of an event, see `completed`."""
        self._on_arrive = None if arrivals is None else arrivals.on_arrive
        if arrivals is not None:
            self._tell = one_by_one(arrivals.on_depart)
        else:
            self._tell = list_form(limiter) or one_by_one(limiter.on_complete)

    def arrived(self, events: int = 1) -> None:
        """So many events have come. Only a limiter that measures `from_arrival` is told."""
        if self._on_arrive is None:
            return
        try:
            for _ in range(events):
                self._on_arrive()
        except _RAISED as error:
            self._limiter_broke(error)

    def completed(self, ends: list[Completion]) -> None:
        """Calls have ended, in this order, which the limiter hears of; then `follow`.

        Each is (now, started, in flight when it began, outcome), with the numbers of the moment of
        its end; where the limiter measures `from_arrival`, (now, arrived, in flight when it ended,
        outcome). Both numbers count the call itself; calls that begin together, with no end in
        between, may all have the number of the last of them, from which a limiter learns more: all
        of them began because the limit allows so many. The list is read before this returns, and is
        not kept.
        """
        try:
            self._tell(ends)
        except _RAISED as error:
            self._limiter_broke(error)

    def ended(
        self,
        event: Event[Any],
        now: float,
        started: float,
        began_among: int,
        ended_among: int,
        outcome: Outcome,
    ) -> None:
        """One call has ended. So many, with itself, were in flight when it began and ended."""
        if self.from_arrival:
            self.completed([(now, event.created, ended_among, outcome)])
        else:
            self.completed([(now, started, began_among, outcome)])

    def outcome(self, error: BaseException) -> tuple[Outcome, float]:
        """What a call that ended with `error` says of the load, and seconds to hold back for."""
        if isinstance(error, TimeoutError):
            return Outcome.DROPPED, 0.0
        overload = self._settings.overload
        if overload is not None and isinstance(error, Exception):
            try:
                answer = overload(error)
                if answer is not None and not isinstance(answer, bool):
                    return Outcome.DROPPED, _hold_back(answer)
                if answer:
                    return Outcome.DROPPED, 0.0
            except _RAISED as raised:
                self._say_broken(raised, "function given as overload=")
        return Outcome.IGNORED, 0.0

    def follow(self) -> bool:
        """Read the limit; whether it has changed."""
        try:
            if self._limiter.limit == self.limit:
                return False
            limit, reason = limit_of(self._limiter), reason_of(self._limiter)
        except _RAISED as error:
            self._limiter_broke(error)
            return False
        old, self.limit, self.reason = self.limit, limit, reason
        self.tell(old, reason)
        return True

    def tell(self, old: int, reason: str) -> None:
        """Tell the user of a limit that was `old` before."""
        on_limit_change = self._settings.on_limit_change
        if on_limit_change is not None and old != self.limit:
            try:
                on_limit_change(old, self.limit, reason)
            except _RAISED as error:
                self._say_broken(error, "function given as on_limit_change=")

    def _limiter_broke(self, error: Exception | CancelledError) -> None:
        self._say_broken(error, f"limiter '{type(self._limiter).__name__}'")

    def _say_broken(self, error: Exception | CancelledError, what: str) -> None:
        if isinstance(error, CancelledError):
            error = cancelled_inside(f"the {what}", error)
        self._broke(error, what)


def _hold_back(answer: float) -> float:
    """The seconds that a function given as `overload=` asked for. BadOverload if they are none."""
    if not is_at_least(answer, 0):
        raise BadOverload(
            f"overload= returned {describe(answer)}: return True or False, or the seconds (0 or "
            "more) for which to begin no call"
        )
    return min(float(answer), _LONGEST)


def reason_of(limiter: Limiter) -> str:
    """Why the limit is what it is, as far as the limiter says."""
    return str(getattr(limiter, "reason", None) or "")
