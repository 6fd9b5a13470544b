"""Cut a stream into windows: streams of what comes in between.

Items:   a stream for each window, whose values leave as they come; a window may have none. One of
         `window_with_count` begins with its first value.
Time:    when another stream emits, or by the loop's clock, with one timer, which stands still while
         nothing is requested.
Memory:  up to 1,024 unfinished events, or `count` or `skip` if that is more; then no more are
         requested until a result leaves, and a warning reports this (by number: HoldExceeded). A
         plain Observable in place of another stream has a buffer of 1,024 besides.
Demand:  one event after another, as long as what reads the windows has room for a result. From
         streams that begin or end windows one event at a time too: the next one after the last has
         come, and while no result waits.
Ends:    with the source, which ends the open windows; `window` with the other stream too, which
         cancels the source; `window_toggle`, as in Rx, only with the stream that begins windows,
         when those that are open have ended. What reads windows follows: `flat_map`, `switch_map`,
         `merge_all` and the like, with only operators such as `map` between. The members of a
         window are finished with the next result made of the windows; those without a result, or
         in no window, are dropped. An event that begins or ends a window is dropped under the
         operator's name as it comes. A drain stops all streams, and finishes what has come. Cancel
         returns what is kept.
Errors:  the source's and that of the other stream pass on. HoldExceeded instead of the pause if
         what ends the windows is read from a shared stream, because it might never come. NoLoop for
         a time without a running loop. A PenstockError if ten requested windows of `window_when` in
         a row end as soon as they begin.

Inside a window there is no demand: an operator of this library takes the form of reactivex's there,
or is a BuildError. Raises BuildError where nothing reads the windows. The time is the loop's,
unless there is a `scheduler`, which must run on the stream's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from reactivex import Observable
from reactivex import operators as stock
from reactivex.abc import SchedulerBase

from penstock.streams.base.recorded import recorded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.rx.lift import as_ours

__all__ = [
    "window",
    "window_toggle",
    "window_when",
    "window_with_count",
    "window_with_time",
    "window_with_time_or_count",
]


@recorded
def window(boundaries: Observable[Any]) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Windows between the events of `boundaries`, a stream or an Observable.

        source          --1--2--3--4--|
        window(other)   a------b------|
        other           -------x------|
        a               --1--2-|
        b                      -3--4--|

    Each event of `boundaries` ends a window and begins the next.
    """
    return as_ours(stock.window(boundaries))


@recorded
def window_when(
    closing_mapper: Callable[[], Observable[Any]],
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Windows that end when the stream that `closing_mapper()` returns for each emits or ends.

        source          --1--2--3--4--|
        window_when(f)  a------b------|
        f()             -------x
        a               --1--2-|
        b                      -3--4--|

    The function is called as each window begins, which it does as the one before ends.
    """
    return as_ours(stock.window_when(closing_mapper))


@recorded
def window_toggle(
    openings: Observable[Any],
    closing_mapper: Callable[[Any], Observable[Any]],
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Windows that begin when `openings` emits and end when `closing_mapper(value)` emits or ends.

        source               --1--2--3--4--|
        window_toggle(o, f)  ---a----------|
        o                    ---x----------|
        f(x)                    -----x
        a                       --2--|

    An event may be in several windows, or in none.
    """
    return as_ours(stock.window_toggle(openings, closing_mapper))


@recorded
def window_with_count(
    count: int, skip: int | None = None
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Windows of `count` events, of which one begins every `skip` events (None: every `count`).

        source                --1--2--3--4--5--|
        window_with_count(2)  a-----b-----c----|
        a                     --1--2|
        b                           ---3--4|
        c                                 --5--|

    With a `skip` below `count` an event is in several windows; above, some are in none.
    """
    windows: Any = stock.window_with_count(count, skip)
    operator: Callable[[Flowable[Any]], Flowable[Any]] = windows
    return operator


@recorded
def window_with_time(
    timespan: float | timedelta,
    timeshift: float | timedelta | None = None,
    scheduler: SchedulerBase | None = None,
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Windows of `timespan` seconds, one every `timeshift` seconds (None: every `timespan`).

        source               --1--2-----3--4--|
        window_with_time(5)  a----b----c----d-|
        a                    --1--|
        b                         2----|
        c                              -3--4|
        d                                   --|

    With a `timeshift` below `timespan` an event may be in several windows.
    """
    return as_ours(stock.window_with_time(timespan, timeshift, scheduler))


@recorded
def window_with_time_or_count(
    timespan: float | timedelta,
    count: int,
    scheduler: SchedulerBase | None = None,
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Windows that end after `timespan` seconds, or with their `count`-th event.

        source                           --1--2--3-------4--|
        window_with_time_or_count(6, 2)  a----b-----c-----d-|
        a                                --1--2|
        b                                     ---3--|
        c                                           -----4|

    The time begins anew with each window.
    """
    return as_ours(stock.window_with_time_or_count(timespan, count, scheduler))
