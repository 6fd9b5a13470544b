"""What a stage is given as further streams, and the parts of its run in which it reads them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar, cast

from reactivex import Observable

from penstock.streams.base.errors import BuildError, PenstockError, WrongType, describe, not_awaited
from penstock.streams.base.validation import is_async, is_iterable
from penstock.streams.boundary.from_observable import UNASKED, buffer, from_observable
from penstock.streams.execution.handler import called_name
from penstock.streams.io.paths import read_once
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.observing import Statistics
from penstock.streams.stages.stream import Stream

__all__ = [
    "as_stream",
    "check_begins_again",
    "check_not_async",
    "columns",
    "part_for",
    "reading_all",
]


S = TypeVar("S", bound=Stream[Any])


def as_stream(operator: str, other: Any) -> Stream[Any]:
    """What `operator` was given as a further stream, with demand.

    A plain Observable, or a future, enters with `buffer(1024)`: beyond it the stream fails with
    BufferFull. Raises TypeError for anything else, and PenstockError for a coroutine.
    """
    kind = cast("type[Any]", other.__class__)
    if issubclass(kind, Stream):
        return cast("Stream[Any]", other)
    # An Observable can be awaited too.
    if issubclass(kind, Observable):
        return from_observable(cast("Observable[Any]", other), buffer(UNASKED), operator)
    if issubclass(kind, Coroutine):
        not_awaited(other)
        raise PenstockError(
            f"{operator} awaits no coroutines: use adaptive_flat_map(handler), or give it the "
            "future asyncio.ensure_future(...), which is cancelled when it is read no more"
        )
    if issubclass(kind, Future) or hasattr(kind, "__await__"):
        # Imported here: few pipelines have one.
        from reactivex import from_future

        return from_observable(from_future(other), buffer(UNASKED), operator)
    instead = "; wrap it in from_iterable(...)" if is_iterable(other) else ""
    raise WrongType(
        f"{operator} reads a stream or an Observable, not {describe(other, 80)}{instead}"
    )


def check_not_async(operator: str, function: Callable[..., Any] | None, instead: str = "") -> None:
    """Raise BuildError for an async function, whose coroutines `operator` would not await.

    Also for an async generator function, whose generators are not streams.
    """
    if inspect.isasyncgenfunction(function):
        raise BuildError(
            f"{operator} is given an async generator function, whose generators are not streams; "
            f"use {operator}(lambda value: from_async_iterable({called_name(function)}(value)))"
        )
    if function is not None and is_async(function):
        # Imported here: long, and needed for an error only.
        from penstock.streams.rx.table import WITH_ASYNC

        raise BuildError(f"{operator} {WITH_ASYNC.why}; use {instead or WITH_ASYNC.instead}")


def check_begins_again(operator: str, source: Stream[Any]) -> None:
    """Raise BuildError if `operator`, which reads `source` again, would not read the same again.

    The answer may change: a file that did not exist may be a pipe when it does.
    """
    for info in all_stages(stage.info for stage in source.chain()):
        once = info.delivery.once
        if not once and info.is_source and info.files.path is not None:
            once = read_once(info.files.path)
        if once:
            raise BuildError(
                f"{operator} reads its source again from the start, and {info} cannot begin "
                f"again: {once}"
            )


class Reading(Protocol):
    """A running stage that attaches the streams which it reads by itself."""

    def begin(self) -> None:
        """Attach what it reads first, and then call `on_subscribe` of the stage below."""

    @property
    def statistics(self) -> Statistics: ...


def columns(streams: Sequence[Stream[Any]]) -> tuple[tuple[StageInfo, ...], ...]:
    """The stages of the streams that a stage reads besides the one above it, for its `inputs`.

    Raises BuildError for a stream of groups or of windows.
    """
    for stream in streams:
        stream.check_readable()
        if stream.groups:
            raise BuildError("a stage reads single events: put spread() after group_by")
    return tuple(tuple(each.info for each in stream.chain()) for stream in streams)


def reading_all(
    source: S,
    others: Sequence[Stream[Any]],
    make: Callable[[Subscriber[Any], Run, StageInfo], Reading],
    info: StageInfo,
) -> S:
    """`source`, and one more stage, which reads it and the others.

    `info.bound` is what that keeps, besides what is in the streams, and `info.inputs` the stages of
    the others where they are read otherwise than they are described.
    """

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        info = run.placed(flowable.info)
        stage = make(downstream, run, info)
        run.add_stage(info, stage.statistics)
        stage.begin()

    streams: list[Stream[Any]] = [source, *others]
    turns = any(stream.turns for stream in streams)
    info = info._replace(inputs=info.inputs or columns(others))
    flowable = source.below(attach, info, turns=turns)
    weight = max(stream.info.weight * stream.info.gathers for stream in streams)
    flowable.info = flowable.info._replace(weight=weight)
    return cast("S", flowable)


def part_for(
    run: Run,
    info: StageInfo,
    at: int | None,
    stream: Stream[Any],
    instead_of: Run | None = None,
    *,
    recovers: bool = False,
) -> Run:
    """A part of `run` for a stream that the stage `info` reads: the one above it, at 0, one of its
    `inputs`, from 1 on, or one that was not known before, at None. See `Run.part`."""
    part = run.part(listed=at is not None, recovers=recovers, instead_of=instead_of)
    if at is None:
        part.reads((), ())
        part.read_by = info.number
    elif at and run.is_own(info):
        part.reads((each.info for each in stream.chain()), info.inputs[at - 1])
    elif at and part.read_by is None:
        part.read_by = run.known_reader(info) or info.number
    return part
