"""Unsettled events whose keys are in the deduplication window, indexed by sequence number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.streams.protocol.acknowledgement import AckHook
from penstock.streams.protocol.event import Ending, Event, Origin, tell_finished

__all__ = ["Unfinished"]


class Unfinished(AckHook):
    """Stands in front of the origin of each event, to hear of its end.

    An event that fails or is returned gives up its entry in `seen`, the numbers of the first
    events by key. Duplicates may wait for the end of an event, and share it.

    Only its key is kept of an event, in `keys`: its memory, still in the processor's cache when it
    has ended, is the next event's. Most events have one origin, `source`; the origins of the others
    are kept by number.
    """

    def __init__(self, seen: dict[Any, int], shared: Callable[[], None]) -> None:
        """`shared` is called when duplicates have shared the end of an event."""
        self.sharing = 0
        """Duplicates that wait."""
        self.skipped = 0
        """Those that ended with an event that was skipped or routed."""
        self._shared = shared
        self.keys: dict[int, Any] = {}
        self.source: Origin | None = None
        self._seen = seen
        self._others: dict[int, tuple[Origin, Any]] = {}
        self._sharing: dict[int, list[Event[Any]]] = {}

    def keep_origin(self, event: Event[Any], number: int) -> None:
        """The event with this number comes from elsewhere than `source`."""
        if self.source is None and event.outer is None:
            self.source = event.origin
        else:
            self._others[number] = event.origin, event.outer

    def share(self, number: int, duplicate: Event[Any]) -> bool:
        """Let `duplicate` end as the event with this number will; False if that has ended."""
        if number not in self.keys:
            return False
        self._sharing.setdefault(number, []).append(duplicate)
        self.sharing += 1
        return True

    def behind(self, outer: Any, /) -> tuple[Origin, Any]:
        return self._others.get(outer) or self._only_source()

    def ended(
        self, event: Event[Any], ending: Ending, outer: Any, error: BaseException | None, /
    ) -> None:
        number: int = outer
        self._others.pop(number, None)
        key = self.keys.pop(number)
        # Another event may hold the key by now: only this event's own entry is touched.
        if ending not in (Ending.FINISHED, Ending.DROPPED) and self._seen.get(key) == number:
            del self._seen[key]
        self._settle(number, ending, error)

    def finished_all(self, events: list[Event[Any]], /) -> None:
        keys = self.keys
        numbers: list[Any] = [event.outer for event in events]
        for number in numbers:
            del keys[number]
        if sharing := self._sharing:
            for number in [number for number in numbers if number in sharing]:
                self._settle(number, Ending.FINISHED, None)
        if self._others:
            for event, number in zip(events, numbers, strict=True):
                event.origin, event.outer = self.behind(number)
                self._others.pop(number, None)
            tell_finished(events)
        else:
            self._only_source()[0].finished_all(events)

    def _only_source(self) -> tuple[Origin, None]:
        assert self.source is not None
        return self.source, None

    def _settle(self, number: int, ending: Ending, error: BaseException | None) -> None:
        duplicates = self._sharing.pop(number, None)
        if duplicates is None:
            return
        self.sharing -= len(duplicates)
        if ending is Ending.FORGIVEN:
            self.skipped += len(duplicates)
        for duplicate in duplicates:
            if error is not None:
                duplicate.fail(error, acknowledged=ending is Ending.FORGIVEN)
            elif ending is Ending.RETURNED:
                duplicate.give_back()
            else:
                duplicate.drop("duplicate")
        self._shared()
