"""Gather every `count` events into a list.

Items:   a list for every `count` events; at the end one with the rest, if there is any.
Time:    a list leaves with its last event; no timers.
Memory:  up to `count` events that are not finished, or `skip` if that is more.
Demand:  requests what is missing in the list that is full next, as soon as a list is requested.
Ends:    with the source, after the open lists. The events of a list are finished with it; those
         that were in one already, or are in none, with the next list. Cancel returns what is kept.
Errors:  the source's passes on; this stage raises none of its own.

    source                --1--2--3--4--5--|
    buffer_with_count(2)  -----a-----b-----(c|)
    a                     = [1, 2]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from reactivex import operators as stock

from penstock.streams.flowable import Flowable
from penstock.streams.rx.lift import as_ours

__all__ = ["buffer_with_count"]

T = TypeVar("T")


def buffer_with_count(
    count: int, skip: int | None = None
) -> Callable[[Flowable[T]], Flowable[list[T]]]:
    """Lists of `count` events, of which one begins every `skip` events (None: every `count`).

    See also `chunk`, which does not let a list wait for its last event longer than it may.
    """
    return as_ours(stock.buffer_with_count(count, skip))
