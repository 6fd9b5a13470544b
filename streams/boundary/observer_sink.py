"""An observer of reactivex, such as a subject, as a sink.

Items:   `on_next` of every value, in order.
Time:    at once, inside the call that sends the event.
Memory:  none; what the observer keeps is its own.
Demand:  unbounded: an observer has no way to ask for less.
Ends:    an event is finished when `on_next` has returned. The end of the stream, also by a drain,
         is `on_completed`, and an error `on_error`; the run raises it too. A cancel sends nothing.
Errors:  what the observer raises fails the event, and the pipeline stops. It gets no more signals.
         BuildError at the start of a run if the observer has ended or is disposed; an event for one
         that has ended since then fails with a PenstockError.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from reactivex.abc import ObserverBase

from penstock.streams.base.errors import CALL_ERRORS, BuildError, PenstockError, own_error
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import COMPLETING
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

__all__ = ["ObserverSink"]

T = TypeVar("T")


class ObserverSink(Sink[T]):
    """`stream.to(observer)` makes it."""

    def __init__(self, observer: ObserverBase[T]) -> None:
        self.info = StageInfo("observer", type(observer).__name__, 0)
        self._observer = observer

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        if _has_ended(self._observer):
            raise BuildError(
                f"this {type(self._observer).__name__} has ended, and passes nothing on: make one "
                "for each run"
            )
        return _Observing(closed, self._observer)


class _Observing(BaseSinkStage):
    def __init__(self, closed: Closed, observer: ObserverBase[Any]) -> None:
        super().__init__(closed)
        self._observer = observer

    def accept(self, event: Event[Any]) -> None:
        # It would ignore the value, and say nothing.
        if _has_ended(self._observer):
            name = type(self._observer).__name__
            raise PenstockError(f"this {name} has ended before the stream, and passes nothing on")
        self._observer.on_next(event.value)

    def end_if_idle(self) -> None:
        if self.state is not COMPLETING:
            return
        try:
            if self.error is None:
                self._observer.on_completed()
            else:
                self._observer.on_error(cast(Exception, self.error))
        except CALL_ERRORS as raised:
            self.break_off(own_error(raised))
        else:
            self.close(self.error)


def _has_ended(observer: ObserverBase[Any]) -> bool:
    """Whether it is completed, failed or disposed. An observer of the user's need not say so."""
    return getattr(observer, "is_stopped", False)
