"""In-memory twins of what a pipeline begins and ends in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

from streams.event import Ending, Event
from streams.flowable import Flowable
from streams.run import Run
from streams.sink import Closed, Sink, SinkStage
from streams.source import Emission
from streams.stage import StageInfo, Subscriber, Subscription
from streams.testing.ledger import Ledger

__all__ = ["CountedSource", "MemorySink", "MemorySource"]

T = TypeVar("T")


class CountedSource(Flowable[T]):
    """A stream of items that counts how many of them were emitted.

    Each connection iterates anew, one item for each unit of demand; `emitted` and `ledger` are
    about all connections together.
    """

    def __init__(self, items: Iterable[T]) -> None:
        super().__init__(self._start, StageInfo("counted"))
        self.emitted = 0
        self.ledger = Ledger()
        self._items = items

    def _start(self, downstream: Subscriber[T], run: Run) -> None:
        _Emitting(downstream, run, self.info, self._count(), self.ledger).start()

    def _count(self) -> Iterator[T]:
        iterator = iter(self._items)
        try:
            for item in iterator:
                self.emitted += 1
                yield item
        finally:
            close: Callable[[], None] | None = getattr(iterator, "close", None)
            if close is not None:
                close()


class MemorySource(Flowable[T]):
    """The twin of a source that acknowledges, such as a queue: it knows the fate of each item.

    An item that finished, was dropped, skipped or routed is acknowledged and gone. One that
    failed or was returned stays, and `redeliver` offers it again. Connections share the items,
    as the consumers of a queue do, and complete when none is left to offer.
    """

    def __init__(self, items: Iterable[T] = ()) -> None:
        super().__init__(self._start, StageInfo("memory"))
        self.ledger = Ledger()
        self._ready: deque[T] = deque()
        self._rest = iter(items)
        self._kept: list[T] = []

    @property
    def acked(self) -> list[T]:
        """The items that may be forgotten, in the order of the acknowledgements."""
        return self.ledger.ended(Ending.FINISHED, Ending.DROPPED, Ending.FORGIVEN)

    @property
    def failed(self) -> list[T]:
        """The items that failed and were not acknowledged; once more for each attempt."""
        return self.ledger.ended(Ending.FAILED)

    @property
    def returned(self) -> list[T]:
        """The items that were given back unfinished; once more for each time."""
        return self.ledger.ended(Ending.RETURNED)

    @property
    def unsettled(self) -> list[T]:
        """The items that are under way."""
        return self.ledger.unsettled

    def redeliver(self) -> int:
        """Offer what failed or was returned again, ahead of the rest; returns how many."""
        kept, self._kept = self._kept, []
        self._ready.extendleft(reversed(kept))
        return len(kept)

    def _start(self, downstream: Subscriber[T], run: Run) -> None:
        emission = _Emitting(downstream, run, self.info, self._offer(), self.ledger)
        emission.keep = self._kept_back
        emission.start()

    def _kept_back(self, item: T) -> None:
        self._kept.append(item)

    def _offer(self) -> Iterator[T]:
        while True:
            while self._ready:
                yield self._ready.popleft()
            try:
                item = next(self._rest)
            except StopIteration:
                return
            yield item


class _Emitting(Emission[Any]):
    """Emits an iterator's items, and enters each of its events in a ledger."""

    keep: Callable[[Any], None] | None = None

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        items: Iterator[Any],
        ledger: Ledger,
    ) -> None:
        super().__init__(downstream, run, info)
        self._items = items
        self._ledger = ledger

    def produce(self) -> None:
        while self.demand:
            try:
                item = next(self._items)
            except StopIteration:
                self.complete()
            except Exception as error:
                self.error(error)
            else:
                self.demand -= 1
                self.received += 1
                event = Event(item, self.run.now(), self)
                self.downstream.on_next(self._ledger.enter(event))

    def release(self) -> None:
        close: Callable[[], None] | None = getattr(self._items, "close", None)
        if close is not None and not getattr(self._items, "gi_running", False):
            try:
                close()
            except Exception as error:
                self.run.failed(error)

    def finished(self, event: Event[Any], /) -> None:
        self._ledger.end(event, Ending.FINISHED)
        super().finished(event)

    def finished_all(self, events: list[Event[Any]], /) -> None:
        for event in events:
            self.finished(event)

    def dropped(self, event: Event[Any], cause: str, /) -> None:
        self._ledger.end(event, Ending.DROPPED)
        super().dropped(event, cause)

    def failed(self, event: Event[Any], error: BaseException, acknowledged: bool, /) -> None:
        item = self._ledger.end(event, Ending.FORGIVEN if acknowledged else Ending.FAILED)
        if self.keep is not None and not acknowledged:
            self.keep(item)
        super().failed(event, error, acknowledged)

    def returned(self, event: Event[Any], /) -> None:
        item = self._ledger.end(event, Ending.RETURNED)
        if self.keep is not None:
            self.keep(item)
        super().returned(event)


