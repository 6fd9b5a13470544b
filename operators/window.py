"""Aggregate the events of each window, and emit a result when the watermark passes its end.

Items:   a `Window(key, start, end, value, revision, is_final)` for each window with events, in the
         order of their ends. With `early` also results of open windows, and with `keep` corrected
         ones of closed windows: each has the next `revision`.
Time:    by the time that `event_time` gave the events, at which also silence closes windows: see
         there. With `time="processing"` by the wall clock. `early` is in seconds of the clock.
Memory:  the open windows of the last `cache` keys (see Store), and of those with changes that are
         not committed; at most 10,000 events wait for a commit. Without a store all open windows.
Demand:  one more for each event, as it has no result of its own; none while results wait.
Ends:    with the source. Where the input has ended for good all windows close first; a drain leaves
         them for the next run, which has them only with a `store`.
Errors:  a late event, whose windows had ended when it was emitted, is skipped and reported, or
         handled as `late` says. A missing or unhashable key, an event without a time and an error
         of the aggregate are errors of this stage, which by default end the pipeline;
         `on_error="skip"` or `route(sink)` go on.

    source, by time                 --1--3--12--5--25--|
    window(tumbling(10), count())   --------2-------1--1|     5 is late

An event is done when its window has it, and with a store in the commit that writes the window. A
result is committed with the end of its window once all sinks have accepted it, so that each is in
the same transaction as its event of a source or its row of a table. See docs/explanation/time.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from sys import maxsize
from typing import Any, TypeVar, overload

from penstock.streams.aggregates.aggregate import Aggregate
from penstock.streams.base.ahead import MAX_AHEAD
from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By, Key, all_events, key_name
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import LEAST, seconds_in
from penstock.streams.event_time.above import times_for, with_times
from penstock.streams.event_time.clock import watermark_behind
from penstock.streams.event_time.processing import ProcessingTime
from penstock.streams.event_time.timed_by import IDLE, require_one_stream, timed_by
from penstock.streams.execution.handler import called_name
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, Picture, Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import on_stream
from penstock.streams.state.backend import KeptStage
from penstock.streams.state.held_stage import held_info
from penstock.streams.state.store import Store, check_store
from penstock.streams.windows.shapes import Shape
from penstock.streams.windows.stage import WindowStage
from penstock.streams.windows.states import WindowStates
from penstock.streams.windows.window import Window
from penstock.streams.windows.windows import aggregate_of, windows_of

__all__ = ["window"]

T = TypeVar("T")
V = TypeVar("V")


@overload
def window(
    shape: Shape,
    value: Aggregate[V],
    by: By[T] | None = None,
    *,
    time: By[T] | None = None,
    lateness: float | timedelta | None = None,
    early: float | timedelta | None = None,
    keep: float | timedelta = 0.0,
    late: OnError = "skip",
    store: Store | None = None,
    name: str | None = None,
    on_error: OnError = "stop",
) -> Callable[[Flowable[T]], Flowable[Window[V]]]: ...


@overload
def window(
    shape: Shape,
    value: Mapping[str, Aggregate[Any]],
    by: By[T] | None = None,
    *,
    time: By[T] | None = None,
    lateness: float | timedelta | None = None,
    early: float | timedelta | None = None,
    keep: float | timedelta = 0.0,
    late: OnError = "skip",
    store: Store | None = None,
    name: str | None = None,
    on_error: OnError = "stop",
) -> Callable[[Flowable[T]], Flowable[Window[dict[str, Any]]]]: ...


@recorded
def window(
    shape: Shape,
    value: Any,
    by: By[Any] | None = None,
    *,
    time: By[Any] | None = None,
    lateness: float | timedelta | None = None,
    early: float | timedelta | None = None,
    keep: float | timedelta = 0.0,
    late: OnError = "skip",
    store: Store | None = None,
    name: str | None = None,
    on_error: OnError = "stop",
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Aggregate the events of each window of a `shape`, separately for each key `by`.

    `shape` is `tumbling(seconds)`, `sliding(length, every=)`, `session(gap)` or `calendar("day",
    zone=)`. `value` is one of `agg`, such as `agg.count()` or `agg.sum("amount")`, or a dict of
    them; or an object of your own with their four methods. `by` is a name, an index or a function;
    without it all events are together. Keys are texts, numbers, None, or tuples of them.

    With `early` the changed open windows are emitted too, each so many seconds (or a timedelta);
    after a restart those of a key from its next event on. A window is kept for `keep` seconds of
    event time (or a timedelta) after its end: an event that comes for it in that time gives a
    corrected result. Each result of a window has the next `revision`.

    An `event_time` must be in front, directly behind each source; `time` with its `lateness` is
    short for one directly in front of this stage. With `time="processing"` an event counts at the
    time of the wall clock at which it comes, and windows close by that clock; a restart closes
    those that ended in between. `late` says what becomes of an event whose windows have all ended.
    Without a `store` the windows last as long as the run; `name` identifies the stage in its store,
    and the default is "window by ...". Raises BuildError for wrong options, and unless there is one
    of `event_time` and `time`.

    >>> from penstock import agg, event_time, for_each, from_iterable, run, tumbling, window
    >>> sales = from_iterable([{"at": 30 * n, "cents": n} for n in range(3)])
    >>> minutes = sales.pipe(event_time("at"), window(tumbling(60), agg.sum("cents")))
    >>> report = run(minutes.to(for_each(lambda one: print(one.start, one.end, one.value))))
    0.0 60.0 1
    60.0 120.0 2
    """
    windows = windows_of(shape, aggregate_of(value), keep)
    asks_each = None if early is None else seconds_in("window", LEAST, early=early)
    key = by if by is not None else all_events
    Key(key)
    check_store("window", store, name)
    check_policy(late, "window", option="late")
    check_policy(on_error, "window")
    is_processing = isinstance(time, str) and time == "processing"
    if is_processing and (lateness is not None or keep or late != "skip"):
        raise BuildError(
            f'window(time="processing", {lateness=}, {keep=}, {late=}): leave these out, as no '
            "event is late by the time at which it comes"
        )
    if lateness is not None and time is None:
        raise BuildError(
            f"window({lateness=}): give it to the event_time(field, lateness) in front, or with "
            "time=field"
        )
    times: Callable[[Any], Any] | None = None
    if time is not None and not is_processing:
        late_by = seconds_in("window", lateness=lateness or 0.0)
        times = timed_by(time, late_by, IDLE, MAX_AHEAD, on_error)
    what = "" if by is None else f" by {key_name(by)}"
    how = f"{shape}{', by processing time' if is_processing else ''}"
    # Kept windows go on only with the same bounds.
    kept = KeptStage(name or f"window{what}", f"{key_name(key)} in {how}", 1)

    def read(source: Any) -> Any:
        for stream in source.chain():
            stream.info.require_no_group(f"window outside{what and ','}{what}")
        if times is not None:
            require_one_stream("window(time=)", source)
        source, timed = with_times("window", source, times, "time= and lateness=")
        if is_processing:
            timed = []
        if not (timed or is_processing):
            raise BuildError(
                f"window(...) needs the times of events: {times_for(source)}, or give time=field "
                'or time="processing"; time="start" is when a window begins'
            )

        def make(downstream: Subscriber[Any], run: Run, info: StageInfo) -> WindowStage:
            # Without a store nothing may be forgotten.
            own = Store.memory(cache=maxsize) if store is None else store
            commits = own.marks_in(run)
            states = WindowStates(*(info, own.declare(kept), kept, windows, own.cache, run.wall))
            is_stored = store is not None
            clock: Any = partial(ProcessingTime, run, info)
            if timed:
                clock = partial(watermark_behind(source, timed), run, info, commits, is_stored)
            options = asks_each, late, on_error, is_stored
            return WindowStage(
                downstream, run, info, key, windows, clock, states, commits, *options
            )

        return source.then(make, info)

    info = held_info(
        "window",
        f"{how}{what}" + ("" if store is None else f", in {store.name}"),
        routed=routed_by(late, on_error),
        placement=Placement(by=key, reads=() if by is None else (by,)),
        delivery=Delivery(store="memory" if store is None else store),
        picture=Picture(calls=called_name(by)),
        untimed=True,
    )
    return on_stream(read, "window")
