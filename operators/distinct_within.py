"""Drop an event whose key was first seen less than `seconds` ago.

Items:   the first event of each key, and again the first one `seconds` or more after that.
         A duplicate does not renew the window. A key whose event failed or was returned is
         forgotten, so that a redelivery passes; a duplicate of an event that is still
         unfinished leaves the stream and shares its outcome towards the source.
Time:    at once. The clock is the loop's; with `time`, the largest event time seen so far,
         which makes a replay exact. No timers.
Memory:  one key and one number for each key seen in the last `seconds`, at most `max_keys`;
         beyond those the oldest key is forgotten early and counted as `forgotten_early`.
Demand:  one more for each event dropped.
Ends:    with the source.
Errors:  a key or time that is missing, a key that cannot be hashed or a time that is not a
         finite number is this stage's error, by default the pipeline's end;
         `on_error="skip"` or `route(sink)` go on.

    source                --a--b--a--b--------a--|
    distinct_within(10)   --a--b--------------a--|     at ticks 2, 5 and 18
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf, isfinite
from typing import Any, TypeVar

from streams.errors import BuildError
from streams.event import Ending, Event
from streams.faults import Faults, OnError, check_policy
from streams.flowable import Flowable
from streams.keys import By, key_function, key_name
from streams.run import Run
from streams.stage import Stage, StageInfo, Subscriber

__all__ = ["distinct_within"]

T = TypeVar("T")


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

        flowable: Flowable[T] = Flowable(attach, StageInfo("distinct_within", detail, 0, note), source)
        return flowable

    return operator


class _Window(Stage[T, T]):
    """`_seen` is in the order of first sight, so its expired entries are at the front.

    A finished key's entry is its bare time: a float is nothing that the garbage collector has
    to visit, and there may be millions. An unfinished one's is (time, event, key); those stand
    in `_unfinished` too, from where they are made bare as soon as the ones before them have
    ended. Asking them costs less than having every event report its end.
    """

    __slots__ = ("_event_time", "_faults", "_forget_it", "_forgotten", "_key_of", "_max_keys",
                 "_next_expiry", "_now", "_peak", "_seconds", "_seen", "_time_of", "_unfinished")  # fmt: skip

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
        self._now = now
        self._key_of = key_of
        self._time_of = time_of
        self._seconds = seconds
        self._max_keys = max_keys
        self._faults = faults
        self._seen: dict[Any, float | tuple[float, Event[T], Any]] = {}
        self._next_expiry = inf
        self._event_time = -inf
        self._forgotten = self._peak = 0
        # Bound once: a bound method made for every event is an allocation for every event.
        self._forget_it = self._forget
        self._unfinished: deque[tuple[float, Event[T], Any]] = deque()

    def on_next(self, event: Event[Any], /) -> None:
        seen = self._seen
        try:
            key = self._key_of(event.value)
            now = self._now() if self._time_of is None else self._time(event.value)
            if now >= self._next_expiry:
                self._expire(now)
            known = key in seen
        except Exception as error:
            if self._faults.survives(event, error):
                self.upstream.request(1)
            else:
                self.upstream.cancel()
                self.downstream.on_error(error)
            return
        if known:
            self._duplicate(event, seen[key])
            self.upstream.request(1)
            return
        if not seen:
            self._next_expiry = now + self._seconds
        entry = (now, event, key)
        seen[key] = entry
        event.undo = (self._forget_it, entry, event.undo)
        unfinished = self._unfinished
        while unfinished and unfinished[0][1].pending <= 0:
            at, _, ended = earlier = unfinished.popleft()
            if seen.get(ended) is earlier:
                seen[ended] = at
        unfinished.append(entry)
        if self._max_keys is not None and len(seen) > self._max_keys:
            del seen[next(iter(seen))]
            self._forgotten += 1
        self.downstream.on_next(event)

    def _duplicate(self, event: Event[Any], entry: float | tuple[float, Event[T], Any]) -> None:
        if isinstance(entry, float):
            event.drop("duplicate")
        elif entry[1].pending <= 0:
            event.drop("duplicate")
        else:
            event.end_turn()
            entry[1].on_end = (_share, event, entry[1].on_end)

    def _forget(self, event: Event[Any], entry: tuple[float, Event[T], Any], _: Ending) -> None:
        # Another event may hold the key by now: only this event's own entry is touched.
        if self._seen.get(entry[2]) is entry:
            del self._seen[entry[2]]

    def _time(self, value: Any) -> float:
        assert self._time_of is not None
        time = float(self._time_of(value))
        if not isfinite(time):
            raise ValueError(f"the event's time is {time}, which is no point in time")
        if time > self._event_time:
            self._event_time = time
        return self._event_time

    def _expire(self, now: float) -> None:
        seen = self._seen
        self._peak = max(self._peak, len(seen))
        seconds = self._seconds
        expired: list[Any] = []
        self._next_expiry = inf
        for key, entry in seen.items():
            end = (entry if isinstance(entry, float) else entry[0]) + seconds
            if end > now:
                self._next_expiry = end
                break
            expired.append(key)
        for key in expired:
            del seen[key]
        unfinished = self._unfinished
        while unfinished and unfinished[0][0] + seconds <= now:
            unfinished.popleft()

    def statistics(self) -> dict[str, Any]:
        """`keys` remembered now, their `peak`, and those `forgotten_early` for `max_keys`."""
        keys = len(self._seen)
        return {
            "keys": keys,
            "peak": max(self._peak, keys),
            "forgotten_early": self._forgotten,
            "skipped": self._faults.skipped,
            "routed": self._faults.routed,
        }


def _share(first: Event[Any], duplicate: Event[Any], ending: Ending) -> None:
    if ending.settled:
        duplicate.drop("duplicate")
    else:
        duplicate.give_back()
