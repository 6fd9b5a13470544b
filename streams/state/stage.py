"""The stage with a state for each key, which events and timers change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from operator import itemgetter
from typing import Any, cast

from penstock.streams.base.errors import CALL_ERRORS, WrongType, describe, own_error
from penstock.streams.base.keys import By
from penstock.streams.base.validation import is_at_least, is_iterable, is_text
from penstock.streams.execution.call import NO_RESULTS
from penstock.streams.failures.policy import OnError
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.acknowledgement import NOBODY, Family
from penstock.streams.protocol.event import Event, drop_all, give_back_all
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer
from penstock.streams.state.changes import END, Cell, Change, without
from penstock.streams.state.commits import Commits
from penstock.streams.state.held_stage import MOST_HELD, BaseHeldStage
from penstock.streams.state.states import States
from penstock.streams.state.timers import Timers

__all__ = ["Context", "StatefulStage"]


class Context:
    """The key, the time and the timers, for a function of `stateful`.

    `time` is when the event was created or the timer was due, in seconds since 1970. A context is
    valid only during the call.
    """

    __slots__ = ("_now", "key", "time", "timers")

    def __init__(self, now: Callable[[], float]) -> None:
        self.key: Any = None
        self.time = 0.0
        self._now = now
        self.timers: dict[str, float] = {}

    def timer(self, name: str, *, at: float | None = None, after: float | None = None) -> None:
        """Have `on_timer` called once, `at` a time in seconds since 1970, or `after` some seconds.

        Replaces a timer of the same key and name. Raises WrongType for a name that is not a text,
        and unless exactly one of the two times is given.
        """
        if not is_text(name):
            raise WrongType(f"ctx.timer({name!r}): the name is a text that is not empty")
        if (at is None) == (after is None) or not is_at_least(after if at is None else at, 0):
            raise WrongType(
                f"ctx.timer({name!r}, at={at!r}, after={after!r}): give one of the two, a number "
                "of seconds"
            )
        when = self._now() + cast(float, after) if at is None else at
        self.timers = {**self.timers, name: when}

    def cancel(self, name: str) -> None:
        """Delete the timer with this name, if there is one."""
        self.timers = without(self.timers, name)


Step = Callable[..., Any]


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
    ) -> None:
        super().__init__(
            *(downstream, run, info, by, states, commits, KeyFaults(on_error, run, info, by))
        )
        self._step = step
        self._takes_context = takes_context
        self._on_timer = on_timer
        self._context = Context(run.wall)
        self._timers = Timers(states, run.wall)
        self._alarm = Timer(run, info, self._drain)
        self._has_timers = on_timer is not None or states.has_ends
        if self._has_timers:
            states.when_undone = self._undone
        run.attachments.then(self.begin)

    # Events.

    def apply(self, events: list[Event[Any]], cells: list[Cell], /) -> bool:
        if self._states.has_ends:
            now = self.run.wall()
            for cell in cells:
                if cell.timers.get(END, inf) <= now:
                    self._fire_until(cell, now)
            if self._has_stopped():
                give_back_all(events)
                return False
        return self._apply(events, cells, self._step, None)

    def _apply(
        self, events: list[Event[Any]], cells: list[Cell], function: Step, timer: str | None
    ) -> bool:
        """Call a function with the state of each event's cell, for the event or for a `timer`.

        Returns whether the stage goes on; if not, the rest is returned. After an error the rest may
        wait until a state is read again.
        """
        states, context, send = self._states, self._context, self._out.append
        has_timers, offset = self._has_timers, self._offset
        takes_context = self._takes_context or timer is not None
        dropped: list[Event[Any]] = []
        todo = zip(events, self._commits.hold(events), cells, strict=True)
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
                self._changed(states.keep(cell, root, without(cell.timers, timer)))
            timers = cell.timers
            if cell.last is not None:
                states.freeze(cell.last)
            try:
                # Any: what the user's function returns.
                answer: Any
                if takes_context:
                    context.key = cell.key
                    context.timers = timers
                    if timer is None:
                        context.time = event.created + offset
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
                is_whole = states.undo(cell)
                if not self._faults.survives(event, error):
                    self._stop(error)
                    break
                if is_whole:
                    continue
                self._unread = [event for event, _, _ in todo] + self._unread
                break
            if has_timers or change.before is not None:
                self._changed(change)
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
        drop_all(dropped, NO_RESULTS)
        give_back_all([event for event, _, _ in todo])
        return not self._has_stopped()

    def _changed(self, change: Change) -> None:
        before = change.before
        if before is not None and before.root.is_lost:
            self._commits.lose(change.root)
        if self._has_timers:
            self._timers.note(change.cell)

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
        if not self._has_timers:
            return
        timers = self._timers
        while self._may_fire() and timers.is_behind:
            self._read(*timers.reading())
        if self._may_fire():
            keys = timers.ready()
            if keys and self._are_read(set(keys)):
                while keys and self._may_fire():
                    self._fire_of(keys.popleft())
        due = timers.next()
        if due is not None and self._may_fire():
            self._alarm.set(due - self.run.wall())

    def _may_fire(self) -> bool:
        has_room = self.demand > len(self._out) and self._commits.held < MOST_HELD
        return has_room and not self.state and not self._is_reading

    def _fire_of(self, key: Any) -> None:
        """Call the function for the first timer of a key, if it is due and the state is readable.

        Otherwise the timer stays in the store, for the next run.
        """
        cell = self._states.cells.get(key)
        if cell is not None:
            self._fire_first(cell)
            return
        found = self._states.unreadable.pop(key, None)
        if found is None:
            # Its changes were undone, and its timers are read again.
            return
        error, timers = found
        name = min(timers, key=timers.__getitem__, default=END)
        event: Event[Any] = Event({"key": key, "timer": name}, self.run.now(), NOBODY)
        if not self._faults.survives(event, error):
            self._stop(error)

    def _fire_first(self, cell: Cell) -> None:
        """Call the function for the first timer of a key, if it is due."""
        if not cell.timers:
            return
        name, due = min(cell.timers.items(), key=itemgetter(1))
        if due > self.run.wall():
            self._timers.note(cell)
            return
        event: Event[Any] = Event({"key": cell.key, "timer": name}, self.run.now(), NOBODY)
        self._context.time = due
        function = _gone if name == END or self._on_timer is None else self._on_timer
        self._apply([event], [cell], function, name)

    def _fire_until(self, cell: Cell, now: float) -> None:
        """Call the function for the first timers of a key until its state does not end by then."""
        for _ in cell.timers:
            if cell.timers.get(END, inf) > now or self._has_stopped():
                return
            self._fire_first(cell)

    def _undone(self, cell: Cell) -> None:
        if cell.last is None:
            self._timers.restart()
        else:
            self._timers.note(cell)
        self.run.call_soon(self.info, self._drain)

    # The end.

    def release(self) -> None:
        self._alarm.cancel()
        super().release()

    def statistics(self) -> dict[str, Any]:
        """The `timers` that are due soon."""
        return {**super().statistics(), "timers": len(self._timers)}


def _gone(state: Any, value: Any, context: Context) -> tuple[None, list[Any]]:
    return None, []
