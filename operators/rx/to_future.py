"""Make a future of a stream's last value.

Items:   none: the result is a future, which gets the last value when the stream has ended.
Time:    the stream is read from the next loop iteration on.
Memory:  one value.
Demand:  requests all: each event is finished when its value is there, and a newer one replaces it.
Ends:    with the source. A future that is cancelled cancels the stream.
Errors:  the source's error is the future's; SequenceContainsNoElementsError of reactivex if there
         is no value, NoLoop without a running loop.

    source       --1--2--3|
    to_future()            3
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from reactivex import Observable
from reactivex import operators as stock
from reactivex.abc import DisposableBase, ObserverBase, SchedulerBase
from reactivex.disposable import SingleAssignmentDisposable

from penstock.streams.base.recorded import recorded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import Last, on_stream

__all__ = ["to_future"]

T = TypeVar("T")


@recorded
def to_future(
    future_ctor: Callable[[], asyncio.Future[Any]] | None = None,
    scheduler: SchedulerBase | None = None,
) -> Callable[[Flowable[T]], asyncio.Future[T]]:
    """A future of the last value: `await stream.pipe(ops.to_future())`.

    `future_ctor` makes the future; by default one of the running loop. A `scheduler` is ignored:
    the time is the loop's. The last operator of a pipe, because it returns no stream.
    """

    @on_stream
    def operator(source: Flowable[T]) -> asyncio.Future[T]:
        loop = Run().loop_for("to_future")

        def subscribe(observer: ObserverBase[T], _: SchedulerBase | None) -> DisposableBase:
            subscription = SingleAssignmentDisposable()

            def begin() -> None:
                if not subscription.is_disposed:
                    subscription.disposable = source.subscribe(observer)

            loop.call_soon(begin)
            return subscription

        future: asyncio.Future[T] = stock.to_future(future_ctor or loop.create_future)(
            Observable(subscribe)
        )
        return future

    return Last(operator)
