"""The border at which a plain Observable, which knows no demand, enters."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from reactivex import Observable
from reactivex.abc import DisposableBase

from streams.arguments import is_count
from streams.errors import BufferFull, BuildError
from streams.flowable import Flowable
from streams.run import Run
from streams.scheduler import LoopScheduler
from streams.source import Emission
from streams.stage import StageInfo, Subscriber

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
    """What happens to values of a plain Observable that nobody has asked for yet.

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
    """Keep nothing: a value that nobody has asked for is the error BufferFull."""
    return Overflow("error()", 0, "error")


def from_observable(observable: Observable[T], on_overflow: Overflow) -> Flowable[T]:
    """Give a plain Observable demand, with a named answer to a slow reader.

        observable            --1--2--3--4--|
        request               2---------1---
        of(…, buffer(8))      --1--2----3---4|    4 waits for one more request

    Items:   the Observable's values; those that overflow are dropped and counted, or an error.
    Time:    as they come, or as they are asked for.
    Memory:  as many values as the strategy says.
    Demand:  the Observable is subscribed to at the first request and knows no demand itself.
    Ends:    with the Observable, after what waits. Cancel and drain dispose of the subscription.
    Errors:  the Observable's error passes on after what waits; BufferFull for an overflow.
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


class _Listening(Emission[T]):
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

    def produce(self) -> None:
        if not self._subscribed:
            self._subscribed = True
            scheduler = LoopScheduler(lambda: self.run.loop, self.run.now)
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

    def _on_value(self, value: T) -> None:
        if self.done or self._ending is not None:
            return
        now = self.run.now()
        if self.demand and not self._waiting:
            self.emit(value, now)
            return
        if len(self._waiting) >= self._overflow.size:
            if self._overflow.when_full == "error":
                self._end(_too_many(self._overflow))
                self._dispose()
                return
            self.received += 1
            self.drops["overflow"] = self.drops.get("overflow", 0) + 1
            if self._overflow.when_full == "drop_newest":
                return
            self._waiting.popleft()
        self._waiting.append((value, now))

    def _on_error(self, error: Exception) -> None:
        self._end(error)

    def _on_completed(self) -> None:
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if self._ending is None:
            self._ending = (error,)
            if not self._waiting and not self.demand_withheld:
                self._deliver()

    def stop(self) -> None:
        """Listen no longer; what has arrived is still delivered."""
        self._dispose()
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
        return {**super().statistics(), "buffered": len(self._waiting)}


def _too_many(overflow: Overflow) -> BufferFull:
    waiting, advice = "", "or enter with buffer(n) or drop_oldest(n)"
    if overflow.size:
        waiting = f", with {overflow.size:,} waiting already"
        advice = "raise buffer(n), or enter with drop_oldest(n)"
    return BufferFull(
        f"A value came that nobody has asked for{waiting} (Flowable.of, "
        f"on_overflow={overflow.name}). Slow the source, {advice}."
    )
