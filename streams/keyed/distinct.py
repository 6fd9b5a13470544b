"""The stage that lets a key pass once within a number of seconds, and keeps its keys in memory."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from penstock.streams.base.errors import CALL_ERRORS, HoldExceeded, counted, own_error
from penstock.streams.base.keys import Key
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.protocol.acknowledgement import AckHook
from penstock.streams.protocol.blame import error_in
from penstock.streams.protocol.event import (
    FINISHED,
    FORGIVEN,
    BaseEvent,
    Ending,
    Event,
    Origin,
    drop_all,
    end_all,
)
from penstock.streams.protocol.stage import BaseStage, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.wait import Wait

if TYPE_CHECKING:
    from penstock.streams.protocol.answers import FirstAnswers

__all__ = ["DistinctStage"]

# Keys that have left the window are removed when there are this many, or a quarter of all.
_LEAST_REMOVED = 512

# So many times are looked at together.
_BLOCK = 256

# In place of the key of an event that has ended.
_ENDED: Any = object()


class EventTimes(Protocol):
    """The times of events, in place of those at which they were created."""

    def now(self) -> float:
        """The time up to which all events have come, or are late."""
        ...

    def arrived(self, events: list[Event[Any]], /) -> None:
        """Note that events have come."""

    def stamp(self, event: Event[Any], /) -> tuple[float, float]:
        """When an event happened, and the watermark at which it was late; `-inf` if it was not."""
        ...


class DistinctStage(BaseStage):
    """Every event gets a number; `_times` has the time of each, from number `base` on, and
    `_seen` the number of the first event of each key.

    What came long ago is at the front of both. It is removed when a quarter of all has left the
    window. One at a time would cost the whole window for each: a dict whose front was removed is
    walked through from where it once began. An ordered dict, which is not, costs twice as much for
    each key; it serves `max_keys`, which removes one by one.

    An entry is a bare int, which the garbage collector need not visit; there may be millions.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        key: Key,
        event_times: EventTimes | None,
        seconds: float,
        max_keys: int | None,
        hold: int,
        faults: ErrorPolicy,
    ) -> None:
        super().__init__(downstream)
        self._run = run
        self._current = run.current
        self._info = info
        self._key = key
        self._event_times = event_times
        self._seconds = seconds
        self._max_keys = max_keys
        self._hold = hold
        self._faults = faults
        # A stage below that keeps events until others come.
        self._until_more = next(
            (below for below, _ in run.nesting.stages if below.delivery.until_more), None
        )
        self._seen: dict[Any, int] = {} if max_keys is None else OrderedDict()
        self._times = array("d")
        # From when each counts as seen: of a late event, when that came.
        self._ends = self._times if event_times is None else array("d")
        self._unfinished = _Unfinished(self._seen, self._ask_for_owed, self._broke)
        self._asked = run.asked
        self._answers: FirstAnswers | None = None
        if run.asked is not None:
            from penstock.streams.protocol.answers import FirstAnswers

            self._answers = FirstAnswers(run.asked, hold)
        # While as many duplicates wait as may.
        self._full = Wait(run, info, self._why_nothing_is_read)
        # The largest time seen lately, which may be a little more than this. Of event times, up to
        # when all had come before the events that come next.
        self._clock = -inf
        # How many times there are when the next look for what has left the window is worth it.
        self._next_look = _LEAST_REMOVED
        self._forgotten = self._peak = self._room = self._owed = self._coming = 0

    def on_events(self, events: list[Event[Any]], /) -> None:
        came = len(events)
        if self._coming:
            self._coming = max(0, self._coming - came)
        fresh: list[Event[Any]] = []
        current = self._current
        outer, current.stage = current.stage, self
        try:
            if self._event_times is not None:
                self._event_times.arrived(events)
            while (refused := self._sift(events, fresh)) is not None:
                place, error = refused
                event, rest = events[place], events[place + 1 :]
                if self._key.adapts(event.value):
                    events = events[place:]
                elif self._faults.survives(event, error):
                    events = rest
                else:
                    self._fail(error, fresh, rest)
                    return
        finally:
            current.stage = outer
        if self._event_times is not None:
            self._clock = self._event_times.now()
        if fresh:
            self.downstream.on_events(fresh)
        self._owed += came - len(fresh)
        if self._owed:
            self._ask_for_owed()

    def _ask_for_owed(self) -> None:
        # A source of nothing but duplicates of slow events would be read without end.
        if not self._owed or self.state:
            return
        sharing = self._unfinished.sharing
        if sharing < self._hold:
            if self._full.since is not None:
                self._full.end()
            # Events already requested may be duplicates, too.
            n = min(self._owed, self._hold - sharing - self._coming)
            if n > 0:
                self._owed -= n
                self._coming += n
                self.upstream.request(n)
        elif self._until_more is not None:
            error = HoldExceeded(
                f"{counted(sharing, 'duplicate')} in {self._info} wait for the end of events that "
                f"{self._until_more} may keep until others come. Let it keep them for a time only, "
                "as chunk(size, wait) does, or raise hold=."
            )
            self._fail(error, [], [])
        elif self._run.has_loop:
            self._full.begin()

    def _why_nothing_is_read(self) -> str:
        if self.state:
            return ""
        return (
            f"{self._info} reads nothing, because "
            f"{counted(self._unfinished.sharing, 'duplicate')} wait for the end of the first "
            f"events of their keys (hold={self._hold:,}), which slow keys may have in work, or on "
            "the disk. Raise hold=."
        )

    def _sift(
        self, events: list[Event[Any]], fresh: list[Event[Any]]
    ) -> tuple[int, Exception] | None:
        """Number `events`, and add those with a new key to `fresh`.

        Returns the index of an event whose key or time cannot be read, and the error; the events
        before it are done.
        """
        times, ends, seconds = self._times, self._ends, self._seconds
        known = len(times)
        if known > self._next_look and self._has_left(ends[known // 4]):
            self._expire()
        seen, unfinished, clock = self._seen, self._unfinished, self._clock
        keys, source, max_keys = unfinished.keys, unfinished.source, self._max_keys
        base = unfinished.base
        number = base + len(times) - 1
        key_of, event_times, late_at = self._key.get, self._event_times, -inf
        refused: tuple[int, Exception] | None = None
        duplicates: list[tuple[Event[Any], int]] = []
        already = len(fresh)
        for event in events:
            number += 1
            try:
                if event_times is None:
                    time = event.created
                else:
                    time, late_at = event_times.stamp(event)
                key = key_of(event.value)
                # One look-up decides whether the key is new, and stores it.
                first = seen.setdefault(key, number)
                if first is not number and (
                    first < base
                    or abs(time - times[first - base]) >= seconds
                    # It has left the window, whether or not that was noticed.
                    or ends[first - base] <= late_at - seconds
                ):
                    # Not assigned: it is the youngest now, and belongs at the end.
                    del seen[key]
                    seen[key] = first = number
            except CALL_ERRORS as raised:
                refused = events.index(event), own_error(raised)
                break
            times.append(time)
            if event_times is not None:
                ends.append(max(time, late_at))
            if time > clock and event_times is None:
                clock = self._clock = time
            if first is not number:
                keys.append(_ENDED)
                duplicates.append((event, first))
                continue
            keys.append(key)
            if event.origin is source:
                event.outer = number
            else:
                event.outer = unfinished.outer_of(event, number)
                source = unfinished.source
            event.origin = unfinished
            fresh.append(event)
            if max_keys is not None and len(seen) > max_keys:
                self._make_room()
        if self._asked:
            self._note_answers(fresh[already:], duplicates)
        for event, first in duplicates:
            self._duplicate(event, first)
        return refused

    def _note_answers(
        self, fresh: list[Event[Any]], duplicates: list[tuple[Event[Any], int]]
    ) -> None:
        assert self._answers is not None
        for event in fresh:
            outer = event.outer
            self._answers.note(outer if type(outer) is int else outer[0], event)
        for event, first in duplicates:
            self._answers.give(first, event)

    def _broke(self, raised: BaseException) -> None:
        """A key that has been looked up before cannot be any more, as one whose hash reads a file:
        what it stands for has ended, so no event fails by it."""
        self._run.failed(error_in(self._info, raised))

    def _duplicate(self, event: Event[Any], first: int) -> None:
        if self._unfinished.share(first, event):
            event.end_turn()
        else:
            event.drop("duplicate")

    def _has_left(self, time: float) -> bool:
        """Whether what came at a time has left the window."""
        passed = self._clock - time
        return (passed if self._event_times is not None else abs(passed)) >= self._seconds

    def _make_room(self) -> None:
        base, oldest = self._unfinished.base, next(iter(self._seen))
        first = self._seen.pop(oldest)
        if first < base:
            return
        times = self._event_times
        passed = (self._clock if times is None else times.now()) - self._ends[first - base]
        if abs(passed) < self._seconds:
            self._forgotten += 1

    def _expire(self) -> None:
        seen, seconds, times = self._seen, self._seconds, self._ends
        if self._event_times is None:
            # Those that came lately decide: their clocks may have been set back.
            self._clock = max(times[-(len(times) // 4 + 1) :], default=-inf)
            least = self._clock + seconds
        else:
            least = inf
        until = self._clock - seconds
        gone, size = 0, _BLOCK
        while size and gone < len(times):
            block = times[gone : gone + size]
            if max(block) <= until or min(block) >= least:
                gone += len(block)
            else:
                # Exactly up to the first that is left.
                size //= 16
        del times[:gone], self._unfinished.keys[:gone]
        if times is not self._times:
            del self._times[:gone]
        self._next_look = len(times) + max(_LEAST_REMOVED, len(times) // 4)
        self._unfinished.base = live = self._unfinished.base + gone
        self._peak = max(self._peak, len(seen))
        self._room = max(self._room, len(seen))
        expired = [key for key, _ in takewhile(lambda item: item[1] < live, seen.items())]
        for key in expired:
            del seen[key]
        if len(seen) < self._room // 8:
            # A dict never shrinks by itself, neither its memory nor the gap at its front.
            left = list(seen.items())
            seen.clear()
            seen.update(left)
            self._room = len(seen)

    def statistics(self) -> dict[str, Any]:
        """`keys` remembered now, their `peak`, and those `forgotten_early` for `max_keys`.

        `waiting` are duplicates of events that are unfinished; those of events that a later stage
        skipped or routed are among the `skipped`, as `skipped_duplicates`.
        """
        if self._seen:
            self._expire()
        keys, faults = len(self._seen), self._faults.statistics()
        return {
            "waiting": self._unfinished.sharing,
            "keys": keys,
            "peak": max(self._peak, keys),
            "forgotten_early": self._forgotten,
            **faults,
            "skipped": faults["skipped"] + self._unfinished.skipped,
            "skipped_duplicates": self._unfinished.skipped,
        }


class _Unfinished(AckHook):
    """The hook in front of the origin of each event, which is notified of its end.

    An event that fails or is returned gives up its entry in `seen`, the numbers of the first
    events by key. Duplicates may wait for the end of an event, and share it.

    Only its key is kept of an event: its memory, still in the processor's cache when it has ended,
    is the next event's. `keys` has the key of each number from `base` on, or `_ENDED`. Most events
    have one origin, `source`, and their number as `outer`; the others keep what they had beside it.
    """

    def __init__(
        self,
        seen: MutableMapping[Any, int],
        shared: Callable[[], None],
        broke: Callable[[BaseException], None],
    ) -> None:
        """`shared` is called when duplicates have shared the end of an event, `broke` with the
        error of a key that cannot be forgotten."""
        self.sharing = 0
        """Duplicates that wait."""
        self.skipped = 0
        """Those that ended with an event that was skipped or routed."""
        self._shared, self._broke = shared, broke
        self.keys: list[Any] = []
        self.base = 0
        self.source: Origin | None = None
        self._seen = seen
        self._has_others = False
        self._sharing: dict[int, list[Event[Any]]] = {}

    def outer_of(self, event: Event[Any], number: int) -> int | tuple[int, Origin, Any]:
        """The `outer` of an event with this number, which comes from elsewhere than `source`."""
        if self.source is None and event.outer is None:
            self.source = event.origin
            return number
        self._has_others = True
        return number, event.origin, event.outer

    def share(self, number: int, duplicate: Event[Any]) -> bool:
        """Let `duplicate` end as the event with this number will; False if that has ended."""
        if number < self.base or self.keys[number - self.base] is _ENDED:
            return False
        self._sharing.setdefault(number, []).append(duplicate)
        self.sharing += 1
        return True

    def behind(self, outer: Any, /) -> tuple[Origin, Any]:
        if type(outer) is not int:
            return outer[1], outer[2]
        assert self.source is not None
        return self.source, None

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        if ending is not FINISHED or self._has_others or self.source is None:
            super().settle(events, ending, why)
        else:
            self.ended(events, ending, None)
            self.source.settle(events, ending, None)

    def ended(self, events: list[Event[Any]], ending: Ending, error: BaseException | None) -> None:
        keys, base, sharing = self.keys, self.base, self._sharing
        has_others, is_forgotten = self._has_others, ending > FINISHED
        shared: list[int] = []
        event: BaseEvent
        for event in events:
            outer = event.outer
            number = outer[0] if has_others and type(outer) is not int else outer
            if sharing and number in sharing:
                shared.append(number)
            # What is before the base has left the window.
            if number < base:
                continue
            if is_forgotten:
                self._forget(number)
            else:
                keys[number - base] = _ENDED
        for number in shared:
            self._settle(sharing.pop(number), ending, error)

    def noted(self, outer: Any, /) -> tuple[int, Any]:
        number = outer if type(outer) is int else outer[0]
        return number, self.keys[number - self.base] if number >= self.base else _ENDED

    def revised(self, noted: Any, ending: Ending, /) -> None:
        number, key = noted
        if ending > FINISHED and number >= self.base:
            self.keys[number - self.base] = key
            self._forget(number)

    def _forget(self, number: int) -> None:
        place, seen = number - self.base, self._seen
        key, self.keys[place] = self.keys[place], _ENDED
        try:
            # Another event may hold it by now: only this event's own entry is touched.
            if seen.get(key) == number:
                del seen[key]
        except CALL_ERRORS as raised:
            # Not to who ends these events: others are still to be ended.
            self._broke(raised)

    def _settle(
        self, duplicates: list[Event[Any]], ending: Ending, error: BaseException | None
    ) -> None:
        self.sharing -= len(duplicates)
        if ending is FORGIVEN:
            self.skipped += len(duplicates)
        if ending > FINISHED:
            end_all(duplicates, ending, error)
        else:
            drop_all(duplicates, "duplicate")
        self._shared()
