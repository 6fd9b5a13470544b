"""Inner streams: each is read by a stage for one of its events, one event at a time.

By a stage that never waits, or by a call that does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import as_raised
from penstock.streams.boundary.async_items import NOT_YET
from penstock.streams.protocol.acknowledgement import AckHook, Joined, Lessor, roots
from penstock.streams.protocol.event import FORGIVEN, Ending, Event
from penstock.streams.protocol.stage import UNCONNECTED, Subscription, is_second
from penstock.streams.runtime.context import Run
from penstock.streams.stages.source_stage import SourceStage

if TYPE_CHECKING:
    from penstock.streams.stages.stream import Stream

__all__ = ["Nested", "NestedItems"]


class Nested(AckHook, Iterator[Any]):
    """Iterates over the events of `stream`, read for `event`, each requested when it is needed.

    If an event does not come at once, the result is NOT_YET, and `arrived` is called when it is
    there, or the end. Memory: one event. The stream has its own run, which lasts until the stream
    and all its events have ended. Its error is raised; `close` cancels it.
    """

    upstream: Subscription = UNCONNECTED

    def __init__(
        self,
        stream: Stream[Any],
        event: Event[Any],
        run: Run,
        arrived: Callable[[Nested], object],
    ) -> None:
        self._run = run
        self._arrived = arrived
        self._event: Event[Any] | None = None
        self._ending: tuple[BaseException | None] | None = None
        self._asked = self._left = False
        self._unfinished = 0
        self._lessors: list[Lessor] = []
        self._own = run.nested(event)
        self._own.on_failed = self.on_error
        leased = len(run.lessors)
        try:
            stream.attach(self, self._own)
        except BaseException:
            self.close()
            raise
        finally:
            # Stages below also check whether leased events may begin.
            self._lessors = run.lessors[leased:]

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if not is_second(self, subscription):
            self.upstream = subscription

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._asked = False
        (event,) = events
        if self._ending is not None:
            event.give_back()
            return
        event.outer = (event.origin, event.outer)
        event.origin = self
        self._unfinished += 1
        self._event = event
        self._arrived(self)

    def on_completed(self) -> None:
        self._over(None)

    def on_error(self, error: BaseException, /) -> None:
        self._over(error)

    def _over(self, error: BaseException | None) -> None:
        if self._ending is None:
            self._ending = (error,)
            self._arrived(self)
            self._leave_if_over()
        elif error is not None:
            self._run.late_error(error)

    def __next__(self) -> Any:
        if self._event is None and self._ending is None and not self._asked:
            self._asked = True
            self.upstream.request(1)
        event, self._event = self._event, None
        if event is not None:
            return event
        if self._ending is None:
            return NOT_YET
        (error,) = self._ending
        if error is not None:
            raise as_raised(error)
        raise StopIteration

    @staticmethod
    def joined(child: Event[Any]) -> Event[Any]:
        """Join the event in the value of `child` with it: both origins are notified of its end."""
        event: Event[Any] = child.value
        origin, created, token = _Inside((child, event)), child.created, event.token
        if _counts_itself(event):
            created = event.created
        joined = Event(event.value, created, origin, child.token if token is None else token)
        joined.started = child.started
        if child.started is not None:
            joined.ended = child.ended
        joined.turn, child.turn = child.turn, None
        return joined

    def ended(
        self, events: list[Event[Any]], ending: Ending, error: BaseException | None, /
    ) -> None:
        self._unfinished -= len(events)

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        super().settle(events, ending, why)
        # When their source has counted them.
        self._leave_if_over()

    def went_on(self) -> None:
        """The stage goes on after the error of the stream."""
        self._own.went_on()

    def _leave_if_over(self) -> None:
        if self._ending is not None and not self._unfinished and not self._left:
            self._left = True
            for lessor in self._lessors:
                self._run.lessors.remove(lessor)
            self._run.leave(self._own)

    def close(self) -> None:
        """Cancel the stream, and return the event that has come from it and was not taken."""
        if self._ending is None:
            self._ending = (None,)
            self.upstream.cancel()
        event, self._event = self._event, None
        if event is not None:
            event.give_back()
        self._leave_if_over()


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
    return any(isinstance(one, SourceStage) and not one.is_of_values for one, _ in roots(event))


class NestedItems(AsyncIterator[Event[Any]]):
    """Iterates over the events of `stream` as `Nested` does, for a call, which waits for them."""

    def __init__(self, stream: Stream[Any], event: Event[Any], run: Run) -> None:
        self._loop = run.loop
        self._waiting: asyncio.Future[None] | None = None
        self._items = Nested(stream, event, run, self._arrived)

    def _arrived(self, _: Nested) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def __anext__(self) -> Event[Any]:
        try:
            while (event := next(self._items)) is NOT_YET:
                self._waiting = self._loop.create_future()
                await self._waiting
        except StopIteration:
            raise StopAsyncIteration from None
        found: Event[Any] = event
        return found

    def went_on(self) -> None:
        """The stage goes on after the error of the stream."""
        self._items.went_on()

    async def aclose(self) -> None:
        """Cancel the stream, unless it has ended."""
        self._items.close()
