"""Limit control of a stage: reports arrivals and ended calls to a limiter, follows its limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.streams.base.errors import (
    CALL_ERRORS,
    BadOverload,
    check_plain,
    describe,
    not_awaited,
    own_error,
)
from penstock.streams.base.validation import is_at_least
from penstock.streams.failures.policy import LONGEST_WAIT
from penstock.streams.limits import ArrivalLimiter, Completion, Fixed, Limiter, Outcome
from penstock.streams.limits.choice import limit_of
from penstock.streams.limits.limiter import list_form, one_by_one
from penstock.streams.protocol.event import Count

__all__ = ["LimitControl", "OnLimitChange", "Overload"]

Overload = Callable[[Exception], bool | float | None]
"""Whether an error is a sign of overload, or for how many seconds to begin no call after it."""

OnLimitChange = Callable[[int, int, str], object]
"""Called with the old limit, the new one, and the limiter's reason."""


class LimitControl:
    """Reports the calls of one stage to one limiter, and follows its limit.

    `overload` says which errors, besides timeouts, are signs of overload. When it, the limiter or
    `on_limit_change` raises, `broke(error, what)` is called, because no event is to blame; the rest
    of that list is not reported, and the last valid limit stays. `watch` is an observer of the run,
    called as `on_limit_change` is. `moved` is called when the limit has changed because another one
    was assigned.
    """

    def __init__(
        self,
        limiter: Limiter,
        broke: Callable[[Exception, str], None],
        overload: Overload | None = None,
        on_limit_change: OnLimitChange | None = None,
        watch: OnLimitChange | None = None,
        *,
        moved: Callable[[], None],
    ) -> None:
        self.limit = limit_of(limiter)
        self.reason = reason_of(limiter)
        """Why it changed last, in the limiter's words, or that it was retuned."""
        self._limiter = limiter
        self._moved = moved
        if isinstance(limiter, Fixed):
            limiter.tell(self)
        self._broke = broke
        self._overload = overload
        self._on_limit_change = on_limit_change
        self._watch = watch
        self._on_arrive: Callable[[], object] | None = None
        if isinstance(limiter, ArrivalLimiter):
            self._on_arrive = limiter.on_arrive
            self._report = one_by_one(limiter.on_depart)
        else:
            self._report = list_form(limiter) or one_by_one(limiter.on_complete)
        self.learns = self.from_arrival = False
        """Whether the limiter learns from calls, and measures from the arrival of an event: see
        `completed`. Neither once something of it has raised."""
        self.teach()

    def teach(self, learns: bool = True) -> None:
        """Let the limiter learn from calls, if it does, or not."""
        self.learns = learns and not isinstance(self._limiter, Fixed)
        self.from_arrival = learns and self._on_arrive is not None

    def arrived(self) -> None:
        """Report one arrival to a limiter that measures `from_arrival`."""
        if self._on_arrive is None:
            return
        try:
            self._on_arrive()
        except CALL_ERRORS as error:
            self._limiter_broke(error)

    def completed(self, ends: list[Completion]) -> None:
        """Report calls that have ended, in the order of their ends; then `follow`.

        Each is (now, started, in flight when it began, outcome), with the numbers of the moment of
        its end; where the limiter measures `from_arrival`, (now, arrived, in flight when it ended,
        outcome). Both numbers count the call itself; calls that begin together, with no end in
        between, may all have the number of the last of them, from which a limiter learns more: all
        of them began because the limit allows so many. The list is read before this returns, and is
        not kept.
        """
        try:
            self._report(ends)
        except CALL_ERRORS as error:
            self._limiter_broke(error)

    def outcome(self, error: BaseException) -> tuple[Outcome, float]:
        """What a call that ended with `error` says of the load, and seconds to hold back for."""
        if isinstance(error, TimeoutError):
            return Outcome.DROPPED, 0.0
        if self._overload is not None and isinstance(error, Exception):
            try:
                answer = self._overload(error)
                if answer is not None and not isinstance(answer, bool):
                    return Outcome.DROPPED, _hold_back(answer)
                if answer:
                    return Outcome.DROPPED, 0.0
            except CALL_ERRORS as raised:
                self._function_broke(raised, "function given as overload=")
        return Outcome.IGNORED, 0.0

    def follow(self) -> bool:
        """Read the limit. Returns whether it has changed."""
        try:
            if self._limiter.limit == self.limit:
                return False
            limit, reason = limit_of(self._limiter), reason_of(self._limiter)
        except CALL_ERRORS as error:
            self._limiter_broke(error)
            return False
        old, self.limit, self.reason = self.limit, limit, reason
        self._limit_changed(old)
        return True

    def assigned(self) -> None:
        """Another limit was assigned to the limiter."""
        self._moved()

    def retuned(self, old: Count) -> None:
        """This limiter has taken the place of one whose limit was `old`."""
        self.reason = "retuned"
        self._limit_changed(old)

    def _limit_changed(self, old: Count) -> None:
        if self._watch is not None and old != self.limit:
            self._watch(old, self.limit, self.reason)
        if self._on_limit_change is not None and old != self.limit:
            try:
                result = self._on_limit_change(old, self.limit, self.reason)
                check_plain(result, "on_limit_change", "the stage", "start a task in it")
            except CALL_ERRORS as error:
                self._function_broke(error, "function given as on_limit_change=")

    def _limiter_broke(self, raised: BaseException) -> None:
        self._function_broke(raised, f"limiter '{type(self._limiter).__name__}'")

    def _function_broke(self, raised: BaseException, what: str) -> None:
        self.teach(False)
        self._broke(own_error(raised, f"the {what}"), what)


def _hold_back(answer: Any) -> float:
    """The seconds that a function given as `overload=` returned; BadOverload if not valid."""
    if not is_at_least(answer, 0):
        not_awaited(answer)
        raise BadOverload(
            f"overload= returned {describe(answer)}: return True or False, or the seconds (0 or "
            "more) for which to begin no call"
        )
    return min(float(answer), LONGEST_WAIT)


def reason_of(limiter: Limiter) -> str:
    """Why the limit is what it is, as far as the limiter says."""
    return str(getattr(limiter, "reason", None) or "")
