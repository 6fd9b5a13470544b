"""Split a stream into the events for which a predicate holds, and the others.

Items:   two streams: the events for which it holds, and those for which it does not; both in order.
Time:    as soon as they come, or as they are requested. The source is read from the first reader
         of either on, when all that are connected together with it are there.
Memory:  up to `prefetch` events for each reader.
Demand:  requests what the fastest reader requests, as long as no more than `prefetch` events wait
         for the slowest: it sets the demand, and one that leaves no longer counts. If one stream
         waits for the other (`zip` of both), they may wait for ever.
Ends:    both with the source, after what waits for them. An event is finished when all readers have
         finished it; in the stream to which it does not belong it is dropped as "filter" or
         "filter_indexed". A drain stops the source.
Errors:  the source's passes on to both. One of the predicate fails the event and ends its stream.

    source                --1--2--3--4--|
    partition(is_even) 0  -----2-----4--|
    partition(is_even) 1  --1-----3-----|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from reactivex import operators as stock

from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import require_count
from penstock.streams.pipelines.connecting import shared
from penstock.streams.pipelines.flowable import Connectable, Flowable
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.rx.combining.several import PREFETCH
from penstock.streams.rx.lift import Last, on_stream

__all__ = ["partition", "partition_indexed"]

T = TypeVar("T")


@recorded
def partition(
    predicate: Callable[[T], bool], *, prefetch: int = PREFETCH
) -> Callable[[Flowable[T]], list[Flowable[T]]]:
    """Two streams that share one reading: where `predicate(value)` is true, and where it is not.

    The predicate is called for each reader. The last operator of a pipe, because it returns a list.
    Raises BuildError for a `prefetch` below 1, and between `spread` and a working stage.
    """

    def others(value: T) -> bool:
        return not predicate(value)

    return _split("partition", stock.filter, predicate, others, prefetch)


@recorded
def partition_indexed(
    predicate_indexed: Callable[[T, int], bool], *, prefetch: int = PREFETCH
) -> Callable[[Flowable[T]], list[Flowable[T]]]:
    """`partition` by a predicate of the value and its number, which counts from 0 per reader."""

    def others(value: T, n: int) -> bool:
        return not predicate_indexed(value, n)

    return _split("partition_indexed", stock.filter_indexed, predicate_indexed, others, prefetch)


def _split(
    name: str,
    # The type of `filter_indexed` does not fit.
    stock_filter: Any,
    predicate: Callable[..., bool],
    others: Callable[..., bool],
    prefetch: int,
) -> Last:
    require_count(name, prefetch=prefetch)
    info = StageInfo(name, "", prefetch)

    def operator(source: Flowable[T]) -> list[Flowable[T]]:
        both = shared(Connectable(source, info, prefetch))
        return [both.pipe(stock_filter(predicate)), both.pipe(stock_filter(others))]

    return Last(on_stream(operator, name))