class MemorySink(Sink[Any]):
    """The twin of a sink: records what it accepted, and when; may be slow, stuck or broken.

    At once unless told otherwise. `seconds` is the loop time that each value takes, one after
    the other, the next asked for when the one before is accepted. With `hold=True` a value is
    accepted when the test says `accept()`. `fail(error)` makes the next value the end.

    `accepted` is (time, value) of each value, over all runnings; memory grows with it.
    """

    info = StageInfo("memory")

    def __init__(self, *, seconds: float = 0.0, hold: bool = False) -> None:
        if seconds < 0 or (seconds and hold):
            raise ValueError(
                f"MemorySink(seconds={seconds}, hold={hold}): either the clock accepts, "
                "after 0 seconds or more, or the test does"
            )
        self.accepted: list[tuple[float, Any]] = []
        self.closed = 0
        """Runnings that have ended in this sink."""
        self._seconds = seconds
        self._hold = hold
        self._error: BaseException | None = None
        self._stages: list[_MemoryStage] = []

    @property
    def values(self) -> list[Any]:
        """The accepted values, in order."""
        return [value for _, value in self.accepted]

    @property
    def waiting(self) -> list[Any]:
        """The values that have arrived and are not accepted yet."""
        return list(chain.from_iterable(stage.waiting for stage in self._stages))

    def accept(self, n: int = 1) -> None:
        """Accept the next `n` values: those that wait now, and then those that come."""
        assert self._hold, "this sink accepts by itself: MemorySink(hold=True) waits"
        for stage in self._stages:
            stage.let(n)

    def fail(self, error: BaseException) -> None:
        """Break off, with this error, instead of accepting the next value."""
        self._error = error

    def open(self, run: Run, closed: Closed) -> SinkStage[Any]:
        def ended(error: BaseException | None) -> None:
            self.closed += 1
            closed(error)

        stage = _MemoryStage(self, run, ended, None if self._hold else self._seconds)
        self._stages.append(stage)
        return stage

    def take(self, now: float, value: Any) -> None:
        """Record a value, or raise the error that was set."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        self.accepted.append((now, value))


class _MemoryStage(SinkStage[Any]):
    """Holds one event at a time, unless it accepts at once."""

    def __init__(self, sink: MemorySink, run: Run, closed: Closed, seconds: float | None) -> None:
        super().__init__(closed)
        self._sink = sink
        self._run = run
        self._seconds = seconds
        self._held: Event[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._allowed = 0
        self._completed = False

    @property
    def waiting(self) -> list[Any]:
        return [] if self._held is None else [self._held.value]

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self._seconds == 0:
            super().on_subscribe(subscription)
        else:
            self.upstream = subscription
            subscription.request(1)

    def accept(self, event: Event[Any]) -> None:
        self._sink.take(self._run.now(), event.value)

    def on_next(self, event: Event[Any], /) -> None:
        if self._seconds == 0:
            super().on_next(event)
            return
        self._held = event
        if self._seconds is not None:
            self._timer = self._run.loop.call_later(self._seconds, self._accept_held)
        elif self._allowed:
            self._allowed -= 1
            self._accept_held()

    def let(self, n: int) -> None:
        self._allowed += n
        while self._allowed and self._held is not None:
            self._allowed -= 1
            self._accept_held()

    def _accept_held(self) -> None:
        held, self._held, self._timer = self._held, None, None
        assert held is not None
        super().on_next(held)
        if self._completed:
            self.close()
        elif self._closed is not None:
            self.upstream.request(1)

    def on_completed(self) -> None:
        self._completed = True
        if self._held is None:
            self.close()

    def on_error(self, error: BaseException, /) -> None:
        self._give_back()
        self.close(error)

    def cancel(self) -> None:
        self._give_back()
        self.close()

    def _give_back(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, None
        if held is not None:
            held.give_back()

    def statistics(self) -> dict[str, Any]:
        """Values that wait to be accepted."""
        return {"waiting": len(self.waiting)}
