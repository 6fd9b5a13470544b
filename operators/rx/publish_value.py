"""Share one reading of a stream, and give the newest value to readers that come later.

Items:   each reader gets the newest value, or `initial_value` before there is one, and then the
         events that come.
Time:    as soon as they come, or as they are requested. The source is read from `connect()` on.
Memory:  one value, and up to `prefetch` events for each reader.
Demand:  requests what the fastest reader requests, as long as no more than `prefetch` events wait
         for the slowest. Without readers the source is read, for the newest value.
Ends:    every reader ends with the source, after what waits for it; one that comes later ends at
         once. An event is finished when all who were reading have finished it: a value that is
         given again acknowledges nothing. Without readers it is dropped as "publish_value".
Errors:  the source's passes on to every reader, after what waits for it.

    source     --1--2--3--4--|
    connect()  --x
    a reader   0-1--2--3--4--|
    a later    ---------3-4--|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from reactivex import Observable

from penstock.streams.flowable import Flowable
from penstock.streams.protocol.stage import StageInfo
from penstock.streams.rx.combining.several import PREFETCH
from penstock.streams.rx.combining.sharing import Connectable, Memory, kept_note, mapped
from penstock.streams.rx.lift import on_stream
from penstock.streams.validation import require_count

__all__ = ["publish_value"]

T = TypeVar("T")
S = TypeVar("S")


@overload
def publish_value(
    initial_value: Any, mapper: None = None, *, prefetch: int = ...
) -> Callable[[Flowable[T]], Connectable[T]]: ...


@overload
def publish_value(
    initial_value: Any, mapper: Callable[[Flowable[T]], Observable[S]], *, prefetch: int = ...
) -> Callable[[Flowable[T]], Flowable[S]]: ...


def publish_value(
    initial_value: Any, mapper: Callable[[Any], Any] | None = None, *, prefetch: int = PREFETCH
) -> Callable[[Flowable[Any]], Any]:
    """A connectable stream that gives each reader the newest value first.

    `mapper` as for `publish`. Raises BuildError for a `prefetch` below 1, and between `spread` and
    a working stage.
    """
    require_count("publish_value", prefetch=prefetch)
    info = StageInfo("publish_value", "", prefetch, note=kept_note(1))

    @on_stream
    def operator(source: Flowable[Any]) -> Flowable[Any]:
        def make() -> Connectable[Any]:
            memory = Memory(1, initial=(initial_value,), after_end=False)
            return Connectable(source, info, prefetch, memory)

        return make() if mapper is None else mapped(make, mapper, info, source)

    return operator
