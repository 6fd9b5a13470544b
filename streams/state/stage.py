"""The stage with a state for each key, which events and timers change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

from penstock.streams.base.errors import CALL_ERRORS, WrongType, describe, own_error
from penstock.streams.base.keys import By
from penstock.streams.base.validation import is_iterable
from penstock.streams.execution.call import IN_STATE, NO_RESULTS
from penstock.streams.failures.policy import OnError
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.acknowledgement import NOBODY, Family
from penstock.streams.protocol.event import BaseEvent, Event, drop_all, give_back_all
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.state.changes import END, NO_TIMERS, Cell, Change, Root, without
from penstock.streams.state.clocks import EventClock, WallClock
from penstock.streams.state.commits import Commits
from penstock.streams.state.context import Context
from penstock.streams.state.held_stage import BaseHeldStage
from penstock.streams.state.states import States
from penstock.streams.state.timers import Timers

__all__ = ["ByEventTime", "StatefulStage"]

Step = Callable[..., Any]


class ByEventTime(NamedTuple):
    """What a stage has of event time: its `clock`, made for it of the function that is called when
    that may have moved and the one that says whether all events have come; and the `timers`.

    The timers of a key are those of its cell in a second list of states, which has no other
    content: the store finds what is due by one time for each row.
    """

    clock: Callable[[Callable[[], object], Callable[[], bool]], EventClock]
    timers: States | None


class StatefulStage(BaseHeldStage):
    """Calls `step` with each event and the state of its key, and sends the results."""

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        by: By[Any],
        step: Step,
        takes_context: bool,
        on_timer: Step | None,
        states: States,
        commits: Commits,
        on_error: OnError,
        by_event_time: ByEventTime | None,
    ) -> None:
        super().__init__(
            *(downstream, run, info, by, states, commits, KeyFaults(on_error, run, info, by))
        )
        self._step = step
        self._takes_context = takes_context
        self._on_timer = on_timer
        self._wall = WallClock(run, info, self._drain, lambda: bool(self.state))
        self._timers = Timers(states)
        self.timers = (self._timers,)
        self._has_timers = on_timer is not None or states.has_ends
        if self._has_timers:
            states.when_undone = self.undone
        self._clock: EventClock | None = None
        self._event_states: States | None = None
        if by_event_time is not None:
            self._clock = by_event_time.clock(self._drain, self._has_all_events)
            self._event_states = by_event_time.timers
        if self._event_states is not None:
            self.all_states = states, self._event_states
            self._event_timers = Timers(self._event_states)
            self.timers = self._timers, self._event_timers
            self._event_states.when_undone = self.undone
        # Timers in event time that have fired because the input has ended: each does so once.
        self._last: set[tuple[Any, str]] = set()
        self._context = Context(run.wall, self._clock, on_timer is not None)
        run.attachments.then(self.begin)

    # Events.

    def hold(self, events: list[Event[Any]], /) -> list[Root]:
        # In event time only when the states are read: until then they are on their way.
        return super().hold(events) if self._clock is None else []

    def apply(self, events: list[Event[Any]], roots: list[Root], cells: list[Cell], /) -> bool:
        if self._clock is not None:
            roots = self._clock.hold(events, self._commits)
        if self._states.has_ends:
            now = self.run.wall()
            for cell in cells:
                if cell.timers.get(END, inf) <= now:
                    self._fire_until(cell, now)
        if self._has_stopped():
            give_back_all(events)
            return False
        return self._apply(events, roots, cells, self._step)

    def _apply(
        self,
        events: list[Event[Any]],
        roots: list[Root],
        cells: list[Cell],
        function: Step,
        timer: str | None = None,
        event_timer: Cell | None = None,
    ) -> bool:
        """Call a function with the state of each event's cell, for the event or for a `timer`, of
        the cell itself or of that of its timers in event time.

        Returns whether the stage goes on; if not, the rest is returned. After an error the rest may
        wait until a state is read again.
        """
        states, context, send = self._states, self._context, self._out.append
        has_timers, offset = self._has_timers, self._offset
        takes_context = self._takes_context or timer is not None
        clock, event_states = self._clock, self._event_states
        event_cell: Cell | None = None
        dropped: list[Event[Any]] = []
        todo = zip(events, roots, cells, strict=False)
        event: BaseEvent
        root: Root
        cell: Cell
        change: Change
        for event, root, cell in todo:
            if root.root.is_lost:
                event.give_back()
                continue
            if states.has_forgotten and timer is None:
                # Perhaps this key.
                self._unread = [event, *(event for event, _, _ in todo), *self._unread]
                break
            if timer is not None:
                # It is over, also if its function fails.
                timers = cell.timers
                if event_timer is None:
                    timers = without(timers, timer)
                self.follow(states.keep(cell, root, timers))
                if event_timer is not None:
                    self._set_event_timers(event_timer, root, without(event_timer.timers, timer))
                if has_timers:
                    self._timers.note(cell)
            timers = cell.timers
            if event_states is not None:
                event_cell = event_states.cells[cell.key]
                context.event_timers = event_cell.timers
            if cell.last is not None:
                states.freeze(cell.last)
            try:
                # Any: what the user's function returns.
                answer: Any
                if takes_context:
                    context.key = cell.key
                    context.timers = timers
                    if timer is not None:
                        pass
                    elif clock is None:
                        context.time = event.created + offset
                    else:
                        context.time = context.base = clock.time_of(event)
                    answer = function(cell.state, event.value if timer is None else timer, context)
                    timers = context.timers
                else:
                    answer = function(cell.state, event.value)
                if (
                    answer.__class__ is not tuple
                    or len(answer) != 2
                    or answer[1].__class__ is not list
                ):
                    answer = self._checked(answer)
                change = states.change(cell, root, answer[0], timers)
            except CALL_ERRORS as raised:
                error = own_error(raised)
                states.undo(cell)
                if self._faults.survives_call(event, error):
                    continue
                self._stop(error)
                break
            if change.before is not None:
                self.follow(change)
            if has_timers:
                self._timers.note(cell)
            if event_cell is not None:
                after = NO_TIMERS if answer[0] is None else context.event_timers
                if after is not event_cell.timers:
                    self._set_event_timers(event_cell, root, after)
            results: list[Any] = answer[1]
            if len(results) == 1:
                event.value = results[0]
                send(event)
            elif results:
                family = Family(event, NO_RESULTS)
                self._out.extend(map(family.child, results))
                family.close()
            else:
                dropped.append(event)
            if self.state and self._has_stopped():
                break
        drop_all(dropped, IN_STATE)
        give_back_all([event for event, _, _ in todo])
        return not self._has_stopped()

    def _checked(self, answer: Any) -> tuple[Any, list[Any]]:
        """The state and the results that the user's function returned. Raises WrongType."""
        if answer.__class__ is tuple and len(answer) == 2:
            results: Any = answer[1]
            kind: Any = results.__class__
            if results is None:
                return answer[0], []
            if is_iterable(results) and not issubclass(kind, str | bytes | Mapping):
                return answer[0], list(results)
            raise WrongType(
                f"{self.info}: the results are {describe(results)}, and not a list of results: "
                "return state, [result]"
            )
        raise WrongType(
            f"{self.info}: the function returned {describe(answer)}, and not the new state and "
            "the results: return state, [result], or return state, ()"
        )

    # Timers.

    def fire(self) -> None:
        """Call the function for timers that are due, as long as there is demand."""
        if self._event_states is not None:
            assert self._clock is not None
            self.fire_due(self._event_timers, self._clock, self._fire_event_timer)
        elif self._clock is not None:
            self._clock.now()
        if self._has_timers:
            self.fire_due(self._timers, self._wall, self._fire_timer)

    def _fire_timer(self, key: Any) -> None:
        cell = self._cell_of(key)
        if cell is not None and cell.timers:
            self._fire_first(cell, self._timers.now)

    def _cell_of(self, key: Any) -> Cell | None:
        """The cell of a key with a timer that is due; None if there is none any more, or if the
        state is not readable: then the timer stays in the store, for the next run."""
        cell = self._states.cells.get(key)
        # If it is in neither, its changes were undone, and its timers are read again.
        found = self._states.unreadable.pop(key, None)
        if found is not None:
            error, timers = found
            name = min(timers, key=timers.__getitem__, default=END)
            if not self._faults.survives_call(self._event_of(key, name), error):
                self._stop(error)
        return cell

    def _event_of(self, key: Any, timer: str) -> Event[Any]:
        return Event({"key": key, "timer": timer}, self.run.now(), NOBODY)

    def _fire_first(self, cell: Cell, now: float) -> None:
        """Call the function for the first timer of a key, if it is due."""
        name, due = min(cell.timers.items(), key=itemgetter(1))
        if due > now:
            self._timers.note(cell)
            return
        # A timer of an earlier program may have no function any more.
        function = _gone if name == END else self._on_timer or _as_it_is
        self._context.time, self._context.base = due, None
        event = self._event_of(cell.key, name)
        self._apply([event], self._commits.hold((event,)), [cell], function, name)

    def _fire_until(self, cell: Cell, now: float) -> None:
        """Call the function for the first timers of a key until its state does not end by then."""
        for _ in cell.timers:
            if cell.timers.get(END, inf) > now or self._has_stopped():
                return
            self._fire_first(cell, now)

    def _fire_event_timer(self, key: Any) -> None:
        """Call the function for the first timer of a key in event time, if it is due."""
        assert self._event_states is not None
        assert self._clock is not None
        event_cell = self._event_states.cells.get(key)
        if event_cell is None or not event_cell.timers:
            return
        cell = self._cell_of(key)
        if cell is None:
            return
        now, timers = self._event_timers.now, event_cell.timers
        last = inf
        if now == inf:
            last, fired = self._clock.last(), self._last
            # One that sets itself again would do so without end.
            timers = {
                name: due for name, due in timers.items() if due <= last or (key, name) not in fired
            }
            if not timers:
                return
        name, due = min(timers.items(), key=itemgetter(1))
        if due > now:
            self._event_timers.note(event_cell)
            return
        if due > last:
            self._last.add((key, name))
        self._context.time = self._context.base = due
        event, function = self._event_of(key, name), self._on_timer or _as_it_is
        self._apply([event], self._commits.hold((event,)), [cell], function, name, event_cell)

    def _set_event_timers(self, cell: Cell, root: Root, timers: dict[str, float]) -> None:
        """Replace the timers of a key in event time, in a change of an event."""
        assert self._event_states is not None
        if not root.root.is_lost:
            self.follow(self._event_states.change(cell, root, bool(timers) or None, timers))
            self._event_timers.note(cell)

    def undone(self, cell: Cell, /) -> None:
        if cell.last is None:
            # The cell may be gone, and those that wait need it.
            self._states.has_forgotten = True
        super().undone(cell)

    # The end.

    def _is_finished(self) -> bool:
        """Whether no timer in event time is due any more: a drain leaves them for the next run."""
        if self._event_states is None or not self.run.pauses.input_ended:
            return True
        assert self._clock is not None
        return self._clock.now() == inf and self._is_nothing_due(self._event_timers)

    def release(self) -> None:
        self._wall.close()
        if self._clock is not None:
            self._clock.close()
        super().release()

    def statistics(self) -> dict[str, Any]:
        """The `timers` that are due soon, and, of states that are kept in a store without a `ttl`,
        how they have `grown` in this run: `keys`, and about how many `bytes`."""
        is_kept = self.info.delivery.store != "memory"
        timers = len(self._timers)
        if self._event_states is not None:
            timers += len(self._event_timers)
        return {
            **super().statistics(),
            "timers": timers,
            "grown": self._states.growth() if is_kept else None,
        }


def _gone(state: Any, value: Any, context: Context) -> tuple[None, list[Any]]:
    return None, []


def _as_it_is(state: Any, value: Any, context: Context) -> tuple[Any, list[Any]]:
    return state, []
