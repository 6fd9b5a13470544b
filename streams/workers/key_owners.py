"""Ownership of keys and events by workers.

A key belongs to the worker that has events of it, and to none when these have ended; other events
go to the worker with the fewest. Order per key follows: a worker keeps it, and what it sends comes
in the order in which it was sent.

Of a key with many events its worker has a few; the others wait here, and what is over the share of
the key behind these, in its tail.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from heapq import nlargest
from itertools import count, repeat
from operator import attrgetter, length_hint
from typing import Any

from penstock.streams.base.keys import Key
from penstock.streams.base.take_front import taken
from penstock.streams.keyed.overflow import Overflow, Tail
from penstock.streams.keyed.turnover import Turnover
from penstock.streams.protocol.event import Event
from penstock.streams.workers.messages import Link, Withdraw

__all__ = ["Dealt", "Owner", "Owners", "Peer"]


class Owner:
    """A key that belongs to a worker. Events without a key have an owner that never ends.

    Its `events` wait to be sent, and it is in the worker's `ready` if it `is_ready`. The worker has
    `held` others. It is a `Backlog`.
    """

    __slots__ = ("events", "held", "is_ready", "key", "limit", "over", "peer", "tail")

    def __init__(self, peer: Peer) -> None:
        self.key: Any = None
        self.events: deque[Event[Any]] = deque()
        self.tail: Tail | None = None
        self.limit = sys.maxsize
        self.over = False
        self.held = 0
        self.peer = peer
        self.is_ready = False

    @property
    def waiting(self) -> int:
        """How many events its worker has not got."""
        return len(self.events) + (0 if self.tail is None else len(self.tail))

    @property
    def next(self) -> Event[Any] | None:
        """The first event that its worker has not got."""
        if self.events:
            return self.events[0]
        return None if self.tail is None else self.tail.first

    def wake(self) -> None:
        """Be among the owners whose events are sent."""
        if not self.is_ready:
            self.is_ready = True
            self.peer.ready.append(self)


Dealt = tuple[Event[Any], Owner]


class Peer:
    """A worker as its parent sees it.

    `out` are the events that it has, by number; `ready` the owners of those that may be sent to it.
    While there are `suspects` among its events, these are sent first, and each alone. `keys` belong
    to it, and it has events of the `busy` ones.
    """

    def __init__(self, number: int, link: Link | None = None) -> None:
        self.number = number
        self.link = link
        self.out: dict[int, Dealt] = {}
        self.ready: deque[Owner] = deque()
        self.suspects = 0
        self.keys = self.busy = 0
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
        self.numbers: dict[int, dict[str, Any]] = {}
        self.before: list[dict[int, dict[str, Any]]] = []

        # Owners that have ended are used again: a quiet stream would make one for each event.
        self.spare: list[Owner] = []
        self.keyless = Owner(self)

    @property
    def load(self) -> int:
        """How many events it has, or will have soon: one for each key that waits here."""
        keyless = self.keyless
        return len(self.out) + len(self.ready) - keyless.is_ready + len(keyless.events)

    def has_waiting(self, n: int) -> bool:
        """Whether at least `n` events may be sent to it. Time: O(n)."""
        if len(self.ready) >= n:
            return True
        return sum(len(owner.events) for owner in self.ready) >= n

    def take(self, most: int, slots: int, least: int) -> list[Dealt]:
        """Waiting events that are to be sent to the worker now, so that it has at most `most`.

        It has one event of a key or, to be ahead of its calls, up to `least`, or the key's part of
        what is left beyond the `slots`: so the next event of another key finds room while there is
        a slot.
        """
        dealt: list[Dealt] = []
        ready, keyless = self.ready, self.keyless
        n = most - len(self.out)
        ahead = n - slots + self.busy
        keys = max(2, self.keys)
        while ready and n > 0:
            owner = ready.popleft()
            owner.is_ready = False
            events, held = owner.events, owner.held
            if held or len(events) != 1:
                many = n if owner is keyless else max(least, 1 + max(0, ahead) // keys) - held
                many = min(len(events), n, many)
                if many <= 0:
                    # It is ready again when one of those that were sent has ended.
                    continue
                dealt += zip(taken(events, many), repeat(owner))
                ahead -= many - (not held)
            else:
                dealt.append((events.popleft(), owner))
                many = 1
            self.busy += not held
            owner.held = held + many
            n -= many
        return dealt

    def take_one(self, first: Container[Event[Any]]) -> list[Dealt]:
        """One waiting event, one of the `first` if there is one. Time: O(ready)."""
        ready = [owner for owner in self.ready if owner.events]
        if not ready:
            return []
        owner = next((owner for owner in ready if owner.events[0] in first), ready[0])
        self.busy += not owner.held
        owner.held += 1
        return [(owner.events.popleft(), owner)]

    def put_back(self, dealt: Sequence[Dealt]) -> None:
        """Let events that it had, and has no more, wait again, in front of those that came later.

        Each has been taken out of `out`.
        """
        for event, owner in reversed(dealt):
            owner.held -= 1
            self.busy -= not owner.held
            owner.events.appendleft(event)
            owner.wake()

    def recall(self) -> None:
        """Take back the events that it has not begun, so that others may begin them."""
        if not (self.is_recalled or self.is_told) and self.link is not None:
            self.is_recalled = True
            self.send(Withdraw())

    def send(self, message: Any) -> None:
        """Send it a message, if it has not ended. Raises NotPicklable."""
        if self.link is not None:
            self.link.send(message)


class Owners:
    """The owners of keys; with `key` None all events are without.

    `ready` are the workers that get other events. `overflow` has what is over a key's share.
    Memory: the events, and an entry for each key that has one.
    """

    def __init__(self, key: Key | None, peers: Sequence[Peer], overflow: Overflow) -> None:
        self.ready = peers[:1]
        self.overflow = overflow
        self.turnover = Turnover()
        self.unfinished = 0
        """The events that workers have, or will have, those on disk too."""
        self.peak_waiting = 0
        """The most that were ever `waiting`."""
        self._key = key
        self.peers = peers
        self._owners: dict[Any, Owner] = {}
        # The places of those that came and have not ended, before any was vacated.
        self._places = 0

    @property
    def places(self) -> int:
        """How many places of the bound the events have."""
        return self._places - self.overflow.vacated

    @property
    def waiting(self) -> int:
        """How many events in memory no worker has."""
        out = sum(len(peer.out) for peer in self.peers)
        return self.unfinished - out - self.overflow.on_disk

    @property
    def has_waiting(self) -> bool:
        """Whether there is any event that no worker has. Time: O(keys)."""
        return any(owner.events or owner.tail is not None for owner in self._all())

    def _all(self) -> Iterator[Owner]:
        yield from self._owners.values()
        for peer in self.peers:
            yield peer.keyless

    def of(self, peer: Peer) -> Iterator[Event[Any]]:
        """The events in memory that a worker has, or will have."""
        for event, _ in peer.out.values():
            yield event
        for owner in peer.ready:
            yield from owner.events

    def need(self, peer: Peer) -> int:
        """The most calls that a worker could have in flight now."""
        return peer.load if self._key is None else peer.keys

    def can_divide(self, peer: Peer) -> bool:
        """Whether others may have a part of its events."""
        return self._key is None or peer.keys > 1

    def deal(self, events: list[Event[Any]]) -> list[Event[Any]]:
        """Give each event to a worker, as one of those that wait for it.

        Returns those that have ended instead, because their keys are over their shares.
        """
        key, others, rest = self._key, self._fewest(), events
        routed: list[Event[Any]] = []
        if key is not None:
            find, begin, left = self._owners.get, self._begin, iter(events)
            try:
                for event, found in zip(left, map(key.get, map(_value, events)), strict=True):
                    owner = find(found) or begin(found, others)
                    waiting = owner.events
                    if len(waiting) < owner.limit:
                        waiting.append(event)
                        if not owner.is_ready:
                            owner.is_ready = True
                            owner.peer.ready.append(owner)
                    elif not self.overflow.add(owner, event):
                        routed.append(event)
                rest = []
            except Exception:
                # The key of one cannot be read as the keys of the others.
                rest = events[len(events) - length_hint(left) - 1 :]
        for event in rest:
            owner = next(others).keyless if key is None else self._owner_of(key, event, others)
            if len(owner.events) < owner.limit:
                owner.events.append(event)
                owner.wake()
            elif not self.overflow.add(owner, event):
                routed.append(event)
        self.unfinished += len(events) - len(routed)
        self._places += len(events)
        self.turnover.came(len(events))
        self.peak_waiting = max(self.peak_waiting, self.waiting)
        return routed

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
        owner.limit = self.overflow.limit
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
        """One event of each of these has ended, which a worker had."""
        self.unfinished -= len(owners)
        self._places -= len(owners)
        for owner in owners:
            owner.held -= 1
            if not owner.held:
                owner.peer.busy -= 1
            if owner.over:
                self.overflow.taken(owner)
            if owner.events:
                if not owner.is_ready:
                    owner.is_ready = True
                    owner.peer.ready.append(owner)
            elif not owner.held and owner is not owner.peer.keyless:
                self._end(owner)

    def _end(self, owner: Owner) -> None:
        peer = owner.peer
        peer.keys -= 1
        if not owner.is_ready:
            peer.spare.append(owner)
        self.turnover.ended += 1
        del self._owners[owner.key]

    def move(self, peer: Peer) -> None:
        """Deal the events that wait for a worker anew, except for keys whose events it has."""
        ready = taken(peer.ready, len(peer.ready))
        others = self._fewest()
        for owner in ready:
            owner.is_ready = False
            if not owner.events:
                continue
            if owner is peer.keyless:
                for event in taken(owner.events, len(owner.events)):
                    other = next(others).keyless
                    other.events.append(event)
                    other.wake()
                continue
            if not owner.held:
                peer.keys -= 1
                owner.peer = next(others)
                owner.peer.keys += 1
            owner.wake()

    # Shares of keys, and room for others.

    @property
    def backlogs(self) -> Collection[Owner]:
        """The owners of keys."""
        return self._owners.values()

    def withdraw(self, is_gone: Callable[[Event[Any]], bool]) -> list[Event[Any]]:
        """Take out the events that no worker has, and for which this is true."""
        gone: list[Event[Any]] = []
        for owner in list(self._all()):
            gone += self.overflow.withdraw(owner, is_gone)
            if not (owner.held or owner.events) and owner is not owner.peer.keyless:
                self._end(owner)
        self.unfinished -= len(gone)
        self._places -= len(gone)
        return gone

    def make_room(self, peers: Container[Peer], places: int) -> None:
        """Vacate so many places of keys of these workers, or as many as can be."""
        if self._key is not None:
            of_peers = (owner for owner in self._owners.values() if owner.peer in peers)
            self.overflow.make_room(of_peers, places)

    # The end.

    def close(self) -> Iterator[list[Event[Any]]]:
        """All events that no worker has, a list of them at a time: none will be sent."""
        for peer in self.peers:
            peer.ready.clear()
        for owner in list(self._all()):
            owner.is_ready = False
            yield taken(owner.events, len(owner.events))
        yield from self.overflow.close()
        for owner in [owner for owner in self._owners.values() if not owner.held]:
            self._end(owner)
        self.unfinished = self._places = sum(len(peer.out) for peer in self.peers)

    # Numbers.

    def hottest(self, n: int, now: float) -> list[dict[str, Any]]:
        """The `n` keys with the most events waiting here, how many, and the age of the first. Time:
        O(keys)."""
        owners = nlargest(n, self._owners.values(), key=_waiting)
        return [
            {"key": owner.key, "waiting": owner.waiting, "age": now - first.created}
            for owner in owners
            if (first := owner.next) is not None
        ]


_load: Callable[[Peer], int] = attrgetter("load")
_value: Callable[[Event[Any]], Any] = attrgetter("value")
_waiting: Callable[[Owner], int] = attrgetter("waiting")
