"""Read the stream that has something first: an event, its end, or an error.

Items:   the events of that stream.
Time:    as soon as they come, or as they are requested.
Memory:  up to 64 events of the stream, which were requested. A plain Observable has a buffer of
         1,024 besides.
Demand:  requests from both what is requested of it, up to 64, until one has something.
Ends:    with the stream that was first; the other is cancelled. Each event is finished as if it had
         come alone. Cancel returns what waits.
Errors:  those of the stream that was first, and at once.

    source      -----1-----2--|
    amb(other)  --a-----b-----c--|
    other       --a-----b-----c--|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from reactivex import Observable
from reactivex import operators as stock

from penstock.streams.base.recorded import recorded
from penstock.streams.boundary.inner_stream import Input
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.rx.combining.inputs import as_stream
from penstock.streams.rx.combining.several import Several, Waiting, several
from penstock.streams.rx.lift import WithStock

__all__ = ["amb"]

T = TypeVar("T")
S = TypeVar("S")


@recorded
def amb(right_source: Observable[S]) -> Callable[[Flowable[T]], Flowable[T | S]]:
    """The events of the stream, or of `right_source`: of that which has something first."""
    other = as_stream("amb", right_source)
    info = StageInfo("amb", "", 0)
    return WithStock(
        lambda source: several(source, [other], _Racing, info), stock.amb(right_source)
    )


class _Racing(Several):
    _first: Waiting | None = None

    def arrived(self, source: Waiting, events: list[Event[Any]]) -> None:
        self._reacts(source)
        super().arrived(source, events)

    def over(self, source: Input, error: BaseException | None, /) -> None:
        self._reacts(source)
        super().over(source, error)

    def _reacts(self, source: Input) -> None:
        if self._first is not None:
            return
        for each in self.inputs:
            if each is source:
                self._first = each
            else:
                each.cancel()

    def combine(self) -> bool:
        first = self._first
        if first is None:
            return False
        if first.has_ended:
            self.finish()
        elif self.demand and first.events:
            self.send(first.events.popleft())
            return True
        return False
