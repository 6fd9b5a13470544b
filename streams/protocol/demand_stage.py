"""A stage that counts demand, and sends and requests in one drain loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import StageInfo, Subscriber, Subscription, is_second

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["DemandStage"]


class DemandStage:
    """Notes whatever happens (demand, events, a timer, the end), and then runs its loop.

    The loop calls `step` until nothing is left to do. The loop that is running also handles what
    is noted inside a step, such as an event that comes in the call that requests it, so signals
    never nest.
    """

    upstream: Subscription

    def __init__(self, downstream: Subscriber[Any], run: Run, info: StageInfo) -> None:
        self.downstream = downstream
        self.run = run
        self.info = info
        self.demand = 0
        """Events that are requested and not sent yet."""
        self.asked = 0
        """Events that the stage has requested and not received yet."""
        self.ended = False
        """Whether no more events come from above."""
        self.done = False
        """Whether nothing more is sent."""
        self.error: BaseException | None = None
        """The error with which the stream has ended."""
        self._looping = False

    def step(self) -> bool:
        """Do one thing: send, request or complete. Returns whether there may be more to do."""
        raise NotImplementedError

    def take(self, events: list[Event[Any]], /) -> None:
        """Note events that have come."""
        raise NotImplementedError

    def leave(self) -> None:
        """Return what the stage holds: it sends nothing more."""

    def go_on(self) -> None:
        """Run the loop, unless it runs already."""
        if self._looping:
            return
        self._looping = True
        try:
            while not self.done and self.step():
                pass
        finally:
            self._looping = False

    def within(self, call: Callable[..., object], *args: Any) -> None:
        """Make a call that may signal several times; the loop goes on when it has returned."""
        looping, self._looping = self._looping, True
        try:
            call(*args)
        finally:
            self._looping = looping
        self.go_on()

    def send(self, event: Event[Any]) -> None:
        """Send an event that there is demand for."""
        self.demand -= 1
        self.downstream.on_events([event])

    def ask(self, n: int) -> None:
        """Request `n` more events."""
        self.asked += n
        self.upstream.request(n)

    def complete(self) -> None:
        """Complete the stream: the stage sends nothing more."""
        self.done = True
        self.downstream.on_completed()

    def fail(self, error: BaseException) -> None:
        """The stream ends here with `error`."""
        if self.done:
            self.run.late_error(error)
        else:
            self.error = error
            self.cancel()
            self.downstream.on_error(error)

    # From below and from above.

    def request(self, n: int, /) -> None:
        self.demand += n
        self.go_on()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if not is_second(self, subscription):
            self.upstream = subscription
            self.downstream.on_subscribe(self)

    def on_events(self, events: list[Event[Any]], /) -> None:
        self.asked -= len(events)
        if self.done:
            give_back_all(events)
            return
        self.within(self.take, events)

    def on_completed(self) -> None:
        self.ended = True
        self.asked = 0
        self.go_on()

    def on_error(self, error: BaseException, /) -> None:
        self.ended = True
        self.fail(error)

    def cancel(self) -> None:
        self.done = True
        if not self.ended:
            self.ended = True
            self.upstream.cancel()
        self.leave()

    def statistics(self) -> dict[str, Any]:
        """Plain numbers by documented names."""
        raise NotImplementedError
