"""The operators of one group, from its first event until the group is closed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from penstock.streams.groups.place import Buffer, Place
from penstock.streams.keyed.overflow import Tail
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import UNCONNECTED, Subscriber, Subscription
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run

__all__ = ["Substream", "SubstreamStage"]


class SubstreamStage(Buffer, Protocol):
    """The stage that has opened a substream."""

    run: Run
    info: StageInfo

    def emitted(self, key: Any, events: list[Event[Any]], /) -> None:
        """The operators of a key have emitted events."""

    def fed(self, substream: Substream, /) -> None:
        """Events that waited have gone into the operators."""

    def ended(self, substream: Substream, /) -> None:
        """The substream was closed, and its operators have completed."""

    def refilled(self, substream: Substream, /) -> None:
        """Events may have moved up, in front of the operators."""

    def starves(self, substream: Substream, /) -> None:
        """The operators request events, and those that wait do not fit into the buffer."""

    def fail(self, error: BaseException, /) -> None:
        """The operators have failed."""


class Substream:
    """The subscription above a group's operators, and the subscriber below them.

    An event waits until the operators request it, and then has a `Place`. One output is requested
    at first, and another whenever one was taken out of the group's queue. Operators that end early,
    as `take` does, stay until the group is closed, and what still comes is dropped.

    A closed substream completes its operators, and ends when they have completed. Events that come
    until then wait for the group's next substream.

    `events`, `tail`, `limit` and `over` are those of a `Backlog`.
    """

    __slots__ = (
        *("_completed", "_demand", "_drops", "_feeding", "_left", "_operators", "begun", "closed"),
        *("ended", "events", "held", "key", "limit", "over", "stage", "tail", "upstream"),
    )

    def __init__(self, key: Any, stage: SubstreamStage) -> None:
        self.key = key
        self.stage = stage
        self.events: deque[Event[Any]] = deque()
        """Events that have not gone into the operators, up to the tail."""
        self.tail: Tail | None = None
        self.over = False
        self.limit = stage.overflow.limit
        self.held = 0
        """Events that have a place in the operators, or that outputs in the queue were made of."""
        self.begun = self.closed = self.ended = False
        # Whether the operators have cancelled or completed by themselves, and whether events are
        # dropped because of that.
        self._left = self._drops = False
        # Whether the stage has completed them: events wait for the group's next substream.
        self._completed = False
        # Any: a subscriber, before anything is requested.
        self._operators: Any = None
        self.upstream = UNCONNECTED
        """For requests of outputs; again UNCONNECTED when the operators have completed."""
        self._demand = 0
        self._feeding = False

    @property
    def is_at_rest(self) -> bool:
        """Whether it is open, has had an event, and none waits."""
        return self.begun and not (self.closed or self.waits)

    @property
    def waits(self) -> bool:
        """Whether events have not gone into the operators."""
        return bool(self.events) or self.tail is not None

    @property
    def is_starving(self) -> bool:
        """Whether the operators request events, and all of them are in the tail."""
        return (
            self.tail is not None
            and not (self.events or self._completed)
            and (self._drops or (self._demand > 0 and not self._left))
        )

    # Above the operators.

    def attach(self, operators: Subscriber[Any], run: Run) -> None:
        self._operators = operators
        operators.on_subscribe(self)

    def append(self, event: Event[Any]) -> None:
        """One more event of the group."""
        if self._demand and not (self.events or self.over or self._feeding):
            self._feeding = True
            self._give(event)
            self._feeding = False
            if self.events or self.closed:
                self._feed()
        elif len(self.events) < self.limit:
            self.events.append(event)
            self._feed()
        elif self.stage.overflow.add(self, event):
            self._feed()

    def extend(self, events: Sequence[Event[Any]]) -> None:
        """More events of the group."""
        self.begun = True
        self.events.extend(events)
        self._feed()

    def request(self, n: int, /) -> None:
        if not self._left:
            self._demand += n
            if self.events or self.tail is not None:
                self._feed_waiting()

    def cancel(self) -> None:
        self._leave()
        run = self.stage.run
        # Not at once: an operator that fails cancels before it reports the error, which returns
        # what waits. Without a loop, until the operators have completed.
        if run.has_loop:
            run.call_soon(self.stage.info, self._drop_what_waits)

    def _leave(self) -> None:
        """The operators take no more events."""
        self._left = True
        self._demand = 0

    def _drop_what_waits(self) -> None:
        self._drops = True
        if self.waits:
            self._feed_waiting()

    def _feed_waiting(self) -> None:
        if not self._feeding:
            self.feed_again()

    def feed_again(self) -> None:
        """Others wait now than before."""
        self._feed()
        self.stage.fed(self)

    def left(self, n: int) -> None:
        """What was made of `n` events has left; a tail moves up."""
        self.stage.overflow.taken(self, n)
        self.stage.refilled(self)

    def _feed(self) -> None:
        """Pass on what is requested, and the completion when nothing waits in a closed group."""
        if self._feeding:
            return
        self._feeding = True
        events = self.events
        while events and not self._completed:
            if self._demand:
                self._give(events.popleft())
            elif self._drops:
                events.popleft().drop("group ended")
                overflow = self.stage.overflow
                if self.over:
                    overflow.taken(self)
                overflow.vacated += 1
                self.stage.freed()
            else:
                break
        self._feeding = False
        if self.over:
            self.stage.overflow.look(self)
        if self.tail is not None:
            if not events:
                self.stage.starves(self)
        elif self.closed and not (events or self._completed):
            self._complete()

    def _give(self, event: Event[Any]) -> None:
        """Pass on an event that is requested."""
        # As `new_place`, without the call.
        place = Place()
        place.stage = self.stage
        place.outer = event.turn
        place.held = place.holders = 1
        place.holder = self
        event.turn = place
        self._demand -= 1
        self.held += 1
        try:
            self._operators.on_events([event])
        except BaseException:
            event.give_back()
            raise

    def _complete(self) -> None:
        self._completed = True
        has_left = self._left
        self._leave()
        if self._operators is not None and not has_left:
            self._operators.on_completed()
        self._end_if_over()

    def close(self) -> None:
        """No more events: let the operators emit what they hold."""
        self.closed = True
        self._feed()

    def close_before_tail(self) -> None:
        """The same for operators that starve: what is in the tail is for the next substream."""
        self.closed = True
        self._complete()

    def take_waiting(self) -> list[Event[Any]]:
        """Take out the waiting events but those of the tail, with their places."""
        events = list(self.events)
        self.events.clear()
        return events

    def give_back(self) -> None:
        """Return what waits to its source, and cancel the operators: the stage was cancelled."""
        self.closed = self.ended = True
        self._completed = True
        self._demand = 0
        upstream, self.upstream = self.upstream, UNCONNECTED
        upstream.cancel()
        events = self.take_waiting()
        give_back_all(events)
        self.stage.overflow.vacated += len(events)
        self.stage.freed()

    # Below the operators.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self.upstream = subscription
        subscription.request(1)

    def on_events(self, events: list[Event[Any]], /) -> None:
        self.stage.emitted(self.key, events)

    def on_completed(self) -> None:
        self.upstream = UNCONNECTED
        self._leave()
        self._drop_what_waits()
        self._end_if_over()

    def on_error(self, error: BaseException, /) -> None:
        self.upstream = UNCONNECTED
        self.stage.fail(error)

    def _end_if_over(self) -> None:
        if self._completed and self.upstream is UNCONNECTED and not self.ended:
            self.ended = True
            self.stage.ended(self)
