"""The stage that lets a key pass once within a number of seconds, and remembers it in a store."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import CALL_ERRORS, own_error
from penstock.streams.base.keys import By
from penstock.streams.keyed.distinct import EventTimes
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.acknowledgement import AckHook
from penstock.streams.protocol.event import FORGIVEN, Ending, Event, drop_all, give_back_all
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.state.backend import Columns
from penstock.streams.state.changes import END, Cell, Change, Root
from penstock.streams.state.commits import Commits
from penstock.streams.state.held_stage import BaseHeldStage
from penstock.streams.state.states import States

if TYPE_CHECKING:
    from penstock.streams.protocol.answers import FirstAnswers

__all__ = ["StoredDistinctStage", "TimesOfKeys"]

# The name of the timer at which a key leaves the window, if that is not by the wall clock.
_LEAVES = "ends"

# In place of an encoded state that is in the store.
_STORED = b"stored"

# A time and its end, of a key.
_Before = tuple[float | None, dict[str, float]]


class TimesOfKeys(States):
    """The times of the first events, by key."""

    def write(self, changes: Sequence[Change], rows: list[Columns], gone: list[bytes]) -> None:
        super().write([one for one in changes if one.data is not _STORED], rows, gone)


class StoredDistinctStage(BaseHeldStage):
    """Drops an event whose key was first seen less than `seconds` before.

    The state of a key is the time of its first event, in seconds since 1970, and is written in the
    commit of that event. A duplicate makes a change too, to the same state: so it is done after the
    first event, or returned with it, and before the next event of its key that passes. The keys
    that have left the window are deleted by later commits, many at a time, and not by a timer for
    each.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        by: By[Any],
        event_times: EventTimes | None,
        seconds: float,
        states: TimesOfKeys,
        commits: Commits,
        faults: KeyFaults,
        most_answers: int,
    ) -> None:
        super().__init__(downstream, run, info, by, states, commits, faults)
        self._event_times = event_times
        self._seconds = seconds
        # Of the events that are applied next, with the watermarks at which they were late.
        self._times: list[tuple[float, float]] = []
        # The largest of these, by which keys leave the window, unless they are event times; and
        # what it was before each event that is held, in their order.
        self._latest = -inf
        self._held: deque[tuple[Root, Event[Any], float]] = deque()
        self._ends = _Ends()
        self._asked = run.asked
        self._answers: FirstAnswers | None = None
        if run.asked is not None:
            from penstock.streams.protocol.answers import FirstAnswers

            self._answers = FirstAnswers(run.asked, most_answers)
        commits.delete_over(states.name, self._until)
        run.attachments.then(self.begin)

    def prepare(self, events: list[Event[Any]], /) -> tuple[int, Exception] | None:
        event_times = self._event_times
        if event_times is None:
            self._times = [(event.created + self._offset, -inf) for event in events]
            return None
        self._times = times = list[tuple[float, float]]()
        try:
            times.extend(map(event_times.stamp, events))
        except CALL_ERRORS as raised:
            return len(times), own_error(raised)
        return None

    def apply(self, events: list[Event[Any]], roots: list[Root], cells: list[Cell], /) -> bool:
        states, seconds = self._states, self._seconds
        end = END if self._event_times is None else _LEAVES
        answers = self._answers if self._asked else None
        duplicates: list[Event[Any]] = []
        lost: list[Event[Any]] = []
        todo = zip(events, roots, cells, self._times, strict=False)
        for event, root, cell, (time, late_at) in todo:
            first = cell.state
            cell.used = True
            last = cell.last
            if root.root.is_lost or (last is not None and last.root.is_lost):
                lost.append(event)
            elif (
                first is None
                or abs(time - first) >= seconds
                # It has left the window, whether or not it is deleted yet.
                or cell.timers[end] <= late_at
            ):
                before = first, cell.timers
                # The key of a late event is seen when that comes.
                until = round(max(time, late_at) + seconds, 6)
                change = states.change(cell, root, time, {end: until})
                self._ends.put(event, change, before)
                self._out.append(event)
                if answers is not None:
                    answers.note((cell.key, time), event)
            else:
                duplicates.append(event)
                if answers is not None:
                    answers.give((cell.key, first), event)
                is_stored = last is None or last.data is _STORED
                change = states.keep(cell, root, cell.timers)
                if is_stored:
                    change.data = _STORED
        if self._event_times is None:
            latest = self._latest
            self._held.extend((root, root.event, latest) for root in roots)
            self._latest = max((time for time, _ in self._times), default=latest)
        drop_all(duplicates, "duplicate")
        give_back_all(lost)
        return True

    def _until(self) -> float:
        """The time before which keys have left the window, also for the events that come again if
        the process dies: they find the keys that they have found now."""
        if self._event_times is not None:
            return self._event_times.now()
        held = self._held
        while held and not self._commits.waits(*held[0][:2]):
            held.popleft()
        return held[0][2] if held else self._latest


class _Ends(AckHook):
    """The hook in front of the first event of each key. A key whose event was skipped or routed is
    forgotten, although the event is done."""

    def put(self, event: Event[Any], change: Change, before: _Before) -> None:
        """Have the key of an event forgotten if that fails: it has the time `before` again."""
        event.outer = event.origin, event.outer, change, before
        event.origin = self

    def ended(
        self, events: list[Event[Any]], ending: Ending, error: BaseException | None, /
    ) -> None:
        for event in events:
            self.revised(event.outer, ending)

    def revised(self, noted: Any, ending: Ending, /) -> None:
        if ending is FORGIVEN:
            _, _, change, before = noted
            _revoke(change, before)


def _revoke(change: Change, before: _Before) -> None:
    """Give a key the time `before` in place of that of a change, and of its duplicates' changes."""
    time = last = change.state
    one: Change | None = change
    while one is not None and one.state is time:
        one.state, one.timers = before
        one.data = None
        last, one = one, one.after
    cell = change.cell
    if cell.last is last:
        cell.state, cell.timers = before
