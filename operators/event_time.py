"""Give each event the time at which it happened, and keep the watermark of these times.

Items:   every event, unchanged and in order. `window` and other stages below read its time.
Time:    at once. No timers of its own.
Memory:  a small record for each list of events that is on its way to such a stage.
Demand:  as many as are requested of it; one more for each event that is set aside.
Ends:    with the source. When the input has ended for good all windows close; a drain closes none.
Errors:  a time that is missing, cannot be read or is more than `max_ahead` ahead of the wall clock
         is an error of this stage, which by default ends the pipeline; `on_error="skip"` or
         `route(sink)` set the event aside. Such an event does not move the watermark.

    source              --10--12--11-----------40--|
    event_time("at")    --10--12--11-----------40--|    watermarks 8, 10, 10 and 38

The watermark is the time up to which all events have come, as far as is known: the greatest time so
far less `lateness`, but never more than the time of an event that is on its way between here and
the stage that asks. So neither back-pressure nor a slow handler makes an event late. See
docs/explanation/time.md.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from math import inf
from typing import Any, TypeVar

from penstock.streams.base.ahead import MAX_AHEAD, MaxAhead
from penstock.streams.base.keys import By
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import LEAST, seconds_in
from penstock.streams.event_time.timed_by import IDLE, require_one_stream, timed_by
from penstock.streams.failures.policy import OnError
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.rx.lift import on_stream

__all__ = ["event_time"]

T = TypeVar("T")


@recorded
def event_time(
    field: By[T],
    lateness: float | timedelta = 0.0,
    idle: float | timedelta | None = IDLE,
    max_ahead: MaxAhead = MAX_AHEAD,
    *,
    on_error: OnError = "stop",
) -> Callable[[Flowable[T]], Flowable[T]]:
    """Give each event the time in its `field`: a name, an index or a function.

    A time is a number of seconds since 1970, a text in ISO 8601 or a datetime; without a zone it is
    UTC. An event may come `lateness` seconds (or a timedelta) after one of a later time of its
    source, or of its partition of a topic; what comes later than that is late. A source or
    partition from which nothing came for `idle` seconds although events were requested is left out
    of the watermark where others are read too; when all are, time goes on with the clock, so that
    silence closes windows. With `idle=None` only events move it, as for a replay that shall come
    out the same each time. What is ahead of others waits for them. Put it directly behind the
    source. Raises BuildError for wrong options, and behind a stage that reads several streams.

    >>> from penstock import agg, event_time, for_each, from_iterable, run, tumbling, window
    >>> clicks = from_iterable([{"at": 5}, {"at": 40}, {"at": 70}])
    >>> minutes = clicks.pipe(event_time("at"), window(tumbling(60), agg.count()))
    >>> report = run(minutes.to(for_each(lambda one: print(one.start, one.value))))
    0.0 2
    60.0 1
    """
    silent = inf if idle is None else seconds_in("event_time", LEAST, idle=idle)
    late = seconds_in("event_time", lateness=lateness)
    timed = timed_by(field, late, silent, max_ahead, on_error, option="field")

    def read(source: Any) -> Any:
        require_one_stream("event_time", source)
        return timed(source)

    return on_stream(read, "event_time")
