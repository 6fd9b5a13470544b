"""How far apart the events of a group leave the rotation, from a sample of the groups."""

from __future__ import annotations

from typing import Any

from penstock.streams.diagnostics.distances import Distances
from penstock.streams.keyed.queues import KeyQueue
from penstock.streams.protocol.event import Event

__all__ = ["Neighbours"]

# While a group is awaited, each event is compared with it: so for one event in eight at most.
_PAUSE = 7


class Neighbours:
    """Awaits the next event of one group at a time, and counts how many events later it leaves.

    Then it pauses for seven times as many events, so that comparing costs little. A group that has
    ended meanwhile has no neighbour, and is not counted. Memory: that of `Distances`.
    """

    __slots__ = ("_at", "_awaited", "_distances", "_key", "_left", "_resume")

    def __init__(self) -> None:
        self._distances = Distances()
        # The events that have left, up to which of them it pauses, and where the awaited group was.
        self._left = self._resume = self._at = 0
        self._awaited: KeyQueue | None = None
        self._key: Any = None

    def leave(self, events: list[Event[Any]]) -> None:
        """These events, which hold their turns, leave after all before them."""
        before = self._left
        self._left = before + len(events)
        awaited = self._awaited
        if awaited is None:
            turn = events[-1].turn
            if self._left > self._resume and isinstance(turn, KeyQueue):
                self._awaited, self._key, self._at = turn, turn.key, self._left
            return
        # Queues are used again for other keys.
        if awaited.key is not self._key or not (awaited.holders or awaited.events):
            self._awaited = None
            return
        for place, event in enumerate(events, before + 1):
            if event.turn is awaited:
                distance = place - self._at
                self._distances.count(distance)
                self._resume = place + _PAUSE * distance
                self._awaited = None
                return

    def numbers(self) -> dict[int, int]:
        """How often each distance was counted, in ascending order, as `Distances` does."""
        return self._distances.numbers()
