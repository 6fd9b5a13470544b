"""Read several streams at once, or one after another: those made of values, or the values.

Items:   the events of the streams; those of one stream stay in order.
Time:    as soon as they come, or as they are requested. The next stream is opened when none of the
         open ones has an event, so streams that need not wait, and iterables, are read one after
         another; `concat_map` and `concat_all` open it when the one before has ended.
Memory:  one event of each open stream, and up to `max_concurrent` of the source (one, where they
         are read one after another); two more wait, except in `flat_map`. A plain Observable has a
         buffer of 1,024 besides.
Demand:  one event at a time from each open stream; one of the source while fewer are open. While
         all are open and none has an event, two more, so that an error behind them is not late;
         `flat_map` does without.
Ends:    when the source and all streams have ended. An event of the source is finished when its
         stream has ended and all its events are; without any it is dropped under the operator's
         name. An event of a stream ends as it comes out, towards both. Cancel cancels all, and
         returns both. A drain stops the source, and reads the open streams to their ends.
Errors:  the first one, of the source, the function or a stream, passes on at once, or when values
         before it that wait have been read; the event of the source fails with it; all others are
         cancelled, and what waits is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from reactivex import operators

from penstock.streams.base.recorded import recorded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.rx.combining.flat_map import MOST_OPEN
from penstock.streams.rx.combining.flattening import Inner, flattened
from penstock.streams.rx.lift import WithStock

__all__ = ["concat_all", "concat_map", "flat_map", "merge_all"]

T = TypeVar("T")
S = TypeVar("S")

# Its types know no lists, nor streams with demand.
stock: Any = operators


@overload
def flat_map(
    mapper: Callable[[T], Inner[S]], max_concurrent: int = ...
) -> Callable[[Flowable[T]], Flowable[S]]: ...


@overload
def flat_map(
    mapper: Callable[[T], Iterable[S]], max_concurrent: int = ...
) -> Callable[[Flowable[T]], Flowable[S]]: ...


@recorded
def flat_map(
    mapper: Callable[[Any], Any], max_concurrent: int = MOST_OPEN
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """The events of the streams that `mapper` returns for each value, `max_concurrent` at once.

        source       --a-----b--------|
        flat_map(f)  ----1-2---1-3-2----|
        f(a)         ----1-2-----3|
        f(b)               ----1---2----|

    It may return a stream, an Observable, a future or an iterable. For work on each value see
    `adaptive_flat_map`. Raises BuildError for a `max_concurrent` below 1.
    """
    if max_concurrent == MOST_OPEN:
        operator: Callable[[Flowable[Any]], Flowable[Any]] = stock.flat_map(mapper)
        return operator
    return WithStock(
        lambda source: flattened("flat_map", source, mapper, max_concurrent, ahead=0),
        stock.flat_map(mapper),
    )


@recorded
def merge_all(max_concurrent: int = MOST_OPEN) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """The events of all streams that the stream has as values, `max_concurrent` read at once.

        source       --a-----b--------|
        merge_all()  ----1-2---1-3-2----|
        a            ----1-2-----3|
        b                  ----1---2----|

    The values may be streams, Observables, futures or iterables. Raises BuildError for a
    `max_concurrent` below 1.
    """
    return WithStock(
        lambda source: flattened("merge_all", source, None, max_concurrent), stock.merge_all()
    )


@overload
def concat_map(
    project: Callable[[T], Inner[S]],
) -> Callable[[Flowable[T]], Flowable[S]]: ...


@overload
def concat_map(
    project: Callable[[T], Iterable[S]],
) -> Callable[[Flowable[T]], Flowable[S]]: ...


@recorded
def concat_map(
    project: Callable[[Any], Any],
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """The events of the streams that `project` returns for each value, one after another.

        source         --a-----b--------|
        concat_map(f)  ----1-2----3-1-2-|
        f(a)           ----1-2----3|
        f(b)                       -1-2-|

    It may return a stream, an Observable, a future or an iterable.
    """
    return WithStock(
        lambda source: flattened("concat_map", source, project, 1), stock.concat_map(project)
    )


@recorded
def concat_all() -> Callable[[Flowable[Any]], Flowable[Any]]:
    """`concat_map` of the values themselves: streams, Observables, futures or iterables.

        source        --a-----b------|
        concat_all()  ----1-2----3-1-2-|
        a             ----1-2----3|
        b                         -1-2-|

    They are read one after another.
    """
    return WithStock(lambda source: flattened("concat_all", source, None, 1), stock.concat_all())
