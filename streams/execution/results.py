"""Results that wait for demand: as they come, or in the order of their events' starts."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.streams.keyed.taken import taken
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber

__all__ = ["InOrder", "Results"]


class Results:
    """Results in the order in which they come; at most about `window` of them wait.

    `begin` and `end` frame one event's call, `put` brings one of its results.
    """

    def __init__(self, downstream: Subscriber[Any], window: int) -> None:
        self.demand = 0
        self.window = window
        self.ready: deque[Event[Any]] = deque()
        self._downstream = downstream
        # What is on its way has been taken out, and the stage must not end before it has arrived.
        self.delivering = False

    @property
    def waiting(self) -> int:
        """Results that wait."""
        return len(self.ready)

    @property
    def head(self) -> Event[Any] | None:
        """Whose results the others wait for, where there is an order."""
        return None

    def begin(self, event: Event[Any]) -> None:
        """A call has begun."""

    def end(self, event: Event[Any]) -> None:
        """A call has ended, and brings no more results."""

    def put(self, event: Event[Any], result: Event[Any]) -> None:
        """One result of the call of `event`."""
        if self.demand and not self.ready and not self.delivering:
            self.demand -= 1
            self._downstream.on_events([result])
        else:
            self.ready.append(result)

    def put_all(self, results: list[Event[Any]]) -> None:
        """The results of several calls, one of each."""
        self.ready.extend(results)
        self.deliver()

    def has_room(self, event: Event[Any]) -> bool:
        """Whether the call of `event` may bring another result."""
        return len(self.ready) < max(self.demand, self.window)

    def request(self, n: int) -> None:
        """Let `n` more results go."""
        self.demand += n
        self.deliver()

    def deliver(self) -> None:
        """Send what waits and is wanted."""
        # A request that comes inside is seen by the loop, or many would nest too deep.
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
        """Return everything that waits."""
        self.demand = 0
        while self.ready:
            self.ready.popleft().give_back()


class InOrder(Results):
    """Results in the order in which their calls began; a failed call leaves no gap."""

    def __init__(self, downstream: Subscriber[Any], window: int) -> None:
        super().__init__(downstream, window)
        self._held: dict[Event[Any], list[Event[Any]]] = {}
        self._ended: set[Event[Any]] = set()
        self._count = 0

    @property
    def waiting(self) -> int:
        return len(self.ready) + self._count

    @property
    def head(self) -> Event[Any] | None:
        return next(iter(self._held), None)

    def begin(self, event: Event[Any]) -> None:
        self._held.setdefault(event, [])

    def put(self, event: Event[Any], result: Event[Any]) -> None:
        if next(iter(self._held)) is event:
            super().put(event, result)
        else:
            self._held[event].append(result)
            self._count += 1

    def end(self, event: Event[Any]) -> None:
        held = self._held
        if event not in held:
            return
        if next(iter(held)) is not event:
            self._ended.add(event)
            return
        del held[event]
        while held:
            head = next(iter(held))
            self._count -= len(held[head])
            self.ready.extend(held[head])
            held[head] = []
            if head not in self._ended:
                break
            self._ended.discard(head)
            del held[head]
        self.deliver()

    def has_room(self, event: Event[Any]) -> bool:
        if next(iter(self._held)) is event:
            return super().has_room(event)
        # Others must not fill the window that the head needs: one result each.
        return not self._held[event]

    def give_back(self) -> None:
        super().give_back()
        for results in self._held.values():
            for result in results:
                result.give_back()
        self._held.clear()
        self._ended.clear()
        self._count = 0
