"""Pair the first events of several streams, then the second ones, and so on.

Items:   tuples with one value of each stream, in the order of the streams.
Time:    a tuple leaves when its last value has come and it is requested.
Memory:  up to `prefetch` events of each stream. A plain Observable has a buffer of 1,024 besides.
Demand:  requests from every stream what is requested of it, up to `prefetch` each.
Ends:    when a stream has ended and its events are used up: the others are cancelled, and what
         waits is returned, as it is by a cancel. The events of a tuple end together, as it does.
Errors:  the first error of a stream passes on after the events that came before it and are
         requested; the other streams are cancelled, and what waits is returned.

    source      --1-----2--------3--|
    zip(other)  -----(1,a)----(2,b)-----|
    other       -----a--------b------|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from reactivex import Observable
from reactivex import operators as stock

from penstock.streams.base.recorded import recorded
from penstock.streams.keyed.queues import joined
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.rx.combining.inputs import as_stream
from penstock.streams.rx.combining.several import PREFETCH, Several, several
from penstock.streams.rx.lift import WithStock

__all__ = ["zip"]

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


@overload
def zip(
    a: Observable[A], /, *, prefetch: int = ...
) -> Callable[[Flowable[T]], Flowable[tuple[T, A]]]: ...


@overload
def zip(
    a: Observable[A], b: Observable[B], /, *, prefetch: int = ...
) -> Callable[[Flowable[T]], Flowable[tuple[T, A, B]]]: ...


@overload
def zip(
    a: Observable[A], b: Observable[B], c: Observable[C], /, *, prefetch: int = ...
) -> Callable[[Flowable[T]], Flowable[tuple[T, A, B, C]]]: ...


@overload
def zip(
    *args: Observable[Any], prefetch: int = ...
) -> Callable[[Flowable[Any]], Flowable[tuple[Any, ...]]]: ...


@recorded
def zip(
    *args: Observable[Any], prefetch: int = PREFETCH
) -> Callable[[Flowable[Any]], Flowable[tuple[Any, ...]]]:
    """Tuples of the stream's values and those of the streams `args`, the first with the first.

    Up to `prefetch` events of each stream wait for those of the others. Raises BuildError for a
    `prefetch` below 1, and between `spread` and a working stage.
    """
    others = [as_stream("zip", other) for other in args]

    def operator(source: Flowable[Any]) -> Flowable[tuple[Any, ...]]:
        n = len(others) + 1
        info = StageInfo("zip", f"of {n}", 0, gathers=n, delivery=Delivery(until_more=n > 1))
        return several(source, others, _Zipping, info, holds=True, prefetch=prefetch)

    return WithStock(operator, stock.zip(*args))


class _Zipping(Several):
    def combine(self) -> bool:
        inputs = self.inputs
        if any(each.has_ended for each in inputs):
            self.finish()
            return False
        if not self.demand or not all(each.events for each in inputs):
            return False
        events = [each.events.popleft() for each in inputs]
        self.send(joined(tuple(event.value for event in events), events))
        return True
