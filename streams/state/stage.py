"""The stage with a state for each key, which events and timers change."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar, cast

from penstock.streams.base.errors import CALL_ERRORS, WrongType, describe, own_error
from penstock.streams.base.keys import By, Key
from penstock.streams.base.take_front import taken
from penstock.streams.base.validation import is_at_least, is_iterable, is_text
from penstock.streams.execution.call import NO_RESULTS
from penstock.streams.failures.policy import OnError
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.acknowledgement import NOBODY, Family
from penstock.streams.protocol.event import Event, drop_all, give_back_all
from penstock.streams.protocol.stage import CLOSED, Subscriber, send_list
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer
from penstock.streams.runtime.wait import Wait
from penstock.streams.stages.demand_stage import BaseDemandStage
from penstock.streams.state.changes import END, Cell, Change, without
from penstock.streams.state.commits import Commits
from penstock.streams.state.states import States
from penstock.streams.state.timers import Timers

__all__ = ["MOST_HELD", "Context", "StatefulStage"]

T = TypeVar("T")

MOST_HELD = 10_000
"""The most events that are unfinished behind the stage or wait for a commit."""


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


class StatefulStage(BaseDemandStage):
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
        super().__init__(downstream, run, info)
        self._key = Key(by)
        self._step = step
        self._takes_context = takes_context
        self._on_timer = on_timer
        self._states = states
        self._commits = commits
        self._faults = KeyFaults(on_error, run, info, by)
        self._context = Context(run.wall)
        self._timers = Timers(states, run.wall)
        self._alarm = Timer(run, info, self._drain)
        self._has_timers = on_timer is not None or states.has_ends
        if self._has_timers:
            states.when_undone = self._undone
        self._out: deque[Event[Any]] = deque()
        # Events that wait until the states of their keys are read; meanwhile nothing changes.
        self._unread: list[Event[Any]] = []
        self._is_reading = False
        self._is_waiting = False
        # While as many events are held as may be, and none ends.
        self._full = Wait(run, info, self._why_nothing_is_read)
        # The store refuses a run when all its stages are known: none has an event before that.
        self._is_known = False
        run.attachments.then(self._begin)
        # From the clock of the loop to the time since 1970.
        self._offset = 0.0

    # Demand.

    def _begin(self) -> None:
        self._is_known = True
        self._drain()

    def _proceed(self) -> None:
        if not self._is_known:
            return
        while self._unread and not self._is_reading:
            events, self._unread = self._unread, []
            self._put_all(events)
        if self._has_timers:
            self._fire()
        out = self._out
        while out and self.demand and self.state < CLOSED:
            events = taken(out, min(self.demand, len(out)))
            self.demand -= len(events)
            send_list(self.downstream, events)
        if self.state:
            if not out and not self._unread and self.state < CLOSED:
                self.complete()
            return
        commits, coming = self._commits, self.asked + len(self._unread)
        room = min(self.demand - len(out), MOST_HELD - commits.held, commits.room) - coming
        if room > 0:
            self.ask(room)
        elif self.demand > len(out) + coming:
            if commits.held >= MOST_HELD:
                self._full.begin()
            if not self._is_waiting:
                self._is_waiting = True
                commits.when_less_is_held(self._go_on)

    def _go_on(self) -> None:
        self._is_waiting = False
        self._full.end()
        self._drain()

    def _why_nothing_is_read(self) -> str:
        if self.state:
            return ""
        return (
            f"{self.info} reads nothing, because {self._commits.held:,} events behind it have not "
            "ended. A stage that keeps events until others come must keep fewer, or for a time "
            "only, as chunk(size, wait) does."
        )

    # Events.

    def take(self, events: list[Event[Any]], /) -> None:
        self._offset = self.run.wall() - self.run.now()
        if self._is_reading:
            self._unread += events
        else:
            self._put_all(events)

    def _put_all(self, events: list[Event[Any]]) -> None:
        _, error = self._faults.put_rest(events, self._put(events), self._put, self._key)
        if error is not None:
            self._stop(error)

    def _put(self, events: list[Event[Any]]) -> tuple[int, Exception] | None:
        """The place of the first event whose key cannot be read, and the error; those before it
        were given to the function. None: all were, or wait until the states of their keys are read,
        or were returned when the stage stopped."""
        if self._has_stopped():
            give_back_all(events)
            return None
        get = self._key.get
        refused = None
        rest: list[Event[Any]] = []
        try:
            keys = [get(event.value) for event in events]
            distinct = set(keys)
        except CALL_ERRORS:
            keys, error = self._keys_before_error(events)
            distinct = set(keys)
            if error is not None:
                refused = len(keys), error
                events, rest = events[: len(keys)], events[len(keys) :]
        if not self._are_read(distinct):
            self._unread = [*events, *rest, *self._unread]
            return None
        cells = self._states.cells
        self._states.has_forgotten = False
        if self._apply(events, [cells[key] for key in keys], self._step, None):
            if not self._unread:
                return refused
            # They come before these.
            self._unread += rest
        else:
            give_back_all(rest)
        return None

    def _are_read(self, keys: set[Any]) -> bool:
        """Whether the states of the keys are in memory; if not, they are being read."""
        missing = self._states.missing(keys)
        if missing:
            self._read(partial(self._states.read, missing), partial(self._states.add, missing))
        return not self._is_reading

    def _read(self, call: Callable[[], T], then: Callable[[T], None]) -> None:
        """Read from the store; until it is done no event is passed to the function, nor a timer."""
        self._is_reading = True
        self._commits.reads.begin(self.info, call, partial(self._was_read, then))

    def _was_read(self, then: Callable[[T], None], found: T) -> None:
        then(found)
        self._is_reading = False
        if not self._draining:
            self._drain()

    def _keys_before_error(self, events: list[Event[Any]]) -> tuple[list[Any], Exception | None]:
        """The keys of the events up to one whose key cannot be read, and its error."""
        keys: list[Any] = []
        get = self._key.get
        try:
            for event in events:
                key = get(event.value)
                hash(key)
                keys.append(key)
        except CALL_ERRORS as raised:
            return keys, own_error(raised)
        return keys, None

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

    def _has_stopped(self) -> bool:
        """Whether no further event may change a state."""
        return self.error is not None or self.state >= CLOSED

    def _changed(self, change: Change) -> None:
        before = change.before
        if before is not None and before.root.is_lost:
            self._commits.lose(change.root)
        if self._has_timers:
            self._timers.note(change.cell)

    def _undone(self, cell: Cell) -> None:
        if cell.last is None:
            self._timers.restart()
        else:
            self._timers.note(cell)
        self.run.call_soon(self.info, self._drain)

    def _stop(self, error: Exception) -> None:
        """End with an error, after the results so far."""
        self.error = error
        self.run.stopping(error)
        self.cancel_upstream()
        self.end()

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

    def _fire(self) -> None:
        """Call the function for timers that are due, as long as there is demand."""
        timers = self._timers
        while self._may_fire() and timers.is_behind:
            self._read(*timers.reading())
        if self._may_fire():
            keys = timers.ready()
            if keys and self._are_read(set(keys)):
                while keys and self._may_fire():
                    self._fire_first(self._states.cells[keys.popleft()])
        due = timers.next()
        if due is not None and self._may_fire():
            self._alarm.set(due - self.run.wall())

    def _may_fire(self) -> bool:
        has_room = self.demand > len(self._out) and self._commits.held < MOST_HELD
        return has_room and not self.state and not self._is_reading

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

    # The end.

    def release(self) -> None:
        self._alarm.cancel()
        self._full.end()
        out = [*self._out, *self._unread]
        self._out.clear()
        self._unread = []
        give_back_all(out)

    def statistics(self) -> dict[str, Any]:
        """The `keys` whose states are in memory, the `timers` that are due soon, and results that
        are `waiting` for demand, with the events that wait until their states are read.

        `held` events are unfinished, or wait for their commit; `commits` were made, which took
        `commit_p50` and `commit_p99` seconds. `waits_for` is the `key` of a change that the commit
        of other events waits for, and the `age` in seconds of its event, which has not ended.
        """
        commits, seconds = self._commits, self._commits.latencies.snapshot()
        return {
            "keys": len(self._states.cells),
            "timers": len(self._timers),
            "waiting": len(self._out) + len(self._unread),
            "held": commits.held,
            "commits": commits.committed,
            "commit_p50": seconds.median,
            "commit_p99": seconds.p99,
            "waits_for": commits.waits_for(),
            **self._faults.statistics(),
        }


def _gone(state: Any, value: Any, context: Context) -> tuple[None, list[Any]]:
    return None, []
