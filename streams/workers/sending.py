"""The events and the room that workers are sent: few messages, because each costs much."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from penstock.streams.base.errors import NotPicklable
from penstock.streams.execution.results import Results
from penstock.streams.protocol.acknowledgement import may_begin
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer
from penstock.streams.stages.time_slice import LARGEST
from penstock.streams.workers.key_owners import Dealt, Owner, Peer
from penstock.streams.workers.limit import CommonLimit
from penstock.streams.workers.messages import Events, Room
from penstock.streams.workers.placement import Section

__all__ = ["QUIET", "Sending"]

# Seconds after which a worker that has events and says nothing gets no more of them.
QUIET = 2

# Seconds for which events for a busy worker wait to be sent together, if they are few.
_TOGETHER = 0.001


class Sending:
    """Sends each worker the events that wait for it, and room for more of its results.

    `ship` is called when there may be something to send: once for all that comes in a loop
    iteration, and later for events that wait for others. `give_up` is called with an event that
    cannot be pickled, `lost` with those that their sources hold no more. Each worker has at most
    its part of `bound` events, so that one that stands still leaves something to the others. The
    `suspects` are sent alone.
    """

    def __init__(
        self,
        run: Run,
        info: StageInfo,
        section: Section,
        bound: int,
        results: Results,
        limit: CommonLimit,
        ship: Callable[[], None],
        give_up: Callable[[Event[Any], Owner, Exception], None],
        lost: Callable[[list[Dealt]], None],
    ) -> None:
        window = section.work.window
        self.room = 2 * window
        """For how many results a worker has room: it fills one window while another is on its way.
        """
        # Room for fewer waits for events to come with.
        self._least = window
        self._run = run
        self._info = info
        self._bound = bound
        self.suspects: dict[Event[Any], int] = {}
        """How many workers have ended with an event, of each with which one has."""
        self._kept = section.kept
        # The events of one key leave as much room to others.
        self._least_out = self._kept if section.by is None else 2 * self._kept
        self._is_plain = section.work.is_plain
        self._sent_of = _value if section.decode is None else _data
        self._results = results
        self._limit = limit
        self._ship = ship
        self._give_up = give_up
        self._lost = lost
        self._is_soon = False
        self._later = Timer(run, info, ship)

    def soon(self) -> None:
        """Ship in the next loop iteration."""
        if not self._is_soon:
            self._is_soon = True
            self._run.call_soon(self._info, self._now)

    def _now(self) -> None:
        self._is_soon = False
        self._ship()

    def close(self) -> None:
        """Nothing is sent any more."""
        self._later.cancel()

    # Events.

    def send_events(self, peer: Peer) -> None:
        """Send a worker the events that wait for it, unless they may wait for others."""
        if not self._may_wait(peer) and (dealt := self._due(peer)):
            if lessors := self._run.lessors:
                lost = [one for one in dealt if not may_begin(one[0], lessors)]
                if lost:
                    dealt = [one for one in dealt if one not in lost]
                    self._lost(lost)
            if dealt:
                self._send(peer, dealt)

    def _may_wait(self, peer: Peer) -> bool:
        """Whether its events may wait for others to be sent with: it could not begin them now, and
        has not answered what it was sent a moment ago.
        """
        slots = 1 if self._is_plain else self._limit.slots(peer)
        is_busy = len(peer.out) >= slots
        if not is_busy or peer.is_heard or peer.has_waiting(LARGEST):
            return False
        left = peer.sent_at + _TOGETHER - self._run.now()
        if left <= 0:
            return False
        if peer.ready and not self._later.is_set:
            self._later.set(left)
        return True

    def _due(self, peer: Peer) -> list[Dealt]:
        """Take the events that are to be sent to a worker now."""
        is_able = self._limit.slots(peer) and not (peer.is_recalled or peer.is_told)
        if peer.quiet >= QUIET:
            # Events that it has not got can go to another worker, if it stays silent.
            return []
        if not (peer.ready and is_able) or peer.link is None:
            return []
        if not peer.suspects:
            return peer.take(self.most_out, self._limit.slots(peer), self._kept)
        return [] if peer.out else peer.take_one(self.suspects)

    @property
    def most_out(self) -> int:
        """The most events that one worker has at a time."""
        return max(1, self._bound // self._limit.active, min(self._bound, self._least_out))

    def _send(self, peer: Peer, dealt: list[Dealt]) -> None:
        peer.sent_at, peer.is_heard = self._run.now(), False
        first = peer.count
        peer.count += len(dealt)
        peer.out.update(zip(range(first, peer.count), dealt, strict=True))
        events = [event for event, _ in dealt]
        # A line's number, or a text: other tokens hold what their source needs in this process.
        tokens = [
            token if token is None or isinstance(token, int) else str(token)
            for token in map(_token, events)
        ]
        room, tracing = self._new_room(peer), self._run.tracing
        message = Events(
            first,
            list(map(self._sent_of, events)),
            array("d", [event.created for event in events]),
            None if tokens.count(None) == len(tokens) else tokens,
            room,
            None if tracing is None else list(map(tracing.headers_of, events)),
        )
        try:
            peer.send(message)
        except NotPicklable as error:
            peer.room += room
            for number in range(first, peer.count):
                del peer.out[number]
            if len(dealt) > 1:
                for one in dealt:
                    self._send(peer, [one])
            else:
                self._give_up(*dealt[0], NotPicklable(f"an event {error}"))

    # Room.

    def makes_room(self, peer: Peer) -> bool:
        """Whether there is so much room for more results of a worker that it is sent alone."""
        return self._has_room(peer, self._least)

    def send_room(self, peer: Peer) -> None:
        """Send a worker room for more results, if that has not gone with events."""
        if self.makes_room(peer):
            peer.send(Room(self._new_room(peer)))

    def _new_room(self, peer: Peer) -> int:
        """The room for more results that a worker is sent now; it may be 0."""
        if not self._has_room(peer, 1):
            return 0
        room, peer.room = peer.room, 0
        return room

    def _has_room(self, peer: Peer, least: int) -> bool:
        if peer.room < least:
            return False
        results = self._results
        head = results.head
        return results.waiting <= results.window // 2 or (
            # None of them can be sent on before the head has come. Where events are sent one at a
            # time, it may wait behind others of its worker.
            not results.ready
            and (
                any(event is head for event, _ in peer.out.values())
                or any(owner.events and owner.events[0] is head for owner in peer.ready)
            )
        )


_value: Callable[[Event[Any]], Any] = attrgetter("value")
_data: Callable[[Event[Any]], Any] = attrgetter("data")
_token: Callable[[Event[Any]], Any] = attrgetter("token")
