"""Results that wait for demand: as they come, or in the order of their events' starts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from penstock.streams.keyed.taken import taken
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import Subscriber

__all__ = ["InOrder", "Results"]


class Results:
    """Results in the order of their calls' ends; at most about `window` of them wait.

    `begin` and `end` enclose the call of one event, `add` adds one of its results; `complete` ends
    several calls, each with one result. Results that arrive after `give_back` are returned too.
    """

    def __init__(self, downstream: Subscriber[Any], window: int) -> None:
        self.demand = 0
        self.window = window
        self.ready: deque[Event[Any]] = deque()
        self._downstream = downstream
        self._returns = False
        # Whether a list is being sent on: the stage must not end before that has returned.
        self.delivering = False

    @property
    def waiting(self) -> int:
        """Results that wait."""
        return len(self.ready)

    @property
    def head(self) -> Event[Any] | None:
        """The event whose results the others wait for, where there is an order."""
        return None

    def begin(self, events: Iterable[Event[Any]]) -> None:
        """Calls have begun."""

    def end(self, event: Event[Any]) -> None:
        """A call has ended, and has no more results."""

    def put(self, event: Event[Any], result: Event[Any]) -> None:
        """Add one result of the call of `event`, and deliver it when there is demand."""
        self.add(event, result)
        self.deliver()

    def add(self, event: Event[Any], result: Event[Any]) -> None:
        """Add one result of the call of `event`, to be delivered."""
        if self._returns:
            result.give_back()
        else:
            self.ready.append(result)

    def complete(self, events: list[Event[Any]]) -> None:
        """Calls have ended; each event now carries its only result. Takes ownership of the list."""
        if self.ready or self.delivering or len(events) > self.demand:
            self.ready += events
            self.deliver()
        elif events:
            self.demand -= len(events)
            self.delivering = True
            try:
                self._downstream.on_events(events)
            finally:
                self.delivering = False
            if self.ready:
                self.deliver()

    def has_room(self, event: Event[Any], kept: int) -> bool:
        """Whether there is room for another result of the call of `event`, beside those kept."""
        return self._returns or len(self.ready) + kept < max(self.demand, self.window)

    def request(self, n: int) -> None:
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
                self._downstream.on_events(taken(ready, n))
        finally:
            self.delivering = False

    def give_back(self) -> None:
        """Return all waiting results, and those of calls that end later."""
        self.demand = 0
        self._returns = True
        give_back_all(taken(self.ready, len(self.ready)))


class InOrder(Results):
    """Results in the order in which their calls began; a failed call leaves no gap."""

    def __init__(self, downstream: Subscriber[Any], window: int) -> None:
        super().__init__(downstream, window)
        self._order: deque[Event[Any]] = deque()
        # The results so far of each call that is in the order.
        self._held: dict[Event[Any], list[Event[Any]]] = {}
        self._ended: set[Event[Any]] = set()
        self._count = 0

    @property
    def waiting(self) -> int:
        return len(self.ready) + self._count

    @property
    def head(self) -> Event[Any] | None:
        return self._order[0] if self._order else None

    def begin(self, events: Iterable[Event[Any]]) -> None:
        held = self._held
        for event in events:
            if event not in held:
                held[event] = []
                self._order.append(event)

    def add(self, event: Event[Any], result: Event[Any]) -> None:
        if self._returns or event is self.head:
            super().add(event, result)
        else:
            self._held[event].append(result)
            self._count += 1

    def complete(self, events: list[Event[Any]]) -> None:
        if self._returns:
            give_back_all(events)
            return
        held = self._held
        for event in events:
            held[event].append(event)
        self._count += len(events)
        self._ended.update(events)
        self._advance()

    def end(self, event: Event[Any]) -> None:
        if event in self._held:
            self._ended.add(event)
            self._advance()

    def _advance(self) -> None:
        """Move the results of calls that have no unfinished call before them to `ready`."""
        order, held, ended, ready = self._order, self._held, self._ended, self.ready
        waited = len(ready)
        while order:
            head = order[0]
            if head not in ended:
                results = held[head]
                if results:
                    ready += results
                    held[head] = []
                break
            order.popleft()
            ended.discard(head)
            ready += held.pop(head)
        self._count -= len(ready) - waited
        self.deliver()

    def has_room(self, event: Event[Any], kept: int) -> bool:
        if self._returns or event is self.head:
            # Those that are kept are held, and take nothing of the window.
            return super().has_room(event, 0)
        # Others hold one result each, so that they do not fill the window that the head needs.
        return not self._held[event]

    def give_back(self) -> None:
        super().give_back()
        for results in self._held.values():
            give_back_all(results)
        self._held.clear()
        self._order.clear()
        self._ended.clear()
        self._count = 0
