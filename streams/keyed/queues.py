"""Keyed queues: a queue for each key, from which events are taken in fair rotation.

A queue exists only while it holds an event or its turn is held. Queues that have an event and a
free turn stand in line; `take` takes one event from each, and `release` puts a queue back at the
end of the line when the event's turn has ended.

While the turn is held no event of the key leaves. Its holder may open it, as a batch does while it
is being filled: it then gets more events of the open queues, one of each in rotation, when no other
queue is in line.

The structure knows nothing of stages: `go_on` is all that it calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any
from weakref import WeakSet

from penstock.streams.keyed.key import Key
from penstock.streams.keyed.taken import taken
from penstock.streams.protocol.event import Event, Turn

__all__ = [
    "KeyQueue",
    "KeyedQueues",
    "Turns",
    "close_turns",
    "hand_over",
    "open_turns",
    "release",
    "turns_held",
]


class KeyQueue:
    """One key's waiting events and its turn, which is held while it has holders.

    `outer` is the turn that its events held before; it ends with this one.
    """

    __slots__ = ("events", "holders", "is_open", "key", "outer", "queues")

    def __init__(self, key: Any, queues: KeyedQueues) -> None:
        self.key = key
        self.queues = queues
        self.events: deque[Event[Any]] = deque()
        self.holders = 0
        self.is_open = False
        self.outer: Turn | None = None

    def end(self) -> None:
        """Give up one share of the turn; after the last the next event may go."""
        queues = self.queues
        outer = queues.release((self,))
        queues.go_on(())
        # Last, because it may send this queue its next event.
        for turn in outer:
            turn.end()

    def leave(self) -> Turn:
        # Events that share the turn and have not left keep its outer turn.
        if self.outer is not None and self.holders == 1:
            self.outer = self.outer.leave()
        return self

    def outside(self) -> Turn:
        self.holders += 1
        return self

    def place(self) -> Turn | None:
        return None if self.outer is None else self.outer.place()


class Turns:
    """Several turns as one: all end when this does."""

    def __init__(self, *turns: Turn) -> None:
        self.holders = 1
        self._turns = turns

    def end(self) -> None:
        self.holders -= 1
        if not self.holders:
            for turn in self._turns:
                turn.end()

    def leave(self) -> Turn | None:
        outside = self.outside()
        self.end()
        return outside

    def outside(self) -> Turn | None:
        return _as_one([turn.outside() for turn in self._turns])

    def place(self) -> Turn | None:
        return _as_one([turn.place() for turn in self._turns])


class KeyedQueues:
    """Events go in by `put`, come out by `take`, and end their turns by `release`.

    `key` reads the key of an event's value. At most `feeders` queues are in the rotation at a
    time, if a number is given, and another enters when one runs empty. `leaves` says that events
    come out of operators inside groups, which they leave when they are taken. `go_on(turns)` is
    called when there may be something to take: after a turn has ended, and when `turns` are opened.

    Memory: the events that wait, and an entry for each queue that has an event or a held turn.
    Time: constant per event.
    """

    def __init__(
        self,
        key: Key,
        go_on: Callable[[Collection[KeyQueue]], None],
        feeders: int | None = None,
        *,
        leaves: bool = False,
    ) -> None:
        self.go_on = go_on
        self.waiting = 0
        self._key = key
        self._leaves = leaves
        self._queues: dict[Any, KeyQueue] = {}
        self._line: deque[KeyQueue] = deque()
        # Queues whose turn is open, and that have an event for its holder.
        self._open: dict[KeyQueue, None] = {}
        # Queues that ran empty are used again: a quiet stream opens one for each event.
        self._spare: list[KeyQueue] = []
        self._feeders = feeders
        self._inside: set[KeyQueue] = set()
        self._outside: deque[KeyQueue] = deque()
        _all.add(self)

    def put(self, events: list[Event[Any]]) -> tuple[int, Exception] | None:
        """Put each event into the queue of its key.

        Returns the index of an event whose key cannot be read or is not valid, and the error; the
        events before it are in.
        """
        find, key_of = self._queues.get, self._key.get
        for event in events:
            try:
                key = key_of(event.value)
                queue = find(key)
            except Exception as error:
                place = events.index(event)
                self.waiting += place
                return place, error
            if queue is None:
                queue = self._begin(key)
            queue.events.append(event)
            if queue.is_open:
                self._open[queue] = None
        self.waiting += len(events)
        return None

    def put_one(self, key: Any, event: Event[Any]) -> None:
        """Put an event into the queue of this key."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._begin(key)
        queue.events.append(event)
        if queue.is_open:
            self._open[queue] = None
        self.waiting += 1

    def _begin(self, key: Any) -> KeyQueue:
        """Make a queue for its first event."""
        if self._spare:
            queue = self._spare.pop()
            queue.key = key
        else:
            queue = KeyQueue(key, self)
        self._queues[key] = queue
        if self._feeders is None or len(self._inside) < self._feeders:
            if self._feeders is not None:
                self._inside.add(queue)
            self._line.append(queue)
        else:
            self._outside.append(queue)
        return queue

    def take(self, n: int, also: Collection[KeyQueue] = ()) -> list[Event[Any]]:
        """Up to `n` events, each of which now holds its queue's turn.

        First one of each queue in line; then more of the queues whose turns are open, in rotation.
        The turns of `also` are opened first, and stay open until they are closed or end.
        """
        for queue in also:
            queue.is_open = True
            if queue.events:
                self._open[queue] = None
        events: list[Event[Any]] = []
        leaves = self._leaves
        for queue in taken(self._line, n):
            event = queue.events.popleft()
            turn = event.turn
            if turn is not None:
                queue.outer = turn.leave() if leaves else turn
            event.turn = queue
            queue.holders = 1
            events.append(event)
        while self._open and len(events) < n:
            events.append(self._take_another())
        self.waiting -= len(events)
        return events

    def _take_another(self) -> Event[Any]:
        """Take one more event for the holder of the first open turn."""
        queue = next(iter(self._open))
        del self._open[queue]
        event = queue.events.popleft()
        if queue.events:
            self._open[queue] = None
        queue.holders += 1
        turn, event.turn = event.turn, queue
        if turn is not None and self._leaves:
            turn = turn.leave()
        if turn is not None:
            queue.outer = turn if queue.outer is None else Turns(queue.outer, turn)
        return event

    def release(self, turns: Iterable[KeyQueue]) -> list[Turn]:
        """Give up a share of each of these turns. After the last share the next event may go.

        Returns their outer turns, which end when the queues in line have been served.
        """
        line, queues, spare = self._line, self._queues, self._spare
        outer: list[Turn] = []
        for queue in turns:
            queue.holders = holders = queue.holders - 1
            if holders:
                continue
            if queue.outer is not None:
                outer.append(queue.outer)
                queue.outer = None
            if queue.is_open:
                self.close_turn(queue)
            if queue.events:
                line.append(queue)
            elif queues.pop(queue.key, None) is not None:
                spare.append(queue)
                if self._feeders is not None:
                    self._dismiss(queue)
        return outer

    def _dismiss(self, queue: KeyQueue) -> None:
        """Remove an empty queue from the rotation: the next one enters."""
        self._inside.discard(queue)
        if self._outside:
            following = self._outside.popleft()
            self._inside.add(following)
            self._line.append(following)

    def close_turn(self, queue: KeyQueue) -> None:
        """Let no more events of a queue come before its turn ends."""
        queue.is_open = False
        self._open.pop(queue, None)

    def close(self) -> list[Event[Any]]:
        """Take out all events that wait. Turns that are held end without effect."""
        events = [event for queue in self._queues.values() for event in queue.events]
        for queue in self._queues.values():
            queue.events = deque()
        self._queues.clear()
        self._line.clear()
        self._open.clear()
        self._inside.clear()
        self._outside.clear()
        self.waiting = 0
        return events

    # Numbers.

    def __len__(self) -> int:
        """The queues that hold an event, or whose turn is held."""
        return len(self._queues)

    @property
    def has_next(self) -> bool:
        """Whether there is an event to take."""
        return bool(self._line or self._open)

    @property
    def ready(self) -> int:
        """The queues in line."""
        return len(self._line)

    @property
    def outside(self) -> int:
        """The queues that wait for a feeder."""
        return len(self._outside)

    @property
    def held(self) -> int:
        """The turns that are held. Time: O(queues)."""
        return sum(queue.holders > 0 for queue in self._queues.values())

    def hottest(self) -> tuple[Any, int]:
        """The key with the most events, and how many; (None, 0) if there is no queue."""
        queue = max(self._queues.values(), key=lambda queue: len(queue.events), default=None)
        return (None, 0) if queue is None else (queue.key, len(queue.events))


