"""A sample of the distances at which events of one group leave the rotation."""

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

    __slots__ = ("_at", "_awaited", "_distances", "_key", "left", "resume")

    def __init__(self) -> None:
        self._distances = Distances()
        self.left = self.resume = 0
        """The events that have left, and up to which of them it pauses."""
        # The group that is awaited, and where it was.
        self._awaited: KeyQueue | None = None
        self._key: Any = None
        self._at = 0

    def look(self, events: list[Event[Any]]) -> None:
        """See the events that were the last to leave, which hold their turns.

        To be called for each list that leaves while `left`, with these events, is above `resume`.
        """
        awaited = self._awaited
        if awaited is None:
            turn = events[-1].turn
            if isinstance(turn, KeyQueue):
                self._awaited, self._key, self._at = turn, turn.key, self.left
            return
        # Queues are used again for other keys.
        if awaited.key is not self._key or not (awaited.holders or awaited.events):
            self._awaited = None
            return
        for place, event in enumerate(events, self.left - len(events) + 1):
            if event.turn is awaited:
                distance = place - self._at
                self._distances.count(distance)
                self.resume = place + _PAUSE * distance
                self._awaited = None
                return

    def numbers(self) -> dict[int, int]:
        """How often each distance was counted, in ascending order, as `Distances` does."""
        return self._distances.numbers()
