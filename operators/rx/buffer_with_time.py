"""Gather the events of every `timespan` seconds into a list.

Items:   a list for each span of time, which may be empty.
Time:    by the loop's clock, with one timer. It stands still while nothing is requested: a slow
         reader gets what came while it requested, and no more lists.
Memory:  up to 1,024 unfinished events; then no more are requested until a list leaves, and a
         warning reports this.
Demand:  one event after another, as long as a list is requested. An empty list
         counts for nothing: more events are requested.
Ends:    with the source, after the open lists. The events of a list are finished with it; those
         that were in one already, or are in none, with the next list. Cancel returns what is kept.
Errors:  the source's passes on. NoLoop without a running loop.

    source               --1--2-----3--4--|
    buffer_with_time(5)  -----a----b----c-(d|)
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from reactivex import operators as stock
from reactivex.abc import SchedulerBase

from penstock.streams.flowable import Flowable
from penstock.streams.rx.lift import as_ours

__all__ = ["buffer_with_time"]

T = TypeVar("T")


def buffer_with_time(
    timespan: float | timedelta,
    timeshift: float | timedelta | None = None,
    scheduler: SchedulerBase | None = None,
) -> Callable[[Flowable[T]], Flowable[list[T]]]:
    """Lists of the events of `timespan` seconds, one every `timeshift` seconds (None: `timespan`).

    The time is the loop's, unless there is a `scheduler`, which must run on the stream's thread.
    """
    return as_ours(stock.buffer_with_time(timespan, timeshift, scheduler))
