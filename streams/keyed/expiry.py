"""Expiry of items by idle time, or by least recent use."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from penstock.streams.runtime.context import Run

__all__ = ["Idle"]

T = TypeVar("T")


class Idle(Generic[T]):
    """Items that were last used some time ago; `end(item)` is told when one must go.

    That is `seconds` after its last use, by one timer for all, or when `end_oldest` asks for
    it. Memory: an entry for each item. Time: constant for each call, and for each item ended.
    """

    def __init__(self, seconds: float, run: Run, end: Callable[[T], None]) -> None:
        self._seconds = seconds
        self._run = run
        self._now = run.now
        self._end = end
        self._info = run.attaching
        # When each is due. All live equally long, so the one that was used first is due first.
        self._items: OrderedDict[T, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def used(self, used: Iterable[T]) -> None:
        """These have just been used, in this order: they are the last to go."""
        items, now = self._items, self._now()
        if self._timer is None:
            self._end_due(now)
        due, move_to_end = now + self._seconds, items.move_to_end
        for item in used:
            items[item] = due
            move_to_end(item)
        if self._timer is None:
            self._arm()

    def end_expired(self) -> None:
        """End what is due, should the timer be late."""
        if self._items:
            self._end_due(self._now())

    def _end_due(self, now: float) -> None:
        items = self._items
        while items and items[next(iter(items))] <= now:
            self._end(items.popitem(last=False)[0])

    def end_oldest(self) -> bool:
        """End the least recently used item. False if there is none."""
        if not self._items:
            return False
        self._end(self._items.popitem(last=False)[0])
        return True

    def clear(self) -> None:
        """Forget all items, and end none of them."""
        self._items.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        # Without a loop there is no time to wait for: an item that is due ends with the next use.
        if self._timer is None and self._items and self._run.has_loop:
            due = next(iter(self._items.values()))
            self._timer = self._run.call_at(due, self._info, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.end_expired()
        self._arm()
