"""The base class of stages with states, whose events are held back until they are committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from operator import attrgetter
from typing import Any, TypeVar

from penstock.streams.base.errors import CALL_ERRORS, counted, own_error
from penstock.streams.base.keys import By, Key
from penstock.streams.base.take_front import taken
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import CLOSED, Subscriber, send_list
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer
from penstock.streams.runtime.wait import Wait
from penstock.streams.stages.demand_stage import BaseDemandStage
from penstock.streams.state.backend import Row
from penstock.streams.state.changes import Cell, Change, Root
from penstock.streams.state.clocks import Clock
from penstock.streams.state.commits import Commits
from penstock.streams.state.states import States
from penstock.streams.state.timers import Timers

__all__ = ["MOST_HELD", "BaseHeldStage", "held_info"]

T = TypeVar("T")

_value_of: Callable[[Event[Any]], Any] = attrgetter("value")

MOST_HELD = 10_000
"""The most events that are unfinished behind the stage or wait for a commit."""

# Timers that fire before the loop goes on.
_AT_ONCE = 100

# Seconds until what was due is done again, after its results have failed: as a source waits, so
# that a service which is away is not called all the time.
_AGAIN = 1.0


class BaseHeldStage(BaseDemandStage):
    """Gives each event with the cell of its key to `apply`, and sends what that puts into `_out`.

    Requests events only as long as fewer than `MOST_HELD` are held back. A subclass calls `begin`
    when all stages of the run are attached.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        by: By[Any],
        states: States,
        commits: Commits,
        faults: KeyFaults,
    ) -> None:
        super().__init__(downstream, run, info)
        self._key = Key(by)
        self._states = states
        self.all_states: Sequence[States] = (states,)
        """All that the stage has of a key."""
        self.timers: Sequence[Timers] = ()
        """The timers of its keys."""
        self._again = Timer(run, info, self.moved)
        self._commits = commits
        if commits.moves is not None:
            commits.moves.stages.append(self)
        self._faults = faults
        self._out: deque[Event[Any]] = deque()
        # Events that wait until the states of their keys are read; meanwhile nothing changes.
        self._unread: list[Event[Any]] = []
        self._is_reading = False
        self._is_waiting = False
        # While as many events are held as may be, and none ends.
        self._full = Wait(run, info, self._why_nothing_is_read)
        # The store refuses a run when all its stages are known: none has an event before that.
        self._is_known = False
        # From the clock of the loop to the time since 1970.
        self._offset = 0.0

    def prepare(self, events: list[Event[Any]], /) -> tuple[int, Exception] | None:
        """Read what the stage needs of events besides their keys.

        Returns the place of the first for which that fails, and the error.
        """
        return None

    def hold(self, events: list[Event[Any]], /) -> list[Root]:
        """The roots of events, whose ends are held back from now on."""
        return self._commits.hold(events)

    def apply(self, events: list[Event[Any]], roots: list[Root], cells: list[Cell], /) -> bool:
        """Change the states of these cells, one for each event and its root; there may be more
        roots.

        Returns whether the stage goes on; if not, the rest is returned.
        """
        raise NotImplementedError

    def fire(self) -> None:
        """Do what is due now."""

    def moved(self) -> None:
        """States have come or gone, or are those from before: read again which timers are due."""
        for timers in self.timers:
            timers.restart()
        if self._is_known:
            self.run.call_soon(self.info, self._drain)

    def undone(self, cell: Cell, /) -> None:
        """The last changes of a key were undone: what is due of it is done again, after a while."""
        if not self._again.is_set and self.state < CLOSED:
            self._again.set(_AGAIN)

    def follow(self, change: Change) -> None:
        """Have a change lost with the one of the same key before it."""
        before = change.before
        if before is not None and before.root.is_lost:
            self._commits.lose(change.root)

    @property
    def has_room(self) -> bool:
        """Whether what is due may be done now: its results are wanted, and may be held back."""
        is_wanted = self.demand > len(self._out) and self._commits.held < MOST_HELD
        return is_wanted and not self._is_reading

    def fire_due(self, timers: Timers, clock: Clock, fire: Callable[[Any], object]) -> None:
        """Call `fire` with each key whose first timer is perhaps due by a clock, in the order of
        time, as long as there is room for its results. `fire` updates the timers of the key."""
        timers.now = clock.now()
        left, read = _AT_ONCE, set[Any]()
        while timers.now > -inf and self.has_room and self.state < CLOSED:
            if timers.is_behind:
                self._read(*timers.reading())
            elif not timers.is_due:
                break
            elif not left:
                self.run.call_soon(self.info, self._drain)
                return
            elif timers.key in read:
                left -= 1
                fire(timers.first())
            else:
                read = timers.soon()
                self._are_read(read)
        if not self.state:
            clock.ring_at(timers.next() if self.has_room else None)

    def _has_all_events(self) -> bool:
        """Whether the stream has ended, and its last event was applied."""
        return bool(self.state) and not self._unread and not self._is_reading

    def _is_nothing_due(self, timers: Timers) -> bool:
        """Whether no timer will fire, also none again."""
        return timers.next() is None and not self._again.is_set

    def _is_finished(self) -> bool:
        """Whether nothing is due any more, after the last event."""
        return True

    # Demand.

    def begin(self) -> None:
        """All stages are known from now on."""
        self._is_known = True
        self._drain()

    def _proceed(self) -> None:
        if not self._is_known:
            return
        while self._unread and not self._is_reading:
            events, self._unread = self._unread, []
            self._put_all(events)
        self.fire()
        out = self._out
        while out and self.demand and self.state < CLOSED:
            events = taken(out, min(self.demand, len(out)))
            self.demand -= len(events)
            send_list(self.downstream, events)
        if self.state:
            if not out and not self._unread and self.state < CLOSED and self._is_finished():
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
            f"{self.info} reads nothing, because "
            f"{counted(self._commits.held, 'event')} behind it have not ended. "
            "A stage that keeps events until others come must keep fewer, or for a time "
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
        """The place of the first event whose key or state cannot be read, and the error; those
        before it were applied. None: all were, or wait until the states of their keys are read,
        or were returned when the stage stopped."""
        get = self._key.get
        refused: tuple[int, Exception] | None = None
        keys: list[Any] | None = None
        distinct = set[Any]()
        try:
            keys = list(map(get, map(_value_of, events)))
            distinct = set(keys)
        except CALL_ERRORS:
            # Looked for below: here its error would be shown as raised while another was handled.
            keys = None
        # A StopIteration of a key function ends the map.
        if keys is None or len(keys) < len(events):
            keys, error = self._keys_before_error(events)
            distinct = set(keys)
            if error is not None:
                refused = len(keys), error
        refused = self.prepare(events[: len(keys)]) or refused
        if refused is not None:
            del keys[refused[0] :]
        # First: it may undo changes, and then cells are not in use any more.
        roots = self.hold(events[: len(keys)])
        if self._has_stopped():
            give_back_all(events)
            return None
        if not self._are_read(distinct):
            self._unread = events
            return None
        cells, unreadable = self._states.cells, self._states.unreadable
        if unreadable:
            place = next((at for at, key in enumerate(keys) if key in unreadable), None)
            if place is not None:
                refused = place, unreadable.pop(keys[place])[0]
                del keys[place:]
        self._states.has_forgotten = False
        count = len(keys)
        if self.apply(events[:count], roots, list(map(cells.__getitem__, keys))):
            if not self._unread:
                return refused
            # They come before these.
            self._unread += events[count:]
        else:
            give_back_all(events[count:])
        return None

    def _are_read(self, keys: set[Any]) -> bool:
        """Whether the states of the keys are in memory; if not, they are being read."""
        for states in self.all_states:
            if self._is_reading:
                break
            if missing := states.missing(keys):
                self._read(partial(states.read, missing), partial(self._were_read, states, missing))
        return not self._is_reading

    def _were_read(self, states: States, missing: dict[bytes, Any], rows: list[Row]) -> None:
        moves = self._commits.moves
        states.add(missing, rows if moves is None else moves.here(rows))

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

    def _has_stopped(self) -> bool:
        """Whether no further event may change a state."""
        return self.error is not None or self.state >= CLOSED

    def _stop(self, error: Exception) -> None:
        """End with an error, after the results so far."""
        self.error = error
        self.run.stopping(error)
        self.cancel_upstream()
        self.end()

    # The end.

    def release(self) -> None:
        self._full.end()
        self._again.cancel()
        out = [*self._out, *self._unread]
        self._out.clear()
        self._unread = []
        give_back_all(out)

    def statistics(self) -> dict[str, Any]:
        """The `keys` whose states are in memory, and results that are `waiting` for demand, with
        the events that wait until their states are read.

        `held` events are unfinished, or wait for their commit; `commits` were made, which took
        `commit_p50` and `commit_p99` seconds. `waits_for` is the `key` of a change that the commit
        of other events waits for, and the `age` in seconds of its event, which has not ended.
        """
        commits, seconds = self._commits, self._commits.latencies.snapshot()
        return {
            "keys": len(self._states.cells),
            "waiting": len(self._out) + len(self._unread),
            "held": commits.held,
            "commits": commits.committed,
            "commit_p50": seconds.median,
            "commit_p99": seconds.p99,
            "waits_for": commits.waits_for(),
            **self._faults.statistics(),
        }


def held_info(operator: str, detail: str, **more: Any) -> StageInfo:
    """The description of a stage with states, which says what it holds."""
    note = "events that are unfinished, or wait for their commit"
    return StageInfo(operator, detail, MOST_HELD, note, **more)
