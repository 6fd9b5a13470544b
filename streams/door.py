"""The door to foreign subscribers: every rule of Reactive Streams 1.0.4 is kept here.

Between penstock's own stages the protocol is taken on trust (see `streams.stage`). Whoever
comes by `Flowable.connect` may request from inside a signal, request nonsense, cancel twice,
or raise; the door bears it, so that no stage has to.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from streams.event import Event
from streams.flowable import Flowable
from streams.run import Run
from streams.stage import UNBOUNDED, Subscriber, Subscription

__all__ = ["Door", "connect"]

T = TypeVar("T")


def connect(source: Flowable[T], subscriber: Subscriber[T], run: Run | None = None) -> Door:
    """Attach a foreign subscriber. TypeError when there is none (rule 1.9)."""
    if cast(Any, subscriber) is None:
        raise TypeError("connect() needs a subscriber, not None")
    door = Door(subscriber, run or Run())
    door.run.on_failure(door.on_error)
    try:
        source.attach(door, door.run)
    except Exception as error:
        door.refuse(error)
    return door


class Door:
    """Subscriber to the last stage, and the subscription that the foreign subscriber gets."""

    def __init__(self, subscriber: Subscriber[Any], run: Run) -> None:
        self.run = run
        self._subscriber: Subscriber[Any] | None = subscriber
        self._upstream: Subscription | None = None
        self._wanted = 0
        self._requesting = False
        self._greeted = False

    def refuse(self, error: BaseException) -> None:
        """The stream could not be attached: greet, then fail (rule 1.9)."""
        subscriber = self._subscriber
        if subscriber is not None and not self._greeted:
            self._greeted = True
            subscriber.on_subscribe(self)
        self.on_error(error)

    # From the stream.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self._upstream is not None:
            subscription.cancel()
            return
        self._upstream = subscription
        self._greeted = True
        self._tell(lambda subscriber: subscriber.on_subscribe(self))

    def on_next(self, event: Event[Any], /) -> None:
        subscriber = self._subscriber
        if subscriber is None:
            event.give_back()
            return
        try:
            subscriber.on_next(event)
        except Exception as error:
            # Rule 2.13: a subscriber that raises counts as cancelled; the error is reported.
            event.fail(error)
            self._report(error)

    def on_error(self, error: BaseException, /) -> None:
        subscriber, self._subscriber = self._subscriber, None
        self._upstream = None
        if subscriber is not None:
            try:
                subscriber.on_error(error)
            except Exception as raised:
                self._report(raised)

    def on_completed(self) -> None:
        subscriber, self._subscriber = self._subscriber, None
        self._upstream = None
        if subscriber is not None:
            try:
                subscriber.on_completed()
            except Exception as raised:
                self._report(raised)

    # From the subscriber.

    def request(self, n: int, /) -> None:
        if self._subscriber is None:
            return
        given = cast(Any, n)
        if not isinstance(given, int) or isinstance(given, bool):
            self._refuse_request(TypeError(f"request({n!r}): a whole number is needed (rule 3.9)"))
            return
        if n <= 0:
            self._refuse_request(
                ValueError(f"request({n}): non-positive demand, at least 1 is needed (rule 3.9)")
            )
            return
        # A request from inside a signal only sets the sum; the running loop sees it (rule 3.3).
        self._wanted = min(self._wanted + n, UNBOUNDED)
        if self._requesting:
            return
        self._requesting = True
        try:
            while self._wanted and self._upstream is not None:
                wanted, self._wanted = self._wanted, 0
                self._upstream.request(wanted)
        except Exception as error:
            self._cancel_upstream()
            self.on_error(error)
        finally:
            self._requesting = False

    def cancel(self) -> None:
        self._subscriber = None
        self._cancel_upstream()

    def _refuse_request(self, error: Exception) -> None:
        self._cancel_upstream()
        self.on_error(error)

    def _cancel_upstream(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            try:
                upstream.cancel()
            except Exception as error:
                self._report(error)

    def _tell(self, say: Any) -> None:
        if self._subscriber is not None:
            try:
                say(self._subscriber)
            except Exception as error:
                self._report(error)

    def _report(self, error: Exception) -> None:
        self.cancel()
        self.run.unhandled(error)
