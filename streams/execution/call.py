"""The record of a call: what a stage must know of an event beyond the event's own fields."""

from __future__ import annotations

from typing import Any

from penstock.streams.boundary.inner_stream import ItemsInCall
from penstock.streams.protocol.acknowledgement import Family
from penstock.streams.protocol.event import Event

__all__ = [
    "IN_STATE",
    "NEXT_PLACES",
    "NO_RESULTS",
    "Call",
    "attempts_at",
    "call_of",
    "closing_event",
    "family_of",
    "taken_family",
]

NO_RESULTS = "no results"
"""The cause of the drop of an event whose call has returned nothing."""

IN_STATE = "in a state"
"""The cause for one that has changed a state, or was added to a window, and gave no results."""

NEXT_PLACES = {
    "new": {"waiting", "held", "behind", "over"},
    # Behind another event of its turn; held while as many as the limit wait for an attempt.
    "behind": {"waiting", "over"},
    "held": {"waiting", "over"},
    "waiting": {"due", "called", "held", "over"},
    # Assigned to a slot, and returned if the limit falls or the stage ends first. A plain handler
    # is called at once, and a slot goes on with what it has returned.
    "due": {"called", "waiting"},
    "called": {"ended", "due", "over"},
    # Not reported yet, with others that have ended.
    "ended": {"retrying", "over"},
    "retrying": {"waiting", "over"},
}
"""Where an event of a working stage is, and where it may be next; over: it has left the stage."""


class Call:
    """The call of one event, of all its attempts.

    Only some events have one: those that are tried again, that have several results, or whose
    results wait for those of earlier calls. It is `Event.call` while the event is in the stage.
    """

    __slots__ = ("attempts", "error", "family", "is_over", "results", "stream")

    def __init__(self) -> None:
        self.attempts = 0
        """Attempts that have failed."""
        self.error: BaseException | None = None
        """The error of an attempt that has ended, until it is settled."""
        self.family: Family | None = None
        """The origin of the results that were sent on."""
        self.stream: ItemsInCall | None = None
        """The stream that the handler returned, when it has failed."""
        self.results: list[Event[Any]] | None = None
        """Results that wait for those of earlier calls."""
        self.is_over = False
        """Whether there will be no more results."""


def call_of(event: Event[Any]) -> Call:
    """The record of an event's call, made when it is asked for first."""
    call: Call | None = event.call
    if call is None:
        call = event.call = Call()
    return call


def attempts_at(event: Event[Any]) -> int:
    """The number of attempts at an event, the current one included."""
    return 1 if event.call is None else call_of(event).attempts + 1


def family_of(event: Event[Any]) -> Family:
    """The origin of the results of an event's call, made when it is asked for first."""
    call = call_of(event)
    if call.family is None:
        call.family = Family(event, NO_RESULTS)
    return call.family


def closing_event(event: Event[Any]) -> Event[Any]:
    """The event by which a call ends that has failed, or is not tried again: its own event, or one
    more of the events made of that, because some of these may still be on their way."""
    family = taken_family(event)
    if family is None:
        return event
    last = family.child(event.value)
    family.close()
    return last


def taken_family(event: Event[Any]) -> Family | None:
    """The origin of the results of an event's call, if there were several, which its record does
    not have any more: it is to be closed."""
    call: Call | None = event.call
    if call is None:
        return None
    family, call.family = call.family, None
    return family
