"""The turns of groups whose events are in batch calls, and their waiting events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from penstock.streams.execution.waiting import Siblings
from penstock.streams.protocol.event import Event, Turn

__all__ = ["BatchTurns"]


class BatchTurns:
    """A turn is at work while an event of it is in a call, or waits for its next attempt.

    Other events of the turn, such as the children of a fan-out, wait among the `siblings`.
    Memory: an entry for each turn at work.
    """

    def __init__(self, siblings: Siblings) -> None:
        self._siblings = siblings
        self._at_work: Counter[Turn] = Counter()
        self._retried: dict[Turn, Event[object]] = {}
        # Per turn, events that were in a call and wait once more, before those that never were.
        self._put_off: Counter[Turn] = Counter()

    def must_wait(self, event: Event[object]) -> bool:
        """Whether another event of its turn is at work; it then waits until that one has ended."""
        turn = event.turn
        if turn is None or turn not in self._siblings.at_work or self._retried.get(turn) is event:
            return False
        self._siblings.enter(turn, event)
        return True

    def begin(self, event: Event[object]) -> None:
        """An event goes into a call."""
        turn = event.turn
        # One that had to wait for its next attempt has been at work all the while.
        if turn is not None and self._retried.get(turn) is not event:
            if turn not in self._siblings.at_work:
                self._siblings.enter(turn, event)
            self._at_work[turn] += 1

    def put_off(self, event: Event[object]) -> None:
        """An event that was about to begin waits once more."""
        turn = event.turn
        assert turn is not None
        self._at_work[turn] -= 1
        self._siblings.wait_at(self._put_off[turn], turn, event)
        self._put_off[turn] += 1

    def end(self, turn: Turn) -> Iterable[Event[object]]:
        """One event of a turn is settled. With the last of them, those that may begin now."""
        self._at_work[turn] -= 1
        if not self._at_work[turn]:
            del self._at_work[turn], self._put_off[turn]
            while (following := self._siblings.next(turn)) is not None:
                yield following

    def retry(self, event: Event[object]) -> None:
        """An event has another attempt; the others of its turn wait until it is settled."""
        if event.turn is not None:
            self._retried[event.turn] = event

    def settle(self, event: Event[object]) -> None:
        """There will be no more attempts at an event that still has its turn."""
        turn = event.turn
        if turn is not None and self._retried.get(turn) is event:
            del self._retried[turn]

    def waits_for_another(self, event: Event[object]) -> bool:
        """Whether another event of its turn waits for its next attempt."""
        turn = event.turn
        return turn is not None and self._retried.get(turn, event) is not event
