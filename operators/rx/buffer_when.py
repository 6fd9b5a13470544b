"""Gather events into lists, each of which has a stream of its own that ends it.

Items:   a list whenever such a stream emits or ends, and one at the end; it may be empty.
Time:    when the stream of the list emits or ends.
Memory:  up to 1,024 unfinished events; then no more are requested until a list leaves, and a
         warning reports this. A plain Observable in place of another stream has a buffer of 1,024
         besides.
Demand:  one event after another, as long as a list is requested, and one of each stream that ends a
         list.
Ends:    with the source, after the open list. The events of a list are finished with it. An event
         that ends a list is dropped as "buffer_when". A drain finishes what has come. Cancel
         returns what is kept.
Errors:  the source's and that of the other stream pass on. HoldExceeded instead of the pause if
         what ends the lists is read from a shared stream, because it might never come. A
         PenstockError if ten requested lists in a row end as soon as they begin.

    source          --1--2--3--4--|
    buffer_when(f)  -------a------(b|)
    f()             -------x
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from reactivex import Observable
from reactivex import operators as stock

from penstock.streams.flowable import Flowable
from penstock.streams.rx.lift import as_ours

__all__ = ["buffer_when"]

T = TypeVar("T")


def buffer_when(
    closing_mapper: Callable[[], Observable[Any]],
) -> Callable[[Flowable[T]], Flowable[list[T]]]:
    """Lists that leave when the stream that `closing_mapper()` returns for each emits or ends."""
    return as_ours(stock.buffer_when(closing_mapper))
