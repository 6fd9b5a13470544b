"""Adapts a plain Observable, which has no demand, to a Flowable with an overflow strategy."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Literal, NamedTuple, TypeVar

from reactivex import Observable
from reactivex.abc import DisposableBase

from penstock.streams.base.errors import BufferFull, BuildError, NoLoop, describe
from penstock.streams.base.validation import is_count
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.loop_scheduler import LoopScheduler
from penstock.streams.stages.source_stage import BaseSourceStage
from penstock.streams.stages.stream import Stream

__all__ = [
    "UNASKED",
    "Overflow",
    "buffer",
    "drop_newest",
    "drop_oldest",
    "error",
    "from_observable",
    "latest",
]

T = TypeVar("T")

_OF = "Flowable.of"

UNASKED = 1024
"""How many values of an Observable wait that came without a strategy, inside another stream."""


class Overflow(NamedTuple):
    """The overflow strategy for values of a plain Observable that are not requested yet.

    `name` is how it is written, with its argument.
    """

    name: str
    size: int
    when_full: Literal["error", "drop_oldest", "drop_newest"]


def _sized(name: str, n: int, when_full: Any) -> Overflow:
    if not is_count(n):
        raise BuildError(f"{name}({n!r}): at least 1 value must fit")
    return Overflow(f"{name}({n})", n, when_full)


def buffer(n: int) -> Overflow:
    """Keep up to `n` values; one more is the error BufferFull."""
    return _sized("buffer", n, "error")


def drop_oldest(n: int = 1024) -> Overflow:
    """Keep the `n` newest values; each one dropped is counted."""
    return _sized("drop_oldest", n, "drop_oldest")


def drop_newest(n: int = 1024) -> Overflow:
    """Keep the `n` oldest values; each one dropped is counted."""
    return _sized("drop_newest", n, "drop_newest")


def latest() -> Overflow:
    """Keep only the newest value; each one it replaces is counted."""
    return Overflow("latest()", 1, "drop_oldest")


def error() -> Overflow:
    """Keep nothing: a value that was not requested is the error BufferFull."""
    return Overflow("error()", 0, "error")


def from_observable(
    observable: Observable[T], on_overflow: Overflow | None, reader: str = _OF
) -> Stream[T]:
    """Give a plain Observable demand, with an overflow strategy for a slow reader.

        observable            --1--2--3--4--|
        request               2---------1---
        of(…, buffer(8))      --1--2----3---4|    4 waits for one more request

    Items:   the Observable's values; those that overflow are dropped and counted, or an error.
    Time:    as they come, or as they are requested. A value from another thread is passed to the
             loop, in the order of arrival at all sources of the running; until the loop takes it,
             it waits like a value that is not requested yet.
    Memory:  as many values as the strategy allows.
    Demand:  the Observable is subscribed to at the first request and has no demand itself.
    Ends:    with the Observable, after the values that wait. Cancel and drain dispose of the
             subscription.
    Errors:  the Observable's error passes on after the values that wait; BufferFull for an
             overflow; NoLoop for a value from another thread when there is no loop to take it.
             They name the `reader`, what the user has given the Observable to.
    """
    if isinstance(observable, Stream):
        return observable
    if not isinstance(observable, Observable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BuildError(f"Flowable.of() takes an Observable, not {type(observable).__name__}")
    if not isinstance(on_overflow, Overflow):
        # One easily gives the function itself.
        given = getattr(on_overflow, "__name__", None) or describe(on_overflow, 80)
        raise BuildError(
            f"Flowable.of(observable, on_overflow={given}): an Observable has no demand. For what "
            "comes before it is requested, use buffer(n), drop_oldest(n), drop_newest(n), latest() "
            "or error() of penstock"
        )
    info = StageInfo("of", on_overflow.name, on_overflow.size)

    def attach(downstream: Subscriber[T], run: Run) -> None:
        _Listening(downstream, run, info, observable, on_overflow, reader).start()

    return Stream(attach, info)


class _Listening(BaseSourceStage):
    """`_waiting` are the values that have arrived, from any thread, and are not emitted yet."""

    is_of_values = True

    _subscription: DisposableBase | None = None
    _ending: tuple[BaseException | None] | None = None
    _subscribed = False
    _overflowed = 0
    # How many of the values that wait, the newest ones, are still to come to the loop, in the order
    # of what other sources have got.
    _to_come = 0

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        observable: Observable[Any],
        on_overflow: Overflow,
        reader: str,
    ) -> None:
        super().__init__(downstream, run, info)
        self._observable = observable
        self._reader = reader
        self._scheduler = LoopScheduler(run, info, who=f"{reader} reads an Observable that")
        self._overflow = on_overflow
        self._waiting: deque[tuple[Any, float]] = deque()
        self._thread = threading.get_ident()
        self._lock = threading.Lock()

    def produce(self) -> None:
        if not self._subscribed:
            self._subscribed = True
            # Inside the scheduler, which lets it emit when it has subscribed, and not before: then
            # one that emits at once can be unsubscribed from half-way.
            self._scheduler.schedule(self._subscribe)
        self._deliver()

    def _subscribe(self, *_: object) -> None:
        subscription = self._observable.subscribe(
            self._on_value, self._end, lambda: self._end(None), scheduler=self._scheduler
        )
        if self.state or self._ending is not None:
            subscription.dispose()
        else:
            self._subscription = subscription

    # On any thread.

    def _on_value(self, value: Any) -> None:
        if not (self._is_here() or self.run.has_loop):
            self._end(
                NoLoop(
                    f"{self._reader} reads an Observable that emits on another thread, and there "
                    "is no running event loop to pass its values to. Subscribe inside async code, "
                    "or end the stream with .to(sink) and run the pipeline: `run(pipeline)`."
                )
            )
            return
        waiting, overflow = self._waiting, self._overflow
        count = 1
        with self._lock:
            if self.state or self._ending is not None:
                return
            if len(waiting) < self.demand + overflow.size:
                waiting.append((value, self.run.now()))
                # A value of the loop's own thread is there, and so is what came before it.
                self._to_come = 0 if self._is_here() else self._to_come + 1
            elif overflow.when_full == "error":
                self._ending = (_too_many(overflow, self._reader),)
            else:
                # One takes the place of another, or is not kept.
                count = 0
                self._overflowed += 1
                if overflow.when_full == "drop_oldest":
                    waiting.append((value, self.run.now()))
                    waiting.popleft()
                if self._overflowed > 1:
                    # The loop is told already that there are some.
                    return
        self._deliver_soon(count)

    def _end(self, error: BaseException | None) -> None:
        """Complete, or fail, after the values that wait."""
        with self._lock:
            if self._ending is None:
                self._ending = (error,)
        self._deliver_soon(0)

    def _is_here(self) -> bool:
        return threading.get_ident() == self._thread

    def _deliver_soon(self, count: int) -> None:
        """Deliver what has arrived, on the stream's own thread if there is a loop.

        From another thread `count` values more, in the order of what comes to other sources.
        """
        if self._is_here() or not self.run.has_loop:
            self._deliver()
        else:
            self.run.arrivals.add(self, count)

    # On the stream's own thread.

    def came(self, count: int, /) -> None:
        with self._lock:
            self._to_come = max(0, self._to_come - count)
        self._deliver()

    def _deliver(self) -> None:
        with self._lock:
            dropped, self._overflowed = self._overflowed, 0
        if dropped:
            self.received += dropped
            self.drops["overflow"] = self.drops.get("overflow", 0) + dropped
        while (item := self._next()) is not None:
            self.emit(*item)
        if self._ending is None or self.state:
            return
        self._dispose()
        if not self._waiting and not self.demand_withheld:
            (error,) = self._ending
            if error is None:
                self.complete()
            else:
                self.fail(error)

    def _next(self) -> tuple[Any, float] | None:
        with self._lock:
            there = len(self._waiting) > self._to_come
            return self._waiting.popleft() if self.demand and there else None

    def stop(self) -> None:
        """Dispose of the subscription; what has arrived is still delivered."""
        self._end(None)

    def resume(self) -> None:
        super().resume()
        self._deliver()

    def release(self) -> None:
        self.received += len(self._waiting)
        self.counts["returned"] += len(self._waiting)
        self._waiting.clear()
        self._dispose()

    def _dispose(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.dispose()

    def statistics(self) -> dict[str, Any]:
        return {**super().statistics(), "buffered": len(self._waiting)}


def _too_many(overflow: Overflow, reader: str) -> BufferFull:
    waiting, advice = "", "or enter with buffer(n) or drop_oldest(n)"
    if overflow.size:
        waiting = f", with {overflow.size:,} waiting already"
        advice = "raise buffer(n), or enter with drop_oldest(n)"
    if reader != _OF:
        advice = "or give it as Flowable.of(observable, on_overflow=...), with a larger buffer(n)"
    return BufferFull(
        f"A value came that was not requested{waiting} ({reader}, "
        f"on_overflow={overflow.name}). Slow the source, {advice}."
    )
