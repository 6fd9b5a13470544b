"""Operators that run inside each group, with a state that lives as long as the group."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from cachetools import TTLCache

from streams.errors import BuildError
from streams.event import Event
from streams.flowable import Flowable
from streams.groups import Group
from streams.rotation import Lane, Rotation
from streams.run import Run
from streams.stage import StageInfo, Subscriber, Subscription

__all__ = ["GroupStates", "State"]


class GroupStates:
    """The `each=` of a `group_by`: opens a state with a group, ends it when it was idle.

    Idle lanes are kept in a TTL cache: at most one timer, and the least recently used first.
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
        self._idle = idle
        self._max_groups = inf if max_groups is None else max_groups
        self._run = run.inner()
        self._info = info
        self._alive = 0
        self._empty: TTLCache[Lane, float] = TTLCache(inf, idle, timer=run.now)
        self._timer: asyncio.TimerHandle | None = None
        self._completing = False

    def open(self, lane: Lane) -> None:
        """Give a lane a fresh state."""
        self._alive += 1
        lane.state = state = State(lane, self)
        stream: Group[Any, Any] = Group(lane.key, state.attach_inlet, self._info)
        flowable = self._each(stream)
        if not isinstance(flowable, Flowable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BuildError(
                f"group_by(each=...) must return a Flowable such as group.pipe(...), "
                f"not {type(flowable).__name__}"
            )
        flowable.attach(state.outlet, self._run)
        while self._alive > self._max_groups and self._empty:
            self._end(self._empty.popitem()[0])

    def busy(self, lane: Lane) -> None:
        """An event of the group has come."""
        self._empty.pop(lane, None)

    def idle(self, lane: Lane) -> None:
        """The group holds neither an event nor a turn."""
        state = lane.state
        assert state is not None
        if state.holds_anything() or lane.events or lane.holders:
            return
        if state.ended:
            self.rotation.forget(lane)
        elif not self._completing:
            self._empty[lane] = self._run.now() + self._idle
            while self._alive > self._max_groups and self._empty:
                self._end(self._empty.popitem()[0])
            self._arm()

    def _arm(self) -> None:
        if self._timer is None and self._empty:
            first = next(iter(self._empty.items()))[1]
            delay = max(0.0, first - self._run.now())
            self._timer = self._run.loop.call_later(delay, self._expire)

    def _expire(self) -> None:
        self._timer = None
        for lane, _ in self._empty.expire() or ():
            self._end(lane)
        self._arm()

    def _end(self, lane: Lane) -> None:
        state = lane.state
        assert state is not None
        state.complete()

    def complete(self, lanes: Iterable[Lane]) -> None:
        """The source has ended: end every state, then say so."""
        self._completing = True
        self._stop_timer()
        for lane in lanes:
            self._end(lane)
        self._check_completed()

    def state_ended(self, lane: Lane) -> None:
        """A state has given its last event."""
        self._alive -= 1
        if not lane.events and not lane.holders:
            self.rotation.forget(lane)
        self._check_completed()

    def _check_completed(self) -> None:
        if self._completing and not self._alive:
            self._completing = False
            self.rotation.complete()

    def close(self) -> None:
        """The stage was cancelled."""
        self._stop_timer()

    def _stop_timer(self) -> None:
        self._empty.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class State:
    """One group's operators: events go in by `put`, and come out into the lane."""

    def __init__(self, lane: Lane, states: GroupStates) -> None:
        self._lane = lane
        self._states = states
        self._raw: deque[Event[Any]] = deque()
        self._demand = 0
        self._emitting = False
        self._inlet: Subscriber[Any] | None = None
        self._cancelled = False
        self._completing = False
        self.ended = False
        self.outlet = _Outlet(self)

    def attach_inlet(self, subscriber: Subscriber[Any], run: Run) -> None:
        self._inlet = subscriber
        subscriber.on_subscribe(self)

    def put(self, event: Event[Any]) -> None:
        """One more event of the group."""
        if self.ended or self._completing:
            # The state's last results are still on their way: this event opens the next one.
            self._states.open(self._lane)
            assert self._lane.state is not None
            self._lane.state.put(event)
            return
        self._states.busy(self._lane)
        self._raw.append(event)
        self._emit()
        self._states.idle(self._lane)

    def request(self, n: int, /) -> None:
        self._demand += n
        self._emit()

    def cancel(self) -> None:
        self._cancelled = True
        self._emit()

    def _emit(self) -> None:
        if self._emitting:
            return
        self._emitting = True
        raw, rotation = self._raw, self._states.rotation
        try:
            while raw and (self._demand or self._cancelled):
                event = raw.popleft()
                rotation.freed()
                if self._cancelled or self._inlet is None:
                    event.drop("group ended")
                else:
                    self._demand -= 1
                    self._inlet.on_next(event)
        finally:
            self._emitting = False
        if self._completing and not raw and not self._cancelled and self._inlet is not None:
            self._cancelled = True
            self._inlet.on_completed()

    def complete(self) -> None:
        """No more events: let the operators give what they hold."""
        self._completing = True
        self._emit()

    def holds_anything(self) -> bool:
        return bool(self._raw)

    def out(self, event: Event[Any]) -> None:
        """An event has come out of the operators."""
        lane = self._lane
        self._states.rotation.waiting += 1
        lane.events.append(event)
        if len(lane.events) == 1 and not lane.holders:
            lane.rotation.ready(lane)

    def taken(self) -> None:
        """The lane gave an event away: there is room for another."""
        if not self.ended:
            self.outlet.upstream.request(1)

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self._cancelled = True
            self._emit()
            self._states.state_ended(self._lane)

    def broke(self, error: BaseException) -> None:
        self.ended = True
        self._states.rotation.broke(error)

    def give_back(self) -> None:
        """The stage was cancelled: return what has not gone in yet, release the rest."""
        self._completing = self._cancelled = True
        while self._raw:
            self._raw.popleft().give_back()
        if not self.ended:
            self.ended = True
            self.outlet.upstream.cancel()


class _Outlet:
    """The subscriber at the end of a group's operators; asks for one event at a time."""

    upstream: Subscription

    def __init__(self, state: State) -> None:
        self._state = state

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self.upstream = subscription
        subscription.request(1)

    def on_next(self, event: Event[Any], /) -> None:
        self._state.out(event)

    def on_completed(self) -> None:
        self._state.end()

    def on_error(self, error: BaseException, /) -> None:
        self._state.broke(error)
