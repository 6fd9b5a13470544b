"""Events that share a turn, such as the children of a fan-out, run one after another."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.streams.protocol.event import Event, Turn

__all__ = ["Siblings"]


class Siblings:
    """Those that wait for the one of their turn that is at work."""

    def __init__(self) -> None:
        self.waiting = 0
        self._queues: dict[Turn, deque[Event[Any]]] = {}

    def may_begin(self, turn: Turn, event: Event[Any]) -> bool:
        """Whether none of its turn is at work; else `event` waits here."""
        others = self._queues.get(turn)
        if others is None:
            self._queues[turn] = deque()
            return True
        others.append(event)
        self.waiting += 1
        return False

    def wait_at(self, place: int, turn: Turn, event: Event[Any]) -> None:
        """Let `event` wait in front of those from `place` on, while one of its turn is at work."""
        self._queues[turn].insert(place, event)
        self.waiting += 1

    def next(self, turn: Turn) -> Event[Any] | None:
        """One of this turn has ended: the next of it, if one waits."""
        others = self._queues.get(turn)
        if others is None:
            return None
        if not others:
            del self._queues[turn]
            return None
        self.waiting -= 1
        return others.popleft()

    def __contains__(self, turn: Turn | None) -> bool:
        """Whether one of this turn is at work."""
        return turn in self._queues

    def clear(self) -> list[Event[Any]]:
        """Take out all that wait."""
        waiting = [event for others in self._queues.values() for event in others]
        self._queues.clear()
        self.waiting = 0
        return waiting

    def __bool__(self) -> bool:
        return bool(self._queues)
