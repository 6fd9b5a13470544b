"""Enforces the rules of Reactive Streams 1.0.4 for third-party subscribers.

Penstock's own stages trust each other to keep the protocol (see `penstock.streams.protocol.stage`).
A subscriber given to `Flowable.connect` may request from inside a signal, request nonsense, cancel
twice, or raise; `StrictSubscriber` handles that, so that no stage has to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from penstock.streams.base.errors import CALL_ERRORS, own_error
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import UNBOUNDED, UNCONNECTED, EventSubscriber, Subscription
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.depth import Room
from penstock.streams.runtime.tasks import new_task
from penstock.streams.stages.stream import Stream

__all__ = ["StrictSubscriber", "connect"]

T = TypeVar("T")


def connect(
    source: Stream[T], subscriber: EventSubscriber[T], run: Run | None = None
) -> StrictSubscriber:
    """Attach a third-party subscriber. TypeError for None (rule 1.9).

    The caller closes a `run` that it passes; without one, what the stages opened is released after
    the terminal signal or a cancel. Without a loop, what the subscriber raises is raised here, or
    by the `request` that led to it.
    """
    if cast(Any, subscriber) is None:
        raise TypeError("connect() needs a subscriber, not None")
    strict = StrictSubscriber(subscriber, run)
    strict.run.on_failed = strict.failed
    strict.call(partial(strict.attach, source))
    return strict


class StrictSubscriber:
    """Subscriber to the last stage, and the subscription of the third-party subscriber.

    A signal that comes inside another waits until that one has returned (rule 1.3), as does a
    request; so there is never more than one call of the subscriber at a time.
    """

    room: Room | None = None
    """For the calls in which a signal passes through all stages, until the last one."""

    def __init__(self, subscriber: EventSubscriber[Any], run: Run | None = None) -> None:
        self.run = Run() if run is None else run
        self._to_close = run is None
        self._subscriber: EventSubscriber[Any] | None = subscriber
        self._upstream = UNCONNECTED
        self._wanted = 0
        self._subscribed = False
        # Whether a call of the subscriber, or a request, is in progress.
        self._signalling = self._asking = False
        self._called = False
        self._raised: Exception | None = None
        self._waiting: deque[Event[Any]] = deque()
        self._ending: tuple[BaseException | None] | None = None

    def call(self, call: Callable[[], object]) -> None:
        """Make a call from the subscriber's side, and raise what was reported during it.

        Without a loop that could report an error the caller must get it, and no stage in between
        may treat an exception of the subscriber as its own.
        """
        if self._called:
            call()
            return
        self._called = True
        try:
            call()
        finally:
            self._called = False
            if self._subscriber is None and self.room is not None:
                self.room.close()
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def attach(self, source: Stream[Any]) -> None:
        """Attach the stream. If that fails, call `on_subscribe`, then fail (rule 1.9)."""
        try:
            self.room = Room([stream.info for stream in source.chain()])
            source.attach(self, self.run)
        except Exception as error:
            if not self._subscribed:
                self._send_subscription()
            self.on_error(error)

    def failed(self, error: BaseException) -> None:
        """A part of the run other than the stream failed: a task, or a source's clean-up."""
        if self._subscriber is None:
            self._unhandled(error)
        else:
            self._refuse(error)

    # From the stream.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if cast(Any, subscription) is None:
            raise TypeError("on_subscribe() needs a subscription, not None")
        if self._subscribed:
            subscription.cancel()
            return
        self._upstream = subscription
        self._send_subscription()
        self._drain()

    def _send_subscription(self) -> None:
        self._subscribed = True
        if self._subscriber is None:
            return
        self._signalling = True
        try:
            self._subscriber.on_subscribe(self)
        except CALL_ERRORS as raised:
            self._report(own_error(raised))
        finally:
            self._signalling = False

    def on_events(self, events: list[Event[Any]], /) -> None:
        if self._subscriber is None or self._ending is not None:
            give_back_all(events)
        else:
            self._waiting.extend(events)
            self._drain()

    def on_error(self, error: BaseException, /) -> None:
        if cast(Any, error) is None:
            raise TypeError("on_error() needs an error, not None")
        self._end(error)

    def on_completed(self) -> None:
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._upstream = UNCONNECTED
        if self._ending is None and self._subscriber is not None:
            self._ending = (error,)
            self._drain()

    def _drain(self) -> None:
        """Send the signals that wait, then the requests that came inside a signal."""
        waiting = self._waiting
        while not self._signalling and (subscriber := self._subscriber) is not None:
            if waiting:
                self._send_event(subscriber, waiting.popleft())
            elif self._ending is not None:
                self._send_end(subscriber, *self._ending)
            elif self._wanted and self._upstream is not UNCONNECTED and not self._asking:
                self._ask()
            else:
                return

    def _send_event(self, subscriber: EventSubscriber[Any], event: Event[Any]) -> None:
        self._signalling = True
        try:
            subscriber.on_next(event)
        except CALL_ERRORS as raised:
            # Rule 2.13: a subscriber that raises counts as cancelled; the error is reported.
            error = own_error(raised)
            event.fail(error)
            self._report(error)
        finally:
            self._signalling = False

    def _ask(self) -> None:
        wanted, self._wanted = self._wanted, 0
        self._asking = True
        try:
            self._upstream.request(wanted)
        except Exception as error:
            self._refuse(error)
        finally:
            self._asking = False

    def _send_end(self, subscriber: EventSubscriber[Any], error: BaseException | None) -> None:
        self._subscriber = None
        try:
            if error is None:
                subscriber.on_completed()
            else:
                subscriber.on_error(error)
        except CALL_ERRORS as raised:
            self._report(own_error(raised))
        finally:
            self._close()

    # From the subscriber.

    def request(self, n: int, /) -> None:
        if self._subscriber is None:
            return
        given: Any = n
        if not isinstance(given, int) or isinstance(given, bool):
            self._refuse(TypeError(f"request({n!r}): a whole number is needed (rule 3.9)"))
            return
        if n <= 0:
            self._refuse(
                ValueError(f"request({n}): non-positive demand, at least 1 is needed (rule 3.9)")
            )
            return
        # A request from inside a signal only adds to the sum; the running loop sends it (rule 3.3).
        self._wanted = min(self._wanted + n, UNBOUNDED)
        self.call(self._drain)

    def cancel(self) -> None:
        self._subscriber = self._ending = None
        self._cancel_upstream()
        self._close(hurry=True)

    def _refuse(self, error: BaseException) -> None:
        self._cancel_upstream()
        self.on_error(error)

    def _cancel_upstream(self) -> None:
        while self._waiting:
            self._waiting.popleft().give_back()
        upstream, self._upstream = self._upstream, UNCONNECTED
        try:
            upstream.cancel()
        except Exception as error:
            # The subscriber may still receive the error for which it is cancelled.
            self._tell(error)

    def _report(self, error: Exception) -> None:
        self.cancel()
        self._tell(error)

    def _tell(self, error: Exception) -> None:
        if self._called and not self.run.has_loop:
            self._raised = self._raised or error
        else:
            self._unhandled(error)

    def _close(self, *, hurry: bool = False) -> None:
        """Release what the stages opened, such as pools and files, without waiting for it."""
        has_loop = self.run.has_loop and self.run.loop.is_running()
        # Not inside a signal, which may be deeper than Python would then allow.
        if self.room is not None and has_loop:
            self.run.call_soon(None, self.room.close)
        elif self.room is not None and not self._called:
            self.room.close()
        if self._to_close:
            self._to_close = False
            if hurry:
                self.run.hurry()
            if self.run.is_open and has_loop:
                # The loop itself remembers a task only weakly.
                self._closing = new_task(self._release(), "penstock close", self.run.loop)

    async def _release(self) -> None:
        try:
            await self.run.close()
        except Exception as error:
            self._unhandled(error)

    def _unhandled(self, error: BaseException) -> None:
        """Pass an error that no subscriber receives to the loop's exception handler."""
        if not self.run.has_loop:
            raise error
        context = {"message": "penstock: a subscriber raised", "exception": error}
        self.run.loop.call_exception_handler(context)
