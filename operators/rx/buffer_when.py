"""Gather events into lists, each of which has a stream of its own that ends it.

Items:   a list whenever such a stream emits or ends, and one at the end; it may be empty.
Time:    when the stream of the list emits or ends.
Memory:  up to 1,024 events that are not finished.
Demand:  one event after another, as long as a list is requested.
         The streams that end lists are read without a bound: nothing of them is kept.
Ends:    with the source, after the open lists. The events of a list are finished with it; those
         that were in one already, or are in none, with the next list. Cancel returns what is kept.
Errors:  the source's and that of the other stream pass on.

    source          --1--2--3--4--|
    buffer_when(f)  -------a------(b|)
    f()             -------x
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactivex import Observable
from reactivex import operators as stock

from penstock.streams.flowable import Flowable

__all__ = ["buffer_when"]


def buffer_when(
    closing_mapper: Callable[[], Observable[Any]],
) -> Callable[[Flowable[Any]], Flowable[list[Any]]]:
    """Lists that leave when the stream that `closing_mapper()` returns for each emits or ends."""
    lifted: Any = stock.buffer_when(closing_mapper)
    operator: Callable[[Flowable[Any]], Flowable[list[Any]]] = lifted
    return operator
