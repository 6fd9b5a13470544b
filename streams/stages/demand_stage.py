"""The base class of stages that keep events: a state, the demand, and one drain loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.streams.diagnostics.current import Current
from penstock.streams.protocol.acknowledgement import NOBODY
from penstock.streams.protocol.event import Count, Event, give_back_all
from penstock.streams.protocol.stage import (
    CANCELLED,
    CLOSED,
    COMPLETING,
    OPEN,
    UNCONNECTED,
    State,
    Subscriber,
    Subscription,
    is_second,
    send_list,
)
from penstock.streams.protocol.stage_info import StageInfo

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["BaseDemandStage"]

_NOTHING = object()


class BaseDemandStage:
    """Notes whatever happens (demand, events, a call that ended, a timer), and runs its drain loop.

    The loop calls `_proceed` until nothing is left to note. What happens inside it, such as an
    event that comes in the call that requests it, is noted too, so signals never nest. Most stages
    implement `step`; one that handles all events at once implements `_proceed`.
    """

    __slots__ = (
        "_acts_after_drain",
        "_current",
        "_draining",
        "_next_of_rest",
        "_noted",
        "_rest",
        "asked",
        "demand",
        "downstream",
        "error",
        "info",
        "run",
        "state",
        "upstream",
    )

    upstream: Subscription

    def __init__(self, downstream: Subscriber[Any], run: Run, info: StageInfo) -> None:
        self.downstream = downstream
        self.upstream = UNCONNECTED
        self.run = run
        self.info = info
        self.state = OPEN
        # Events that are requested and not sent yet.
        self.demand: int = 0
        # Events that the stage has requested and not received yet.
        self.asked: int = 0
        # The error with which the stream has ended.
        self.error: BaseException | None = None
        self._draining = self._noted = False
        self._current: Current = run.current
        # Whether there is something to do after each run of the loop.
        self._acts_after_drain = False
        # The values after the last event, and the next of them.
        self._rest: Iterator[Any] | None = None
        self._next_of_rest: Any = _NOTHING

    # The drain loop.

    def _drain(self) -> None:
        """Run the loop, unless it runs already."""
        if self._draining:
            self._noted = True
            return
        self._draining = True
        current = self._current
        outer, current.stage = current.stage, self
        try:
            while True:
                self._noted = False
                self._proceed()
                if not self._noted:
                    break
        finally:
            self._draining = False
            current.stage = outer
        if self._acts_after_drain:
            self._after_drain()
        if self.state:
            self._end_if_idle()

    def _proceed(self) -> None:
        """Do what can be done now."""
        while self.state < CLOSED and self.step():
            pass

    def step(self) -> bool:
        """Do one thing: send, request or complete. Returns whether there may be more to do."""
        raise NotImplementedError

    def _after_drain(self) -> None:
        """Nothing is left to note."""

    def _end_if_idle(self) -> None:
        """Send the end on, if it is due."""

    def within(self, call: Callable[..., object], *args: Any) -> None:
        """Make a call that may signal several times; the loop runs when it has returned."""
        draining, self._draining = self._draining, True
        current = self._current
        outer, current.stage = current.stage, self
        try:
            call(*args)
        finally:
            self._draining = draining
            current.stage = outer
        self._drain()

    # What a step may do.

    def send(self, event: Event[Any]) -> None:
        """Send an event that there is demand for."""
        self.demand -= 1
        send_list(self.downstream, [event])

    def ask(self, n: Count) -> None:
        """Request `n` more events."""
        self.asked += n
        self.upstream.request(n)

    def rest(self) -> Iterable[Any]:
        """The values to send after the last event, which acknowledge nothing."""
        return ()

    def send_rest(self) -> bool:
        """The step after the last event: send one value of the rest, or complete after the last."""
        if self._rest is None:
            self._rest = iter(self.rest())
            self._next_of_rest = next(self._rest, _NOTHING)
        value = self._next_of_rest
        if value is _NOTHING:
            self.complete()
        elif self.demand:
            self._next_of_rest = next(self._rest, _NOTHING)
            self.send(Event(value, self.run.now(), NOBODY))
        else:
            return False
        return True

    def complete(self) -> None:
        """End the stream, with `error` if there is one: the stage sends nothing more."""
        self.state = CLOSED
        self._release()
        if self.error is None:
            self.downstream.on_completed()
        else:
            self.downstream.on_error(self.error)

    def fail(self, error: BaseException) -> None:
        """The stream ends here with `error`."""
        if self.state >= CLOSED:
            self.run.late_error(error)
        else:
            self.error = error
            self._close(CLOSED)
            self.downstream.on_error(error)

    def late(self, error: BaseException, /) -> None:
        """Report an error of a stream that has ended, such as one of its clean-up."""
        if self.state >= CLOSED:
            self.run.failed(error)
        else:
            self.run.late_error(error)

    def _close(self, state: State) -> None:
        before, self.state = self.state, state
        try:
            if before is OPEN:
                self.cancel_upstream()
        finally:
            self._release()

    def cancel_upstream(self) -> None:
        """Cancel, and go on: an error of a stage of the user's own above ends the run."""
        try:
            self.upstream.cancel()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if self.run.has_loop:
                # Behind the error for which the stream is cancelled, which may be on its way.
                self.run.call_soon(None, self.run.failed, error)
            else:
                self.run.failed(error)

    def _release(self) -> None:
        """Release, and go on with the end: an error of the user's own source ends the run."""
        self.run.call(self.info, self.release)

    # Signals.

    def take(self, events: list[Event[Any]], /) -> None:
        """Note events that have come."""
        raise NotImplementedError

    def release(self) -> None:
        """Return what the stage holds: it sends nothing more."""

    def request(self, n: Count, /) -> None:
        self.demand += n
        self._drain()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if not is_second(self, subscription):
            self.upstream = subscription
            self.downstream.on_subscribe(self)

    def on_events(self, events: list[Event[Any]], /) -> None:
        self.asked -= len(events)
        if self.state >= CLOSED:
            give_back_all(events)
        else:
            self.within(self.take, events)

    def on_completed(self) -> None:
        self.asked = 0
        self.end()
        self._drain()

    def on_error(self, error: BaseException, /) -> None:
        self.end()
        self.fail(error)

    def end(self) -> None:
        """No more events come from above."""
        self.state = max(self.state, COMPLETING)

    def cancel(self) -> None:
        if self.state < CLOSED:
            self._close(CANCELLED)

    def statistics(self) -> dict[str, Any]:
        """Plain numbers by documented names."""
        raise NotImplementedError
