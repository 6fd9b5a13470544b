"""Call a handler with lists of events: of one event when idle, of more as the load grows.

Items:   the handler's results, one for each event, in the order of the events in their call;
         None in place of a list is None for each. An exception in the place of a result fails
         that event only.
Time:    a call begins as soon as there is an event and one of `parallel` calls is free. Events that
         arrive meanwhile form the next batch. Before the last free call, if more are expected soon
         enough that waiting pays, the first event waits for them, up to `max_wait` seconds; with
         `max_wait=0` it never does.
Memory:  `max_size` waiting events, `max_size` for each of `parallel` calls, and `max_size` finished
         results that wait for demand; with `retry`, as many events as are in calls may wait for
         their next attempt.
Demand:  requests one batch ahead of the calls; no call begins without room for its results.
Ends:    when the source has completed, every call has ended and every result is delivered. Cancel
         stops the calls and returns their events; drain lets them finish.
Errors:  a call that raises is repeated with each half, down to the single event that fails: for
         that one, `on_error` is "stop", "skip", `retry(...)` or `route(sink)`. A call past
         `timeout` seconds fails with HandlerTimeout, and is split too. Anything but one result for
         each event fails them all with BatchContractError, and is not tried again. A result that is
         a coroutine not awaited, or a generator, fails its event with UnfinishedResult.

    source      (a,b,c,d,e,f,g,|)
    batch(f)    -----a----b----c----(d,e)(f,g,|)     each call takes five ticks
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock.streams.base.errors import BuildError
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import given, is_at_least, require_count, require_seconds
from penstock.streams.execution.handler import check_handler, check_timeout, handler_name
from penstock.streams.failures.policy import OnError, Retry, check_policy, routed_by
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage_info import Placement, StageInfo
from penstock.streams.rx.lift import on_stream

__all__ = ["batch"]

T = TypeVar("T")

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # The results of a handler that returns None.
    R = TypeVarWithDefault("R", default=None)
    _Results = Sequence[R | Exception] | None


@recorded
def batch(
    handler: Callable[[list[T]], Awaitable[_Results[R]] | _Results[R]],
    max_size: int = 1000,
    max_wait: float = 0.01,
    latency: float | None = None,
    *,
    parallel: int = 1,
    timeout: float | None = None,
    on_error: OnError = "stop",
) -> Callable[[Flowable[T]], Flowable[R]]:
    """Call `handler([value, ...])` with the events that have arrived, up to the size that pays.

    That size is found by measuring, between 1 and `max_size`: it grows while more events per call
    mean more events per second. `latency` bounds it as well: seconds from the arrival of a call's
    oldest event to its result, on average under load. Events of one group may go into one call, in
    their order. Raises BuildError for invalid options, directly after `group_by`, and for `timeout`
    with a plain handler, which nothing can interrupt.

    >>> from penstock import batch, for_each, from_iterable, run
    >>> def squares(numbers):
    ...     return [number * number for number in numbers]
    >>> report = run(from_iterable([1, 2, 3]).pipe(batch(squares)).to(for_each(print)))
    1
    4
    9
    """
    name = handler_name(handler)
    check_policy(on_error, "batch", retries=True)
    check_handler(handler, "batch", "a list of values")
    require_count("batch", max_size=max_size, parallel=parallel)
    if not is_at_least(max_wait, 0):
        raise BuildError(f"batch(max_wait={max_wait!r}): must be 0 or positive seconds")
    require_seconds("batch", **given(latency=latency))
    check_timeout("batch", handler, timeout)
    # Slow to import, and few pipelines have one.
    from penstock.streams.execution.batch_stage import BatchOptions, BatchStage

    options = BatchOptions(
        handler=handler,
        timeout=timeout,
        on_error=on_error,
        window=max_size,
        parallel=parallel,
        max_size=max_size,
        max_wait=max_wait,
        latency=latency,
    )
    # Waiting events, the results of all calls, undelivered results, and retries.
    bound = 2 * max_size + options.limit * (2 if isinstance(on_error, Retry) else 1)
    note = f"1 to {max_size:,} per call" + (f", {parallel:,} calls at once" if parallel > 1 else "")

    @on_stream
    def operator(source: Flowable[T]) -> Flowable[R]:
        ends = "; order of a group ends here" if source.turns else ""
        info = StageInfo(
            "batch",
            name,
            bound,
            note + ends,
            routed=routed_by(on_error),
            policy=on_error,
            placement=Placement(works=True, work=options),
        )
        return source.then(partial(BatchStage, options=options), info, turns=False)

    return operator
