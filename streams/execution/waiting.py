"""Events that a stage has taken in and that have not begun."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from penstock.streams.execution.retry import RetryQueue
from penstock.streams.execution.siblings import Siblings
from penstock.streams.failures.policy import OnError, Retry
from penstock.streams.protocol.event import Event
from penstock.streams.runtime.context import Run

__all__ = ["Waiting"]


class Waiting:
    """Those of the `inbox` begin as soon as the limit allows.

    The others wait for their turn (`siblings`) or for their next attempt (`parking`). While as
    many as the limit wait for that, new events may not begin and are held.
    """

    def __init__(
        self, policy: OnError, run: Run, window: int, again: Callable[[Event[Any], bool], None]
    ) -> None:
        self._window = window
        self.inbox: deque[Event[Any]] = deque()
        self.siblings = Siblings()
        self.parking = RetryQueue(policy, run, again) if isinstance(policy, Retry) else None
        self._held: deque[Event[Any]] = deque()

    def __len__(self) -> int:
        """Events that wait and take no working slot."""
        return len(self.inbox) + len(self._held) + self.siblings.waiting + self.retrying

    @property
    def retrying(self) -> int:
        """Those of them that wait for their next attempt."""
        return 0 if self.parking is None else self.parking.waiting

    @property
    def holding(self) -> bool:
        """Whether new events are held, because as many as the limit wait for their next attempt."""
        return bool(self._held)

    def has_room(self, limit: int) -> bool:
        """Whether more may be asked for."""
        parking = self.parking
        return self.siblings.waiting < self._window and (parking is None or parking.waiting < limit)

    def put(self, events: Iterable[Event[Any]], limit: int) -> bool:
        """Take in events; whether they may begin."""
        parking = self.parking
        if self._held or (parking is not None and parking.waiting >= limit):
            self._held += events
            return False
        self.inbox += events
        return True

    def park(self, event: Event[Any], attempts: int, limit: int) -> bool:
        """Let `event` wait for its next attempt; whether it keeps its working slot."""
        parking = self.parking
        assert parking is not None
        in_slot = parking.waiting >= limit
        parking.park(event, attempts, in_slot)
        if not in_slot and parking.waiting >= limit:
            self._held.extend(self.inbox)
            self.inbox.clear()
        return in_slot

    def unpark(self, event: Event[Any], limit: int) -> None:
        """The wait of `event` is over: it begins next, and with it those that were held for it."""
        self.inbox.appendleft(event)
        if self.retrying < limit:
            self.inbox.extend(self._held)
            self._held.clear()

    def clear(self) -> tuple[list[Event[Any]], int]:
        """Take out all, and count those that kept a working slot."""
        events = [*self.inbox, *self._held, *self.siblings.clear()]
        self.inbox.clear()
        self._held.clear()
        in_slot = 0
        if self.parking is not None:
            for event, has_slot in self.parking.clear():
                in_slot += has_slot
                events.append(event)
        return events, in_slot
