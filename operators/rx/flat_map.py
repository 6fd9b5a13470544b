"""Make a stream of each value, and read several of these streams at once.

Items:   the events of the streams; those of one stream stay in order.
Time:    as soon as they come, or as they are requested. The next stream is opened when none of the
         open ones has an event, so streams that need not wait, and iterables, are read one after
         another.
Memory:  one event of each open stream, and up to `max_concurrent` of the source. A plain Observable
         has a buffer of 1,024 besides.
Demand:  one event at a time from each open stream; one of the source while fewer are open.
Ends:    when the source and all streams have ended. An event of the source is finished when its
         stream has ended and all its events are; without any it is dropped as "flat_map". An event
         of a stream ends as it comes out, towards both. Cancel cancels all, and returns both. A
         drain stops the source, and reads the open streams to their ends.
Errors:  the first one, of the source, the function or a stream, passes on at once; the event of the
         source fails with it; all others are cancelled, and what waits is returned.

    source       --a-----b--------|
    flat_map(f)  ----1-2---1-3-2----|
    f(a)         ----1-2-----3|
    f(b)               ----1---2----|
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from reactivex.operators import flat_map as _flat_map

from penstock.streams.flowable import Flowable
from penstock.streams.rx.combining.flat_map import MOST_OPEN
from penstock.streams.rx.combining.flattening import Inner, flattened
from penstock.streams.rx.lift import WithStock

__all__ = ["flat_map"]

T = TypeVar("T")
S = TypeVar("S")

# Its types know no lists, nor streams with demand.
_stock: Any = _flat_map


@overload
def flat_map(
    mapper: Callable[[T], Inner[S]], max_concurrent: int = ...
) -> Callable[[Flowable[T]], Flowable[S]]: ...


@overload
def flat_map(
    mapper: Callable[[T], Iterable[S]], max_concurrent: int = ...
) -> Callable[[Flowable[T]], Flowable[S]]: ...


def flat_map(
    mapper: Callable[[Any], Any], max_concurrent: int = MOST_OPEN
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """The events of the streams that `mapper` returns for each value, `max_concurrent` at once.

    It may return a stream, an Observable, a future or an iterable. For work on each value see
    `adaptive_flat_map`. Raises BuildError for a `max_concurrent` below 1.
    """
    if max_concurrent == MOST_OPEN:
        operator: Callable[[Flowable[Any]], Flowable[Any]] = _stock(mapper)
        return operator
    return WithStock(
        lambda source: flattened("flat_map", source, mapper, max_concurrent, ahead=0),
        _stock(mapper),
    )
