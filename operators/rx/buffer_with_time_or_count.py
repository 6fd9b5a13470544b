"""Gather the events of `timespan` seconds into a list, or `count` events if they come sooner.

Items:   a list for each span of time, or for `count` events; it may be empty.
Time:    by the loop's clock, with one timer, which begins anew with each list. It stands still
         while nothing is requested.
Memory:  up to `count` events that are not finished.
Demand:  one event after another, as long as a list is requested. An empty list
         counts for nothing: more events are requested.
Ends:    with the source, after the open lists. The events of a list are finished with it; those
         that were in one already, or are in none, with the next list. Cancel returns what is kept.
Errors:  the source's passes on. NoLoop without a running loop.

    source                           --1--2--3-------4--|
    buffer_with_time_or_count(6, 2)  -----a-----b-----c-(d|)
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from reactivex import operators as stock
from reactivex.abc import SchedulerBase

from penstock.streams.flowable import Flowable
from penstock.streams.rx.lift import as_ours

__all__ = ["buffer_with_time_or_count"]

T = TypeVar("T")


def buffer_with_time_or_count(
    timespan: float | timedelta,
    count: int,
    scheduler: SchedulerBase | None = None,
) -> Callable[[Flowable[T]], Flowable[list[T]]]:
    """Lists that leave after `timespan` seconds, or with their `count`-th event.

    The time is the loop's, unless there is a `scheduler`, which must run on the stream's thread.
    """
    return as_ours(stock.buffer_with_time_or_count(timespan, count, scheduler))
