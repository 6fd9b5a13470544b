"""The stage with the windows of each key: events are added to them, and the watermark closes them.

event_time ──> in flight ──> window ──> results
    │                          ^
    └──────── watermark ───────┘
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from math import inf
from typing import Any

from penstock.streams.base.errors import CALL_ERRORS, own_error
from penstock.streams.base.keys import By
from penstock.streams.event_time.clock import Watermark
from penstock.streams.event_time.line import LateTime
from penstock.streams.event_time.processing import ProcessingTime
from penstock.streams.execution.call import IN_STATE, NO_RESULTS
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import OnError
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.acknowledgement import NOBODY, Family
from penstock.streams.protocol.event import BaseEvent, Event, drop_all, give_back_all
from penstock.streams.protocol.stage import CLOSED, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer
from penstock.streams.state.changes import Cell, Root
from penstock.streams.state.commits import Commits
from penstock.streams.state.held_stage import BaseHeldStage
from penstock.streams.state.timers import Timers
from penstock.streams.windows.states import AT_END, AT_ONCE, Added, Asked, Closed, WindowStates
from penstock.streams.windows.windows import Windows

__all__ = ["LateEvent", "WindowStage"]


class LateEvent(Exception):
    """An event whose windows had closed when it was emitted."""


class WindowStage(BaseHeldStage):
    """Adds each event to the windows of its key, and sends those that the watermark has passed."""

    _states: WindowStates
    _why_dropped = IN_STATE

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        by: By[Any],
        windows: Windows[Any],
        clock: Callable[[Callable[[], object], Callable[[], bool]], Watermark | ProcessingTime],
        states: WindowStates,
        commits: Commits,
        early: int | float | None,
        late: OnError,
        on_error: OnError,
        is_stored: bool,
    ) -> None:
        super().__init__(
            *(downstream, run, info, by, states, commits, KeyFaults(on_error, run, info, by))
        )
        self._windows = windows
        self._late = ErrorPolicy(late, run, info)
        self._timers = Timers(states, has_all=not is_stored)
        self.timers = (self._timers,)
        # The keys with events since the results so far were asked for, and those to be asked now.
        self._early = early
        self._changed: dict[Any, None] = {}
        self._asked: deque[Any] = deque()
        self._asks = Timer(run, info, self._ask)
        states.when_undone = self.undone
        self._is_stored = is_stored
        self._lost = 0
        self._clock = clock(self._drain, self._has_all_events)
        # The time of an event; and what is added of an event with that time and a key, if that is
        # not its value.
        self._stamp_of: Callable[[Event[Any]], float] = self._clock.stamp
        self._value_of: Callable[[Event[Any], float, Any], Any] | None = None
        run.attachments.then(self.begin)

    # Events.

    def hold(self, events: list[Event[Any]], /) -> list[Root]:
        return []

    def apply(self, events: list[Event[Any]], _: list[Root], cells: list[Cell], /) -> bool:
        states = self._states
        dropped: list[Event[Any]] = []
        # The keys of events that are in no window.
        outside: list[Cell] = []
        roots: Iterable[Root | None] = repeat(None)
        if self._is_stored:
            # Only now: an event that waits until its state is read is still on its way.
            roots = self._clock.hold(events, self._commits)
        else:
            self._clock.arrived(events)
        passed, add = self._clock.watermark, self._windows.add
        stamp_of, value_of = self._stamp_of, self._value_of
        todo = zip(events, roots, cells, strict=False)
        event: BaseEvent
        root: Root | None
        cell: Cell
        for event, root, cell in todo:
            if root is not None and root.root.is_lost:
                event.give_back()
                continue
            try:
                stamp = stamp_of(event)
                # As a plain number, which can be stored.
                time = float(stamp)
                watermark = stamp.watermark if isinstance(stamp, LateTime) else -inf
                if time < passed:
                    # Of a source that was silent while others were not.
                    watermark = max(watermark, passed)
                value = event.value if value_of is None else value_of(event, stamp, cell.key)
                is_added = add(cell.state, time, value, watermark)
            except CALL_ERRORS as raised:
                error = own_error(raised)
                if not self._faults.survives(event, error):
                    self._stop(error)
                    break
                outside.append(cell)
                continue
            before = cell.timers
            if root is None:
                states.follow(cell)
            else:
                self._note(cell, root, Added(time, value, watermark))
            if cell.timers is not before:
                self._timers.note(cell)
            if not is_added:
                why = self._why_late(event, watermark)
                if not self._late.survives(event, why):
                    self._stop(why)
                    break
                outside.append(cell)
                continue
            if self._early is not None:
                self._changed[cell.key] = None
            self._has_added(event, cell, dropped)
            if self.error is not None:
                break
        for cell in outside:
            self._forget_empty(cell)
        if self._changed and not self._asks.is_set:
            self._asks.set(self._early or 0.0)
        drop_all(dropped, self._why_dropped)
        give_back_all([event for event, _, _ in todo])
        return not self._has_stopped()

    def _has_added(self, event: Event[Any], cell: Cell, dropped: list[Event[Any]]) -> None:
        """An event that was added goes on, or is to be `dropped`."""
        dropped.append(event)

    def _why_late(self, event: Event[Any], watermark: float) -> Exception:
        before = watermark if watermark > -inf else "a restart"
        return LateEvent(f"its windows had ended before {before}")

    # Windows that close.

    def fire(self) -> None:
        """Close the windows that end by the watermark, as long as there is demand."""
        self.fire_due(self._timers, self._clock, self._close_of)
        while self._asked and self._may_fire() and self._are_read({self._asked[0]}):
            self._results_of(self._asked.popleft())

    def _may_fire(self) -> bool:
        return self.has_room and self.state < CLOSED

    def _close_of(self, key: Any) -> None:
        cell = self._states.cells.get(key)
        if cell is None or not cell.timers:
            return
        until = min(cell.timers.values())
        if until > self._clock.watermark:
            self._timers.note(cell)
            return
        if until in (AT_ONCE, AT_END):
            until = self._clock.watermark
        # No further: windows of all keys close in the order of their ends.
        self._send(cell, self._windows.close(key, cell.state, until), Closed(until))

    def _ask(self) -> None:
        self._asked.extend(self._changed)
        self._changed.clear()
        self._drain()

    def _results_of(self, key: Any) -> None:
        cell = self._states.cells[key]
        if found := self._windows.early(key, cell.state):
            self._send(cell, found, Asked())
        else:
            self._forget_empty(cell)

    def _send(self, cell: Cell, found: list[Any], done: Closed | Asked) -> None:
        """Send results of a key, whose state is another by what was done for them."""
        event: Event[Any] = Event({"key": cell.key}, self.run.now(), NOBODY)
        if self._is_stored:
            (root,) = self._commits.hold((event,))
            self._note(cell, root, done)
        else:
            self._states.follow(cell)
            self._forget_empty(cell)
        self._timers.note(cell)
        self._emit(event, found)

    def _emit(self, event: Event[Any], found: list[Any]) -> None:
        """Send results in place of an event."""
        self._out.extend(self._made_of(event, found))

    def _made_of(self, event: Event[Any], found: list[Any]) -> list[Event[Any]]:
        if len(found) == 1:
            event.value = found[0]
            return [event]
        family = Family(event, NO_RESULTS)
        made = list(map(family.child, found))
        family.close()
        return made

    def _forget_empty(self, cell: Cell) -> None:
        """Forget a key without windows, if nothing is stored: a store forgets those not in use."""
        if not self._is_stored and self._windows.is_empty(cell.state):
            self._states.cells.pop(cell.key, None)

    def _note(self, cell: Cell, root: Root, done: Added | Closed | Asked) -> None:
        self.follow(self._states.note(cell, root, done))

    # The end.

    def _is_finished(self) -> bool:
        """Whether nothing closes any more: a drain leaves windows for the next run."""
        if not self.run.pauses.input_ended:
            return True
        return self._clock.now() == inf and self._is_nothing_due(self._timers)

    def release(self) -> None:
        self._clock.close()
        self._asks.cancel()
        if not self._is_stored:
            # Exactly: those that are lost may be of few keys among many.
            self._lost = sum(self._lost_of(cell.state) for cell in self._states.cells.values())
        super().release()

    def _lost_of(self, state: Any) -> int:
        """How much of a key is lost with a run without a store."""
        return self._windows.open(state)

    def _open_windows(self) -> int:
        return self._states.sum_of(self._windows.open)

    def statistics(self) -> dict[str, Any]:
        """Events that were `late`, which are among those `skipped` or `routed`; how many
        `open_windows` the keys in memory have, or had in a run that has ended without a store, as
        `lost_windows`; and the `watermark` up to which windows are closed, None before the first
        event and after the last."""
        numbers, watermark = super().statistics(), self._clock.watermark
        for name, number in self._late.statistics().items():
            numbers[name] += number
        return {
            **numbers,
            "late": self._late.skipped + self._late.routed,
            "open_windows": self._open_windows(),
            "lost_windows": self._lost,
            "watermark": watermark if abs(watermark) < inf else None,
        }
