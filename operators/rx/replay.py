"""Share one reading of a stream, and give the newest values to readers that come later.

Items:   each reader gets the newest `buffer_size` values, and then the events that come.
Time:    as soon as they come, or as they are requested. The source is read from `connect()` on.
         Values older than `window` seconds are forgotten. A reader behind `delay_subscription` is
         no later one: only its requests are late, and what comes waits for them.
Memory:  `buffer_size` values, and up to `prefetch` events and `buffer_size` values for each reader.
Demand:  requests what the fastest reader requests, as long as no more than `prefetch` events wait
         for the slowest. Without readers the source is read, for those that come later.
Ends:    every reader ends with the source, after what waits for it; a reader that comes later gets
         the values and the end. An event is finished when all who were reading have finished it: a
         value that is given again acknowledges nothing. Without readers it is dropped. Behind
         `ref_count()`, as in Rx, the next reader after the last has left reads the source anew;
         after the end of the source the values are forgotten with it.
Errors:  the source's passes on to every reader, after what waits for it.

    source     --1--2--3--4--|
    connect()  --x
    a reader   --1--2--3--4--|
    a later    --------(2,3)--4--|      replay(2), at the time of 3
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from reactivex.abc import SchedulerBase

from penstock.streams.errors import BuildError
from penstock.streams.flowable import Flowable
from penstock.streams.protocol.stage import StageInfo
from penstock.streams.rx.combining.several import PREFETCH
from penstock.streams.rx.combining.sharing import Connectable, Memory, kept_note, mapped
from penstock.streams.rx.lift import HOLD, on_stream
from penstock.streams.validation import require_count

__all__ = ["replay"]


def replay(
    buffer_size: int | None = None,
    window: float | timedelta | None = None,
    *,
    mapper: Callable[[Any], Any] | None = None,
    scheduler: SchedulerBase | None = None,
    prefetch: int = PREFETCH,
) -> Callable[[Flowable[Any]], Any]:
    """A connectable stream that keeps its newest `buffer_size` values for later readers.

    `window` is how old they may be, in seconds; with it alone at most 1,024 are kept. `mapper` as
    for `publish`. A `scheduler` is ignored: the time is the loop's. Raises BuildError for numbers
    below 1, without `buffer_size` and `window`, and between `spread` and a working stage.
    """
    if buffer_size is None and window is None:
        raise BuildError(
            "replay without a buffer_size keeps every value: give the number of values to keep"
        )
    size = HOLD if buffer_size is None else buffer_size
    require_count("replay", buffer_size=size, prefetch=prefetch)
    seconds = window.total_seconds() if isinstance(window, timedelta) else window
    info = StageInfo("replay", f"{size:,}", prefetch, note=kept_note(size))

    @on_stream
    def operator(source: Flowable[Any]) -> Flowable[Any]:
        def make() -> Connectable[Any]:
            return Connectable(source, info, prefetch, Memory(size, seconds))

        return make() if mapper is None else mapped(make, mapper, info, source)

    return operator
