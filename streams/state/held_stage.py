"""The base class of stages with states, whose events are held back until they are committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from penstock.streams.base.errors import CALL_ERRORS, BuildError, own_error
from penstock.streams.base.keys import By, Key
from penstock.streams.base.take_front import taken
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import CLOSED, Subscriber, send_list
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.wait import Wait
from penstock.streams.stages.demand_stage import BaseDemandStage
from penstock.streams.state.changes import Cell
from penstock.streams.state.commits import Commits
from penstock.streams.state.states import States

__all__ = ["MOST_HELD", "BaseHeldStage", "require_no_group"]

T = TypeVar("T")

MOST_HELD = 10_000
"""The most events that are unfinished behind the stage or wait for a commit."""


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
        self._commits = commits
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

    def apply(self, events: list[Event[Any]], cells: list[Cell], /) -> bool:
        """Change the states of these cells, one for each event.

        Returns whether the stage goes on; if not, the rest is returned.
        """
        raise NotImplementedError

    def fire(self) -> None:
        """Do what is due now."""

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
        """The place of the first event whose key or state cannot be read, and the error; those
        before it were applied. None: all were, or wait until the states of their keys are read,
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
        cells, unreadable = self._states.cells, self._states.unreadable
        if unreadable:
            place = next((at for at, key in enumerate(keys) if key in unreadable), None)
            if place is not None:
                refused = place, unreadable.pop(keys[place])[0]
                events, rest, keys = events[:place], [*events[place:], *rest], keys[:place]
        self._states.has_forgotten = False
        if self.apply(events, [cells[key] for key in keys]):
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


def require_no_group(info: StageInfo, outside: str) -> None:
    """Raises BuildError for a stage inside a group; `outside` says what to put outside."""
    if info.within is not None:
        raise BuildError(
            f"{info}: a stage inside group_by(each=...) is made anew for each group: put {outside}"
        )
