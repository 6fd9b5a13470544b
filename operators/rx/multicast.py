"""Share one reading of a stream, as `publish`, with a subject that gets its values too.

Items:   each reader gets the events that come while it reads; those who subscribe to the subject
         get the values, without demand. A ReplaySubject or BehaviorSubject keeps what it keeps for
         readers that come later.
Time:    as soon as they come, or as they are requested. The source is read from `connect()` on.
Memory:  up to `prefetch` events for each reader, and what the subject keeps.
Demand:  requests what the fastest reader requests, as long as no more than `prefetch` events wait
         for the slowest. Without readers the source is read, and its events are dropped.
Ends:    every reader ends with the source, after what waits for it, as the subject does. An event
         is finished when all readers have finished it; without any it is dropped as "multicast".
Errors:  the source's passes on to every reader, after what waits for it, and to the subject.

    source     --1--2--3--4--|
    connect()  --x
    a reader   --1--2--3--4--|
    subject    --1--2--3--4--|
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, overload

from reactivex import Observable
from reactivex.abc import SchedulerBase, SubjectBase
from reactivex.subject import AsyncSubject, BehaviorSubject, ReplaySubject

from penstock.streams.errors import BuildError, check_plain
from penstock.streams.execution.handler import called_name
from penstock.streams.flowable import Flowable
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.rx.combining.inputs import check_not_async
from penstock.streams.rx.combining.several import PREFETCH
from penstock.streams.rx.combining.sharing import Connectable, Memory, kept_note, mapped
from penstock.streams.rx.lift import HOLD, on_stream
from penstock.streams.validation import require_count

__all__ = ["multicast"]

T = TypeVar("T")
S = TypeVar("S")

_INSTEAD = "a plain function that returns a subject"

# What makes a stream with such a subject is mostly an operator of its own.
_NAMES: dict[type, str] = {ReplaySubject: "replay", BehaviorSubject: "publish_value"}


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


def multicast(
    subject: SubjectBase[Any] | None = None,
    *,
    subject_factory: Callable[[SchedulerBase | None], SubjectBase[Any]] | None = None,
    mapper: Callable[[Any], Any] | None = None,
    prefetch: int = PREFETCH,
) -> Callable[[Flowable[Any]], Any]:
    """A connectable stream whose values `subject` gets too.

    With `subject_factory` and `mapper`, as `publish(mapper)`, with a subject for each reading.
    Raises BuildError without a subject, for an AsyncSubject, for a ReplaySubject without a
    bound (with a `window` alone it keeps 1,024 values at most), for a `prefetch` below 1, and
    between `spread` and a working stage.
    """
    require_count("multicast", prefetch=prefetch)
    if subject is None and (subject_factory is None or mapper is None):
        raise BuildError("multicast needs a subject, or subject_factory= and mapper=")
    check_not_async("multicast", subject_factory, _INSTEAD)
    kept = _memory_of(subject)

    @on_stream
    def operator(source: Flowable[Any]) -> Flowable[Any]:
        def make() -> Connectable[Any]:
            chosen = subject
            if subject_factory is not None:
                chosen = subject_factory(None)
                check_plain(chosen, called_name(subject_factory), "multicast", f"use {_INSTEAD}")
            return Connectable(source, info, prefetch, _memory_of(chosen), chosen)

        note = "" if kept is None else kept_note(kept.size)
        info = StageInfo(_NAMES.get(type(subject), "multicast"), "", prefetch, note=note)
        if subject_factory is not None and mapper is not None:
            return mapped(make, mapper, info, source)
        return make()

    return operator


def _memory_of(subject: SubjectBase[Any] | None) -> Memory | None:
    if isinstance(subject, AsyncSubject):
        raise BuildError("multicast over an AsyncSubject: use last(), and publish() after it")
    if isinstance(subject, ReplaySubject):
        # It has no public name for the age.
        window: timedelta = subject._window  # pyright: ignore[reportPrivateUsage]
        is_bounded_in_time = window != timedelta.max
        if subject.buffer_size == sys.maxsize and not is_bounded_in_time:
            raise BuildError(
                "replay without a buffer_size keeps every value: give the number of values to keep"
            )
        seconds = window.total_seconds() if is_bounded_in_time else None
        return Memory(min(subject.buffer_size, HOLD), seconds)
    if isinstance(subject, BehaviorSubject):
        return Memory(1, initial=(subject.value,), after_end=False)
    return None
