"""Cut a stream into windows of `timespan` seconds, or of `count` events if they come sooner.

Items:   a stream for each window, whose values leave as they come; a window may have none.
Time:    by the loop's clock, with one timer, which begins anew with each window. It stands still
         while nothing is requested.
Memory:  up to 1,024 events that are not finished, or `count` if that is more.
Demand:  one event after another, as long as what reads the windows has room for a result.
Ends:    with the source, which ends the open windows. What reads them follows: `flat_map`,
         `switch_map`, `merge_all` and the like, with only operators such as `map` between. The
         members of a window are finished with the next result made of the windows; those
         without a result are dropped at the end. Cancel returns them.
Errors:  the source's passes on. NoLoop without a running loop.

    source                           --1--2--3-------4--|
    window_with_time_or_count(6, 2)  a----b-----c-----d-|
    a                                --1--2|
    b                                     ---3--|
    c                                           -----4|
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from reactivex import operators as stock
from reactivex.abc import SchedulerBase

from penstock.streams.flowable import Flowable
from penstock.streams.rx.lift import as_ours

__all__ = ["window_with_time_or_count"]


def window_with_time_or_count(
    timespan: float | timedelta,
    count: int,
    scheduler: SchedulerBase | None = None,
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Windows that end after `timespan` seconds, or with their `count`-th event.

    The time is the loop's, unless there is a `scheduler`, which must run on the stream's thread.
    Inside a window there is no demand: an operator of this library takes the form of reactivex's
    there, or is a BuildError. Raises BuildError where nothing reads the windows.
    """
    return as_ours(stock.window_with_time_or_count(timespan, count, scheduler))
