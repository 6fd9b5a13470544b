"""Groups as streams, for those who read them one by one instead of through `spread`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streams.errors import PenstockError
from streams.event import Event
from streams.faults import Faults
from streams.groups import Group
from streams.keys import Key
from streams.lane import Lane
from streams.origins import OneByOne
from streams.rotation import Rotation
from streams.run import Run
from streams.stage import UNBOUNDED, StageInfo, Subscriber

if TYPE_CHECKING:
    from streams.group_state import GroupStates

__all__ = ["GroupReader"]

# Events that a group may give before the loop has its turn.
_AT_A_TURN = 256


class GroupReader(OneByOne, Rotation):
    """Emits a `Group` for each lane, instead of its events; the origin of those envelopes.

    A group that its reader lets go without reading has its events dropped as `unread group`,
    so that it does not stop the others.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        key: Key,
        buffer: int,
        faults: Faults,
        states: GroupStates | None,
        info: StageInfo,
        run: Run,
    ) -> None:
        super().__init__(downstream, key, buffer, faults, None, states)
        # A lane with work is a group to be read, and does not stand in line.
        self.direct = False
        self._info = info
        self._run = run
        self._groups_wanted = 0
        self._emitting_groups = False
        self._unopened: deque[Lane] = deque()
        self._readers: dict[Lane, _Reading | None] = {}

    def ready(self, lane: Lane) -> None:
        if lane not in self._readers:
            self._readers[lane] = None
            self._unopened.append(lane)
            self._emit_groups()
        elif (reading := self._readers[lane]) is not None:
            reading.go_on()

    @property
    def is_hungry(self) -> bool:
        return not self.waiting

    def request(self, n: int, /) -> None:
        self._groups_wanted += n
        self._emit_groups()

    def cancel(self) -> None:
        self._unopened.clear()
        super().cancel()
        # Not before the readers had the time to cancel too.
        if any(self._readers.values()) and self._run.has_loop:
            left = PenstockError("the stream of groups was left before its groups ended")
            self._run.call_soon(self._info, self._fail_readers, left)

    def _emit_groups(self) -> None:
        # Whoever gets a group may ask for the next one there.
        if self._emitting_groups:
            return
        self._emitting_groups = True
        try:
            while self._groups_wanted and self._unopened:
                self._groups_wanted -= 1
                lane = self._unopened.popleft()
                group: Group[Any, Any] = Group(lane.key, self._attach_to(lane), self._info)
                self.downstream.on_next(Event(group, self._run.now(), self, lane))
        finally:
            self._emitting_groups = False
        if self._nothing_to_come:
            self._complete_if_empty()

    def _attach_to(self, lane: Lane) -> Callable[[Subscriber[Any], Run], None]:
        def attach(subscriber: Subscriber[Any], run: Run) -> None:
            if self._readers.get(lane, self) is not None:
                raise PenstockError(
                    f"the group {lane.key!r} has ended or is being read: a group can be read once"
                )
            reading = self._readers[lane] = _Reading(self, self._run, self._info, lane, subscriber)
            subscriber.on_subscribe(reading)

        return attach

    def forget(self, lane: Lane) -> None:
        # The lane is not used again: whoever still has its group would read another one.
        if self.lanes.pop(lane.key, None) is None:
            return
        reading = self._readers.pop(lane, None)
        if reading is not None:
            reading.end()
        if self._nothing_to_come:
            self._complete_if_empty()

    def _complete_if_empty(self) -> None:
        if not self._readers:
            super()._complete_if_empty()

    def broke(self, error: BaseException) -> None:
        self._fail_readers(error)
        super().broke(error)

    def _fail_readers(self, error: BaseException) -> None:
        readers, self._readers = self._readers, {}
        for reading in readers.values():
            if reading is not None:
                reading.fail(error)

    def _unread(self, lane: Lane, settle: Callable[[Event[Any]], None]) -> None:
        if lane in self._readers and self._readers[lane] is None:
            reading = self._readers[lane] = _Reading(
                self, self._run, self._info, lane, _Discard(settle)
            )
            reading.request(UNBOUNDED)

    def finished(self, event: Event[Any], /) -> None:
        self._unread(event.token, lambda unread: unread.drop("unread group"))

    def dropped(self, event: Event[Any], cause: str, /) -> None:
        self._unread(event.token, lambda unread: unread.drop(cause))

    def failed(self, event: Event[Any], error: BaseException, acknowledged: bool, /) -> None:
        self._unread(event.token, lambda unread: unread.fail(error, acknowledged=acknowledged))

    def returned(self, event: Event[Any], /) -> None:
        self._unread(event.token, lambda unread: unread.give_back())


class _Reading:
    """One group being read: one event at a time, each holding the group's turn."""

    def __init__(
        self,
        rotation: Rotation,
        run: Run,
        info: StageInfo,
        lane: Lane,
        subscriber: Subscriber[Any],
    ) -> None:
        self._rotation = rotation
        self._run = run
        self._info = info
        # A source may fill the group again as fast as it is read.
        self._at_a_turn = _AT_A_TURN if run.has_loop else UNBOUNDED
        self._lane = lane
        self._subscriber = subscriber
        self._demand = 0
        self._emitting = False
        self._cancelled = self._ended = False

    def go_on(self) -> None:
        if self._emitting:
            return
        self._emitting = True
        try:
            is_left = self._emit()
        finally:
            self._emitting = False
        if self._ended:
            self.end()
        elif is_left:
            self._run.call_soon(self._info, self.go_on)

    def _emit(self) -> bool:
        """Whether the loop has to have its turn before more can go."""
        lane = self._lane
        for _ in range(self._at_a_turn):
            if not (lane.events and not lane.holders and (self._demand or self._cancelled)):
                return False
            state = lane.state
            event = lane.take()
            self._rotation.waiting -= 1
            if self._cancelled:
                event.give_back()
            else:
                self._demand -= 1
                self._subscriber.on_next(event)
            if state is not None:
                state.taken()
            self._rotation.made_room()
        return True

    def request(self, n: int, /) -> None:
        self._demand += n
        self.go_on()

    def cancel(self) -> None:
        self._cancelled = True
        self.go_on()

    def end(self) -> None:
        # Not inside on_next, which may be about to fail the stream because of its last event.
        self._ended = True
        if not (self._cancelled or self._emitting):
            self._cancelled = True
            self._subscriber.on_completed()

    def fail(self, error: BaseException) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._subscriber.on_error(error)


class _Discard:
    """Reads a group that nobody wants."""

    def __init__(self, settle: Callable[[Event[Any]], None]) -> None:
        self._settle = settle

    def on_subscribe(self, subscription: Any, /) -> None: ...

    def on_next(self, event: Event[Any], /) -> None:
        self._settle(event)

    def on_error(self, error: BaseException, /) -> None: ...

    def on_completed(self) -> None: ...
