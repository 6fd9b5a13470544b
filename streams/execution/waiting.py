"""Events that a working stage has received and that have not begun."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.streams.execution.call import attempts_at
from penstock.streams.execution.retry import RetryQueue
from penstock.streams.failures.policy import OnError, Retry
from penstock.streams.protocol.event import Count, Event, Turn
from penstock.streams.runtime.context import Run

__all__ = ["Siblings", "Waiting"]


class Siblings:
    """Events that share a turn, such as the children of a fan-out, and run one after another.

    Memory: an entry for each such turn at work, and the events that wait for it.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self.at_work: dict[Turn, deque[Event[Any]]] = {}
        """The events that wait, by their turn, which another event holds."""

    def enter(self, turn: Turn, event: Event[Any]) -> bool:
        """Let `event` wait here, if another event of its turn is at work; whether it need not."""
        others = self.at_work.get(turn)
        if others is None:
            self.at_work[turn] = deque()
            return True
        others.append(event)
        self.waiting += 1
        return False

    def wait_at(self, place: int, turn: Turn, event: Event[Any]) -> None:
        """Let `event` wait before those from `place` on, while another of its turn is at work."""
        self.at_work[turn].insert(place, event)
        self.waiting += 1

    def end(self, turn: Turn) -> Sequence[Event[Any]]:
        """One event of a turn is settled: the next one of them, if one waits."""
        following = self.next(turn)
        return () if following is None else (following,)

    def next(self, turn: Turn) -> Event[Any] | None:
        """Remove and return the first event that waits for a turn; without one the turn is not at
        work any more."""
        others = self.at_work.get(turn)
        if others is None:
            return None
        if not others:
            del self.at_work[turn]
            return None
        self.waiting -= 1
        return others.popleft()

    def withdraw(self, is_gone: Callable[[Event[Any]], bool]) -> list[Event[Any]]:
        """Remove and return the events for which this is true."""
        gone: list[Event[Any]] = []
        for others in self.at_work.values():
            gone += _removed(others, is_gone)
        self.waiting -= len(gone)
        return gone

    def clear(self) -> list[Event[Any]]:
        """Remove and return all that wait."""
        waiting = [event for others in self.at_work.values() for event in others]
        self.at_work.clear()
        self.waiting = 0
        return waiting


class Waiting:
    """The waiting events of one stage, by what they wait for.

    Events in the `inbox` begin as soon as the limit allows. Others wait for an event of the same
    turn (`siblings`) or for their next attempt (`retries`, None where the policy has no retry).
    While as many events as the limit wait for their next attempt, new events are held and may not
    begin.
    """

    def __init__(
        self, policy: OnError, run: Run, window: Count, again: Callable[[Event[Any]], None]
    ) -> None:
        self._window = window
        self.inbox: deque[Event[Any]] = deque()
        self.siblings = Siblings()
        self.retries = RetryQueue(policy, run, again) if isinstance(policy, Retry) else None
        self.held: deque[Event[Any]] = deque()
        """New events, while as many as the limit wait for their next attempt."""

    def __len__(self) -> int:
        """Events that wait."""
        return len(self.inbox) + len(self.held) + self.siblings.waiting + self.retrying

    @property
    def retrying(self) -> int:
        """Those of them that wait for their next attempt."""
        return 0 if self.retries is None else self.retries.waiting

    def has_room(self, limit: Count) -> bool:
        """Whether more events may be requested."""
        retries = self.retries
        return self.siblings.waiting < self._window and (retries is None or retries.waiting < limit)

    def put(self, events: Iterable[Event[Any]], limit: Count) -> bool:
        """Add new events. Returns whether they may begin."""
        retries = self.retries
        if self.held or (retries is not None and retries.waiting >= limit):
            self.held += events
            return False
        self.inbox += events
        return True

    def put_retry(self, event: Event[Any], asked: float, limit: Count) -> None:
        """Let `event` wait for its next attempt, for the seconds that were `asked` for or more."""
        assert self.retries is not None
        self.retries.put(event, asked)
        if self.retries.waiting >= limit:
            self.held.extend(self.inbox)
            self.inbox.clear()

    def retry(self, event: Event[Any], limit: Count) -> None:
        """The wait of `event` is over: it begins next, and held events may begin after it."""
        self.inbox.appendleft(event)
        if self.retrying < limit:
            self.inbox.extend(self.held)
            self.held.clear()

    def bring(self, event: Event[Any] | None) -> bool:
        """Whether `event` is in the inbox, where it then is the first."""
        if event is None or event not in self.inbox:
            return False
        self.inbox.remove(event)
        self.inbox.appendleft(event)
        return True

    def withdraw(self, is_gone: Callable[[Event[Any]], bool]) -> list[Event[Any]]:
        """Remove and return the events for which this is true, but none that was tried before."""

        def is_new_and_gone(event: Event[Any]) -> bool:
            return attempts_at(event) == 1 and is_gone(event)

        gone = _removed(self.inbox, is_new_and_gone) + _removed(self.held, is_new_and_gone)
        return gone + self.siblings.withdraw(is_gone)

    def clear(self) -> list[Event[Any]]:
        """Remove and return all events."""
        events = [*self.inbox, *self.held, *self.siblings.clear()]
        self.inbox.clear()
        self.held.clear()
        return events if self.retries is None else events + self.retries.clear()


def _removed(events: deque[Event[Any]], is_gone: Callable[[Event[Any]], bool]) -> list[Event[Any]]:
    gone: list[Event[Any]] = []
    left: list[Event[Any]] = []
    for event in events:
        (gone if is_gone(event) else left).append(event)
    events.clear()
    events.extend(left)
    return gone
