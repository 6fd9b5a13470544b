"""Call a handler for each event, with adaptive concurrency.

Items:   the handler's result, or each item (possibly none) if it returns an async iterator, a
         stream or an Observable, also where that can be awaited; None is a result like any other.
         In order of completion, or with `ordered=True` in the order in which the calls began; a
         failed call leaves no gap.
Time:    a call begins as soon as the limit and its group's turn allow, unless `overload` has
         ordered a pause. A plain handler runs inline and ends before the next event begins.
Memory:  `limit` events in progress and `window` finished results that wait for demand; with
         `retry`, up to `limit` more events that wait for their next attempt. With `key`, also what
         `group_by` holds: 4,096 events, and 100,000 more on disk.
Demand:  requests as many events as may begin; no call begins without room for its result. An async
         iterator or a stream is read no further when its share of the window is full; a plain
         Observable has a buffer of 1,024.
Ends:    when the source has completed, every call has ended and every result is delivered. Cancel
         stops the calls and returns their events; drain lets them finish.
Errors:  `on_error` is "stop" (nothing new begins, what is in flight may finish, then the error
         passes on, with the stage and event noted on it), "skip", "revert" (the event is returned
         to its source), `retry(...)` or `route(sink)`. An event whose `key` is missing or
         unhashable fails in the same way, without another attempt. A call past `timeout` seconds is
         cancelled and fails with HandlerTimeout; it keeps its slot and its turn until it has really
         ended. A result that is unfinished work (a coroutine not awaited, a plain generator) fails
         its event with UnfinishedResult. Order: the results of a group are in the order of its
         events. The results of async calls that end in one loop iteration go on together, at its
         end; then the next event of a group may begin.

    source                    --1--2--3--------|
    adaptive_flat_map(f)      -----a--b--c-----|     each call takes three ticks
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable
from dataclasses import replace
from inspect import signature
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from penstock.streams.base.errors import BuildError, describe
from penstock.streams.base.keys import By, Key
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_async, require_count, require_parameters
from penstock.streams.execution.handler import check_handler, check_timeout, handler_name
from penstock.streams.execution.options import CallOptions, HandlerOptions
from penstock.streams.execution.plain_stage import working_stage
from penstock.streams.execution.worker_stage import WorkerStage
from penstock.streams.failures.policy import OnError, Retry, check_policy, last_of, routed_by
from penstock.streams.limits import Limiter, Shared
from penstock.streams.limits.choice import Limit, limiter_for
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Picture, Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import on_stream

__all__ = ["adaptive_flat_map"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
H = TypeVar("H", bound=Hashable)


# What other libraries call the same.
_MEANT = {
    **dict.fromkeys(
        [
            "concurrency",
            "concurrent",
            "max_concurrency",
            "max_concurrent",
            "max_workers",
            "n_workers",
            "num_workers",
            "parallel",
            "parallelism",
            "task_limit",
            "workers",
        ],
        "limit=",
    ),
    **dict.fromkeys(
        ["attempts", "max_attempts", "max_retries", "retries", "retry"], "on_error=retry(attempts)"
    ),
    **dict.fromkeys(["by", "group_by", "key_by", "keys", "partition_by"], "key="),
    **dict.fromkeys(["in_order", "keep_order", "order", "preserve_order"], "ordered="),
    **dict.fromkeys(["buffer", "maxsize", "prefetch", "queue_size"], "window="),
}


class _Operator(Protocol[P]):
    # For a handler of `dict[str, Any]` mypy infers a result only if all overloads that match take
    # the same type. So the first one, which it names in its errors, must not match a dict.
    @overload
    def __call__(
        self,
        handler: Callable[[H], Awaitable[R] | AsyncIterator[R]],
        limit: Limit = ...,
        key: By[H] | None = ...,
        *args: P.args,
        **options: P.kwargs,
    ) -> Callable[[Flowable[H]], Flowable[R]]: ...

    @overload
    def __call__(
        self,
        handler: Callable[[T], Coroutine[Any, Any, R]],
        limit: Limit = ...,
        key: By[T] | None = ...,
        *args: P.args,
        **options: P.kwargs,
    ) -> Callable[[Flowable[T]], Flowable[R]]: ...

    @overload
    def __call__(
        self,
        handler: Callable[[T], AsyncIterator[R]],
        limit: Limit = ...,
        key: By[T] | None = ...,
        *args: P.args,
        **options: P.kwargs,
    ) -> Callable[[Flowable[T]], Flowable[R]]: ...

    @overload
    def __call__(
        self,
        handler: Callable[[T], R],
        limit: Limit = ...,
        key: By[T] | None = ...,
        *args: P.args,
        **options: P.kwargs,
    ) -> Callable[[Flowable[T]], Flowable[R]]: ...


def _taking(options: Callable[P, HandlerOptions]) -> Callable[[Callable[..., Any]], _Operator[P]]:
    """A decorator of a function that takes these options as its last keywords: for type checkers,
    editors, `help` and the reference."""

    def taking(function: Any) -> _Operator[P]:
        own = signature(function)
        *first, _ = own.parameters.values()
        keywords = signature(options).parameters.values()
        function.__signature__ = own.replace(parameters=[*first, *keywords])
        operator: _Operator[P] = function
        return operator

    return taking


@recorded
@_taking(HandlerOptions)
def adaptive_flat_map(
    handler: Callable[[Any], Any],
    limit: Limit = None,
    key: By[Any] | None = None,
    **options: Any,
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """Call `handler(value)` for each event, with adaptive concurrency.

    `limit` is a number of calls, which is short for `Fixed(limit)`, a pair `(floor, ceiling)` for
    the default limiter, another limiter, `Shared(limiter)` for one that several stages share, or
    None for the default limiter without bounds. With `key`, a name, an index or a function of the
    value, the events of one key are processed one at a time and in order: it is short for
    `group_by(key), spread()` in front, with the same `on_error`, of which `retry` does its `then`
    at once. `overload(error)` returns True if an error means that the dependency is overloaded (a
    timeout always does), False if it says nothing about its capacity. A number (not a bool) means
    overload too: for that many seconds, at most 60, this stage begins no call, nor does any stage
    that shares its limit. Any other value is BadOverload. `on_limit_change(old, new, reason)` is
    called when the limit changes, before anything begins under the new one; the reason is the
    limiter's own, or "retuned". An error in these two functions stops the pipeline, as does a
    limiter that raises or proposes an invalid limit (BadLimit): calls in flight finish, and the
    error names its origin and the stage. Raises BuildError directly after `group_by`, with `key`
    wherever events are in groups already, and for options that cannot be combined, such as
    `timeout` with a plain handler, which nothing can interrupt.

    Sources of the default limit: the "power" of Giessler et al. (1978) and Kleinrock (1979); more
    in docs/limits.md.

    >>> from penstock import adaptive_flat_map, for_each, from_iterable, run
    >>> async def double(number):
    ...     return 2 * number
    >>> stage = adaptive_flat_map(double, limit=8, ordered=True)
    >>> report = run(from_iterable([1, 2, 3]).pipe(stage).to(for_each(print)))
    2
    4
    6
    """
    name, given = handler_name(handler), _options_of(options)
    check_policy(given.on_error, "adaptive_flat_map", retries=True)
    check_handler(handler, "adaptive_flat_map")
    require_count("adaptive_flat_map", window=given.window)
    told = "the old limit, the new one and the reason"
    _check_plain("on_limit_change", given.on_limit_change, 3, told)
    told = "the error, that says whether it is a sign of overload"
    _check_plain("overload", given.overload, 1, told)
    check_timeout("adaptive_flat_map", handler, given.timeout)
    if key is not None:
        return _by_key(key, given.on_error, adaptive_flat_map(handler, limit, **options))
    # Also created here, so that an invalid limit is noticed when the pipeline is built.
    limiter_for(limit)
    # The first run has the given one, all others have copies of its original state.
    first, original = [limit], _copied(limit)

    @on_stream
    def operator(source: Flowable[Any]) -> Flowable[Any]:
        def limiter(run: Run) -> Limiter:
            if run.limit is not None:
                return limiter_for(run.limit)
            return limiter_for(first.pop() if first else _copied(original))

        work = CallOptions(
            handler=handler, limiter=limiter, is_shared=isinstance(limit, Shared), **options
        )

        def make(downstream: Subscriber[Any], run: Run, info: StageInfo) -> WorkerStage:
            lent = run.overrides.lent
            own = work if lent is None else replace(work, on_limit_change=None)
            return working_stage(downstream, run, info, own, lent or limiter(run))

        def info(limit: Limit) -> StageInfo:
            floor, ceiling = _bounds(limiter_for(limit))
            is_sharing = isinstance(limit, Shared)
            bound = None
            if ceiling is not None:
                held = ceiling * (2 if isinstance(given.on_error, Retry) else 1)
                bound = given.window + held + is_sharing
            sharing = " with other stages" if is_sharing else ""
            at_once = _at_once(floor, ceiling) if is_async(handler) else "1 at once"
            note = f"{at_once}{sharing}, {given.window:,} results"
            if source.turns and not given.ordered:
                note += "; order of a group ends here"
            routed = routed_by(given.on_error)
            return StageInfo(
                "adaptive_flat_map",
                name,
                bound,
                note,
                routed=routed,
                policy=given.on_error,
                placement=Placement(works=True, work=work),
                picture=Picture(under=info),
            )

        return source.then(make, info(limit), turns=False)

    return operator


def _by_key(
    key: By[Any], on_error: OnError, stage: Callable[[Flowable[Any]], Flowable[Any]]
) -> Callable[[Flowable[Any]], Flowable[Any]]:
    """The operator that is `group_by` and `spread` in front of this one."""
    # Imported here: a pipeline without keys does not need them.
    from penstock.operators.group_by import group_by
    from penstock.operators.spread import spread

    Key(key, "key")
    # Another attempt would read the same key.
    policy = cast("OnError", last_of(on_error))
    stages = group_by(key, on_error=policy), spread(), stage
    name = f"adaptive_flat_map(key={describe(key)})"

    @on_stream
    def operator(source: Flowable[Any]) -> Flowable[Any]:
        if source.groups or source.turns or source.info.within is not None:
            raise BuildError(
                f"{name} groups events by itself, and these are in groups already: leave out key=, "
                "or the group_by(...) in which it is"
            )
        return source.pipe(*stages)

    return operator


def _options_of(options: dict[str, Any]) -> HandlerOptions:
    try:
        return HandlerOptions(**options)
    except TypeError as error:
        # It names the class, which nobody has called.
        text = str(error).replace("HandlerOptions.__init__()", "adaptive_flat_map()")
        raise TypeError(text + _hint(options)) from None


def _hint(options: dict[str, Any]) -> str:
    """What may be meant by the first option that there is not."""
    from difflib import get_close_matches

    known = ("limit", "key", *signature(HandlerOptions).parameters)
    for name in options:
        if name not in known:
            close = get_close_matches(name, known, 1)
            meant = _MEANT.get(name) or (f"{close[0]}=" if close else "")
            return f". Did you mean {meant}?" if meant else ""
    return ""


def _copied(limit: Limit) -> Limit:
    try:
        return copy.deepcopy(limit)
    except Exception as error:
        raise BuildError(
            f"limit={describe(limit)}: every run begins with its own copy, and this "
            f"cannot be copied: {error}"
        ) from error


def _check_plain(option: str, function: object, count: int, of: str) -> None:
    if function is not None and (not callable(function) or is_async(function)):
        raise BuildError(f"adaptive_flat_map({option}={function!r}): give a plain function of {of}")
    require_parameters(function, f"adaptive_flat_map({option}=...)", count, of)


def _bounds(limiter: Limiter) -> tuple[int | None, int | None]:
    floor, ceiling = getattr(limiter, "floor", None), getattr(limiter, "ceiling", None)
    # A user's limiter need not have these attributes, and may use them for something else.
    return (floor if type(floor) is int else None, ceiling if type(ceiling) is int else None)


def _at_once(floor: int | None, ceiling: int | None) -> str:
    if floor is None or ceiling is None:
        return "as many at once as its limiter says"
    return f"{floor:,} at once" if floor == ceiling else f"{floor:,} to {ceiling:,} at once"
