"""The signals between the stages of a running pipeline, and the base class of stages.

Demand goes up (`request`, `cancel`), events come down in lists (`on_subscribe`, `on_events`,
`on_error`, `on_completed`), otherwise as in Reactive Streams 1.0.4. The library's own stages trust
each other to keep the protocol, so that a list costs one call per stage: every n is an int of at
least 1, a terminal signal and `cancel` each come at most once.
`penstock.streams.boundary.strict_subscriber` enforces the specification's rules for third-party
subscribers, which get one event at a time.

A list is never empty, and never longer than the demand. The receiver owns it: the sender neither
reads nor changes it afterwards. A stage that is cancelled, or fails, inside a list returns in the
same call what it has not taken.

An error that is raised through the signals is none of the stream's: it is a KeyboardInterrupt, or
another one that is no Exception, of a function of the user's, and ends the run. Who has made the
events of a list returns those that have not ended then (`send_list`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Protocol, TypeVar

from penstock.streams.protocol.event import Count, Event, give_back_all

__all__ = [
    "CANCELLED",
    "CLOSED",
    "COMPLETING",
    "FAILED",
    "NEXT_STATES",
    "OPEN",
    "UNBOUNDED",
    "UNCONNECTED",
    "BaseStage",
    "EventSubscriber",
    "RunningStage",
    "State",
    "Subscriber",
    "Subscription",
    "is_second",
    "send_list",
]

T_contra = TypeVar("T_contra", contravariant=True)

UNBOUNDED = 2**63 - 1
"""A demand without a bound (rule 3.17)."""


class Subscription(Protocol):
    """The calls that a subscriber makes to the stage above it."""

    def request(self, n: Count, /) -> None:
        """Request `n` more events."""

    def cancel(self) -> None:
        """Request no more; what is held above is returned to its source."""


class _Signals(Protocol):
    def on_subscribe(self, subscription: Subscription, /) -> None:
        """The first signal, with the subscription for requests."""

    def on_error(self, error: BaseException, /) -> None:
        """The last signal: the stream failed."""

    def on_completed(self) -> None:
        """The last signal: the stream ended."""


# An Event may be written to, so it is invariant; a subscriber only reads, so one that takes any
# object serves a stream of ints. The checkers see no value that shows this.
class Subscriber(_Signals, Protocol[T_contra]):  # type: ignore[misc]  # pyright: ignore[reportInvalidTypeVarUse]
    """The signals that a stage receives from the one above it."""

    def on_events(self, events: list[Event[Any]], /) -> None:
        """Events that were requested, in order; the receiver owns the list."""


class RunningStage(Subscriber[Any], Protocol):
    """A stage whose numbers are among the statistics of its running."""

    def statistics(self) -> dict[str, Any]:
        """Plain numbers by documented names."""
        ...


class EventSubscriber(_Signals, Protocol[T_contra]):  # type: ignore[misc]  # pyright: ignore[reportInvalidTypeVarUse]
    """A subscriber as in Reactive Streams, one event at a time, as `Flowable.connect` takes it."""

    def on_next(self, event: Event[Any], /) -> None:
        """An event that was requested."""


class _Unconnected:
    def request(self, n: Count, /) -> None: ...

    def cancel(self) -> None: ...


UNCONNECTED: Subscription = _Unconnected()
"""The `upstream` of a stage that has no subscription yet."""


class _Subscribing(Protocol):
    upstream: Subscription


def send_list(subscriber: Subscriber[Any], events: list[Event[Any]]) -> None:
    """Send a list on; an error that comes back returns the events that have not ended."""
    try:
        subscriber.on_events(events)
    except BaseException:
        give_back_all(events)
        raise


def is_second(stage: _Subscribing, subscription: Subscription) -> bool:
    """Whether `stage` has a subscription; a second one is cancelled (rule 2.5)."""
    if stage.upstream is UNCONNECTED:
        return False
    subscription.cancel()
    return True


class State(IntEnum):
    """The state of a stage; true once no more events come from above."""

    OPEN = 0
    COMPLETING = 1
    """What the stage holds is still sent."""
    FAILED = 2
    """Nothing more begins; the error is passed on when what has begun has ended."""
    CLOSED = 3
    """The terminal signal has been sent."""
    CANCELLED = 4
    """The stage below has cancelled."""


# Looking up a member of an enum takes six times as long as a name of a module (Python 3.11).
OPEN, COMPLETING, FAILED, CLOSED, CANCELLED = State

NEXT_STATES: dict[State, set[State]] = {
    OPEN: {COMPLETING, FAILED, CLOSED, CANCELLED},
    COMPLETING: {FAILED, CLOSED, CANCELLED},
    FAILED: {CLOSED, CANCELLED},
    CLOSED: set(),
    CANCELLED: set(),
}
"""The states that may follow each."""


class BaseStage:
    """A stage that keeps no events: it passes every signal on unchanged.

    The base of the stages that change or filter the events of a list; `on_events` is what they
    override. A stage that keeps events is a `penstock.streams.stages.demand_stage.BaseDemandStage`.
    """

    def __init__(self, downstream: Subscriber[Any]) -> None:
        self.upstream = UNCONNECTED
        self.downstream = downstream
        self.state = OPEN

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if not is_second(self, subscription):
            self.upstream = subscription
            self.downstream.on_subscribe(self)

    def on_events(self, events: list[Event[Any]], /) -> None:
        self.downstream.on_events(events)

    def on_error(self, error: BaseException, /) -> None:
        self.state = CLOSED
        self.downstream.on_error(error)

    def on_completed(self) -> None:
        self.state = CLOSED
        self.downstream.on_completed()

    def request(self, n: Count, /) -> None:
        self.upstream.request(n)

    def cancel(self) -> None:
        self.state = CANCELLED
        self.upstream.cancel()

    def statistics(self) -> dict[str, Any]:
        """Plain numbers by documented names."""
        return {}

    # For stages that filter.

    def _let_pass(self, passed: list[Event[Any]], of: Count) -> None:
        """Send on those that passed, and request as many more as are missing `of` a list."""
        if passed:
            self.downstream.on_events(passed)
        missing = of - len(passed)
        if missing and not self.state:
            self._request_again(missing)

    def _request_again(self, n: Count) -> None:
        """Request as many events as did not pass."""
        self.upstream.request(n)

    def _fail(self, error: Exception, passed: list[Event[Any]], rest: list[Event[Any]]) -> None:
        """The stream fails here: send on those that passed, and return the rest."""
        if passed:
            self.downstream.on_events(passed)
        give_back_all(rest)
        if not self.state:
            self.state = CLOSED
            try:
                self.upstream.cancel()
            finally:
                # Also if a stage of the user's own has raised.
                self.downstream.on_error(error)
