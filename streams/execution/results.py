"""Results that wait for demand: as they come, or in the order of their events' starts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from penstock.streams.base.take_front import taken
from penstock.streams.execution.call import Call, call_of
from penstock.streams.protocol.event import BaseEvent, Count, Event, give_back_all
from penstock.streams.protocol.stage import Subscriber, send_list

__all__ = ["InOrder", "Results"]


class Results:
    """Results in the order of their calls' ends; at most about `window` of them wait.

    `begin` says which calls have begun, `add` adds a result of one, `end` ends it; `complete` ends
    several calls, each with one result. Results that arrive after `give_back` are returned too.
    """

    def __init__(self, downstream: Subscriber[Any], window: Count) -> None:
        self.demand = 0
        self.window = window
        self.ready: deque[Event[Any]] = deque()
        self.out_of_order = 0
        """Results of calls behind an unfinished one, where there is an order."""
        self._downstream = downstream
        self._returns = False
        # Whether a list is being sent on: the stage must not end before that has returned.
        self.delivering = False

    @property
    def waiting(self) -> int:
        """Results that wait."""
        return len(self.ready) + self.out_of_order

    @property
    def room(self) -> int:
        """For how many more results there is room; below 0 where more than `window` wait."""
        return self.window - len(self.ready) - self.out_of_order

    @property
    def head(self) -> Event[Any] | None:
        """The event whose results the others wait for, where there is an order."""
        return None

    def begin(self, events: Iterable[Event[Any]]) -> None:
        """Calls have begun."""

    def end(self, event: Event[Any]) -> None:
        """A call has ended, and has no more results."""

    def add(self, event: Event[Any], result: Event[Any]) -> None:
        """Add one result of the call of `event`, to be delivered."""
        if self._returns:
            result.give_back()
        else:
            self.ready.append(result)

    def complete(self, events: list[Event[Any]]) -> None:
        """Calls have ended; each event now carries its only result. Takes ownership of the list."""
        if self.ready or self.delivering or len(events) > self.demand:
            if self._returns:
                # There is no demand any more.
                give_back_all(events)
                return
            self.ready += events
            self.deliver()
        elif events:
            self.demand -= len(events)
            self.delivering = True
            try:
                send_list(self._downstream, events)
            finally:
                self.delivering = False
            if self.ready:
                self.deliver()

    def has_room(self, event: Event[Any], kept: int) -> bool:
        """Whether there is room for another result of the call of `event`, beside those kept."""
        return self._returns or len(self.ready) + kept < max(self.demand, self.window)

    def request(self, n: Count) -> None:
        """Add `n` to the demand."""
        self.demand += n
        if self.ready:
            self.deliver()

    def deliver(self) -> None:
        """Send results on while there is demand."""
        # A request from inside is served by the loop below: nested calls could be too deep.
        if self.delivering or not (self.demand and self.ready):
            return
        ready = self.ready
        self.delivering = True
        try:
            while self.demand and ready:
                n = min(self.demand, len(ready))
                self.demand -= n
                send_list(self._downstream, taken(ready, n))
        finally:
            self.delivering = False

    def give_back(self) -> None:
        """Return all waiting results, and those of calls that end later."""
        self.demand = 0
        self._returns = True
        give_back_all(taken(self.ready, len(self.ready)))


class InOrder(Results):
    """Results in the order in which their calls began; a failed call leaves no gap."""

    def __init__(self, downstream: Subscriber[Any], window: Count) -> None:
        super().__init__(downstream, window)
        self._order: deque[Event[Any]] = deque()
        # The same: a set costs less than a record for each event.
        self._placed: set[Event[Any]] = set()

    @property
    def head(self) -> Event[Any] | None:
        return self._order[0] if self._order else None

    def begin(self, events: Iterable[Event[Any]]) -> None:
        placed = self._placed
        if not placed.isdisjoint(events):
            # Those that are tried again keep their places.
            events = [event for event in events if event not in placed]
        placed.update(events)
        self._order.extend(events)

    def add(self, event: Event[Any], result: Event[Any]) -> None:
        if self._returns or event is self.head:
            super().add(event, result)
        else:
            self._hold(call_of(event), result)

    def _hold(self, call: Call, result: Event[Any]) -> None:
        if call.results is None:
            call.results = [result]
        else:
            call.results.append(result)
        self.out_of_order += 1

    def complete(self, events: list[Event[Any]]) -> None:
        if self._returns:
            give_back_all(events)
            return
        order = self._order
        next_ones: list[Event[Any]] = []
        event: BaseEvent
        for event in events:
            call: Call | None = event.call
            if event is order[0] and (call is None or call.results is None):
                event.call = None
                next_ones.append(order.popleft())
            else:
                call = call_of(event)
                call.is_over = True
                self._hold(call, event)
        self._placed.difference_update(next_ones)
        self._advance(next_ones)

    def end(self, event: Event[Any]) -> None:
        if event in self._placed:
            call_of(event).is_over = True
            self._advance([])

    def _advance(self, next_ones: list[Event[Any]]) -> None:
        """Deliver these results, and those of calls that have no unfinished call before them."""
        order = self._order
        while order:
            head = order[0]
            call: Call | None = head.call
            if call is None:
                break
            results, call.results = call.results, None
            if results is not None:
                self.out_of_order -= len(results)
                next_ones += results
                # It may be the event of the call, which leaves the stage.
                results[-1].call = None
            if not call.is_over:
                break
            self._placed.remove(order.popleft())
        super().complete(next_ones)

    def has_room(self, event: Event[Any], kept: int) -> bool:
        if self._returns or event is self.head:
            # Those that are kept are held, and take nothing of the window.
            return super().has_room(event, 0)
        # Others hold one result each, so that they do not fill the window that the head needs.
        return not call_of(event).results

    def give_back(self) -> None:
        super().give_back()
        for event in self._order:
            give_back_all(call_of(event).results or ())
        self._order.clear()
        self._placed.clear()
        self.out_of_order = 0
