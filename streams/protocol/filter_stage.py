"""A stage that lets some of its events pass, as they are, a chunk at a time."""

from __future__ import annotations

from typing import Any

from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import Subscriber, Subscription, is_second

__all__ = ["FilterStage"]


class FilterStage:
    """The base class of such stages; `on_events` decides which events pass.

    For each event that does not pass, another is requested.
    """

    upstream: Subscription

    def __init__(self, downstream: Subscriber[Any]) -> None:
        self.downstream = downstream
        self._done = False

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if not is_second(self, subscription):
            self.upstream = subscription
            self.downstream.on_subscribe(self)

    def request(self, n: int, /) -> None:
        self.upstream.request(n)

    def statistics(self) -> dict[str, Any]:
        """Plain numbers by documented names."""
        return {}

    def on_events(self, events: list[Event[Any]], /) -> None:
        """Ends by `_let_pass`, or by `_broke`."""
        raise NotImplementedError

    def _let_pass(self, passed: list[Event[Any]], of: int) -> None:
        """Send on those that passed, and request as many more as are missing `of` a chunk."""
        self._pass_on(passed)
        missing = of - len(passed)
        if missing and not self._done:
            self.ask_again(missing)

    def ask_again(self, n: int) -> None:
        """Request as many events as did not pass."""
        self.upstream.request(n)

    def _pass_on(self, events: list[Event[Any]]) -> None:
        if events:
            self.downstream.on_events(events)

    def _broke(self, error: Exception, passed: list[Event[Any]], rest: list[Event[Any]]) -> None:
        """The stream fails here: send on those that passed, and give back the rest."""
        self._pass_on(passed)
        give_back_all(rest)
        if not self._done:
            self._done = True
            self.upstream.cancel()
            self.downstream.on_error(error)

    def on_completed(self) -> None:
        self._done = True
        self.downstream.on_completed()

    def on_error(self, error: BaseException, /) -> None:
        self._done = True
        self.downstream.on_error(error)

    def cancel(self) -> None:
        self._done = True
        self.upstream.cancel()
