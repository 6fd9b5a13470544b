"""Share one reading of a stream among its readers, once it is connected.

Items:   each reader gets the events that come while it reads; of `replay` the newest `buffer_size`
         values first, of `publish_value` the newest one, or `initial_value` before there is one, of
         `multicast` what its subject keeps. Those who subscribe to the subject get the values,
         without demand.
Time:    as soon as they come, or as they are requested. The source is read from `connect()` on.
         Values older than the `window` of `replay` are forgotten. A reader behind
         `delay_subscription` is no later one: only its requests are late, and what comes waits for
         them.
Memory:  up to `prefetch` events for each reader; the values for later readers, and as many for each
         reader.
Demand:  requests what the fastest reader requests, as long as no more than `prefetch` events wait
         for the slowest: it sets the demand, and a reader that leaves no longer counts. Without
         readers the source is read, and its events are dropped.
Ends:    every reader and the subject end with the source, after what waits for it; a reader of
         `replay` that comes later gets the values and the end. An event is finished when all who
         were reading have finished it, fails when one fails it, and is dropped under the operator's
         name without any: a value that is given again acknowledges nothing. A reader that is
         cancelled, or leaves early, returns what it has not finished, whatever the others do with
         it: a source that gives events again gives these to all. A drain of the first pipeline that
         reads it stops the source; without one, dispose of what `connect()` returns.
Errors:  the source's passes on to every reader, after what waits for it, and to the subject.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, overload

from reactivex import Observable
from reactivex.abc import SchedulerBase, SubjectBase
from reactivex.subject import AsyncSubject, BehaviorSubject, ReplaySubject

from penstock.streams.base.errors import BuildError, check_plain
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import require_count
from penstock.streams.execution.handler import called_name
from penstock.streams.pipelines.connecting import mapped
from penstock.streams.pipelines.flowable import Connectable, Flowable
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.rx.combining.inputs import check_not_async
from penstock.streams.rx.combining.several import PREFETCH
from penstock.streams.rx.combining.sharing import Memory, kept_note
from penstock.streams.rx.lift import HOLD, on_stream

__all__ = ["multicast", "publish", "publish_value", "replay"]

T = TypeVar("T")
S = TypeVar("S")

_ENDLESS = "replay without a buffer_size keeps every value: give the number of values to keep"
_INSTEAD = "a plain function that returns a subject"

# What makes a stream with such a subject is mostly an operator of its own.
_NAMES: dict[type, str] = {ReplaySubject: "replay", BehaviorSubject: "publish_value"}


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


@recorded
def publish(
    mapper: Callable[[Any], Any] | int | None = None, *, prefetch: int = PREFETCH
) -> Callable[[Flowable[Any]], Any]:
    """A connectable stream: `connect()` reads the source for all readers, see `Connectable`.

        source     --1--2--3--4--|
        connect()  --x
        a reader   --1--2--3--4--|
        a later    --------3--4--|

    `publish(8)` is `publish(prefetch=8)`.

    With `mapper`, the stream that it returns for the shared one: each reader of that has a reading
    of its own, which all that reads the shared stream inside has together. Raises BuildError for a
    `prefetch` below 1, and between `spread` and a working stage.
    """
    if isinstance(mapper, int):
        return publish(prefetch=mapper)
    return _connectable(StageInfo("publish", "", prefetch), prefetch, mapper, tuple)


@overload
def publish_value(
    initial_value: Any, mapper: None = None, *, prefetch: int = ...
) -> Callable[[Flowable[T]], Connectable[T]]: ...


@overload
def publish_value(
    initial_value: Any, mapper: Callable[[Flowable[T]], Observable[S]], *, prefetch: int = ...
) -> Callable[[Flowable[T]], Flowable[S]]: ...


@recorded
def publish_value(
    initial_value: Any, mapper: Callable[[Any], Any] | None = None, *, prefetch: int = PREFETCH
) -> Callable[[Flowable[Any]], Any]:
    """`publish` that gives each reader the newest value first, while the source is read.

        source     --1--2--3--4--|
        connect()  --x
        a reader   0-1--2--3--4--|
        a later    ---------3-4--|

    A reader that comes after the end of the source ends at once.
    """

    def keep() -> tuple[Memory]:
        return (Memory(1, initial=(initial_value,), after_end=False),)

    info = StageInfo("publish_value", "", prefetch, note=kept_note(1))
    return _connectable(info, prefetch, mapper, keep)


@recorded
def replay(
    buffer_size: int | None = None,
    window: float | timedelta | None = None,
    *,
    mapper: Callable[[Any], Any] | None = None,
    scheduler: SchedulerBase | None = None,
    prefetch: int = PREFETCH,
) -> Callable[[Flowable[Any]], Any]:
    """`publish` that keeps its newest `buffer_size` values for later readers.

        source     --1--2--3--4--|
        connect()  --x
        a reader   --1--2--3--4--|
        a later    --------(2,3)--4--|      replay(2), at the time of 3

    `window` is how old they may be, in seconds; with it alone at most 1,024 are kept. Behind
    `ref_count()`, as in Rx, the next reader after the last has left reads the source anew; after
    the end of the source the values are forgotten with it. A `scheduler` is ignored: the time is
    the loop's. Raises BuildError for numbers below 1, and without `buffer_size` and `window`.
    """
    if buffer_size is None and window is None:
        raise BuildError(_ENDLESS)
    size = HOLD if buffer_size is None else buffer_size
    require_count("replay", buffer_size=size)
    seconds = window.total_seconds() if isinstance(window, timedelta) else window
    info = StageInfo("replay", f"{size:,}", prefetch, note=kept_note(size))
    return _connectable(info, prefetch, mapper, lambda: (Memory(size, seconds),))


@overload
def multicast(
    subject: SubjectBase[Any], *, prefetch: int = ...
) -> Callable[[Flowable[T]], Connectable[T]]: ...


@overload
def multicast(
    *,
    subject_factory: Callable[[SchedulerBase | None], SubjectBase[Any]],
    mapper: Callable[[Flowable[T]], Observable[S]],
    prefetch: int = ...,
) -> Callable[[Flowable[T]], Flowable[S]]: ...


@recorded
def multicast(
    subject: SubjectBase[Any] | None = None,
    *,
    subject_factory: Callable[[SchedulerBase | None], SubjectBase[Any]] | None = None,
    mapper: Callable[[Any], Any] | None = None,
    prefetch: int = PREFETCH,
) -> Callable[[Flowable[Any]], Any]:
    """`publish` whose values `subject` gets too.

        source     --1--2--3--4--|
        connect()  --x
        a reader   --1--2--3--4--|
        subject    --1--2--3--4--|

    With `subject_factory` and `mapper`, as `publish(mapper)`, with a subject for each reading.
    Raises BuildError without a subject, for an AsyncSubject, for a ReplaySubject without a
    bound (with a `window` alone it keeps 1,024 values at most), for a `prefetch` below 1, and
    between `spread` and a working stage.
    """
    if subject is None and (subject_factory is None or mapper is None):
        raise BuildError("multicast needs a subject, or subject_factory= and mapper=")
    check_not_async("multicast", subject_factory, _INSTEAD)
    kept = _memory_of(subject)

    def keep() -> tuple[Memory | None, SubjectBase[Any] | None]:
        chosen = subject
        if subject_factory is not None:
            chosen = subject_factory(None)
            check_plain(chosen, called_name(subject_factory), "multicast", f"use {_INSTEAD}")
        return _memory_of(chosen), chosen

    note = "" if kept is None else kept_note(kept.size)
    info = StageInfo(_NAMES.get(type(subject), "multicast"), "", prefetch, note=note)
    return _connectable(info, prefetch, None if subject_factory is None else mapper, keep)


def _connectable(
    info: StageInfo,
    prefetch: int,
    mapper: Callable[[Any], Any] | None,
    keep: Callable[[], tuple[Any, ...]],
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    require_count(info.name, prefetch=prefetch)

    def operator(source: Flowable[Any]) -> Flowable[Any]:
        def make() -> Connectable[Any]:
            return Connectable(source, info, prefetch, *keep())

        return make() if mapper is None else mapped(make, mapper, info, source)

    return on_stream(operator, info.name)


def _memory_of(subject: SubjectBase[Any] | None) -> Memory | None:
    if isinstance(subject, AsyncSubject):
        raise BuildError("multicast over an AsyncSubject: use last(), and publish() after it")
    if isinstance(subject, ReplaySubject):
        # It has no public name for the age.
        window: timedelta = subject._window  # pyright: ignore[reportPrivateUsage]
        is_bounded_in_time = window != timedelta.max
        if subject.buffer_size == sys.maxsize and not is_bounded_in_time:
            raise BuildError(_ENDLESS)
        seconds = window.total_seconds() if is_bounded_in_time else None
        return Memory(min(subject.buffer_size, HOLD), seconds)
    if isinstance(subject, BehaviorSubject):
        return Memory(1, initial=(subject.value,), after_end=False)
    return None
