"""Adapts a plain Observable, which has no demand, to a Flowable with an overflow strategy."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from reactivex import Observable
from reactivex.abc import DisposableBase

from penstock.streams.errors import BufferFull, BuildError, NoLoop
from penstock.streams.flowable import Flowable
from penstock.streams.protocol.source_stage import SourceStage
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.runtime.context import Run
from penstock.streams.rx.scheduler import LoopScheduler
from penstock.streams.validation import is_count

__all__ = [
    "Overflow",
    "buffer",
    "drop_newest",
    "drop_oldest",
    "error",
    "from_observable",
    "latest",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Overflow:
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


def from_observable(observable: Observable[T], on_overflow: Overflow) -> Flowable[T]:
    """Give a plain Observable demand, with an overflow strategy for a slow reader.

        observable            --1--2--3--4--|
        request               2---------1---
        of(…, buffer(8))      --1--2----3---4|    4 waits for one more request

    Items:   the Observable's values; those that overflow are dropped and counted, or an error.
    Time:    as they come, or as they are requested. A value from another thread is passed to the
             loop; until the loop takes it, it waits like a value that is not requested yet.
    Memory:  as many values as the strategy allows.
    Demand:  the Observable is subscribed to at the first request and has no demand itself.
    Ends:    with the Observable, after the values that wait. Cancel and drain dispose of the
             subscription.
    Errors:  the Observable's error passes on after the values that wait; BufferFull for an
             overflow; NoLoop for a value from another thread when there is no loop to take it.
    """
    if isinstance(observable, Flowable):
        return observable
    if not isinstance(observable, Observable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BuildError(f"Flowable.of() takes an Observable, not {type(observable).__name__}")
    if not isinstance(on_overflow, Overflow):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BuildError(
            f"on_overflow={on_overflow!r}: use buffer(n), drop_oldest(n), drop_newest(n), "
            "latest() or error()"
        )
    info = StageInfo("of", on_overflow.name, on_overflow.size)

    def attach(downstream: Subscriber[T], run: Run) -> None:
        _Listening(downstream, run, info, observable, on_overflow).start()

    return Flowable(attach, info)


class _Elsewhere(Generic[T]):
    """Values from other threads, until the stream's own thread takes them.

    They are bounded like values that are not requested yet, by the same strategy.
    """

    def __init__(self, overflow: Overflow) -> None:
        self._overflow = overflow
        self._lock = threading.Lock()
        self._values: deque[tuple[T, float]] = deque()
        self._dropped = 0
        self._ending: tuple[BaseException | None] | None = None
        self._is_told = False

    def put(self, value: T, created: float, room: int) -> bool:
        """Keep a value, if fewer than `room` wait; return whether to notify the stream's thread."""
        with self._lock:
            if self._ending is None:
                if len(self._values) < room:
                    self._values.append((value, created))
                elif self._overflow.when_full == "error":
                    self._ending = (_too_many(self._overflow),)
                else:
                    self._dropped += 1
                    if self._overflow.when_full == "drop_oldest":
                        self._values.append((value, created))
                        self._values.popleft()
            return self._is_news()

    def end(self, error: BaseException | None) -> bool:
        """Keep the terminal signal, which comes after the values."""
        with self._lock:
            if self._ending is None:
                self._ending = (error,)
            return self._is_news()

    def _is_news(self) -> bool:
        told, self._is_told = self._is_told, True
        return not told

    def take(self) -> tuple[deque[tuple[T, float]], int, tuple[BaseException | None] | None]:
        """The values, how many others were dropped, and the terminal signal if it has come."""
        if not self._is_told:
            return deque(), 0, None
        with self._lock:
            taken = self._values, self._dropped, self._ending
            self._values, self._dropped, self._is_told = deque(), 0, False
            return taken

    def __len__(self) -> int:
        return len(self._values)


