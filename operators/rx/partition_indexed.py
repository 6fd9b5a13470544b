"""Split a stream in two by a predicate of the value and its number.

Items:   two streams: the events for which it holds, and those for which it does not; both in order.
Time:    as soon as they come, or as they are requested. The source is read from the first reader
         of either on, when all that are connected together with it are there.
Memory:  up to `prefetch` events for each reader.
Demand:  requests what the fastest reader requests, as long as no more than `prefetch` events wait
         for the slowest: it sets the demand, and one that leaves no longer counts. If one stream
         waits for the other (`zip` of both), they may wait for ever.
Ends:    both with the source, after what waits for them. An event is finished when all readers have
         finished it; in the stream to which it does not belong it is dropped as "filter_indexed". A
         drain stops the source.
Errors:  the source's passes on to both. One of the predicate fails the event and ends its stream.

    source                             --a--b--c--d--|
    partition_indexed(has_even_no.) 0  --a-----c-----|
    partition_indexed(has_even_no.) 1  -----b-----d--|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from reactivex.operators import filter_indexed

from penstock.streams.flowable import Flowable
from penstock.streams.protocol.stage import StageInfo
from penstock.streams.rx.combining.several import PREFETCH
from penstock.streams.rx.combining.sharing import Connectable, shared
from penstock.streams.rx.lift import Last, on_stream
from penstock.streams.validation import require_count

__all__ = ["partition_indexed"]

T = TypeVar("T")

# Its type does not fit.
_filter: Any = filter_indexed


def partition_indexed(
    predicate_indexed: Callable[[T, int], bool], *, prefetch: int = PREFETCH
) -> Callable[[Flowable[T]], list[Flowable[T]]]:
    """Two streams that share one reading: where `predicate_indexed(value, n)` is true, and not.

    `n` counts from 0 for each reader. The last operator of a pipe, because it returns a list.
    Raises BuildError for a `prefetch` below 1, and between `spread` and a working stage.
    """
    require_count("partition_indexed", prefetch=prefetch)
    info = StageInfo("partition_indexed", "", prefetch)

    def others(value: T, n: int) -> bool:
        return not predicate_indexed(value, n)

    @on_stream
    def operator(source: Flowable[T]) -> list[Flowable[T]]:
        both = shared(Connectable(source, info, prefetch))
        return [both.pipe(_filter(predicate_indexed)), both.pipe(_filter(others))]

    return Last(operator)
