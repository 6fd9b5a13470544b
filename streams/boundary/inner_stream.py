"""Inner streams: those that a stage reads besides the one above it, each in a run of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol

from penstock.streams.base.errors import as_raised
from penstock.streams.boundary.async_items import NOT_YET
from penstock.streams.protocol.acknowledgement import Joined, roots
from penstock.streams.protocol.event import FORGIVEN, Ending, Event, give_back_all
from penstock.streams.protocol.stage import UNCONNECTED, Subscription, is_second
from penstock.streams.runtime.context import Run
from penstock.streams.stages.source_stage import BaseSourceStage
from penstock.streams.stages.stream import Stream

__all__ = ["Input", "InputReader", "Items", "ItemsInCall", "joined"]


class InputReader(Protocol):
    """A stage with inputs, which is notified of what comes from each."""

    def came(self, source: Input, events: list[Event[Any]], /) -> None:
        """Events that were requested from this input; the receiver owns the list."""

    def over(self, source: Input, error: BaseException | None, /) -> None:
        """The input has ended, with an error or without."""

    def late(self, error: BaseException, /) -> None:
        """An error of an input that has ended, such as one of its clean-up."""


class Input:
    """One reading of a stream by a stage, in `part`: a run inside that of the stage.

    `requested` events have been requested and not come yet. After `cancel`, or the end, it signals
    nothing more. `leave` the part when its stream is over, so that what its stages opened is
    closed as soon as its events have ended.
    """

    def __init__(self, stream: Stream[Any], part: Run, reader: InputReader) -> None:
        self.part = part
        self.requested = 0
        self.is_over = False
        self.upstream: Subscription = UNCONNECTED
        self._stream = stream
        self._reader = reader
        part.on_failed = self._failed

    def attach(self) -> None:
        """Attach the stream, which does nothing before the first request, unless it is cancelled
        already."""
        if not self.is_over:
            self._stream.attach(self, self.part)

    def request(self, n: int) -> None:
        """Request `n` more events."""
        self.requested += n
        self.upstream.request(n)

    def cancel(self) -> None:
        """Request no more: what the stream holds is returned to its source."""
        if not self.is_over:
            self.is_over = True
            self.upstream.cancel()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if not is_second(self, subscription):
            self.upstream = subscription
            if self.is_over:
                subscription.cancel()

    def on_events(self, events: list[Event[Any]], /) -> None:
        self.requested -= len(events)
        if self.is_over:
            give_back_all(events)
        else:
            self._reader.came(self, events)

    def on_completed(self) -> None:
        self._end(None)

    def on_error(self, error: BaseException, /) -> None:
        self._end(error)

    def _failed(self, error: BaseException) -> None:
        """A part of the stream failed that no subscriber is notified by, such as a task."""
        if self.is_over:
            self._reader.late(error)
        else:
            self.upstream.cancel()
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if not self.is_over:
            self.is_over = True
            self._reader.over(self, error)
        elif error is not None:
            self.part.late_error(error)


class Items(Input, Iterator[Any]):
    """Iterates over the events of `stream`, read for `event`, each requested when it is needed.

    If an event does not come at once, the result is NOT_YET, and `arrived` is called when it is
    there, or the end. Memory: one event. The error of the stream is raised; `close` cancels it.
    """

    def __init__(
        self, stream: Stream[Any], event: Event[Any], run: Run, arrived: Callable[[Items], object]
    ) -> None:
        super().__init__(stream, run.nested(event), self)
        self._arrived = arrived
        self._event: Event[Any] | None = None
        self._error: BaseException | None = None
        try:
            self.attach()
        except BaseException:
            self.close()
            raise

    def came(self, source: Input, events: list[Event[Any]], /) -> None:
        (self._event,) = events
        self._arrived(self)

    def over(self, source: Input, error: BaseException | None, /) -> None:
        self._error = error
        self._arrived(self)
        self.part.nesting.leave()

    def late(self, error: BaseException, /) -> None:
        self.part.late_error(error)

    def __next__(self) -> Any:
        if self._event is None and not (self.is_over or self.requested):
            self.request(1)
        event, self._event = self._event, None
        if event is not None:
            return event
        if not self.is_over:
            return NOT_YET
        if self._error is not None:
            raise as_raised(self._error)
        raise StopIteration

    def close(self) -> None:
        """Cancel the stream, and return the event that has come from it and was not taken."""
        self.cancel()
        event, self._event = self._event, None
        if event is not None:
            event.give_back()
        self.part.nesting.leave()


class ItemsInCall(AsyncIterator[Event[Any]]):
    """Iterates over the events of `stream` as `Items` does, for a call, which waits for them."""

    def __init__(self, stream: Stream[Any], event: Event[Any], run: Run) -> None:
        self._arrived = asyncio.Event()
        self.items = Items(stream, event, run, lambda _: self._arrived.set())

    async def __anext__(self) -> Event[Any]:
        try:
            while (event := next(self.items)) is NOT_YET:
                self._arrived.clear()
                await self._arrived.wait()
        except StopIteration:
            raise StopAsyncIteration from None
        found: Event[Any] = event
        return found

    async def aclose(self) -> None:
        """Cancel the stream, unless it has ended."""
        self.items.close()


def joined(child: Event[Any]) -> Event[Any]:
    """The event of an inner stream in the value of `child`, joined with it: both origins are
    notified of its end."""
    event: Event[Any] = child.value
    origin, created, token = _Inside((child, event)), child.created, event.token
    if _counts_itself(event):
        created = event.created
    both = Event(event.value, created, origin, child.token if token is None else token)
    both.started = child.started
    if child.started is not None:
        both.ended = child.ended
    both.turn, child.turn = child.turn, None
    return both


class _Inside(Joined):
    """The origin of an event that was read for another: a failure that is done with is its own."""

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        child, event = self.parents
        if ending is FORGIVEN and _counts_itself(event):
            child.finish()
            event.fail(why, acknowledged=True)
        else:
            super().settle(events, ending, why)


def _counts_itself(event: Event[Any]) -> bool:
    """Whether a source counts it, for which no other event stands."""
    return any(isinstance(one, BaseSourceStage) and not one.is_of_values for one, _ in roots(event))
