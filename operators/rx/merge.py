"""Merge several streams into one.

Items:   the events of all streams, unchanged; those of one stream stay in order.
Time:    as soon as they come, or as they are requested: then one of each stream that has any, in
         rotation, so that a fast stream does not keep back the others.
Memory:  up to `prefetch` events of each stream. A plain Observable has a buffer of 1,024 besides.
Demand:  requests from every stream what is requested of it, up to `prefetch` each.
Ends:    when all streams have ended. Cancel cancels all, and returns what waits. Each event is
         finished as if it had come alone.
Errors:  the first error of a stream passes on after the events that came before it and are
         requested; the other streams are cancelled, and what waits is returned.

    source         --1-----2-----3--|
    merge(other)   --1--a--2--b--3--|
    other          -----a-----b--|
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, overload

from reactivex import Observable
from reactivex import operators as stock

from penstock.streams.base.errors import BuildError
from penstock.streams.base.recorded import recorded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.rx.combining.flattening import flattened
from penstock.streams.rx.combining.inputs import as_stream
from penstock.streams.rx.combining.merging import Merging
from penstock.streams.rx.combining.several import PREFETCH, several
from penstock.streams.rx.lift import WithStock

__all__ = ["merge"]

T = TypeVar("T")
S = TypeVar("S")


@overload
def merge(
    *sources: Observable[S], prefetch: int = ...
) -> Callable[[Flowable[T]], Flowable[T | S]]: ...


@overload
def merge(*, max_concurrent: int | None) -> Callable[[Flowable[Any]], Flowable[Any]]: ...


@recorded
def merge(
    *sources: Observable[Any], max_concurrent: int | None = None, prefetch: int = PREFETCH
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Merge the stream with `sources`; up to `prefetch` events of each wait for demand.

    With `max_concurrent` it is the stream's values that are streams, of which so many are read at
    once: see `merge_all`. Raises BuildError if both are given, or a number is below 1.
    """
    if max_concurrent is not None:
        if sources:
            raise BuildError("merge takes streams, or max_concurrent= for a stream of streams")
        return WithStock(partial(_flattened, max_concurrent=max_concurrent), stock.merge_all())
    others = [as_stream("merge", source) for source in sources]

    def operator(source: Flowable[Any]) -> Flowable[Any]:
        info = StageInfo("merge", f"of {len(others) + 1}", 0, merges=True)
        return several(source, others, Merging, info, prefetch=prefetch)

    return WithStock(operator, stock.merge(*sources))


def _flattened(source: Flowable[Any], max_concurrent: int) -> Flowable[Any]:
    return flattened("merge_all", source, None, max_concurrent)
