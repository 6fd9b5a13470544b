"""The keyed queues between `group_by` and `spread`: at run time the two are one stage.

A lane (`streams.lane`) holds the waiting events of one key. Lanes that have an event and a free
turn stand in line; one event is taken from the first, and the lane goes to the back of the line
when the event's turn ends. A lane lives only while it holds an event or a turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from streams.event import Event
from streams.faults import Faults
from streams.feeders import Feeders
from streams.keys import Key
from streams.lane import Lane
from streams.queues import taken
from streams.stage import ChunkSubscriber, Subscriber, Subscription, in_chunks, is_second

if TYPE_CHECKING:
    from streams.group_state import GroupStates, State

__all__ = ["Rotation", "turns_held"]


class Rotation:
    """Subscriber to the stream of events, subscription of the stage that works on them.

    `buffer` bounds the events that wait over all lanes. `feeders` bounds the lanes that are in
    the rotation at a time: another enters when one runs empty.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        key: Key,
        buffer: int,
        faults: Faults,
        feeders: int | None,
        states: GroupStates | None,
    ) -> None:
        self.downstream = downstream
        self.chunks = True
        self._chunky = in_chunks(downstream)
        # Turns need not be held by events that are worked on at once.
        self._on_turns = getattr(downstream, "on_turns", None) if states is None else None
        self.waiting = self._peak = self._peak_groups = 0
        self.lanes: dict[Any, Lane] = {}
        self._key = key
        self._buffer = buffer
        # Asking anew for a quarter of the buffer at a time keeps the source in long strides.
        self._batch = max(1, buffer // 4)
        self._freed = 0
        self._faults = faults
        self._states = states
        self._feeders = None if feeders is None else Feeders(feeders)
        self.line: deque[Lane] = deque()
        # Lanes with an event for whoever has their turn.
        self.open_lanes: dict[Lane, None] = {}
        # Lanes of groups that ended are used again: a quiet stream opens one for each event.
        self.spare: list[Lane] = []
        self.demand = 0
        self.passing = self._taking_in = False
        self.direct = states is None and feeders is None
        self._source_ended = self._nothing_to_come = self._done = False
        if states is not None:
            states.rotation = self
        _rotations.add(self)

    # Events from above.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        self.downstream.on_subscribe(self)
        if not self._source_ended:
            self.upstream.request(self._buffer)

    def on_next(self, event: Event[Any], /) -> None:
        self.on_chunk([event])

    def on_chunk(self, events: list[Event[Any]], /) -> None:
        inside, self._taking_in = self._taking_in, True
        fill = self._fill if self.direct and not self._done else self._fill_one_by_one
        while (refused := fill(events)) is not None:
            place, error = refused
            if self._key.adapts(events[place].value):
                events = events[place:]
                continue
            event, events = events[place], events[place + 1 :]
            if self._faults.survives(event, error):
                self._freed += 1
                continue
            for event in events:
                event.give_back()
            self.broke(error)
            return
        self._taking_in = inside
        if self._kept > self._peak:
            self._peak = self._kept
        if len(self.lanes) > self._peak_groups:
            self._peak_groups = len(self.lanes)
        self.go_on()
        if self._freed >= self._batch:
            self._ask()
        self.look_for_room()

    def _fill(self, events: list[Event[Any]]) -> tuple[int, Exception] | None:
        """Put events into the lanes of their keys, up to the place of one whose key raises."""
        lane_of, key_of, line = self.lanes.get, self._key.get, self.line
        for event in events:
            try:
                key = key_of(event.value)
                lane = lane_of(key)
            except Exception as error:
                place = events.index(event)
                self.waiting += place
                return place, error
            if lane is None:
                lane = self._opened(key)
                lane.events.append(event)
                line.append(lane)
                continue
            waiting = lane.events
            if waiting:
                waiting.append(event)
                continue
            waiting.append(event)
            if not lane.holders:
                line.append(lane)
            elif lane.is_open:
                self.open_lanes[lane] = None
        self.waiting += len(events)
        return None

    def _fill_one_by_one(self, events: list[Event[Any]]) -> tuple[int, Exception] | None:
        """The same where an event that comes in may send others on, or end the stream."""
        key_of = self._key.get
        for place, event in enumerate(events):
            if self._states is not None:
                # First: the lane of a group that ends may become another's.
                self._states.end_expired()
            try:
                key = key_of(event.value)
                lane = self.lanes.get(key)
            except Exception as error:
                return place, error
            if self._done:
                event.give_back()
                continue
            if lane is None:
                lane = self._opened(key)
            if self._states is not None:
                self._states.take_in(lane, event)
                continue
            self.waiting += 1
            lane.events.append(event)
            if len(lane.events) == 1:
                self._has_one(lane)
        return None

    def _opened(self, key: Any) -> Lane:
        if self.spare:
            lane = self.spare.pop()
            lane.key = key
        else:
            lane = Lane(key, self)
        self.lanes[key] = lane
        return lane

    def _has_one(self, lane: Lane) -> None:
        """A lane had no event, and has one now."""
        if not lane.holders:
            self.ready(lane)
        elif lane.is_open:
            self.open_lanes[lane] = None
            self.go_on()

    def ready(self, lane: Lane) -> None:
        """A lane has an event, and its turn is free."""
        if self._feeders is None or self._feeders.admit(lane):
            self.line.append(lane)
            self.go_on()

    def made_room(self) -> None:
        """A place of the buffer is free again."""
        self._freed = freed = self._freed + 1
        if freed >= self._batch:
            self._ask()
        self.look_for_room()

    def filled(self, lane: Lane, event: Event[Any]) -> None:
        """An event came out of a group's operators; it takes a place in the buffer.

        Beside those of the events that it came of, which they have until it leaves.
        """
        self.waiting += 1
        self._freed -= 1
        lane.events.append(event)
        if len(lane.events) == 1:
            self._has_one(lane)

    @property
    def _kept(self) -> int:
        """The events that have a place in the buffer."""
        return self.waiting if self._states is None else self._states.held

    def look_for_room(self) -> None:
        """Go on where the operators inside the groups hold so much that nothing moves by itself."""
        if self._states is None or self._source_ended or self._taking_in:
            return
        if self._kept + self.waiting + self._freed < self._buffer:
            # More events are on their way.
            return
        if self._freed > 0:
            self._ask()
        elif self.is_hungry:
            self._states.make_room()

    @property
    def is_full(self) -> bool:
        """Whether no event can come before another has left."""
        return self._freed <= 0 and self._kept + self.waiting + self._freed >= self._buffer

    @property
    def is_at_work(self) -> bool:
        """Whether any group has an event that is to leave, or is worked on. Time: O(groups)."""
        return bool(self.waiting) or any(lane.holders for lane in self.lanes.values())

    @property
    def is_hungry(self) -> bool:
        """Whether more is wanted than can be given."""
        return bool(self.demand) and not (self.line or self.open_lanes or self.passing)

    def _ask(self) -> None:
        # What is being taken in comes before anything that is asked for now.
        if not (self._source_ended or self._taking_in):
            freed, self._freed = self._freed, 0
            self.upstream.request(freed)

    def emptied(self, lane: Lane) -> None:
        """A lane holds neither an event nor a turn."""
        if self._states is None:
            self.forget(lane)
        else:
            self._states.idle(lane)
        if self._feeders is not None and (following := self._feeders.dismiss(lane)) is not None:
            self.ready(following)
        self.look_for_room()

    def forget(self, lane: Lane) -> None:
        """A group has ended."""
        if self.lanes.pop(lane.key, None) is not None:
            lane.state = None
            self.spare.append(lane)

    # Demand from below.

    def request(self, n: int, /) -> None:
        self.demand += n
        self.go_on()
        self.look_for_room()

    def go_on(self) -> None:
        """Pass on what may go."""
        if self.demand and (self.line or self.open_lanes) and not self.passing:
            self.pass_on()

    def end_turns(self, lanes: Sequence[Any]) -> None:
        """End turns that one event each held; these are all in line before the next events go."""
        line, alive, spare = self.line, self.lanes, self.spare
        for lane in lanes:
            if lane.outer is not None or not self.direct:
                lane.end()
                continue
            lane.holders = 0
            if lane.events:
                line.append(lane)
            elif alive.pop(lane.key, None) is not None:
                spare.append(lane)
        self.go_on()

    def exchange(self, lane: Any) -> Event[Any] | None:
        """End the turn that one event from here held, and `request(1)`: its return value.

        For a stage that is ready for the event at once. None where none is ready; the demand
        then stands, and the event comes by `on_next`.
        """
        line = self.line
        if lane.outer is not None or not self.direct:
            lane.end()
        else:
            lane.holders = 0
            if lane.events:
                line.append(lane)
            elif self.lanes.pop(lane.key, None) is not None:
                self.spare.append(lane)
        if not line:
            self.demand += 1
            if self._nothing_to_come and not self.passing:
                self._complete_if_empty()
            self.look_for_room()
            return None
        lane = line.popleft()
        event: Event[Any] = lane.events.popleft()
        lane.holders = 1
        if lane.state is None:
            lane.outer = event.turn
            event.turn = lane
        else:
            lane.hold(event)
            lane.state.taken()
        self.waiting -= 1
        self._freed = freed = self._freed + 1
        if freed >= self._batch:
            self._ask()
            if self._done and not self._nothing_to_come:
                # The source failed when it was asked: nothing new begins.
                event.give_back()
                return None
        if self._nothing_to_come and not self.passing:
            self._complete_if_empty()
        return event

    def pass_on(self) -> None:
        self.passing = True
        line, chunky = self.line, self._chunky
        try:
            while self.demand and (line or self.open_lanes):
                if not line:
                    self._pass_another()
                elif chunky is None:
                    self.demand -= 1
                    self.waiting -= 1
                    self._freed += 1
                    lane = line.popleft()
                    state = lane.state
                    self.downstream.on_next(lane.take())
                    if state is not None:
                        state.taken()
                else:
                    self._pass_chunk(chunky, min(len(line), self.demand))
                if self._freed >= self._batch:
                    self._ask()
        finally:
            self.passing = False
        if self._nothing_to_come:
            self._complete_if_empty()
        self.look_for_room()

    def _pass_another(self) -> None:
        """Send the next event of the first lane whose turn is held open."""
        lane = next(iter(self.open_lanes))
        del self.open_lanes[lane]
        self.demand -= 1
        self.waiting -= 1
        self._freed += 1
        event = lane.take_another()
        if lane.events:
            self.open_lanes[lane] = None
        state = lane.state
        self.downstream.on_next(event)
        if state is not None:
            state.taken()

    def _pass_chunk(self, downstream: ChunkSubscriber[Any], n: int) -> None:
        """Send the next events of the first `n` lanes in line, one of each."""
        line = self.line
        self.demand -= n
        self.waiting -= n
        self._freed += n
        events: list[Event[Any]] = []
        if self._on_turns is not None:
            lanes = taken(line, n)
            for lane in lanes:
                event = lane.events.popleft()
                lane.holders = 1
                if event.turn is not None:
                    lane.outer, event.turn = event.turn, None
                events.append(event)
            self._on_turns(events, lanes, self.end_turns)
            return
        states: list[State] = []
        for _ in range(n):
            lane = line.popleft()
            events.append(lane.take())
            if lane.state is not None:
                states.append(lane.state)
        downstream.on_chunk(events)
        for state in states:
            state.taken()

    def cancel(self) -> None:
        if not self._source_ended:
            self._source_ended = True
            self.upstream.cancel()
        self._give_back()

    # The end.

    def on_completed(self) -> None:
        self._source_ended = True
        if self._states is None:
            self.complete()
        else:
            self._states.complete(list(self.lanes.values()))

    def complete(self) -> None:
        """Nothing will enter a lane any more."""
        self._nothing_to_come = True
        if not self.passing:
            self._complete_if_empty()

    def _complete_if_empty(self) -> None:
        if not self.waiting and not self._done:
            self._done = True
            self.downstream.on_completed()

    def on_error(self, error: BaseException, /) -> None:
        self._source_ended = True
        self.broke(error)

    def broke(self, error: BaseException) -> None:
        """The stream has failed here or above: give back what waits, and say so."""
        if not self._done:
            self.cancel()
            self._done = True
            self.downstream.on_error(error)

    def _give_back(self) -> None:
        self._done = True
        self.demand = self.waiting = 0
        self.line.clear()
        self.open_lanes.clear()
        if self._feeders is not None:
            self._feeders.outside.clear()
        if self._states is not None:
            self._states.close()
        lanes, self.lanes = self.lanes, {}
        for lane in lanes.values():
            events, lane.events = lane.events, deque()
            if lane.state is not None:
                lane.state.give_back()
            for event in events:
                event.give_back()

    # Numbers.

    def group_statistics(self) -> dict[str, Any]:
        """Events `waiting` now and at the `peak`, `groups` alive, and the fullest group.

        `closed_early`: by cause, groups whose operators were completed before their time.
        """
        lanes = self.lanes
        hottest = max(lanes.values(), key=lambda lane: len(lane.events), default=None)
        closed_early = {} if self._states is None else self._states.closed_early
        return {
            "waiting": self._kept,
            "peak": max(self._peak, self._kept),
            "bound": self._buffer,
            "groups": len(lanes),
            "peak_groups": max(self._peak_groups, len(lanes)),
            "hottest": None if hottest is None else hottest.key,
            "hottest_waiting": 0 if hottest is None else len(hottest.events),
            "closed_early": dict(closed_early),
            **self._faults.statistics(),
        }

    def spread_statistics(self) -> dict[str, Any]:
        """Groups `ready` for their next event, and those `outside` the feeders."""
        outside = 0 if self._feeders is None else len(self._feeders.outside)
        return {"ready": len(self.line), "outside": outside}


_rotations: WeakSet[Rotation] = WeakSet()


def turns_held() -> int:
    """The turns held in all pipelines of this process, for leak checks."""
    return sum(1 for rotation in _rotations for lane in rotation.lanes.values() if lane.holders > 0)
