"""Events that hold a key of a window and have not ended, to be found by their number."""

from __future__ import annotations

from typing import Any

from streams.event import Ending, Event, tell_finished
from streams.origins import Interposed

__all__ = ["Unfinished"]

# How long the list of the latest grows at least before what is left of it becomes older.
_LEAST_PLACES = 8192


class Unfinished(Interposed):
    """Stands in front of the origin of each event, to hear of its end.

    An event that fails or is returned gives up its entry in `seen`, the numbers of the first
    events by key. Duplicates may wait for the end of an event, and share it.

    The latest events stand in a list, where a number is a place and a whole chunk is added in one
    step; those still unfinished when the list is long move to a dict. An event that has ended is
    not kept: its memory, still in the processor's cache, is the next event's.
    """

    def __init__(self, seen: dict[Any, int]) -> None:
        self._seen = seen
        self._recent: list[Event[Any] | None] = []
        self._recent_from = 0
        self._older: dict[int, Event[Any]] = {}
        self._sharing: dict[int, list[Event[Any]]] = {}

    def number(self, events: list[Event[Any]]) -> None:
        """`events` have the next numbers."""
        recent = self._recent
        if len(recent) > _LEAST_PLACES and len(recent) > len(self._older):
            self._older.update(
                (number, event)
                for number, event in enumerate(recent, self._recent_from)
                if event is not None
            )
            self._recent_from += len(recent)
            self._recent = recent = []
        recent += events

    def share(self, number: int, duplicate: Event[Any]) -> bool:
        """Let `duplicate` end as the event with this number will; False if that has ended."""
        place = number - self._recent_from
        if (self._recent[place] if place >= 0 else self._older.get(number)) is None:
            return False
        self._sharing.setdefault(number, []).append(duplicate)
        return True

    def forget(self, number: int) -> None:
        """The event with this number holds no key."""
        place = number - self._recent_from
        if place >= 0:
            self._recent[place] = None
        else:
            del self._older[number]

    def ended(self, event: Event[Any], ending: Ending, outer: tuple[Any, ...], /) -> None:
        _, _, key, number = outer
        self.forget(number)
        # Another event may hold the key by now: only this event's own entry is touched.
        if ending not in (Ending.FINISHED, Ending.DROPPED) and self._seen.get(key) == number:
            del self._seen[key]
        self._settle(number, ending)

    def finished_all(self, events: list[Event[Any]], /) -> None:
        recent, recent_from, sharing = self._recent, self._recent_from, self._sharing
        shared: list[int] = []
        origin: Any = None
        origins = 0
        for event in events:
            outer: Any = event.outer
            event.origin, event.outer, _, number = outer
            if outer[0] is not origin:
                origin = outer[0]
                origins += 1
            place = number - recent_from
            if place >= 0:
                recent[place] = None
            else:
                del self._older[number]
            if number in sharing:
                shared.append(number)
        for number in shared:
            self._settle(number, Ending.FINISHED)
        if origins == 1:
            origin.finished_all(events)
        else:
            tell_finished(events)

    def _settle(self, number: int, ending: Ending) -> None:
        for duplicate in self._sharing.pop(number, ()):
            if ending.settled:
                duplicate.drop("duplicate")
            else:
                duplicate.give_back()
