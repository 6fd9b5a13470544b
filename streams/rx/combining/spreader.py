"""The stage of `spread` where a stream has iterables: takes their items in turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from penstock.streams.base.errors import describe
from penstock.streams.base.validation import is_async_iterable, is_iterable
from penstock.streams.boundary.async_items import AsyncItems
from penstock.streams.protocol.event import Event
from penstock.streams.rx.combining.flat_map import Answer, Expanding
from penstock.streams.stages.stream import Stream
from penstock.streams.stages.time_slice import TimeSlice

__all__ = ["Spreader", "not_iterables"]

# Single events, although they can be iterated over: by keys, by characters, by bytes.
_SINGLE: tuple[type, ...] = (Mapping, str, bytes, bytearray)


class Spreader(Expanding):
    """Takes items out of plain and async iterables, `feeders` of them open at a time.

    `above` are the slices of time of the stages above. A stage above that has been
    requested a group and only yields to the loop delivers it in that loop iteration, unless it
    yields again.
    """

    cause = "empty"
    above: list[TimeSlice]
    # Whether the sender of the last group waits for that to be opened before it sends another.
    _is_called = False
    _waits_for_loop = False
    # The async iterable that keeps its place.
    _pulled: AsyncItems | None = None

    def answer(self, event: Event[Any]) -> Iterable[Any]:
        value = event.value
        if is_iterable(value) and not isinstance(value, _SINGLE):
            items: Iterable[Any] = value
            return items
        is_stream = isinstance(cast(object, value), Stream)
        if is_async_iterable(value) and not is_stream:
            return AsyncItems(value, self.run, self.info, self.came)
        raise TypeError(not_iterables(describe(value, 80)))

    def on_events(self, events: list[Event[Any]], /) -> None:
        called, self._is_called = self._is_called, self._is_called or not self._draining
        try:
            super().on_events(events)
        finally:
            self._is_called = called

    def waits(self) -> bool:
        """Whether the requested group comes without waiting for anything but the loop."""
        if not (self._is_called or any(each.is_left for each in self.above)):
            return False
        if self.run.has_loop and not self._waits_for_loop:
            self._waits_for_loop = True
            # The loop calls them in the order in which they yielded, so all before this.
            self.run.call_soon(self.info, self._loop_went_on)
        return self.run.has_loop

    def _loop_went_on(self) -> None:
        self._waits_for_loop = False
        self._drain()

    def absent(self, answer: Answer) -> bool:
        items = answer.items
        if not (isinstance(items, AsyncItems) and items.is_new):
            return super().absent(answer)
        # It keeps its place for one loop iteration, in which one that waits for nothing has come.
        self._open.appendleft(answer)
        self._is_new = True
        if self._pulled is None:
            self._pulled = items
            self.run.call_soon(self.info, self._pull_went_on)
        return False

    def _pull_went_on(self) -> None:
        if self._pulled is not None:
            self._pulled.is_new = False
            self._pulled = None
        self._drain()

    def statistics(self) -> dict[str, Any]:
        """The `open` iterables, each an event being taken apart, and those that are `awaited`."""
        return {"open": self.opened, "waiting": self.opened, "awaited": len(self._away)}


def not_iterables(what: str) -> str:
    """The message about values that are neither groups nor iterables."""
    return (
        f"spread() takes groups or iterables of events, not {what}: put group_by(...) before it, "
        "or a map(...) to the list of its events"
    )
