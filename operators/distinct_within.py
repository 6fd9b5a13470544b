"""Drop an event whose key was first seen less than `seconds` before.

Items:   the first event of each key, and again the first one `seconds` or more after that, by the
         times at which they were created (`Event.created`), or by `time`: so neither back-pressure
         nor a slow stage above changes the answer. Of two events out of order, the second to come
         is the duplicate. A duplicate does not renew the window. Keys are equal as `==` says: 1
         and True are one key (docs/explanation/order.md). A key whose event failed or was returned
         is forgotten, so that a redelivery passes; a duplicate of an event that is still
         unfinished leaves the stream and shares its outcome towards the source: it is dropped when
         the original finishes, skipped when the original is skipped or routed, fails with the same
         error, or is returned with it.
Time:    at once. No timers.
Memory:  one key and one number for each key of the window, which ends with the largest recent
         time, and for at most a third as many that have left it, at most `max_keys`; beyond
         those the oldest key is forgotten early, counted as `forgotten_early`. A duplicate that
         comes so late that its original has left the window may pass. One small entry for each
         event that is unfinished. At most `hold` duplicates wait for the end of their originals.
Demand:  one more for each event dropped, but none while `hold` duplicates wait.
Ends:    with the source.
Errors:  a missing key or time, an unhashable key, an unreadable time or one that is more than
         `max_ahead` ahead of the wall clock is this stage's error, which by default ends the
         pipeline; `on_error="skip"` or `route(sink)` go on. HoldExceeded when `hold` duplicates
         wait and a stage below, such as `chunk` without `wait`, keeps events until others come: it
         may be waiting for events that are no longer requested.

    source                --a--b--a--b--------a--|
    distinct_within(10)   --a--b--------------a--|     at ticks 2, 5 and 18
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from itertools import takewhile
from math import inf, isfinite
from typing import Any, TypeVar

from penstock.streams.base.ahead import MAX_AHEAD, Ahead, MaxAhead, check_max_ahead
from penstock.streams.base.errors import CALL_ERRORS, BuildError, HoldExceeded, own_error
from penstock.streams.base.keys import By, Key, key_name
from penstock.streams.base.validation import given, is_positive, require_count, seconds_of
from penstock.streams.execution.handler import called_name
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.pipelines.flowable import Flowable
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
from penstock.streams.protocol.stage_info import Picture, Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.wait import Wait
from penstock.streams.rx.lift import on_stream

__all__ = ["distinct_within"]

T = TypeVar("T")

_NUMBERS = frozenset((float, int))

# Times are exact to microseconds; the sum of two floats such as 0.1 and 0.2 is off by less.
_HALF_A_MICROSECOND = 0.5e-6

# Keys that have left the window are removed when there are this many, or a quarter of all.
_LEAST_REMOVED = 512

# So many times are looked at together.
_BLOCK = 256

# In place of the key of an event that has ended.
_ENDED: Any = object()


def distinct_within(
    seconds: float,
    by: By[T],
    time: By[T] | None = None,
    max_keys: int | None = None,
    *,
    on_error: OnError = "stop",
    hold: int = 1024,
    max_ahead: MaxAhead = MAX_AHEAD,
) -> Callable[[Flowable[T]], Flowable[T]]:
    """Let a key pass once in `seconds`, by the times at which its events were created.

    `by` is the key and `time` the event's own time in place of that, each a name, an index or a
    function. A name is an item of a mapping, or an attribute of any other object. A time is a
    number of seconds, an ISO 8601 text or a datetime; without a zone it is UTC. `hold` duplicates
    may wait for the end of unfinished events. A `time` more than `max_ahead` seconds ahead of the
    wall clock is an error; with None it may be any. Raises BuildError when `seconds` is not
    positive, `max_keys` or `hold` is below 1, or `max_ahead` is given without `time`.
    """
    if not is_positive(seconds):
        swapped = isinstance(seconds, str) and is_positive(by)
        hint = f"; did you mean distinct_within({by!r}, by={seconds!r})?" if swapped else ""
        raise BuildError(f"distinct_within(seconds={seconds!r}): must be positive seconds{hint}")
    require_count("distinct_within", hold=hold, **given(max_keys=max_keys))
    check_policy(on_error, "distinct_within")
    check_max_ahead("distinct_within", max_ahead, has_time=time is not None)
    key = Key(by)
    time_key = None if time is None else Key(time)
    detail = f"{seconds:g} s by {key_name(by)}"
    note = "remembers keys of the window" + ("" if max_keys is None else f", at most {max_keys:,}")

    routed = routed_by(on_error)
    calls = called_name(by, time)
    info = StageInfo(
        *("distinct_within", detail, hold, note),
        routed=routed,
        placement=Placement(
            by=by, reads=(by, time), seconds=seconds, untouched=not (callable(by) or callable(time))
        ),
        picture=Picture(calls=calls),
    )

    @on_stream
    def operator(source: Flowable[T]) -> Flowable[T]:
        def attach(downstream: Subscriber[T], run: Run) -> None:
            if run.overrides.is_unique(source, by):
                source.attach(downstream, run)
                return
            info = run.placed(flowable.info)
            faults = KeyFaults(on_error, run, info, by, time)
            ahead = Ahead(max_ahead, run.wall)
            stage = _Window(
                downstream, run, info, key, time_key, seconds, max_keys, hold, faults, ahead
            )
            run.add_stage(info, stage.statistics)
            source.attach(stage, run)

        flowable: Flowable[T] = Flowable(attach, info, source, passes=True)
        return flowable

    return operator


class _Window(BaseStage):
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
        time_key: Key | None,
        seconds: float,
        max_keys: int | None,
        hold: int,
        faults: ErrorPolicy,
        ahead: Ahead,
    ) -> None:
        super().__init__(downstream)
        self._run = run
        self._info = info
        self._key = key
        self._time_key = time_key
        self._seconds = seconds - min(_HALF_A_MICROSECOND, seconds / 2)
        self._max_keys = max_keys
        self._hold = hold
        self._faults = faults
        self._ahead, self._latest = ahead, inf
        # A stage below that keeps events until others come.
        self._until_more = next(
            (below for below, _ in run.nesting.stages if below.delivery.until_more), None
        )
        self._seen: dict[Any, int] = {} if max_keys is None else OrderedDict()
        self._times = array("d")
        self._unfinished = _Unfinished(self._seen, self._ask_for_owed, self._broke)
        # While as many duplicates wait as may.
        self._full = Wait(run, info, self._why_nothing_is_read)
        # The largest time seen lately, which may be a little more than this.
        self._clock = -inf
        # How many times there are when the next look for what has left the window is worth it.
        self._next_look = _LEAST_REMOVED
        self._forgotten = self._peak = self._room = self._owed = self._coming = 0

    def on_events(self, events: list[Event[Any]], /) -> None:
        came = len(events)
        if self._coming:
            self._coming = max(0, self._coming - came)
        fresh: list[Event[Any]] = []
        while (refused := self._sift(events, fresh)) is not None:
            place, error = refused
            event, rest = events[place], events[place + 1 :]
            if self._adapts(event.value):
                events = events[place:]
            elif self._faults.survives(event, error):
                events = rest
            else:
                self._fail(error, fresh, rest)
                return
        if fresh:
            self.downstream.on_events(fresh)
        self._owed += came - len(fresh)
        if self._owed:
            self._ask_for_owed()

    def _adapts(self, value: Any) -> bool:
        """Whether what has just been read of a value in vain can be read now."""
        keys = (self._key, self._time_key)
        return any(key is not None and key.adapts(value) for key in keys)

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
                f"{sharing:,} duplicates in {self._info} wait for the end of events that "
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
            f"{self._info} reads nothing, because {self._unfinished.sharing:,} duplicates wait for "
            f"the end of the first events of their keys (hold={self._hold:,}), which slow keys may "
            "have in work, or on the disk. Raise hold=."
        )

    def _sift(
        self, events: list[Event[Any]], fresh: list[Event[Any]]
    ) -> tuple[int, Exception] | None:
        """Number `events`, and add those with a new key to `fresh`.

        Returns the index of an event whose key or time cannot be read, and the error; the events
        before it are done.
        """
        times, seconds = self._times, self._seconds
        known = len(times)
        if known > self._next_look and abs(self._clock - times[known // 4]) >= seconds:
            self._expire()
        seen, unfinished, clock = self._seen, self._unfinished, self._clock
        keys, source, max_keys = unfinished.keys, unfinished.source, self._max_keys
        base = unfinished.base
        number = base + len(times) - 1
        key_of, time_of = self._key.get, None if self._time_key is None else self._time
        if time_of is not None:
            self._latest = self._ahead.latest()
        refused: tuple[int, Exception] | None = None
        duplicates: list[tuple[Event[Any], int]] = []
        for event in events:
            number += 1
            try:
                time = event.created if time_of is None else time_of(event.value)
                key = key_of(event.value)
                # One look-up decides whether the key is new, and stores it.
                first = seen.setdefault(key, number)
                if first is not number and (
                    first < base or abs(time - times[first - base]) >= seconds
                ):
                    # Not assigned: it is the youngest now, and belongs at the end.
                    del seen[key]
                    seen[key] = first = number
            except CALL_ERRORS as raised:
                refused = events.index(event), own_error(raised)
                break
            times.append(time)
            if time > clock:
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
        for event, first in duplicates:
            self._duplicate(event, first)
        return refused

    def _broke(self, raised: BaseException) -> None:
        """A key that has been looked up before cannot be any more, as one whose hash reads a file:
        what it stands for has ended, so no event fails by it."""
        self._run.failed(error_in(self._info, raised))

    def _duplicate(self, event: Event[Any], first: int) -> None:
        if self._unfinished.share(first, event):
            event.end_turn()
        else:
            event.drop("duplicate")

    def _time(self, value: Any) -> float:
        assert self._time_key is not None
        stamp: Any = self._time_key.get(value)
        # Spares numbers, which most times are, a call.
        is_number = type(stamp) in _NUMBERS and isfinite(stamp)
        time: float = stamp if is_number else seconds_of(stamp)
        if time > self._latest:
            self._ahead.check(time, stamp)
        return time

    def _make_room(self) -> None:
        base, oldest = self._unfinished.base, next(iter(self._seen))
        first = self._seen.pop(oldest)
        if first >= base and abs(self._clock - self._times[first - base]) < self._seconds:
            self._forgotten += 1

    def _expire(self) -> None:
        seen, seconds, times = self._seen, self._seconds, self._times
        # Those that came lately decide: the clocks that the times are of may have been set back.
        self._clock = clock = max(times[-(len(times) // 4 + 1) :], default=-inf)
        gone, size = 0, _BLOCK
        while size and gone < len(times):
            block = times[gone : gone + size]
            if max(block) <= clock - seconds or min(block) >= clock + seconds:
                gone += len(block)
            else:
                # Exactly up to the first that is left.
                size //= 16
        del times[:gone], self._unfinished.keys[:gone]
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
        skipped or routed are among the `skipped`.
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

    def ended(
        self, events: list[Event[Any]], ending: Ending, error: BaseException | None, /
    ) -> None:
        keys, base, sharing = self.keys, self.base, self._sharing
        has_others, is_forgotten = self._has_others, ending > FINISHED
        shared: list[int] = []
        event: BaseEvent
        for event in events:
            number = event.outer
            if has_others and type(number) is not int:
                number = number[0]
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
