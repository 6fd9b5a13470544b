"""Share one reading of a stream among its readers, once it is connected.

Items:   each reader gets the events that come while it reads.
Time:    as soon as they come, or as they are requested. The source is read from `connect()` on.
Memory:  up to `prefetch` events for each reader.
Demand:  requests what the fastest reader requests, as long as no more than `prefetch` events wait
         for the slowest: it sets the demand, and a reader that leaves no longer counts. Without
         readers the source is read, and its events are dropped.
Ends:    every reader ends with the source, after what waits for it. An event is finished when all
         readers have finished it, fails when one fails it, and is dropped as "publish" without any.
         A reader that is cancelled, or leaves early, returns what it has not finished, whatever the
         others do with it: a source that gives events again gives these to all. A drain of the
         first pipeline that reads it stops the source; without one, dispose of what `connect()`
         returns.
Errors:  the source's passes on to every reader, after what waits for it.

    source     --1--2--3--4--|
    connect()  --x
    a reader   --1--2--3--4--|
    a later    --------3--4--|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from reactivex import Observable

from penstock.streams.flowable import Flowable
from penstock.streams.protocol.stage import StageInfo
from penstock.streams.rx.combining.several import PREFETCH
from penstock.streams.rx.combining.sharing import Connectable, mapped
from penstock.streams.rx.lift import on_stream
from penstock.streams.validation import require_count

__all__ = ["publish"]

T = TypeVar("T")
S = TypeVar("S")


@overload
def publish(prefetch: int, /) -> Callable[[Flowable[T]], Connectable[T]]: ...


@overload
def publish(
    mapper: None = None, *, prefetch: int = PREFETCH
) -> Callable[[Flowable[T]], Connectable[T]]: ...


@overload
def publish(
    mapper: Callable[[Flowable[T]], Observable[S]], *, prefetch: int = PREFETCH
) -> Callable[[Flowable[T]], Flowable[S]]: ...


def publish(
    mapper: Callable[[Any], Any] | int | None = None, *, prefetch: int = PREFETCH
) -> Callable[[Flowable[Any]], Any]:
    """A connectable stream: `connect()` reads the source for all readers, see `Connectable`.

    `publish(8)` is `publish(prefetch=8)`.

    With `mapper`, the stream that it returns for the shared one: each reader of that has a reading
    of its own, which all that reads the shared stream inside has together. Raises BuildError for a
    `prefetch` below 1, and between `spread` and a working stage.
    """
    if isinstance(mapper, int):
        return publish(prefetch=mapper)
    require_count("publish", prefetch=prefetch)
    info = StageInfo("publish", "", prefetch)

    @on_stream
    def operator(source: Flowable[Any]) -> Flowable[Any]:
        def make() -> Connectable[Any]:
            return Connectable(source, info, prefetch)

        return make() if mapper is None else mapped(make, mapper, info, source)

    return operator
