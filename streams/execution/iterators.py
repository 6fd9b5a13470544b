"""Calls with several results: reading the async iterator or the stream that a handler returned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection
from functools import lru_cache
from math import inf
from typing import Any, Protocol, cast

from reactivex import Observable

from penstock.streams.boundary.inner_stream import ItemsInCall, joined
from penstock.streams.boundary.once import new_iterator
from penstock.streams.execution.call import NO_RESULTS, Call, call_of, family_of
from penstock.streams.execution.results import Results
from penstock.streams.protocol.acknowledgement import Family
from penstock.streams.protocol.event import DROPPED, FINISHED, Ending, Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.observing import CallLimits
from penstock.streams.runtime.slot import Slot
from penstock.streams.stages.time_slice import PAUSE, TimeSlice

__all__ = ["Iterators", "is_beginning", "is_iterator"]


def _is_iterator(kind: type) -> bool:
    # Some can be awaited too, which would take all but the last value of an Observable.
    return hasattr(kind, "__aiter__") or issubclass(kind, Observable)


# Cast, because mypy takes a type for not hashable.
is_iterator = cast("Callable[[type], bool]", lru_cache(maxsize=256)(_is_iterator))
"""Whether a call's result of this type is an async iterator, or a stream, of several results."""


def is_beginning(result: object) -> bool:
    """Whether the result of a plain handler is to be awaited or iterated over."""
    return is_iterator(type(result)) or hasattr(type(result), "__await__")


class _Earlier(Event[Any]):
    """The results of an attempt that has failed: how they end says nothing about their event.

    Only a `Family` ends it, by these methods.
    """

    __slots__ = ()

    def finish(self) -> None:
        self._end(FINISHED, None)

    def _end(self, ending: Ending, why: Any) -> None:
        super()._end(DROPPED, NO_RESULTS)


class Flushing(Protocol):
    """The stage whose calls return the iterators; its flush sends on what is kept."""

    run: Run
    info: StageInfo
    in_flight: int
    flush_is_due: bool

    def flush_soon(self) -> None: ...


class Iterators:
    """Reads the iterators of one stage while there is room for their results; streams likewise,
    whose events end when their results have.

    A result is kept until the iterator has its next one, until it ends, or until the next flush,
    whichever comes first; where no other call is in flight, it is sent on at once. A call that ends
    while its only result is kept ends as one whose handler has returned that result: most calls
    need no `Family`.

    `check` is called with each result whose type is not among the `checked`, and may raise.
    `suspend` is called when a call begins to wait for room.
    """

    def __init__(
        self,
        results: Results,
        timeouts: CallLimits | None,
        check: Callable[[object], object],
        checked: Collection[type],
        suspend: Callable[[], object],
        stage: Flushing,
    ) -> None:
        self._run = run = stage.run
        self._now = run.now
        self._results = results
        self._watched = timeouts
        self._check = check
        self._checked = checked
        self._suspend = suspend
        self._stage = stage
        self.suspended = 0
        """Calls that wait for room."""
        self._no_room: list[asyncio.Future[None]] = []
        self.kept: dict[Event[Any], Any] = {}
        """The results that are kept, by call."""
        self._slice = TimeSlice(run)

    async def read(
        self, event: Event[Any], slot: Slot, results: AsyncIterable[Any] | Observable[Any]
    ) -> Any:
        """Read all results, in a slot, and send them on while there is room.

        Returns the only one, if it is kept; otherwise the family of those that were sent on, to be
        closed.
        """
        kept, checked, now, slice_ = self.kept, self._checked, self._now, self._slice
        has_room, stage = self._results.has_room, self._stage
        items: AsyncIterator[Any] | None = None
        # The item that has come and is not kept.
        came: Any = None
        try:
            if isinstance(results, Observable):
                items = self._events_of(results, event)
            else:
                items = cast("AsyncIterator[Any]", new_iterator(results, aiter))
            stream = type(items) is ItemsInCall
            try:
                async for item in items:
                    came = item
                    value = item.value if stream else item
                    if type(value) not in checked:
                        self._check(value)
                    ended = now()
                    if ended >= slice_.end and slice_.is_over(ended):
                        # An iterator that never waits may be endless.
                        await PAUSE
                    if event in kept:
                        self._add(event)
                        self._results.deliver()
                    if not has_room(event, len(kept)):
                        await self._room(event, slot)
                    event.ended = ended
                    kept[event], came = item, None
                    if stage.in_flight == 1:
                        self.send_kept()
                    elif not stage.flush_is_due:
                        stage.flush_soon()
            finally:
                close: Callable[[], Awaitable[None]] | None = getattr(items, "aclose", None)
                if close is not None:
                    await close()
        except BaseException:
            if event in kept:
                self.send_kept()
            if isinstance(items, ItemsInCall):
                call_of(event).stream = items
                if came is not None:
                    came.give_back()
            raise
        if event in kept:
            is_first = event.call is None or call_of(event).family is None
            if is_first and not isinstance(kept[event], Event):
                return kept.pop(event)
            self._add(event)
        return family_of(event)

    def _events_of(self, results: Observable[Any], event: Event[Any]) -> ItemsInCall:
        # Imported here: few handlers return streams.
        from penstock.streams.boundary.from_observable import UNASKED, buffer, from_observable

        stream = from_observable(results, buffer(UNASKED), self._stage.info.name)
        return ItemsInCall(stream, event, self._run)

    def again(self, event: Event[Any]) -> None:
        """The event of a call that has failed is tried again, and waits for the results so far."""
        call: Call | None = event.call
        if call is None:
            return
        if call.stream is not None:
            call.stream.items.part.nesting.went_on()
            call.stream = None
        family = call.family
        if family is not None:
            whole = call.family = Family(event, NO_RESULTS)
            # Their turn is that of the event, which keeps it.
            turn, event.turn = event.turn, None
            family.parent = whole.child(None, _Earlier)
            event.turn = turn
            family.close()

    def send_kept(self) -> None:
        """Send on the results that are kept."""
        for event in tuple(self.kept):
            self._add(event)
        self._results.deliver()
        # Those that were kept may have taken the room of other calls.
        self.resume()

    def _add(self, event: Event[Any]) -> None:
        value, family = self.kept.pop(event), family_of(event)
        # Results are past the working stage: the turn stays with the call.
        turn, event.turn = event.turn, None
        child = family.child(value)
        if isinstance(value, Event):
            child = joined(child)
        event.turn = turn
        self._results.add(event, child)

    async def _room(self, event: Event[Any], slot: Slot) -> None:
        """Wait for room; this time does not count towards the call's timeout."""
        timeouts = self._watched
        left = inf if timeouts is None else timeouts.suspend(slot)
        self.suspended += 1
        try:
            self.send_kept()
            while not self._results.has_room(event, len(self.kept)):
                room = self._run.loop.create_future()
                self._no_room.append(room)
                self._suspend()
                await room
        finally:
            self.suspended -= 1
            if timeouts is not None:
                timeouts.resume(slot, left)

    def resume(self) -> None:
        """Let the calls that wait for room look again."""
        if self._no_room:
            waiting, self._no_room = self._no_room, []
            for room in waiting:
                if not room.done():
                    room.set_result(None)
