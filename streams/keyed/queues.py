"""Keyed queues: a queue for each key, from which events are taken in fair rotation.

A queue exists only while it holds an event or its turn is held. A queue that has an event and whose
turn is free is ready. `take` takes one event of each ready queue, first come, first served, and the
queue is ready again, behind all others, when `release` has ended the turn of that event.

While a turn is held, no event of its key is taken. Its holder may open it, as a batch does while it
is being filled: the holder then gets more events of the open queues, one of each in rotation, when
no other queue is ready.

The queues do not depend on stages: the only call they make is `go_on`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import nlargest
from typing import Any
from weakref import WeakSet

from penstock.streams.base.errors import CALL_ERRORS, own_error
from penstock.streams.base.keys import Key
from penstock.streams.keyed.overflow import Overflow, Tail
from penstock.streams.keyed.turnover import Turnover
from penstock.streams.protocol.acknowledgement import Joined
from penstock.streams.protocol.event import BaseEvent, Count, Event, Turn, take_turns

__all__ = [
    "KeyQueue",
    "KeyedQueues",
    "Turns",
    "close_turns",
    "hand_over",
    "joined",
    "open_turns",
    "release",
    "turns_held",
]


class KeyQueue:
    """One key's waiting events and its turn, which is held while it has holders.

    `outer` is the turn that its events held before; it ends with this one. See `Backlog` for
    `tail`, `limit` and `over`.
    """

    __slots__ = ("events", "holders", "is_open", "key", "limit", "outer", "over", "queues", "tail")

    def __init__(self, key: Any, queues: KeyedQueues) -> None:
        self.key = key
        self.queues = queues
        self.events: deque[Event[Any]] = deque()
        self.tail: Tail | None = None
        self.limit = 0
        self.over = False
        self.holders = 0
        self.is_open = False
        self.outer: Turn | None = None

    @property
    def size(self) -> int:
        """How many events wait, the tail included."""
        return len(self.events) + (0 if self.tail is None else len(self.tail))

    def end(self) -> None:
        """Give up one share of the turn; after the last one the next event may be taken."""
        release((self,))

    def end_together(self, turns: list[Turn], /) -> None:
        release(turns)

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

    def end_together(self, turns: list[Turn], /) -> None:
        release(turns)

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

    `key` reads the key of an event's value, and `overflow` keeps events beyond a key's share. At
    most `feeders` queues are in the rotation at a time, if a number is given, and another enters
    when one has ended. `go_on` is called when there may be something to take: after turns have
    ended or were opened.

    `leaves`: events come out of operators inside groups, which they leave when they are taken. The
    keys of those taken are added to `taken`, and the keys of queues that have ended to `ended`; the
    reader of the two lists empties them. `keys` are those of all queues.

    Memory: the events that wait, and an entry for each queue that has an event or a held turn.
    Time: constant per event.
    """

    def __init__(
        self,
        key: Key,
        go_on: Callable[[], None],
        overflow: Overflow,
        feeders: int | None = None,
        *,
        leaves: bool = False,
    ) -> None:
        self.go_on = go_on
        self.waiting = 0
        """The events that wait, in memory and in a file."""
        self.overflow = overflow
        self.turnover = Turnover()
        self._key = key
        self._leaves = leaves
        self._queues: dict[Any, KeyQueue] = {}
        self.keys = self._queues.keys()
        self.rotation: deque[KeyQueue] = deque()
        """The ready queues, in the order in which they are served."""
        self.opened: dict[KeyQueue, None] = {}
        """Queues whose turn is open, and that have an event for its holder."""
        # Queues that have ended are used again: a quiet stream would make one for each event.
        self._spare: list[KeyQueue] = []
        self._feeders = feeders
        self.taken: list[Any] = []
        self.ended: list[Any] = []
        self._outside: deque[KeyQueue] = deque()
        _all.add(self)

    def put(self, events: list[Event[Any]]) -> tuple[int, Exception] | None:
        """Put each event into the queue of its key.

        Returns the index of an event whose key cannot be read or is not valid, and the error; the
        events before it are in.
        """
        find, key_of = self._queues.get, self._key.get
        event: BaseEvent
        queue: KeyQueue | None
        for event in events:
            try:
                key = key_of(event.value)
                queue = find(key)
            except BaseException as raised:
                place = events.index(event)
                self.waiting += place
                if not isinstance(raised, CALL_ERRORS):
                    raise
                return place, own_error(raised)
            if queue is None:
                queue = self._begin(key)
            waiting = queue.events
            if len(waiting) < queue.limit:
                waiting.append(event)
            elif not self.overflow.add(queue, event):
                self.waiting -= 1
            if queue.is_open:
                self.opened[queue] = None
        self.waiting += len(events)
        self.turnover.came(len(events))
        return None

    def put_by_key(self, of_keys: list[tuple[Any, list[Event[Any]]]]) -> int:
        """Put events into the queues of the keys that they come with; returns their number."""
        find = self._queues.get
        count = 0
        for key, events in of_keys:
            queue = find(key)
            if queue is None:
                queue = self._begin(key)
            queue.events += events
            if queue.is_open:
                self.opened[queue] = None
            count += len(events)
        self.waiting += count
        self.turnover.came(count)
        return count

    def _begin(self, key: Any) -> KeyQueue:
        """Make a queue for its first event."""
        if self._spare:
            queue = self._spare.pop()
            queue.key = key
        else:
            queue = KeyQueue(key, self)
        queue.limit = self.overflow.limit
        self._queues[key] = queue
        if self._feeders is None or len(self._queues) - len(self._outside) <= self._feeders:
            self.rotation.append(queue)
        else:
            self._outside.append(queue)
        return queue

    def open(self, turns: Iterable[KeyQueue]) -> None:
        """Open these turns, until they are closed or end."""
        for queue in turns:
            queue.is_open = True
            if queue.events:
                self.opened[queue] = None

    def take(self, n: Count) -> list[Event[Any]]:
        """Up to `n` events, each of which now holds its queue's turn.

        First one of each ready queue; then more of the queues whose turns are open, in rotation.
        """
        events: list[Event[Any]] = []
        leaves, rotation, taken = self._leaves, self.rotation, self.taken
        event: BaseEvent
        queue: KeyQueue
        for _ in range(min(n, len(rotation))):
            queue = rotation.popleft()
            event = queue.events.popleft()
            if queue.over:
                self.overflow.taken(queue)
            turn = event.turn
            if turn is not None:
                queue.outer = turn.leave() if leaves else turn
            event.turn = queue
            queue.holders = 1
            events.append(event)
            if leaves:
                taken.append(queue.key)
        while self.opened and len(events) < n:
            events.append(self._take_another())
        self.waiting -= len(events)
        return events

    def _take_another(self) -> Event[Any]:
        """Take one more event for the holder of the first open turn."""
        queue = next(iter(self.opened))
        del self.opened[queue]
        event = queue.events.popleft()
        if queue.over:
            self.overflow.taken(queue)
        if queue.events:
            self.opened[queue] = None
        queue.holders += 1
        turn, event.turn = event.turn, queue
        if self._leaves:
            self.taken.append(queue.key)
            turn = None if turn is None else turn.leave()
        if turn is not None:
            queue.outer = turn if queue.outer is None else Turns(queue.outer, turn)
        return event

    def release(self, turns: Iterable[Turn]) -> list[Turn]:
        """Give up a share of each turn among these that is of these queues; after the last one the
        next event may be taken.

        Returns the turns that are to be ended when events of the ready queues have been taken:
        their outer turns, and those that are not of these queues.
        """
        queues, spare, leaves, outside = self._queues, self._spare, self._leaves, self._outside
        left: list[Turn] = []
        for turn in turns:
            if type(turn) is not KeyQueue:
                left.append(turn)
                continue
            queue = turn
            if queue.queues is not self:
                left.append(queue)
                continue
            queue.holders = holders = queue.holders - 1
            if holders:
                continue
            if queue.outer is not None:
                left.append(queue.outer)
                queue.outer = None
            if queue.is_open:
                self.close_turn(queue)
            if queue.events:
                self.rotation.append(queue)
            elif queues.pop(queue.key, None) is not None:
                spare.append(queue)
                self.turnover.ended += 1
                if leaves:
                    self.ended.append(queue.key)
                if outside:
                    self.rotation.append(outside.popleft())
        return left

    def close_turn(self, queue: KeyQueue) -> None:
        """Take no more events of a queue before its turn ends."""
        queue.is_open = False
        self.opened.pop(queue, None)

    def withdraw(self, is_gone: Callable[[Event[Any]], bool]) -> list[Event[Any]]:
        """Take out the waiting events for which this is true. Turns that are held go on."""
        events: list[Event[Any]] = []
        emptied: list[KeyQueue] = []
        for queue in self._queues.values():
            had_any = bool(queue.events)
            gone = self.overflow.withdraw(queue, is_gone)
            events += gone
            if self._leaves:
                self.taken += [queue.key] * len(gone)
            if had_any and not queue.events:
                self.opened.pop(queue, None)
                if not queue.holders:
                    emptied.append(queue)
        outside = set(self._outside)
        for queues in (self.rotation, self._outside):
            ready = [queue for queue in queues if queue.events]
            queues.clear()
            queues.extend(ready)
        for queue in emptied:
            del self._queues[queue.key]
            self._spare.append(queue)
            if self._leaves:
                self.ended.append(queue.key)
            if queue not in outside and self._outside:
                self.rotation.append(self._outside.popleft())
        self.waiting -= len(events)
        return events

    def close(self) -> list[Event[Any]]:
        """Take out all events that wait in memory, or first in front of the others of their keys;
        the others are the overflow's. Turns that are held end without effect."""
        events = [event for queue in self._queues.values() for event in queue.events]
        for queue in self._queues.values():
            queue.events = deque()
        self._queues.clear()
        self.rotation.clear()
        self.opened.clear()
        self._outside.clear()
        self.waiting = 0
        return events

    # Numbers.

    def __len__(self) -> int:
        """How many queues hold an event, or have a turn that is held."""
        return len(self._queues)

    @property
    def has_next(self) -> bool:
        """Whether there is an event to take."""
        return bool(self.rotation or self.opened)

    @property
    def ready(self) -> int:
        """How many queues have an event and a free turn."""
        return len(self.rotation)

    @property
    def outside(self) -> int:
        """How many queues wait for a feeder."""
        return len(self._outside)

    @property
    def held(self) -> int:
        """How many turns are held. Time: O(queues)."""
        return sum(queue.holders > 0 for queue in self._queues.values())

    def first(self, key: Any) -> Event[Any] | None:
        """The event of this key that is taken next, if one waits."""
        queue = self._queues.get(key)
        return queue.events[0] if queue is not None and queue.events else None

    @property
    def all(self) -> Collection[KeyQueue]:
        """The queues, in the order in which they began."""
        return self._queues.values()

    def fullest(self, n: Count) -> list[KeyQueue]:
        """The `n` queues with the most events, the fullest first. Time: O(queues)."""
        return nlargest(n, self._queues.values(), lambda queue: queue.size)


