"""Ownership of keys and events by workers.

A key belongs to the worker that has events of it, and to none when these have ended; other events
go to the worker with the fewest. Order per key follows: a worker keeps it, and what it sends comes
in the order in which it was sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from operator import attrgetter, length_hint
from typing import Any

from penstock.streams.keyed.key import Key
from penstock.streams.protocol.event import Event
from penstock.streams.workers.messages import Link

__all__ = ["Dealt", "Owner", "Owners", "Peer"]


class Owner:
    """A key that belongs to a worker, with how many events of it are there.

    Events without a key have an owner that never ends. `put` adds an event, with its owner, to
    those that will be sent to the worker.
    """

    __slots__ = ("count", "key", "peer", "put")

    def __init__(self, peer: Peer) -> None:
        self.key: Any = None
        self.count = 0
        self.peer = peer
        self.put = peer.waiting.append

    def go_to(self, peer: Peer) -> None:
        """Belong to this worker."""
        self.peer.keys -= 1
        peer.keys += 1
        self.peer = peer
        self.put = peer.waiting.append


Dealt = tuple[Event[Any], Owner]


class Peer:
    """A worker as its parent sees it.

    `out` are the events that it has, by number; `waiting` those that will be sent to it. While
    there are `suspects`, the first of these in `waiting` is sent alone. `keys` are those that
    belong to it.
    """

    def __init__(self, number: int, link: Link | None = None) -> None:
        self.number = number
        self.link = link
        self.out: dict[int, Dealt] = {}
        self.waiting: deque[Dealt] = deque()
        self.suspects = 0
        self.keys = 0
        self.count = 0
        self.room = 0
        self.grants = 0
        self.is_recalled = self.is_active = self.is_told = self.is_completed = False
        self.heard = 0
        """How many messages have come since it was started."""
        self.quiet = 0
        """How many seconds it has had events and has said nothing."""
        self.is_silent = False
        """Whether it has been so for longer than a call should last."""
        self.sent_at = float("-inf")
        """When it was last sent events."""
        self.is_heard = True
        """Whether a message has come since."""
        self.false_starts = 0
        self.restarts = 0
        self.numbers: dict[int, dict[str, Any]] = {}
        self.before: list[dict[int, dict[str, Any]]] = []

        # Owners that have ended are used again: a quiet stream would make one for each event.
        self.spare: list[Owner] = []
        self.keyless = Owner(self)
        self.keyless.count = 1

    @property
    def load(self) -> int:
        """The events that it has, or will have."""
        return len(self.out) + len(self.waiting)

    def send(self, message: Any) -> None:
        """Send it a message, if it has not ended. Raises NotPicklable."""
        if self.link is not None:
            self.link.send(message)


class Owners:
    """The owners of keys; with `key` None all events are without.

    `ready` are the workers that get other events. Memory: an entry for each key that has an event.
    """

    def __init__(self, key: Key | None, peers: Sequence[Peer]) -> None:
        self.ready = peers[:1]
        self._key = key
        self._owners: dict[Any, Owner] = {}
        self.load = 0
        """The events that workers have, or will have."""

    def need(self, peer: Peer) -> int:
        """The most calls that a worker could have in flight now."""
        return peer.load if self._key is None else peer.keys

    def can_divide(self, peer: Peer) -> bool:
        """Whether others may have a part of its events."""
        return self._key is None or peer.keys > 1

    def deal(self, events: list[Event[Any]]) -> None:
        """Give each event to a worker, as one of its `waiting`."""
        key, others, rest = self._key, self._fewest(), events
        if key is not None:
            find, begin, left = self._owners.get, self._begin, iter(events)
            try:
                for event, found in zip(left, map(key.get, map(_value, events)), strict=True):
                    owner = find(found) or begin(found, others)
                    owner.count += 1
                    owner.put((event, owner))
                rest = []
            except Exception:
                # The key of one cannot be read as those of the others.
                rest = events[len(events) - length_hint(left) - 1 :]
        for event in rest:
            owner = next(others).keyless if key is None else self._owner_of(key, event, others)
            owner.count += 1
            owner.put((event, owner))
        self.load += len(events)

    def keys_of(self, events: list[Event[Any]]) -> list[Any]:
        """The keys of events; of none, if one cannot be read."""
        if self._key is None:
            return []
        try:
            return [self._key.get(event.value) for event in events]
        except Exception:
            # `deal` finds out which.
            return []

    def _begin(self, key: Any, others: Iterator[Peer]) -> Owner:
        peer = next(others)
        peer.keys += 1
        owner = peer.spare.pop() if peer.spare else Owner(peer)
        owner.key = key
        self._owners[key] = owner
        return owner

    def _owner_of(self, key: Key, event: Event[Any], others: Iterator[Peer]) -> Owner:
        """The owner of an event whose key is read otherwise, or cannot be read."""
        try:
            if key.adapts(event.value):
                found = key.get(event.value)
                return self._owners.get(found) or self._begin(found, others)
        except Exception:
            pass
        # Its `group_by` says what is wrong.
        return next(others).keyless

    def _fewest(self) -> Iterator[Peer]:
        """Without end, the worker with the fewest events, if each gets one more."""
        loads = [(peer.load, peer) for peer in sorted(self.ready, key=_load)]
        for level in count(loads[0][0]):
            for load, peer in loads:
                if load <= level:
                    yield peer

    def end(self, owners: Sequence[Owner]) -> None:
        """One event of each of these has ended."""
        self.load -= len(owners)
        for owner in owners:
            owner.count = left = owner.count - 1
            if not left:
                peer = owner.peer
                peer.keys -= 1
                peer.spare.append(owner)
                del self._owners[owner.key]

    def move(self, peer: Peer) -> None:
        """Deal anew what waits for a worker, but for keys of which it has an event."""
        busy = {owner for _, owner in peer.out.values()}
        waiting = list(peer.waiting)
        peer.waiting.clear()
        others = self._fewest()
        moved: set[Owner] = set()
        for event, owner in waiting:
            if owner is peer.keyless:
                owner.count -= 1
                owner = next(others).keyless
                owner.count += 1
            elif owner not in busy and owner not in moved:
                moved.add(owner)
                owner.go_to(next(others))
            owner.put((event, owner))

    def clear(self) -> None:
        """All events have ended."""
        self._owners.clear()
        self.load = 0


_load: Callable[[Peer], int] = attrgetter("load")
_value: Callable[[Event[Any]], Any] = attrgetter("value")
