"""Calls with several results: reading the async iterator that a handler returned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from penstock.streams.execution.results import Results
from penstock.streams.execution.timeouts import Timeouts
from penstock.streams.protocol.acknowledgement import Family
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.time_slice import TimeSlice
from penstock.streams.runtime.context import Run

__all__ = ["Iterators", "is_iterator"]


def is_iterator(result: object) -> bool:
    """Whether a call's result is an async iterator of several results."""
    return hasattr(type(result), "__aiter__")


class Iterators:
    """Reads the iterators of one stage while there is room for their results.

    `check` is called with each result, and may raise. `suspend` is called when a call begins to
    wait for room.
    """

    def __init__(
        self,
        run: Run,
        results: Results,
        timeouts: Timeouts | None,
        check: Callable[[object], object],
        suspend: Callable[[], object],
    ) -> None:
        self._run = run
        self._results = results
        self._timeouts = timeouts
        self._check = check
        self._suspend = suspend
        self.suspended = 0
        """Calls that wait for room."""
        self._no_room: list[asyncio.Future[None]] = []
        self._slice = TimeSlice(run)

    async def read(self, event: Event[Any], results: AsyncIterator[Any]) -> Family:
        """Deliver the results while there is room. The event ends with the last of them."""
        family = Family(event, "no results")
        # Results are past the working stage: the turn stays with the call.
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
        """Wait for room; this time does not count towards the call's timeout."""
        timeouts = self._timeouts
        left = None if timeouts is None else timeouts.suspend(event)
        self.suspended += 1
        try:
            while not self._results.has_room(event):
                room = self._run.loop.create_future()
                self._no_room.append(room)
                self._suspend()
                await room
        finally:
            self.suspended -= 1
            if timeouts is not None:
                timeouts.resume(event, left)

    def resume(self) -> None:
        """Let the calls that wait for room look again."""
        if self._no_room:
            waiting, self._no_room = self._no_room, []
            for room in waiting:
                if not room.done():
                    room.set_result(None)
