"""Call a function with each value.

Items:   accepts every event, in order; what the function returns is not used.
Time:    a plain function is called at once. One that returns an awaitable is awaited, one
         event after the other.
Memory:  256 events for a plain function, one for an async one.
Demand:  256 at first, or one for an async function; then one for each event that is done.
Ends:    an event is finished when the call has ended. At the end of the stream, also by an error,
         accepted events are still processed. Cancel cancels the call in progress and returns its
         event and the waiting ones.
Errors:  what the function raises fails its event: the pipeline stops, or `on_error="skip"` or
         `route(sink)` go on. So does a function that leaves its work undone: a generator, or an
         async one that returns a coroutine (UnfinishedResult).

    source        --a--b--|
    for_each(f)   --a--b--|     f(a), f(b)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_async
from penstock.streams.execution.for_each_stage import STRIDE, ForEachStage
from penstock.streams.execution.handler import check_handler, handler_name
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

__all__ = ["for_each"]

T = TypeVar("T")


@recorded
def for_each(
    function: Callable[[T], Awaitable[object] | object],
    *,
    on_error: OnError = "stop",
    in_workers: bool = False,
) -> Sink[T]:
    """Call `function`, plain or async, with every value.

    For several calls at once use `adaptive_flat_map(function)` before a sink. With `in_workers`
    each process of a run with `workers=` calls it with its own results, one after the other (see
    docs/several-cores.md). Raises BuildError if `function` cannot be called, or for a wrong
    `on_error`.

    >>> from penstock import for_each, from_iterable, run
    >>> report = run(from_iterable(["a", "b"]).to(for_each(print)))
    a
    b
    """
    check_handler(function, "for_each")
    check_policy(on_error, "for_each")
    return _ForEach(function, on_error, in_workers=in_workers)


class _ForEach(Sink[T]):
    def __init__(
        self, function: Callable[[T], object], on_error: OnError, *, in_workers: bool
    ) -> None:
        self.info = StageInfo(
            "for_each",
            handler_name(function),
            1 if is_async(function) else STRIDE,
            routed=routed_by(on_error),
            policy=on_error,
        )
        self.in_workers = in_workers
        self._function = function
        self._on_error: OnError = on_error

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        return ForEachStage(run, closed, self._function, self._on_error)
