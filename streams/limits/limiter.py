"""The protocol of limiters: a number, and the methods that report to a limiter how calls ended.

A limiter proposes how many events may be worked on at once; the operator enforces it. A limiter is
pure arithmetic: it reads no clock, starts no thread, does no I/O, and takes randomness only from a
seed, so the same calls always give the same limits. A limiter belongs to one run of one stage: each
run after the first gets a deep copy of its original state, except of a `Shared` one.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, cast, runtime_checkable

__all__ = [
    "ArrivalLimiter",
    "Completion",
    "Limiter",
    "ListLimiter",
    "Outcome",
    "list_form",
    "one_by_one",
]


class Outcome(StrEnum):
    """The evidence of one completion about the capacity behind the handler."""

    SUCCESS = "success"
    """The work was done: it counts towards goodput."""

    IGNORED = "ignored"
    """An ordinary error: it used a slot and gave it back, and says nothing about capacity."""

    DROPPED = "dropped"
    """A timeout, a refusal or another sign of overload: the level was too high."""


Completion = tuple[float, float, int, Outcome]
"""One completion: the arguments of `on_complete` or `on_depart`."""


class Limiter(Protocol):
    """The least that a limiter needs. One with `on_completions` is called by that instead.

    >>> class Cautious:
    ...     limit = 10
    ...     def on_complete(self, now, started, in_flight_at_start, outcome):
    ...         self.limit = max(1, self.limit - 1) if outcome == "dropped" else self.limit
    """

    @property
    def limit(self) -> int:
        """Events that may be in flight now, at least 1. Read after each list of completions."""
        ...

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        """Record one completion, in the order of completion.

        `now` and `started` are seconds on one monotonic clock. `in_flight_at_start` counts the
        event itself: if it equals the limit, the limit held the work back. Cancelled events are
        not reported. Called for every event, so it should cost well under 1 µs.
        """
        ...


class ListLimiter(Limiter, Protocol):
    """A limiter that also takes a list of completions at a time, which costs less.

    Its limit after a list should be the same as after as many calls of `on_complete`: how
    completions are cut into lists is arbitrary.
    """

    def on_completions(self, completions: list[Completion]) -> None:
        """Record several completions, in their order. The list belongs to the caller."""


@runtime_checkable
class ArrivalLimiter(Protocol):
    """A limiter that measures from arrival instead of from the start of the work.

    Where a limiter has these two methods, the operator calls them in place of `on_complete`.
    """

    def on_arrive(self) -> None:
        """Record that an event arrived at the stage, before it may start."""
        ...

    def on_depart(self, now: float, arrived: float, in_flight: int, outcome: Outcome) -> None:
        """Record one completion: when the event arrived, and how many are in flight at `now`.

        `in_flight` counts the departing event itself.
        """
        ...


def list_form(limiter: Limiter) -> Callable[[list[Completion]], None] | None:
    """The limiter's `on_completions`, or None if it has none, or an inherited one to be ignored.

    Where a subclass, or the object itself, replaces `on_complete` alone, that one is called.
    """
    if "on_complete" not in getattr(limiter, "__dict__", {}):
        for kind in type(limiter).__mro__:
            if "on_completions" in vars(kind):
                return cast(ListLimiter, limiter).on_completions
            if "on_complete" in vars(kind):
                break
    return None


def one_by_one(
    report: Callable[[float, float, int, Outcome], None],
) -> Callable[[list[Completion]], None]:
    """A function that passes on each completion of a list by itself."""

    def report_all(completions: list[Completion]) -> None:
        for now, since, in_flight, outcome in completions:
            report(now, since, in_flight, outcome)

    return report_all
