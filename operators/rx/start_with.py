"""Emit some values before the events of a stream.

Items:   the values, and then the events of the source, unchanged.
Time:    a value leaves when it is requested, the source's events as they come.
Memory:  the values.
Demand:  what the values do not meet is requested of the source.
Ends:    with the source. The values acknowledge nothing; each event is finished as if it had come
         alone. Cancel forgets the values that wait.
Errors:  the source's passes on, after the values.

    source         --1--2--3--|
    start_with(0)  0-1--2--3--|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from reactivex import operators as stock

from penstock.streams.base.recorded import recorded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.rx.lift import as_ours

__all__ = ["start_with"]

T = TypeVar("T")
S = TypeVar("S")


@recorded
def start_with(*args: S) -> Callable[[Flowable[T]], Flowable[T | S]]:
    """The values `args`, and then the events of the stream."""
    return as_ours(stock.start_with(*args))
