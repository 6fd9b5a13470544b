"""A ledger of the outcomes of a test source's events."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from penstock.streams.keyed.queues import turns_held
from penstock.streams.protocol.event import Ending, Event
from penstock.streams.testing.leaks import register

__all__ = ["Ledger"]


class Ledger:
    """The events of one source: those that have not ended, and how the others ended.

    Values are those that the source emitted, whatever operators made of them. Each event
    takes one entry for as long as the ledger exists. A leak check compares the unsettled events
    of all ledgers that exist.
    """

    gives_again = False
    """Whether what was not acknowledged comes again in the same run, as far as stages see."""

    def __init__(self) -> None:
        self._unsettled: dict[Event[Any], Any] = {}
        self.endings: list[tuple[Any, Ending]] = []
        """(value, how it ended), in the order of the ends."""
        _ledgers.add(self)

    @property
    def unsettled(self) -> list[Any]:
        """The values whose events have not ended, in the order of emission."""
        return list(self._unsettled.values())

    def enter(self, event: Event[Any]) -> Event[Any]:
        """Record an event that is about to be emitted."""
        self._unsettled[event] = event.value
        return event

    def end(self, events: list[Event[Any]], ending: Ending) -> list[Any]:
        """Record how events ended; return the values that they were emitted with."""
        values = [self._unsettled.pop(event) for event in events]
        self.endings += [(value, ending) for value in values]
        return values

    def ended(self, *endings: Ending) -> list[Any]:
        """The values that ended in one of these ways, in the order of the ends."""
        return [value for value, ending in self.endings if ending in endings]

    # As the origin of a publisher's events.

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        self.end(events, ending)


_ledgers: WeakSet[Ledger] = WeakSet()
register("unsettled events", lambda: sum(len(ledger.unsettled) for ledger in _ledgers))
register("turns not given up", turns_held)
