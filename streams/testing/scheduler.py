"""Runs a stream on a scheduler of reactivex, such as the `TestScheduler` with its virtual time.

    from reactivex import operators as ops
    from reactivex.testing import ReactiveTest, TestScheduler

    scheduler = TestScheduler()
    source = scheduler.create_hot_observable(ReactiveTest.on_next(210, "a"))
    stream = Flowable.of(source, buffer(8)).pipe(ops.debounce(20))
    result = scheduler.start(lambda: on_scheduler(stream))
    assert result.messages == [ReactiveTest.on_next(230, "a")]

The stream runs as on any event loop; its loop is a `SchedulerLoop`, whose clock and callbacks are
those of the scheduler. So a stream can be compared with the operators of reactivex, to the tick.
"""

from __future__ import annotations

import asyncio
from asyncio import Handle, TimerHandle
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, Literal, TypeVar, TypeVarTuple

from reactivex import Observable
from reactivex.abc import DisposableBase, ObserverBase, SchedulerBase
from reactivex.disposable import Disposable

from penstock.streams.base.clock import running_loop
from penstock.streams.base.validation import require_count
from penstock.streams.boundary.strict_subscriber import connect
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import UNBOUNDED, Subscription

__all__ = ["SchedulerLoop", "on_scheduler"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def on_scheduler(
    stream: Flowable[T], scheduler: SchedulerBase | None = None, *, request: int | None = None
) -> Observable[T]:
    """A plain Observable that runs `stream` on a scheduler of reactivex, for tests.

    The scheduler is `scheduler`, or the one with which the Observable is subscribed, as
    `TestScheduler.start` does; without either, `stream` is subscribed as it is. Its times are in
    seconds, so a tick of a `TestScheduler` is a second. It must run its actions on one thread.

    `request` values are requested at first, and one more after each; by default the demand is
    unbounded. An event is finished when the observer has returned. An exception that no subscriber
    receives is raised by the scheduler, out of `start` or `advance_to`.
    """
    if request is not None:
        require_count("on_scheduler", request=request)

    def subscribe(observer: ObserverBase[T], given: SchedulerBase | None = None) -> DisposableBase:
        chosen = scheduler or given
        reader = _Reading(observer, request)
        if chosen is None:
            return Disposable(connect(stream, reader).cancel)
        with SchedulerLoop.of(chosen).entered():
            return Disposable(connect(stream, reader).cancel)

    return Observable(subscribe)


class _Reading:
    """Passes values to a plain observer, and requests."""

    _subscription: Subscription

    def __init__(self, observer: ObserverBase[Any], request: int | None) -> None:
        self._observer = observer
        self._request = request

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._subscription = subscription
        subscription.request(UNBOUNDED if self._request is None else self._request)

    def on_next(self, event: Event[Any], /) -> None:
        self._observer.on_next(event.value)
        event.finish()
        if self._request is not None:
            self._subscription.request(1)

    def on_error(self, error: BaseException, /) -> None:
        if not isinstance(error, Exception):
            raise error
        self._observer.on_error(error)

    def on_completed(self) -> None:
        self._observer.on_completed()


class SchedulerLoop(asyncio.AbstractEventLoop):
    """An event loop whose time and callbacks are those of a scheduler of reactivex.

    It has tasks, futures and timers, and no threads, sockets or processes. The scheduler runs it:
    it is the running loop inside its own callbacks and inside `entered`.
    """

    # Its time is read from the scheduler and from no clock.
    virtual: Literal[True] = True

    def __init__(self, scheduler: SchedulerBase) -> None:
        self._scheduler = scheduler

    @property
    def scheduler(self) -> SchedulerBase:
        """The scheduler that it runs on."""
        return self._scheduler

    @classmethod
    def of(cls, scheduler: SchedulerBase) -> SchedulerLoop:
        """The loop that runs now, if it is one of this scheduler, or a new one."""
        running = running_loop()
        if isinstance(running, cls) and running._scheduler is scheduler:
            return running
        return cls(scheduler)

    @contextmanager
    def entered(self) -> Generator[None]:
        """It is the running loop inside."""
        outer = running_loop()
        # How asyncio has an event loop of another kind declare that it runs.
        asyncio._set_running_loop(self)  # pyright: ignore[reportPrivateUsage]
        try:
            yield
        finally:
            asyncio._set_running_loop(outer)  # pyright: ignore[reportPrivateUsage]

    def time(self) -> float:
        """The scheduler's time, in seconds."""
        return self._scheduler.to_seconds(self._scheduler.now)

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> Handle:
        """Call at the present time, after what is due already."""
        handle = _Handle(self.time(), callback, args, self, context)
        handle.scheduled = self._scheduler.schedule(self._due, handle)
        return handle

    # Schedulers run on one thread here: see `on_scheduler`.
    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        """Call after so many seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        """Call at a time of the scheduler, in seconds."""
        handle = _Handle(when, callback, args, self, context)
        due = self._scheduler.to_datetime(when)
        handle.scheduled = self._scheduler.schedule_absolute(due, self._due, handle)
        return handle

    def _due(self, _: SchedulerBase, handle: _Handle | None) -> None:
        assert handle is not None
        with self.entered():
            handle.call()

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        """A task of this loop."""
        return asyncio.Task(coro, loop=self, name=name, **options)

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Raise the error out of the scheduler, in an action of its own."""
        error = context.get("exception")
        raised = error if error is not None else RuntimeError(context.get("message"))

        def report(*_: Any) -> None:
            raise raised

        self._scheduler.schedule(report)

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """asyncio calls this for each timer that is cancelled."""


class _Handle(TimerHandle):
    """A callback that the scheduler will make; a cancelled one is taken out of the scheduler."""

    scheduled: DisposableBase | None = None

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self._call = callback, args, context

    def call(self) -> None:
        """Call unless it is cancelled."""
        callback, args, context = self._call
        if self.cancelled():
            return
        if context is None:
            callback(*args)
        else:
            context.run(callback, *args)

    def cancel(self) -> None:
        super().cancel()
        if self.scheduled is not None:
            self.scheduled.dispose()
