"""Several sinks on one stream: the slowest sets the demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import Subscriber, Subscription, is_second

__all__ = ["Broadcast"]


class Broadcast:
    """Hands every event to every sink; it is finished when all of them have accepted it.

    Sinks that only observe are not waited for, unless there are no others.
    Asks for as many events as the sink that asked for the fewest. When one sink breaks off,
    the stream above is cancelled.
    """

    upstream: Subscription

    def __init__(self, sinks: Sequence[Subscriber[Any]]) -> None:
        self._sinks = sinks
        self._branches = [_Branch(self) for _ in sinks]
        observers: list[Any] = [sink for sink in sinks if getattr(sink, "observes", False)]
        others = len(sinks) - len(observers)
        if others:
            for sink in observers:
                sink.finishes = False
        # Acceptances that an event needs beyond the one that every event needs.
        self._more = (others or len(sinks)) - 1
        self._asked = 0
        # While sinks are told something: what they ask for meanwhile goes up when all know it,
        # or the stream could end before the last of them has got its last event.
        self._telling = True
        self._cancelled = False

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        for sink, branch in zip(self._sinks, self._branches, strict=True):
            sink.on_subscribe(branch)
        self._told()

    def ask(self) -> None:
        """Pass on what all sinks have asked for."""
        if self._telling or self._cancelled:
            return
        wanted = min(branch.wanted for branch in self._branches)
        if wanted > self._asked:
            n, self._asked = wanted - self._asked, wanted
            self.upstream.request(n)

    def on_events(self, events: list[Event[Any]], /) -> None:
        if more := self._more:
            for event in events:
                event.pending += more
        self._telling = True
        for sink in self._sinks:
            if self._cancelled:
                # The others are closing, and the events cannot be finished any more.
                give_back_all(events)
                return
            sink.on_events(list(events))
        self._told()

    def _told(self) -> None:
        self._telling = False
        self.ask()

    def on_error(self, error: BaseException, /) -> None:
        for sink in self._sinks:
            sink.on_error(error)

    def on_completed(self) -> None:
        for sink in self._sinks:
            sink.on_completed()

    def cancel(self) -> None:
        """One sink has had enough, or has failed."""
        if not self._cancelled:
            self._cancelled = True
            self.upstream.cancel()


class _Branch:
    def __init__(self, fork: Broadcast) -> None:
        self._fork = fork
        self.wanted = 0

    def request(self, n: int, /) -> None:
        self.wanted += n
        self._fork.ask()

    def cancel(self) -> None:
        self._fork.cancel()
