"""The base class of sinks that send events to a server, and finish each when it is stored."""

from __future__ import annotations

from typing import Any

from penstock.streams.base.errors import (
    CALL_ERRORS,
    CannotConnect,
    ProducerFailed,
    RightsMissing,
    StreamMissing,
    own_error,
)
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import OnError
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import CLOSED
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed

__all__ = ["ConfirmedSink"]


class ConfirmedSink(BaseSinkStage):
    """Requests `window` events at first, then `stride` as so many have ended.

    `send` is called with each event, which is `under_way` until it is passed to `stored` or to
    `failed`. The sink closes when the stream has ended and nothing is under way.
    """

    def __init__(
        self, run: Run, closed: Closed, window: int, stride: int, on_error: OnError | None
    ) -> None:
        super().__init__(closed)
        self.asks_first = window
        self.under_way: dict[Event[Any], None] = {}
        self._stride = stride
        self._spare = 0
        self._faults = ErrorPolicy(on_error, run, self)

    def send(self, event: Event[Any], /) -> None:
        """Send the event, or keep it until it can be sent. An exception fails it."""
        raise NotImplementedError

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._current.call(self, self._accept_all, events)

    def _accept_all(self, events: list[Event[Any]]) -> None:
        for place, event in enumerate(events):
            if self.state >= CLOSED:
                give_back_all(events[place:])
                return
            self.under_way[event] = None
            self.try_to_send(event)

    def try_to_send(self, event: Event[Any]) -> None:
        """`send`, and fail the event if that raises."""
        try:
            self.send(event)
        except CALL_ERRORS as raised:
            self.failed(event, self.as_ours(own_error(raised)))

    def as_ours(self, error: Exception) -> Exception:
        """The error that `send` raised, as users get it."""
        return error

    def stored(self, event: Event[Any], *, known: bool = False) -> None:
        """The server has the event, unless that was returned meanwhile. It may have been `known`
        there before, as a duplicate: other sinks of the pipeline may need it all the same."""
        if event in self.under_way:
            del self.under_way[event]
            if known and self.is_alone:
                event.drop("duplicate")
            else:
                event.finish()
            self._ask()

    def failed(self, event: Event[Any], error: Exception) -> None:
        """The event could not be sent or stored, unless it was returned meanwhile: apply the error
        policy."""
        if event not in self.under_way:
            return
        del self.under_way[event]
        if isinstance(error, CannotConnect | StreamMissing | RightsMissing | ProducerFailed):
            # No other event would fare better.
            event.fail(error)
        elif self._faults.survives(event, error):
            self._ask()
            return
        self.break_off(error)

    def _ask(self) -> None:
        if self.state:
            self.end_if_idle()
            return
        self._spare += 1
        if self._spare >= self._stride:
            spare, self._spare = self._spare, 0
            self.upstream.request(spare)

    # The end.

    @property
    def is_idle(self) -> bool:
        return not self.under_way

    def give_back(self) -> None:
        give_back_all(self.under_way)
        self.under_way.clear()
