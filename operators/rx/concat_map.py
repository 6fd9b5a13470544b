"""Make a stream of each value, and read these streams one after another.

Items:   the events of the first value's stream, then those of the second's, and so on.
Time:    as soon as they come, or as they are requested. The function is called when the stream
         before has ended.
Memory:  one event of the open stream, one of the source, and two that wait. A plain Observable has
         a buffer of 1,024 besides.
Demand:  one event at a time from the open stream; one of the source when none is open. While the
         open one has no event, two more of the source, so that an error behind them is not late.
Ends:    when the source and its last stream have ended. An event of the source is finished when its
         stream has ended and all its events are; without any it is dropped as "concat_map". An
         event of a stream ends as it comes out, towards both. Cancel returns both. A drain stops
         the source, and reads the open stream to its end.
Errors:  the first one, of the source, the function or a stream, passes on at once or when the
         values before it have been read; the event of the source fails with it; what waits is
         returned.

    source         --a-----b--------|
    concat_map(f)  ----1-2----3-1-2-|
    f(a)           ----1-2----3|
    f(b)                       -1-2-|
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from reactivex import operators as stock

from penstock.streams.flowable import Flowable
from penstock.streams.rx.combining.flattening import Inner, flattened
from penstock.streams.rx.lift import WithStock

__all__ = ["concat_map"]

T = TypeVar("T")
S = TypeVar("S")


@overload
def concat_map(
    project: Callable[[T], Inner[S]],
) -> Callable[[Flowable[T]], Flowable[S]]: ...


@overload
def concat_map(
    project: Callable[[T], Iterable[S]],
) -> Callable[[Flowable[T]], Flowable[S]]: ...


def concat_map(
    project: Callable[[Any], Any],
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """The events of the streams that `project` returns for each value, one after another.

    It may return a stream, an Observable, a future or an iterable.
    """
    return WithStock(
        lambda source: flattened("concat_map", source, project, 1), stock.concat_map(project)
    )
