"""Gather the events between those of another stream into lists.

Items:   a list for each event of the other stream, and one at the end; it may be empty.
Time:    when the other stream emits.
Memory:  up to 1,024 unfinished events; then no more are requested until a list leaves, and a
         warning reports this. A plain Observable in place of another stream has a buffer of 1,024
         besides.
Demand:  one event after another, as long as a list is requested. From the other stream one event at
         a time too: the next one after the last has come, and while no list waits.
Ends:    with the source, or with the other stream, after the open list; then the source is
         cancelled. The events of a list are finished with it. An event of the other stream is
         dropped as "buffer" as it comes. A drain stops both, and finishes what has come. Cancel
         returns what is kept.
Errors:  the source's and that of the other stream pass on. HoldExceeded instead of the pause if
         what ends the lists is read from a shared stream, because it might never come.

    source         --1--2--3--4--|
    buffer(other)  -------a------(b|)
    other          -------x------|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from reactivex import Observable
from reactivex import operators as stock

from penstock.streams.flowable import Flowable
from penstock.streams.rx.lift import as_ours

__all__ = ["buffer"]

T = TypeVar("T")


def buffer(
    boundaries: Observable[Any],
) -> Callable[[Flowable[T]], Flowable[list[T]]]:
    """Lists of what comes between the events of `boundaries`, a stream or an Observable."""
    return as_ours(stock.buffer(boundaries))
