"""Drop an event whose key was first seen less than `seconds` ago.

Items:   the first event of each key, and again the first one `seconds` or more after that.
         A duplicate does not renew the window. A key whose event failed or was returned is
         forgotten, so that a redelivery passes; a duplicate of an event that is still
         unfinished leaves the stream and shares its outcome towards the source.
Time:    at once. The clock is the loop's; with `time`, the largest event time seen so far,
         which makes a replay exact. No timers.
Memory:  one key and one number for each key seen in the last `1.25 * seconds`, at most
         `max_keys`; beyond those the oldest key is forgotten early, counted as
         `forgotten_early`. One small entry for each event that is unfinished.
Demand:  one more for each event dropped.
Ends:    with the source.
Errors:  a key or time that is missing, a key that cannot be hashed or a time that is not a
         finite number is this stage's error, by default the pipeline's end;
         `on_error="skip"` or `route(sink)` go on.

    source                --a--b--a--b--------a--|
    distinct_within(10)   --a--b--------------a--|     at ticks 2, 5 and 18
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import inf, isfinite
from typing import Any, TypeVar

from streams.errors import BuildError
from streams.event import Ending, Event
from streams.faults import Faults, OnError, check_policy
from streams.flowable import Flowable
from streams.keys import By, key_function, key_name
from streams.run import Run
from streams.stage import Stage, StageInfo, Subscriber, in_chunks

__all__ = ["distinct_within"]

T = TypeVar("T")

_LEAST_SWEPT = 1024


def distinct_within(
    seconds: float,
    by: By[T],
    time: By[T] | None = None,
    max_keys: int | None = None,
    *,
    on_error: OnError = "stop",
) -> Callable[[Flowable[T]], Flowable[T]]:
    """Let a key pass once in `seconds`.

    `by` is the key and `time` the event's own time in seconds, each a field name, an index or
    a function. Raises BuildError when `seconds` is not positive or `max_keys` is below 1.
    """
    if not seconds > 0:
        raise BuildError(f"distinct_within(seconds={seconds!r}): the window must be positive")
    if max_keys is not None and max_keys < 1:
        raise BuildError(f"distinct_within(max_keys={max_keys!r}): at least 1 key is needed")
    check_policy(on_error, "distinct_within")
    key_of = key_function(by)
    time_of = None if time is None else key_function(time)
    detail = f"{seconds:g} s by {key_name(by)}"
    note = "remembers keys of the window" + ("" if max_keys is None else f", at most {max_keys:,}")

    def operator(source: Flowable[T]) -> Flowable[T]:
        def attach(downstream: Subscriber[T], run: Run) -> None:
            faults = Faults(on_error, run, flowable.info)
            stage = _Window(downstream, run.now, key_of, time_of, seconds, max_keys, faults)
            run.add_stage(flowable.info, stage.statistics)
            source.attach(stage, run)

        flowable: Flowable[T] = Flowable(
            attach, StageInfo("distinct_within", detail, 0, note), source
        )
        return flowable

    return operator


class _Window(Stage[T, T]):
    """`_seen` is in the order of first sight, so its expired entries are at the front.

    They are removed a quarter of a window late, many at once: a dict whose front was removed
    is walked through from where it once began, which for one key at a time costs the whole
    window (measured: 120 µs an event at 500,000 keys). An ordered dict has no such gap at its
    front and costs twice as much for each key; it serves `max_keys`, which removes one by one.

    An entry is a bare time: a float is nothing that the garbage collector has to visit, and
    there may be millions. The float object itself tells one event's entry from another's.
    Unfinished events stand in `_unfinished` until a sweep finds that they have ended: asking
    them now and then costs less than having every event report its end.
    """

    __slots__ = ("_chunky", "_done", "_event_time", "_expire_at", "_faults", "_forgotten",
                 "_key_of", "_max_keys", "_now", "_peak", "_room", "_seconds", "_seen",
                 "_sweep_at", "_time_of", "_unfinished", "chunks")  # fmt: skip

    def __init__(
        self,
        downstream: Subscriber[T],
        now: Callable[[], float],
        key_of: Callable[[Any], Any],
        time_of: Callable[[Any], Any] | None,
        seconds: float,
        max_keys: int | None,
        faults: Faults,
    ) -> None:
        super().__init__(downstream)
        self._chunky = in_chunks(downstream)
        self.chunks = self._chunky is not None
        self._now = now
        self._key_of = key_of
        self._time_of = time_of
        self._seconds = seconds
        self._max_keys = inf if max_keys is None else max_keys
        self._faults = faults
        self._seen: dict[Any, float] = {} if max_keys is None else OrderedDict()
        self._unfinished: dict[Any, _Entry] = {}
        self._sweep_at = _LEAST_SWEPT
        self._expire_at = inf
        self._event_time = -inf
        self._forgotten = self._peak = self._room = 0
        self._done = False

    def on_next(self, event: Event[Any], /) -> None:
        self.on_chunk([event])

    def on_chunk(self, events: list[Event[Any]], /) -> None:
        seen, unfinished, key_of = self._seen, self._unfinished, self._key_of
        seconds = self._seconds
        now = self._now()
        fresh: list[Event[Any]] = []
        for i, event in enumerate(events):
            try:
                key = key_of(event.value)
                if self._time_of is not None:
                    now = self._time(event.value)
                else:
                    # A new object for every event, although many share a time.
                    now += 0.0
                if now >= self._expire_at:
                    self._expire(now)
                # One look-up tells whether the key is new, and remembers it.
                first = seen.setdefault(key, now)
            except Exception as error:
                if self._faults.survives(event, error):
                    continue
                self._broke(error, fresh, events[i + 1 :])
                return
            if first is not now:
                if first + seconds > now:
                    self._duplicate(event, key, first)
                    continue
                # Not assigned: it is the youngest now, and belongs at the end.
                del seen[key]
                seen[key] = now
            event.undo = unfinished[key] = (_forget, now, event, key, seen, event.undo)
            fresh.append(event)
            keys = len(seen)
            if keys == 1:
                self._expire_at = now + 1.25 * seconds
            elif keys > self._max_keys:
                self._make_room(now)
        missing = len(events) - len(fresh)
        if len(unfinished) >= self._sweep_at:
            self._sweep()
        self._pass_on(fresh)
        if missing and not self._done:
            self.upstream.request(missing)

    def _broke(self, error: Exception, fresh: list[Event[Any]], rest: list[Event[Any]]) -> None:
        self._pass_on(fresh)
        for event in rest:
            event.give_back()
        if not self._done:
            self._done = True
            self.upstream.cancel()
            self.downstream.on_error(error)

    def on_completed(self) -> None:
        self._done = True
        self.downstream.on_completed()

    def on_error(self, error: BaseException, /) -> None:
        self._done = True
        self.downstream.on_error(error)

    def cancel(self) -> None:
        self._done = True
        self.upstream.cancel()

    def _pass_on(self, events: list[Event[Any]]) -> None:
        if self._chunky is None:
            for event in events:
                self.downstream.on_next(event)
        elif events:
            self._chunky.on_chunk(events)

    def _duplicate(self, event: Event[Any], key: Any, first: float) -> None:
        entry = self._unfinished.get(key)
        if entry is not None and entry[1] is first and entry[2].pending > 0:
            event.end_turn()
            original = entry[2]
            original.on_end = (_share, event, original.on_end)
        else:
            event.drop("duplicate")

    def _sweep(self) -> None:
        left = {key: e for key, e in self._unfinished.items() if e[2].pending > 0}
        self._unfinished = left
        # Most of those met at the next sweep will be new: the cost for each event is constant.
        self._sweep_at = max(_LEAST_SWEPT, 3 * len(left))

    def _time(self, value: Any) -> float:
        assert self._time_of is not None
        time = float(self._time_of(value))
        if not isfinite(time):
            raise ValueError(f"the event's time is {time}, which is no point in time")
        self._event_time = max(time, self._event_time)
        return self._event_time + 0.0

    def _make_room(self, now: float) -> None:
        seen = self._seen
        oldest = next(iter(seen))
        if seen.pop(oldest) + self._seconds > now:
            self._forgotten += 1

    def _expire(self, now: float) -> None:
        seen, seconds = self._seen, self._seconds
        self._peak = max(self._peak, len(seen))
        self._room = max(self._room, len(seen))
        expired: list[Any] = []
        self._expire_at = inf
        for key, first in seen.items():
            if first + seconds > now:
                self._expire_at = first + 1.25 * seconds
                break
            expired.append(key)
        for key in expired:
            del seen[key]
        if len(seen) < self._room // 8:
            # A dict never shrinks by itself, neither its memory nor the gap at its front.
            left = list(seen.items())
            seen.clear()
            seen.update(left)
            self._room = len(seen)

    def statistics(self) -> dict[str, Any]:
        """`keys` remembered now, their `peak`, and those `forgotten_early` for `max_keys`."""
        if self._seen:
            self._expire(self._now() if self._time_of is None else self._event_time)
        keys = len(self._seen)
        return {
            "keys": keys,
            "peak": max(self._peak, keys),
            "forgotten_early": self._forgotten,
            "skipped": self._faults.skipped,
            "routed": self._faults.routed,
        }


# (_forget, time of first sight, event, key, the window's dict, the event's other undos)
_Entry = tuple[Any, float, Event[Any], Any, dict[Any, float], Any]


def _forget(entry: _Entry, ending: Ending) -> None:
    _, at, _, key, seen, *_ = entry
    # Another event may hold the key by now: only this event's own entry is touched.
    if seen.get(key) is at:
        del seen[key]


def _share(hook: tuple[Any, Event[Any], Any], ending: Ending) -> None:
    duplicate = hook[1]
    if ending.settled:
        duplicate.drop("duplicate")
    else:
        duplicate.give_back()