class _Listening(SourceStage[T]):
    _subscription: DisposableBase | None = None
    _ending: tuple[BaseException | None] | None = None
    _subscribed = False

    def __init__(
        self,
        downstream: Subscriber[T],
        run: Run,
        info: StageInfo,
        observable: Observable[T],
        on_overflow: Overflow,
    ) -> None:
        super().__init__(downstream, run, info)
        self._observable = observable
        self._overflow = on_overflow
        self._waiting: deque[tuple[T, float]] = deque()
        self._thread = threading.get_ident()
        self._elsewhere = _Elsewhere[T](on_overflow)
        self._taken: deque[tuple[T, float]] = deque()

    def produce(self) -> None:
        if not self._subscribed:
            self._subscribed = True
            scheduler = LoopScheduler(self.run, self.info)
            subscription = self._observable.subscribe(
                self._on_value, self._on_error, self._on_completed, scheduler=scheduler
            )
            if self.done:
                subscription.dispose()
            else:
                self._subscription = subscription
        self._deliver()

    def _deliver(self) -> None:
        waiting = self._waiting
        while self.demand and waiting:
            self.emit(*waiting.popleft())
        if self._ending is not None and not waiting:
            (error,) = self._ending
            if error is None:
                self.complete()
            else:
                self.error(error)

    # Signals of the Observable, on any thread.

    def _on_value(self, value: T) -> None:
        if self._is_here():
            self._take(value, self.run.now())
        elif not (self.done or self._ending):
            room = self.demand + self._overflow.size
            if self._overflow.when_full != "drop_oldest":
                room -= len(self._waiting)
            self._hand_over(self._elsewhere.put(value, self.run.now(), room))

    def _on_error(self, error: Exception) -> None:
        if self._is_here():
            self._end(error)
        else:
            self._hand_over(self._elsewhere.end(error))

    def _on_completed(self) -> None:
        if self._is_here():
            self._end(None)
        else:
            self._hand_over(self._elsewhere.end(None))

    def _is_here(self) -> bool:
        """Whether this is the stream's own thread, which first takes the values that wait."""
        if threading.get_ident() != self._thread:
            return False
        self._take_in()
        return True

    def _hand_over(self, is_first: bool) -> None:
        if not self.run.has_loop:
            self._end(
                NoLoop(
                    "The Observable emits on another thread, and there is no loop that could take "
                    "it over. Read the stream inside async code, or in a pipeline that is run."
                )
            )
            self._dispose()
        elif is_first:
            # Values that come after the loop has gone are not read.
            with suppress(RuntimeError):
                self.run.call_soon_threadsafe(self.info, self._take_in)

    # On the stream's own thread.

    def _take_in(self) -> None:
        """Take the values from other threads, in order."""
        values, dropped, ending = self._elsewhere.take()
        if dropped:
            self._dropped(dropped)
        self._taken.extend(values)
        # The code that is called may push a value too, which comes after these.
        while self._taken:
            self._take(*self._taken.popleft())
        if ending is not None:
            self._end(*ending)
            self._dispose()

    def _take(self, value: T, now: float) -> None:
        if self.done or self._ending is not None:
            return
        if self.demand and not self._waiting:
            self.emit(value, now)
            return
        if len(self._waiting) >= self._overflow.size:
            if self._overflow.when_full == "error":
                self._end(_too_many(self._overflow))
                self._dispose()
                return
            self._dropped(1)
            if self._overflow.when_full == "drop_newest":
                return
            self._waiting.popleft()
        self._waiting.append((value, now))

    def _dropped(self, n: int) -> None:
        self.received += n
        self.drops["overflow"] = self.drops.get("overflow", 0) + n

    def _end(self, error: BaseException | None) -> None:
        if self._ending is None:
            self._ending = (error,)
            if not self._waiting and not self.demand_withheld:
                self._deliver()

    def stop(self) -> None:
        """Stop listening; values that have arrived are still delivered."""
        self._dispose()
        self._take_in()
        self._end(None)

    def resume(self) -> None:
        super().resume()
        if self._ending is not None and not self.done:
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
        return {**super().statistics(), "buffered": len(self._waiting) + len(self._elsewhere)}


def _too_many(overflow: Overflow) -> BufferFull:
    waiting, advice = "", "or enter with buffer(n) or drop_oldest(n)"
    if overflow.size:
        waiting = f", with {overflow.size:,} waiting already"
        advice = "raise buffer(n), or enter with drop_oldest(n)"
    return BufferFull(
        f"A value came that was not requested{waiting} (Flowable.of, "
        f"on_overflow={overflow.name}). Slow the source, {advice}."
    )
