"""Calls of a handler that take their time: time limits, and iterators of results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

from penstock.streams.errors import HandlerTimeout
from penstock.streams.execution.handler import check_result
from penstock.streams.execution.results import Results
from penstock.streams.protocol.acknowledgement import Family
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.time_slice import TimeSlice
from penstock.streams.runtime.context import Run

__all__ = ["Calls", "is_iterator"]


def is_iterator(result: object) -> bool:
    """Whether a call's result is an async iterator of several results."""
    return hasattr(type(result), "__aiter__")


class Calls:
    """Awaits the calls of one stage. `timeout` is in seconds, None for as long as it takes.

    `may_iterate` is asked before a call that gave an iterator goes on, and may raise. `suspend`
    is told that a call waits for room for its next result.
    """

    def __init__(
        self,
        run: Run,
        name: str,
        timeout: float | None,
        results: Results,
        may_iterate: Callable[[], None],
        suspend: Callable[[], object],
    ) -> None:
        self._run = run
        self._name = name
        self._timeout = timeout
        self._results = results
        self._may_iterate = may_iterate
        self._limits: dict[Event[Any], asyncio.Timeout] = {}
        self._suspend = suspend
        self.suspended = 0
        """Calls that wait for room."""
        self._no_room: list[asyncio.Future[None]] = []
        self._slice = TimeSlice(run)
        # Types of results that nobody has to wait for.
        self._checked: set[type] = set()

    async def attempt(self, event: Event[Any], handler: Callable[[Any], Any]) -> Any:
        """Call, and await the outcome; HandlerTimeout if it did not end in time.

        A call that is late is cancelled, and awaited until it has really ended. Whatever it
        then returns or raises, it has failed.
        """
        timeout = self._timeout
        if timeout is None:
            return await self.outcome(event, handler(event.value))
        limit = asyncio.timeout(timeout)
        self._limits[event] = limit
        result: Any = None
        cause: BaseException | None = None
        try:
            async with limit:
                result = await self.outcome(event, handler(event.value))
        except Exception as error:
            if not limit.expired():
                raise
            cause = error
        finally:
            del self._limits[event]
        if limit.expired():
            raise HandlerTimeout(f"'{self._name}' did not end within {timeout:g} s") from cause
        return result

    async def outcome(self, event: Event[Any], call: Any) -> Any:
        """Await what a handler returned; all results of an iterator come as one `Family`."""
        result = call if is_iterator(call) else await cast(Awaitable[Any], call)
        if is_iterator(result):
            return await self.iterate(event, result)
        self._check(result)
        return result

    def _check(self, result: object) -> None:
        kind = type(result)
        if kind not in self._checked and check_result(result, self._name):
            self._checked.add(kind)

    async def iterate(self, event: Event[Any], results: AsyncIterator[Any]) -> Family:
        """Deliver results as there is room; they carry the event's obligations from here on."""
        self._may_iterate()
        family = Family(event, "no results")
        # They are past the working stage: the turn stays with the call.
        turn, event.turn = event.turn, None
        try:
            async for value in results:
                self._check(value)
                ended = self._run.now()
                if self._slice.is_over(ended):
                    # An iterator that never waits may be endless.
                    await asyncio.sleep(0)
                if not self._results.has_room(event):
                    await self._room(event)
                child = family.child(value)
                child.started, child.ended = event.started, ended
                self._results.put(event, child)
        finally:
            event.turn = turn
            close: Callable[[], Awaitable[None]] | None = getattr(results, "aclose", None)
            if close is not None:
                await close()
        return family

    async def _room(self, event: Event[Any]) -> None:
        """Wait for room. The time that others take does not count as the call's."""
        limit = self._limits.get(event)
        left: float | None = None
        if limit is not None and (when := limit.when()) is not None and not limit.expired():
            left = when - self._run.loop.time()
            limit.reschedule(None)
        self.suspended += 1
        try:
            while not self._results.has_room(event):
                room = self._run.loop.create_future()
                self._no_room.append(room)
                self._suspend()
                await room
        finally:
            self.suspended -= 1
            if left is not None and limit is not None:
                limit.reschedule(self._run.loop.time() + left)

    def look_for_room(self) -> None:
        """There may be room now for results that wait."""
        waiting, self._no_room = self._no_room, []
        for room in waiting:
            if not room.done():
                room.set_result(None)

    @property
    def stuck(self) -> int:
        """Calls that are past their time and have not ended."""
        return sum(1 for limit in self._limits.values() if limit.expired())
