"""Append the values to a list.

Items:   every value, in order.
Time:    at once.
Memory:  unbounded: the caller's list grows by one for each event.
Demand:  unbounded.
Ends:    an event is finished when its value is in the list.
Errors:  none of its own.

    source          --a--b--|
    collect(into)   --a--b--|     into == [a, b]
"""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.streams.base.recorded import recorded
from penstock.streams.protocol.event import Event, finish_all
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

__all__ = ["collect"]

T = TypeVar("T")


@recorded
def collect(into: list[T]) -> Sink[T]:
    """Append every value to `into`, which the caller owns; each run appends to it.

    >>> from penstock import collect, from_iterable, run
    >>> values = []
    >>> report = run(from_iterable([1, 2]).to(collect(values)))
    >>> values
    [1, 2]
    """
    return _Collect(into)


class _Collect(Sink[T]):
    def __init__(self, into: list[T]) -> None:
        self.info = StageInfo("collect", "", None, "the list grows with the stream")
        self._into = into

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        return _Collecting(closed, self._into)


class _Collecting(BaseSinkStage):
    def __init__(self, closed: Closed, into: list[T]) -> None:
        super().__init__(closed)
        self._into = into

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._into.extend([event.value for event in events])
        finish_all(events)
