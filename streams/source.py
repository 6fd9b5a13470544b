"""What every running source does: count demand, stamp and count events, pause and stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from streams.event import Event
from streams.run import Run
from streams.stage import StageInfo, Subscriber

__all__ = ["Emission"]

T = TypeVar("T")

# The loop gets a turn at least this often, however fast events can be made (seconds).
_SLICE = 0.005
_LARGEST_CHUNK = 256


class Emission(Generic[T]):
    """One running of a source: the subscription of the first stage, the origin of the events.

    A source implements `produce`, which is called while there is demand and never while it
    runs, and calls `emit` for each value; `release` frees what it holds and is called once,
    however the stream ends. A source that can acknowledge sets `ack`, and one that takes
    events back sets `nack`; both get the event.
    """

    ack: Callable[[Event[Any]], None] | None = None
    nack: Callable[[Event[Any]], None] | None = None

    def __init__(self, downstream: Subscriber[T], run: Run, info: StageInfo) -> None:
        self.downstream = downstream
        self.run = run
        self.demand = 0
        self.done = False
        self.counts: dict[str, int] = {"in": 0, "finished": 0, "failed": 0, "returned": 0}
        self.drops: dict[str, int] = {}
        self._finished = 0
        self.received = 0
        self._withheld: int | None = None
        self._producing = False
        self._chunk = 1
        run.add_source(info, self)

    def start(self) -> None:
        """Greet the first stage."""
        self.downstream.on_subscribe(self)

    def produce(self) -> None:
        """Emit while `self.demand` lasts; come back with `wake` when more has arrived."""
        raise NotImplementedError

    def release(self) -> None:
        """Free what the source holds."""

    def request(self, n: int, /) -> None:
        if self.done:
            return
        if self._withheld is not None:
            self._withheld += n
            return
        self.demand += n
        if not self._producing:
            self.wake()

    def cancel(self) -> None:
        if not self.done:
            self.done = True
            self.demand = 0
            self.release()

    def wake(self) -> None:
        """Produce, if there is demand and nobody is at it."""
        if self._producing or not self.demand:
            return
        self._producing = True
        try:
            self.produce()
        finally:
            self._producing = False

    def produce_from(self, take: Callable[[], T]) -> None:
        """Emit what `take` returns while demand lasts; StopIteration completes.

        The clock is read once a chunk. Chunks grow while they are quick, and the loop gets a
        turn between them, so that a slow inline handler does not shut it out.
        """
        run = self.run
        on_next = self.downstream.on_next
        chunk = self._chunk
        until: float | None = None
        while self.demand:
            created = run.now()
            if until is None:
                until = created + _SLICE
            elif created >= until and run.has_loop:
                self._chunk = max(1, chunk // 2)
                run.loop.call_soon(self.wake)
                return
            for _ in range(min(chunk, self.demand)):
                try:
                    value = take()
                except StopIteration:
                    self.complete()
                    return
                except Exception as error:
                    self.error(error)
                    return
                self.demand -= 1
                self.received += 1
                on_next(Event(value, created, self))
                if not self.demand:
                    break
            if chunk < _LARGEST_CHUNK:
                self._chunk = chunk = chunk * 2

    def emit(self, value: T, created: float, token: Any = None) -> None:
        """Send one value that there is demand for down the pipe."""
        self.demand -= 1
        self.received += 1
        self.downstream.on_next(Event(value, created, self, token))

    def complete(self) -> None:
        """Say that the source has ended."""
        if not self.done:
            self.done = True
            self.demand = 0
            self.release()
            self.downstream.on_completed()

    def error(self, error: BaseException) -> None:
        """Say that the source failed."""
        if not self.done:
            self.done = True
            self.demand = 0
            self.release()
            self.downstream.on_error(error)

    def pause(self) -> None:
        """Emit nothing until `resume`, whatever is requested."""
        if self._withheld is None:
            self._withheld, self.demand = self.demand, 0

    def resume(self) -> None:
        """Go on where `pause` stopped; needs no new event to wake."""
        if self._withheld is not None:
            withheld, self._withheld = self._withheld, None
            if withheld:
                self.request(withheld)

    @property
    def demand_withheld(self) -> bool:
        """Whether the source is paused."""
        return self._withheld is not None

    def stop(self) -> None:
        """Read nothing more and complete: the first step of a drain."""
        self.complete()

    def finished(self, event: Event[Any], /) -> None:
        self._finished += 1
        if self.ack is not None:
            self.ack(event)

    def dropped(self, event: Event[Any], cause: str, /) -> None:
        self.drops[cause] = self.drops.get(cause, 0) + 1
        if self.ack is not None:
            self.ack(event)

    def failed(self, event: Event[Any], error: BaseException, acknowledged: bool, /) -> None:
        self.counts["failed"] += 1
        settle = self.ack if acknowledged else self.nack
        if settle is not None:
            settle(event)

    def returned(self, event: Event[Any], /) -> None:
        self.counts["returned"] += 1
        if self.nack is not None:
            self.nack(event)

    def statistics(self) -> dict[str, Any]:
        """Events by how they ended; what is missing from `in` is still unfinished."""
        return {
            **self.counts,
            "in": self.received,
            "finished": self._finished,
            "dropped": dict(self.drops),
        }
