"""Several events of a group whose operators only make one value of them, such as their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.streams.keyed.queues import hand_over
from penstock.streams.protocol.acknowledgement import Joined
from penstock.streams.protocol.event import RETURNED, Event
from penstock.streams.protocol.source_stage import counting
from penstock.streams.rx.lift import HOLD

__all__ = ["Gathered"]


class Gathered(Joined):
    """The events of a group, from the second of them until the group is closed.

    Then it is the origin of the event that is made of them. `values` are theirs, or None if only
    their number is wanted. Events of a source that only counts them are not kept, nor are their
    values unless they are wanted. When more than `HOLD` events or values are kept, `full` is called
    with their number.
    """

    __slots__ = ("_first_token", "_full", "created", "values")

    def __init__(
        self,
        first: Event[Any],
        second: Event[Any],
        full: Callable[[int], object],
        *,
        values: bool,
    ) -> None:
        # The first one may be an exception, such as one that is traced.
        super().__init__((), counting(first.origin) or counting(second.origin))
        self.values: list[Any] | None = [] if values else None
        self.created = first.created
        """The earliest time at which one of them was created."""
        self._first_token = first.token
        self._full = full
        self.append(first)
        self.append(second)

    @property
    def held(self) -> int:
        """The number of events."""
        return self.counted + len(self.parents)

    def append(self, event: Event[Any]) -> None:
        """One more event of the group."""
        if event.created < self.created:
            self.created = event.created
        if event.origin is self.counter and event.turn is None:
            self.counted += 1
            # It ends with the others, also if an error passes that returns its list.
            event.pending = 0
            if event.token is not None:
                if self.tokens is None:
                    self.tokens = []
                self.tokens.append(event.token)
            if self.values is None:
                return
        else:
            if isinstance(self.parents, tuple):
                self.parents = []
            self.parents.append(event)
        if self.values is not None:
            self.values.append(event.value)
        kept = len(self.parents if self.values is None else self.values)
        if kept > HOLD:
            self._full(kept)

    def give_back(self) -> None:
        """Return the events to their sources."""
        self.end(RETURNED, None)

    def join(self) -> Event[Any]:
        """The event that is made of them all, with their turns."""
        value = self.held if self.values is None else self.values
        event = Event(value, self.created, self, self._first_token)
        event.turn = hand_over(self.parents)
        # Those that were made of it need not keep it.
        self.values = None
        return event
