"""Operators that run inside each group, with a state that lives as long as the group."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, cast

from streams.errors import BuildError, HoldExceeded
from streams.event import Event
from streams.faults import blame
from streams.flowable import Flowable
from streams.groups import Group
from streams.idle import Idle
from streams.lane import Lane
from streams.place import Place
from streams.rotation import Rotation
from streams.run import Run
from streams.stage import StageInfo, Subscriber, Subscription

__all__ = ["GroupStates", "State"]


# What to do about groups that are closed early.
_ADVICE = {
    "buffer": "Raise buffer=, or give a shorter idle=, so that groups end by themselves.",
    "max_groups": "Raise max_groups=, or give a shorter idle=.",
}


class GroupStates:
    """The `each=` of a `group_by`: opens a state with a group, ends it when it was idle.

    `_idle` has the states whose groups ran empty, and keeps one whose group is at work again:
    it is the last to go when the group runs empty once more. `_holding` has those of them whose
    operators hold events, which count against the buffer: when it is full, the one whose group
    has been idle for longest is ended.
    """

    rotation: Rotation

    def __init__(
        self,
        each: Callable[[Any], Flowable[Any]],
        idle: float,
        max_groups: int | None,
        run: Run,
        info: StageInfo,
    ) -> None:
        self._each = each
        self._seconds = idle
        self._idle = Idle[State](idle, run, self._end_if_empty)
        self._max_groups = inf if max_groups is None else max_groups
        self._run = run.inner()
        self._info = info
        # States that take events, and all that have not ended: some still give their last.
        self._open = self._alive = 0
        self._completing = False
        self._holding: dict[State, None] = {}
        # The state that was ended to make room, until it has given its last event.
        self._making_room: State | None = None
        self.held = 0
        """Events that have a place: inside the operators, before them, or on their way out."""
        # Those of them whose state has ended.
        self._lost = 0
        # Letters that are not out, about events that have a place.
        self._letters = 0
        self.closed_early: dict[str, int] = {}

    def end_expired(self) -> None:
        """End the states that have been idle for long enough, should the timer be late."""
        self._idle.end_expired()

    def take_in(self, lane: Lane, event: Event[Any]) -> None:
        """A group's next event, which takes a place in the buffer."""
        state = self._state_for(lane, event)
        if state is not None:
            state.held += 1
            self.held += 1
            event.turn = Place(state, event.turn)
            state.put(event)

    def _state_for(self, lane: Lane, event: Event[Any]) -> State | None:
        """The state of its group, which may begin with `event`; None if that has failed."""
        try:
            return lane.state or self._open_in(lane)
        except Exception as error:
            blame(error, self._info, event)
            event.fail(error)
            self.rotation.broke(error)
            return None

    def _open_in(self, lane: Lane) -> State:
        lane.state = state = State(lane, self)
        self._open += 1
        self._alive += 1
        stream: Group[Any, Any] = Group(lane.key, state.attach_inlet, self._info)
        flowable = self._each(stream)
        if not isinstance(flowable, Flowable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BuildError(
                f"group_by(each=...) must return a Flowable such as group.pipe(...), "
                f"not {type(flowable).__name__}"
            )
        for stage in flowable.chain():
            if stage.info.works:
                raise BuildError(
                    f"{stage.info.name} inside group_by(each=...) would have a limit of its own in "
                    "every group: put it after spread(), where all groups share one"
                )
        flowable.attach(state.outlet, self._run)
        self._evict()
        return state

    def renew(self, lane: Lane, events: Iterable[Event[Any]]) -> None:
        """A group's state has ended, and there are more events: begin anew."""
        lane.state = None
        for event in events:
            state = self._state_for(lane, event)
            if state is not None:
                self._lost -= 1
                cast(Place, event.turn).move(state)
                state.put(event)
        if self._completing and lane.state is not None:
            self._end(lane.state)

    def busy(self, state: State) -> None:
        """Its group has an event."""
        self._holding.pop(state, None)

    def idle(self, lane: Lane) -> None:
        """Look whether the group holds neither an event nor a turn."""
        state = lane.state
        if state is None or not state.empty:
            return
        if state.ended:
            self.rotation.forget(lane)
        elif not state.completing:
            self._idle.used(state)
            if state.held:
                self._holding[state] = None
            self._evict()

    def _evict(self) -> None:
        while (many := self._open) > self._max_groups and self._idle.end_oldest():
            if self._open < many:
                self._count("max_groups")

    def make_room(self) -> None:
        """The buffer is full, and more is wanted than can be given: end what was idle for longest.

        One at a time: what it holds may leave later, and then the next one need not be ended. None
        while letters are under way: there is room when they are out.
        """
        rotation, holding = self.rotation, self._holding
        while holding and self._making_room is None and self._is_stuck and rotation.is_hungry:
            self._making_room = state = next(iter(holding))
            self._count("buffer")
            self._end(state)
        if self._lost == self.held and self._is_stuck and not rotation.is_at_work:
            rotation.broke(
                HoldExceeded(
                    f"{self.held:,} events are held inside the groups of {self._info}, by stages "
                    "that neither passed them on nor ended them when they were completed, as a "
                    "stage of your own has to. To hold more, raise buffer=."
                )
            )

    @property
    def _is_stuck(self) -> bool:
        """Whether the buffer is full, and no letter under way will make room."""
        return not self._letters and self.rotation.is_full

    def _count(self, cause: str) -> None:
        """A group is closed early, for this cause."""
        if cause not in self.closed_early:
            self._run.on_warning(
                f"{self._info} has closed a group before it was idle for {self._seconds:g} s, for "
                f"lack of room ({cause}): what comes out of it is made of a part of its events. "
                f"{_ADVICE[cause]}"
            )
        for counts in (self.closed_early, self._run.closed_early):
            counts[cause] = counts.get(cause, 0) + 1

    def _end_if_empty(self, state: State) -> None:
        if state.empty:
            self._end(state)

    def _end(self, state: State) -> None:
        if not state.completing:
            self._open -= 1
            self._holding.pop(state, None)
            state.complete()

    def complete(self, lanes: Iterable[Lane]) -> None:
        """The source has ended: end every state, then say so."""
        self._completing = True
        self._idle.clear()
        for lane in lanes:
            if lane.state is not None:
                self._end(lane.state)
        self._check_completed()

    def revived(self, state: State) -> None:
        """A state that had ended was given another event."""
        self._alive += 1
        self._lost -= state.held - 1

    def ended(self, state: State) -> None:
        """A state has given its last event."""
        self._alive -= 1
        self._lost += state.held
        if self._making_room is state:
            self._making_room = None

    def freed(self, state: State) -> None:
        """An event has left its group, or has ended in it."""
        self.held -= 1
        if state.ended:
            self._lost -= 1
        if not state.held:
            self._holding.pop(state, None)
        self.rotation.made_room()

    def letter_sent(self) -> None:
        """The letter about an event keeps its place."""
        self._letters += 1

    def letter_out(self) -> None:
        """The letter is out, and its place is free."""
        self._letters -= 1
        self.rotation.look_for_room()

    def over(self, lane: Lane) -> None:
        """A state has ended, and there is nothing more for its group."""
        if not lane.events and not lane.holders:
            self.rotation.forget(lane)
        self._check_completed()

    def _check_completed(self) -> None:
        if self._completing and not self._alive:
            self.rotation.complete()

    def close(self) -> None:
        """The stage was cancelled."""
        self._completing = True
        self._idle.clear()


class State:
    """One group's operators: events go in by `put`, and come out into the lane.

    Operators that end early, as `take` does, stay until the group ends, and what still comes
    is dropped. Events that come while the last results are on their way open the next state
    when those have gone.
    """

    def __init__(self, lane: Lane, states: GroupStates) -> None:
        self._lane = lane
        self._states = states
        self._raw: deque[Event[Any]] = deque()
        self._late: list[Event[Any]] = []
        self._demand = 0
        self._emitting = False
        self._inlet: Subscriber[Any] | None = None
        self._closed = self._finished = False
        self.completing = self.ended = False
        self.held = 0
        """Its group's events that have a place."""
        self.outlet = _Outlet(self)

    @property
    def empty(self) -> bool:
        """Whether its group holds neither an event nor a turn."""
        return not (self._raw or self._late or self._lane.events or self._lane.holders)

    def attach_inlet(self, subscriber: Subscriber[Any], run: Run) -> None:
        self._inlet = subscriber
        subscriber.on_subscribe(self)

    def put(self, event: Event[Any]) -> None:
        """One more event of the group."""
        if not self.completing:
            self._states.busy(self)
            self._raw.append(event)
            self._emit()
            self._states.idle(self._lane)
            return
        self._late.append(event)
        if self.ended:
            self.ended = False
            self._states.revived(self)
        self._settle()

    def request(self, n: int, /) -> None:
        self._demand += n
        self._emit()

    def cancel(self) -> None:
        self._closed = True
        self._emit()

    def _emit(self) -> None:
        if self._emitting:
            return
        self._emitting = True
        raw = self._raw
        try:
            while raw and (self._demand or self._closed):
                event = raw.popleft()
                if self._closed or self._inlet is None:
                    event.drop("group ended")
                else:
                    self._demand -= 1
                    self._inlet.on_next(event)
        finally:
            self._emitting = False
        if self.completing and not raw and not self._closed:
            self._closed = True
            if self._inlet is not None:
                self._inlet.on_completed()

    def complete(self) -> None:
        """No more events: let the operators give what they hold."""
        self.completing = True
        self._emit()
        self._settle()

    def freed(self) -> None:
        """A place is free again."""
        self.held -= 1
        self._states.freed(self)

    def letter_sent(self) -> None:
        """An event was given up on in the operators; its letter keeps the place."""
        self._states.letter_sent()

    def letter_out(self) -> None:
        """A letter is out."""
        self._states.letter_out()

    def out(self, event: Event[Any]) -> None:
        """An event has come out of the operators."""
        self._states.rotation.filled(self._lane, event)

    def taken(self) -> None:
        """The lane gave an event away: there is room for another."""
        if not self._finished:
            self.outlet.request()
        elif not self.ended:
            self._settle()

    def finish(self) -> None:
        """The operators have given their last event."""
        self._finished = self._closed = True
        self._emit()
        if self.completing:
            self._settle()
        else:
            self._states.idle(self._lane)

    def _settle(self) -> None:
        """End, or begin anew with what came late, once the last results are on their way."""
        if not self.completing or not self._finished or (self._late and self._lane.events):
            return
        if not self.ended:
            self.ended = True
            self._states.ended(self)
            if self._late:
                late, self._late = self._late, []
                self._states.renew(self._lane, late)
            else:
                self._states.over(self._lane)

    def broke(self, error: BaseException) -> None:
        self.ended = self._finished = True
        self._states.rotation.broke(error)

    def give_back(self) -> None:
        """The stage was cancelled: return what has not gone in yet, release the rest."""
        self.completing = self._closed = True
        waiting = [*self._raw, *self._late]
        self._raw.clear()
        self._late.clear()
        for event in waiting:
            event.give_back()
        if not self._finished:
            self._finished = True
            self.outlet.cancel()
        self.ended = True


class _Outlet:
    """The subscriber at the end of a group's operators; asks for one event at a time."""

    _upstream: Subscription | None = None

    def __init__(self, state: State) -> None:
        self._state = state

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._upstream = subscription
        subscription.request(1)

    def request(self) -> None:
        if self._upstream is not None:
            self._upstream.request(1)

    def cancel(self) -> None:
        if self._upstream is not None:
            self._upstream.cancel()

    def on_next(self, event: Event[Any], /) -> None:
        self._state.out(event)

    def on_completed(self) -> None:
        self._state.finish()

    def on_error(self, error: BaseException, /) -> None:
        self._state.broke(error)
