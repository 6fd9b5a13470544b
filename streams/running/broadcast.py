"""Several sinks on one stream: the slowest sets the demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import UNCONNECTED, Subscriber, Subscription, is_second
from penstock.streams.stages.sink_stage import BaseSinkStage

__all__ = ["Broadcast"]


class Broadcast:
    """Sends every event to every sink; an event is finished when all of them have accepted it.

    Sinks that only observe need not accept it, unless there are no others. The demand is that of
    the sink that has requested the fewest events. When one sink cancels, the stream above is
    cancelled.
    """

    upstream: Subscription = UNCONNECTED

    def __init__(self, sinks: Sequence[Subscriber[Any]]) -> None:
        self._sinks = sinks
        self._branches = [_Branch(self) for _ in sinks]
        observers: list[BaseSinkStage] = [
            sink for sink in sinks if isinstance(sink, BaseSinkStage) and sink.observes
        ]
        others = len(sinks) - len(observers)
        for sink in sinks:
            if isinstance(sink, BaseSinkStage):
                sink.is_alone = others < 2
        if others:
            for sink in observers:
                sink.finishes = False
        self._preparing = [
            sink
            for sink in sinks
            if isinstance(sink, BaseSinkStage) and type(sink).prepare is not BaseSinkStage.prepare
        ]
        # Acceptances that an event needs beyond the one that every event needs.
        self._more = (others or len(sinks)) - 1
        self._requested = 0
        # While a signal is sent to the sinks, their demand is not passed on: the stream could
        # end before the last sink has received its last event.
        self._signalling = True
        self._cancelled = False
        self.has_ended = False
        """Whether the sinks were sent the end, so that it is not sent twice."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        for sink, branch in zip(self._sinks, self._branches, strict=True):
            sink.on_subscribe(branch)
        self._signalling = False
        self.pass_on_demand()

    def pass_on_demand(self) -> None:
        """Request what all sinks have requested."""
        if self._signalling or self._cancelled:
            return
        wanted = min(branch.wanted for branch in self._branches)
        if wanted > self._requested:
            n, self._requested = wanted - self._requested, wanted
            self.upstream.request(n)

    def on_events(self, events: list[Event[Any]], /) -> None:
        if more := self._more:
            for event in events:
                # One that was returned while it waited has ended.
                if event.pending > 0:
                    event.pending += more
        self._signalling = True
        for preparing in self._preparing:
            preparing.prepare(events)
        for sink in self._sinks:
            if self._cancelled:
                # The other sinks are closing, so the events cannot be finished any more.
                give_back_all(events)
                return
            sink.on_events(list(events))
        self._signalling = False
        self.pass_on_demand()

    def on_error(self, error: BaseException, /) -> None:
        self.has_ended = True
        for sink in self._sinks:
            sink.on_error(error)

    def on_completed(self) -> None:
        self.has_ended = True
        for sink in self._sinks:
            sink.on_completed()

    def cancel(self) -> None:
        """A sink takes no more events, or has failed."""
        if not self._cancelled:
            self._cancelled = True
            self.upstream.cancel()


class _Branch:
    """The subscription of one sink, which has requested `wanted` events so far."""

    def __init__(self, broadcast: Broadcast) -> None:
        self._broadcast = broadcast
        self.wanted = 0
        self.cancel = broadcast.cancel

    def request(self, n: int, /) -> None:
        self.wanted += n
        self._broadcast.pass_on_demand()
