"""The working stage of a plain handler: called inline, with nothing between two events."""

from __future__ import annotations

from typing import Any

from streams.event import Event
from streams.working import Working

__all__ = ["Inline"]

# Demand goes up in strides of this many events: an inline call ends before the next event
# comes, so the limit is never more than one in flight however much is asked for.
_STRIDE = 256


class Inline(Working):
    """A handler that turns out to return awaitables is worked on as an asynchronous one."""

    _asynchronous = False

    def on_next(self, event: Event[Any], /) -> None:
        results = self._results
        if self._asynchronous or self._inbox or self._closing or self._cancelled or (
            not results.demand or results.ready or self._siblings or event.turn is not None
            and event.turn.holders > 1
        ):
            super().on_next(event)
            return
        event.started = self._now()
        self.in_flight = 1
        try:
            result = self._handler(event.value)
        except BaseException as error:
            self._failed(event, error, event.started, 1)
            return
        if type(result) not in self._plain and not self._is_plain(result):
            self._asynchronous = True
            self._begun(event, result)
            return
        event.ended = self._now()
        self.in_flight = 0
        results.demand -= 1
        turn = event.turn
        event.turn = None
        event.value = result
        self.downstream.on_next(event)
        if turn is not None:
            turn.end()
        self._open = rest = self._open - 1
        if not rest:
            self._ask()

    def _ask(self) -> None:
        if self._asynchronous or self._closing or self._cancelled:
            super()._ask()
        elif not self._open and self._results.demand and not self._retrying:
            self._open = stride = min(_STRIDE, self._results.demand)
            self.upstream.request(stride)
