"""Fail, or go on with another stream, when an Observable emits before the next event comes.

Items:   those of the source, and after the time those of the other stream; unchanged, in order.
Time:    that of the Observables: the first begins with the stream, one more after each event. The
         time is over when one emits or completes.
Memory:  none of its own. A plain Observable in place of the other stream has a buffer of 1,024.
Demand:  requests what is requested of it; what the source has not answered goes to the other one.
         From a timing stream with demand it requests one event, which is dropped as
         "timeout_with_mapper".
Ends:    with the source, or with the other stream. When the time is over the source is cancelled:
         what it holds is returned. A drain begins no other stream. Each event is finished with the
         source that it came from.
Errors:  the source's, the function's and that of an Observable pass through. Without another
         stream, TimeoutError when the time is over.

    source                               --1--2----------3--|
    timeout_with_mapper(…, f, other)     --1--2----a--b|
    f(2)                                      ----x
    other                                         a--b|
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from reactivex import Observable
from reactivex.abc import DisposableBase
from reactivex.disposable import SingleAssignmentDisposable

from penstock.streams.base.errors import CALL_ERRORS
from penstock.streams.base.recorded import recorded
from penstock.streams.boundary.inner_stream import Input
from penstock.streams.execution.handler import called_name
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.blame import error_in
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import CLOSED, Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.loop_scheduler import LoopScheduler
from penstock.streams.rx.combining.inputs import as_stream, check_not_async
from penstock.streams.rx.combining.side_streams import Beside
from penstock.streams.rx.combining.succession import Timed, succession
from penstock.streams.rx.lift import on_stream
from penstock.streams.stages.stream import Stream

__all__ = ["timeout_with_mapper"]

T = TypeVar("T")


@recorded
def timeout_with_mapper(
    first_timeout: Observable[Any] | None = None,
    timeout_duration_mapper: Callable[[T], Observable[Any]] | None = None,
    other: Observable[T] | None = None,
) -> Callable[[Flowable[T]], Flowable[T]]:
    """Fail, or go on with `other`, when an Observable emits or completes before the next event.

    `first_timeout` is the Observable for the first event, `timeout_duration_mapper(value)` that for
    the one after `value`; None is never. Each is unsubscribed from when the event has come. One
    that emits on another thread is passed to the loop.
    """
    check_not_async("timeout_with_mapper", timeout_duration_mapper)
    following = None if other is None else as_stream("timeout_with_mapper", other)
    first: Observable[Any] | Stream[Any] | None = first_timeout
    if first is not None and not isinstance(first, Observable):  # pyright: ignore[reportUnnecessaryIsInstance]
        first = as_stream("timeout_with_mapper", first)

    @on_stream
    def operator(source: Flowable[T]) -> Flowable[T]:
        make = partial(_Timing, first=first, mapper=timeout_duration_mapper, other=following)
        others = [] if following is None else [following]
        makes = timeout_duration_mapper is not None or isinstance(first, Stream)
        info = StageInfo("timeout_with_mapper", delivery=Delivery(makes=makes))
        return succession(source, make, info, others)

    return operator


class _Timing(Timed):
    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        source: Flowable[Any],
        first: Observable[Any] | Stream[Any] | None,
        mapper: Callable[[Any], Observable[Any]] | None,
        other: Stream[Any] | None,
    ) -> None:
        super().__init__(downstream, run, info, source, other)
        self._first = first
        self._mapper = mapper
        # What traces the calls of the function, if that is asked for.
        self._traced = run.traced(info, called_name(mapper))
        # For `Beside`: no result waits here, and no drain ends the time.
        self.pending: deque[Event[Any]] = deque()
        self.source_completed = False
        self._beside = Beside(self)
        self._scheduler = LoopScheduler(run, info)
        self._thread = threading.get_ident()

    def request(self, n: int, /) -> None:
        first, self._first = self._first, None
        self.demand += n
        if first is not None:
            self.within(self._wait_for, first)
        self._drain()

    def came(self, source: Input, events: list[Event[Any]], /) -> None:
        # One by one, because an event's Observable may emit at once.
        self.within(self._each, source, events)

    def _each(self, source: Input, events: list[Event[Any]]) -> None:
        for event in events:
            value, mapper = event.value, self._mapper
            if mapper is not None and self._traced is not None:
                # It is called after the event has gone on, which may have ended then.
                mapper = self._traced.later(mapper, event)
            super().came(source, [event])
            if not self.is_late and self.state < CLOSED:
                self._wait_after(value, mapper)

    def _wait_after(self, value: Any, mapper: Callable[[Any], Observable[Any]] | None) -> None:
        self.stop_timer()
        if mapper is None:
            return
        try:
            timer: Any = mapper(value)
            if not isinstance(timer, Observable):
                # Such as a future; a coroutine is refused there.
                timer = as_stream(self.info.name, timer)
        except CALL_ERRORS as raised:
            self.close(error_in(self.info, raised))
        else:
            self.within(self._wait_for, timer)

    def _wait_for(self, observable: Observable[Any]) -> None:
        if isinstance(observable, Stream):
            observable = self._beside.read(observable, 0, self.info.name)
        if self.state >= CLOSED:
            # The function has cancelled its own stream.
            return
        timer = self.timer = SingleAssignmentDisposable()

        def emitted(_: object = None) -> None:
            self._here(timer, None)

        def failed(error: Exception) -> None:
            self._here(timer, error)

        timer.disposable = observable.subscribe(emitted, failed, emitted, scheduler=self._scheduler)

    def _here(self, timer: DisposableBase, error: Exception | None) -> None:
        """Pass a signal to the stream's own thread."""
        if threading.get_ident() == self._thread or not self.run.has_loop:
            self._late(timer, error)
        else:
            self.run.call_soon_threadsafe(self.info, self._late, timer, error)

    def _late(self, timer: DisposableBase, error: Exception | None) -> None:
        if timer is not self.timer or self.state or self.is_late:
            return
        if error is None:
            self.expire()
        else:
            self.is_late = True
            self.close(error)