_all: WeakSet[KeyedQueues] = WeakSet()


def turns_held() -> int:
    """How many turns are held in all pipelines of this process, for leak checks."""
    return sum(queues.held for queues in _all)


def release(turns: Sequence[Turn]) -> None:
    """End a share of each of these turns; the queues of one stage are all ready before an event of
    them is taken.

    A turn that is in the list several times gives up as many shares. An error of a function that
    the next events reach is raised when all have ended.
    """
    raised: BaseException | None = None
    left = turns
    while left:
        rest, left = iter(left), ()
        for turn in rest:
            try:
                if type(turn) is KeyQueue:
                    queues, left = turn.queues, [turn, *rest]
                    left = queues.release(left)
                    queues.go_on()
                else:
                    turn.end()
            except BaseException as error:
                raised = raised or error
    if raised is not None:
        try:
            raise raised
        finally:
            # Its traceback leads to this frame.
            raised = None


def open_turns(turns: Iterable[Turn | None]) -> None:
    """Open these turns: their holders get more events of their groups, in rotation."""
    of_queues: dict[KeyedQueues, list[KeyQueue]] = {}
    for turn in turns:
        if type(turn) is KeyQueue and not turn.is_open:
            of_queues.setdefault(turn.queues, []).append(turn)
    for queues, opened in of_queues.items():
        queues.open(opened)
        queues.go_on()


def close_turns(turns: Iterable[Turn | None]) -> None:
    """Close these turns: no more events of their groups are taken before they end."""
    for turn in turns:
        if type(turn) is KeyQueue and turn.is_open:
            turn.queues.close_turn(turn)


def joined(value: Any, events: Collection[Event[Any]]) -> Event[Any]:
    """One event that is made of all these: it takes over their turns, and they share its end."""
    first = next(iter(events))
    event = Event(value, min([one.created for one in events]), Joined(events), first.token)
    event.turn = hand_over(events)
    return event


def hand_over(events: Collection[Event[Any]]) -> Turn | None:
    """The turns of all these events, for the one event that is made of them."""
    return _as_one(take_turns(events))


def _as_one(turns: Iterable[Turn | None]) -> Turn | None:
    held = [turn for turn in turns if turn is not None]
    return Turns(*held) if held else None