_all: WeakSet[KeyedQueues] = WeakSet()


def turns_held() -> int:
    """The turns held in all pipelines of this process, for leak checks."""
    return sum(queues.held for queues in _all)


def release(turns: Iterable[Turn | None]) -> None:
    """End a share of each of these turns; their queues are all in line before the next event goes.

    A turn that is in the list several times gives up as many shares.
    """
    of_queues: dict[KeyedQueues, list[KeyQueue]] = {}
    last: KeyedQueues | None = None
    ended: list[KeyQueue] = []
    for turn in turns:
        if type(turn) is KeyQueue:
            if turn.queues is not last:
                last = turn.queues
                ended = of_queues.setdefault(last, [])
            ended.append(turn)
        elif turn is not None:
            turn.end()
    for queues, ended in of_queues.items():
        outer = queues.release(ended)
        queues.go_on(())
        if outer:
            release(outer)


def open_turns(turns: Iterable[Turn | None]) -> None:
    """Let the holders of these turns get more events of their groups, in rotation."""
    of_queues: dict[KeyedQueues, list[KeyQueue]] = {}
    for turn in turns:
        if type(turn) is KeyQueue and not turn.is_open:
            of_queues.setdefault(turn.queues, []).append(turn)
    for queues, opened in of_queues.items():
        queues.go_on(opened)


def close_turns(turns: Iterable[Turn | None]) -> None:
    """Let no more events of their groups come before these turns end."""
    for turn in turns:
        if type(turn) is KeyQueue and turn.is_open:
            turn.queues.close_turn(turn)


def hand_over(events: Collection[Event[Any]]) -> Turn | None:
    """The turns of all these events, for the one event that is made of them."""
    turns = [event.turn for event in events]
    for event in events:
        event.turn = None
    return _as_one(turns)


def _as_one(turns: Iterable[Turn | None]) -> Turn | None:
    held = [turn for turn in turns if turn is not None]
    return Turns(*held) if held else None
