"""Gather the events of a stream into lists.

Items:   lists; at the end of the source the open ones. By another stream or by time they may be
         empty.
Time:    when another stream emits or ends, with the last event of a list of `count`, or by the
         loop's clock, with one timer. It stands still while nothing is requested: a slow reader
         gets what came while it requested, and no more lists.
Memory:  up to 1,024 unfinished events; then no more are requested until a list leaves, and a
         warning reports this. By number, up to `count`, or `skip` if that is more. A plain
         Observable in place of another stream has a buffer of 1,024 besides.
Demand:  one event after another, as long as a list is requested (`buffer_with_count`: what is
         missing in the list that is full next). From streams that begin or end lists one event at a
         time too: the next one after the last has come, and while no list waits. An empty list of a
         time counts for nothing: more events are requested.
Ends:    with the source, after the open lists; `buffer` with the other stream too, which cancels
         the source; `buffer_toggle`, as in Rx, only with the stream that begins lists, when those
         that are open have ended. The events of a list are finished with it; those that were in one
         already, or are in none, with the next list, and where no list is open they are dropped. An
         event that begins or ends a list is dropped under the operator's name as it comes. A drain
         stops all streams, and finishes what has come. Cancel returns what is kept.
Errors:  the source's and that of the other stream pass on. HoldExceeded instead of the pause if
         what ends the lists is read from a shared stream, because it might never come. NoLoop for a
         time without a running loop. A PenstockError if ten requested lists of `buffer_when` in a
         row end as soon as they begin.

The time is the loop's, unless there is a `scheduler`, which must run on the stream's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from reactivex import Observable
from reactivex import operators as stock
from reactivex.abc import SchedulerBase

from penstock.streams.base.recorded import recorded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.rx.lift import as_ours

__all__ = [
    "buffer",
    "buffer_toggle",
    "buffer_when",
    "buffer_with_count",
    "buffer_with_time",
    "buffer_with_time_or_count",
]

T = TypeVar("T")


@recorded
def buffer(boundaries: Observable[Any]) -> Callable[[Flowable[T]], Flowable[list[T]]]:
    """Lists of what comes between the events of `boundaries`, a stream or an Observable.

        source         --1--2--3--4--|
        buffer(other)  -------a------(b|)
        other          -------x------|

    Each event of `boundaries` ends a list and begins the next.
    """
    return as_ours(stock.buffer(boundaries))


@recorded
def buffer_when(
    closing_mapper: Callable[[], Observable[Any]],
) -> Callable[[Flowable[T]], Flowable[list[T]]]:
    """Lists that leave when the stream that `closing_mapper()` returns for each emits or ends.

        source          --1--2--3--4--|
        buffer_when(f)  -------a------(b|)
        f()             -------x

    The function is called as each list begins, which it does as the one before leaves.
    """
    return as_ours(stock.buffer_when(closing_mapper))


@recorded
def buffer_toggle(
    openings: Observable[Any],
    closing_mapper: Callable[[Any], Observable[Any]],
) -> Callable[[Flowable[T]], Flowable[list[T]]]:
    """Lists from when `openings` emits until `closing_mapper(value)` emits or ends.

        source               --1--2--3--4--|
        buffer_toggle(o, f)  --------a-----|
        o                    ---x----------|
        f(x)                    -----x

    An event may be in several lists, or in none.
    """
    return as_ours(stock.buffer_toggle(openings, closing_mapper))


@recorded
def buffer_with_count(
    count: int, skip: int | None = None
) -> Callable[[Flowable[T]], Flowable[list[T]]]:
    """Lists of `count` events, of which one begins every `skip` events (None: every `count`).

        source                --1--2--3--4--5--|
        buffer_with_count(2)  -----a-----b-----(c|)
        a                     = [1, 2]

    See also `chunk`, which does not let a list wait for its last event longer than it may.
    """
    return as_ours(stock.buffer_with_count(count, skip))


@recorded
def buffer_with_time(
    timespan: float | timedelta,
    timeshift: float | timedelta | None = None,
    scheduler: SchedulerBase | None = None,
) -> Callable[[Flowable[T]], Flowable[list[T]]]:
    """Lists of the events of `timespan` seconds, one every `timeshift` seconds (None: `timespan`).

        source               --1--2-----3--4--|
        buffer_with_time(5)  -----a----b----c-(d|)

    With a `timeshift` below `timespan` an event may be in several lists.
    """
    return as_ours(stock.buffer_with_time(timespan, timeshift, scheduler))


@recorded
def buffer_with_time_or_count(
    timespan: float | timedelta,
    count: int,
    scheduler: SchedulerBase | None = None,
) -> Callable[[Flowable[T]], Flowable[list[T]]]:
    """Lists that leave after `timespan` seconds, or with their `count`-th event.

        source                           --1--2--3-------4--|
        buffer_with_time_or_count(6, 2)  -----a-----b-----c-(d|)

    The time begins anew with each list. See also `chunk`.
    """
    return as_ours(stock.buffer_with_time_or_count(timespan, count, scheduler))
