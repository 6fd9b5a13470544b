"""Emit the newest event of a stream at each tick, of the clock or of another stream.

Items:   the newest event since the tick before, unchanged; no event for a tick without a new one.
Time:    at the ticks: every so many seconds, or when the other stream emits or ends. While nothing
         is requested the seconds stand still; a tick of another stream waits, and the newest event
         leaves with the next request.
Memory:  the newest event. By the clock, which is done by the operator of reactivex, up to 1,024
         events that it replaces are unfinished until the next tick. A plain Observable has a buffer
         of 1,024 besides.
Demand:  while anything is requested of it, requests from the source up to 64 events, by the clock
         one after another; from the other stream always the next event, from the beginning on.
Ends:    at the first tick after the end of the source, which its newest event leaves with. As in
         Rx, it does not complete if the other stream has ended before. An event that a newer one
         replaces is dropped as "sample", and so is a tick; by the clock it is finished with the one
         that leaves. The others are finished as if they had come alone. A drain waits for no tick:
         the newest event leaves at the end of the source. Cancel returns the newest.
Errors:  the first error of the source or of the other stream passes on at once.

    source         --1--2-----3--4--5--|
    sample(other)  -------2---------4-----5|
    other          -------x---------x-----x
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from reactivex import Observable, from_future
from reactivex import operators as stock
from reactivex.abc import SchedulerBase

from penstock.streams.base.recorded import recorded
from penstock.streams.boundary.inner_stream import Input
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.event import Event, drop_all
from penstock.streams.protocol.stage import CLOSED
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.rx.combining.inputs import as_stream
from penstock.streams.rx.combining.several import PREFETCH
from penstock.streams.rx.combining.signalled import Signalled, signalled

__all__ = ["sample"]

T = TypeVar("T")


@recorded
def sample(
    sampler: float | timedelta | Observable[Any], scheduler: SchedulerBase | None = None
) -> Callable[[Flowable[T]], Flowable[T]]:
    """The newest event of the stream, every `sampler` seconds or whenever `sampler` emits.

    The time is the loop's, unless there is a `scheduler`, which must run on the stream's thread.
    """
    if not hasattr(type(sampler), "__await__"):
        by_clock: Any = stock.sample(sampler, scheduler)
        ours: Callable[[Flowable[T]], Flowable[T]] = by_clock
        return ours
    # A stream, or a future.
    other: Any = as_stream("sample", sampler)
    given: Any = sampler
    observable: Observable[Any] = given if hasattr(given, "subscribe") else from_future(given)
    inside = stock.sample(observable)
    return signalled("sample", other, _Sampling, inside, StageInfo("sample", "", 1))


class _Sampling(Signalled):
    """`_ticked`: a tick has come, and what it makes due has not been sent."""

    _newest: Event[Any] | None = None
    _ticked = False

    def signal(self) -> None:
        self._ticked = True

    def over(self, source: Input, error: BaseException | None, /) -> None:
        if source is self.signals and error is None:
            self._ticked = True
        super().over(source, error)

    def received(self, events: list[Event[Any]]) -> None:
        replaced = [] if self._newest is None else [self._newest]
        *older, self._newest = events
        drop_all([*replaced, *older], self.info.name)

    def wanted(self) -> int:
        return PREFETCH if self.demand else 0

    def combine(self) -> bool:
        newest = self._newest
        if self._ticked and newest is not None:
            if not self.demand:
                return False
            self._newest = None
            self.send(newest)
        is_due = self._ticked or self.run.drains
        self._ticked = False
        # It may have been cancelled by the event that was sent.
        if is_due and self.source.is_over and self.state < CLOSED:
            self.finish()
        return False

    def release(self) -> None:
        newest, self._newest = self._newest, None
        if newest is not None:
            newest.give_back()
        super().release()

    def statistics(self) -> dict[str, Any]:
        """Whether there is a newest event, which waits for a tick."""
        return {"waiting": int(self._newest is not None)}
