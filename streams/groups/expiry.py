"""Expiry of items by idle time, or by least recent use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer

__all__ = ["Idle"]

T = TypeVar("T")


class Idle(Generic[T]):
    """Items in the order of their last use, each of which expires `seconds` after it.

    `end(item)` is called for an item that has expired, by one timer for all, and for the least
    recently used one when `end_oldest` is called. Memory: an entry for each item. Time: constant
    for each item that is used or ended.
    """

    def __init__(self, seconds: float, run: Run, end: Callable[[T], None]) -> None:
        self._seconds = seconds
        self._run = run
        self._now = run.now
        self._end = end
        # When each expires. Their time is the same for all, so the order of use is that of expiry.
        self._items: OrderedDict[T, float] = OrderedDict()
        self._timer = Timer(run, run.attaching, self._ring)

    def used(self, used: Iterable[T]) -> None:
        """Note that these have just been used, in this order."""
        if not self._timer.is_set:
            self.end_expired()
        items, move_to_end = self._items, self._items.move_to_end
        due = self._now() + self._seconds
        for item in used:
            items[item] = due
            move_to_end(item)
        self._arm()

    def end_expired(self) -> None:
        """End the items that have expired and whose timer is late."""
        items = self._items
        if items:
            now = self._now()
            while items and items[next(iter(items))] <= now:
                self.end_oldest()

    def end_oldest(self) -> bool:
        """End the least recently used item. False if there is none."""
        if not self._items:
            return False
        self._end(self._items.popitem(last=False)[0])
        return True

    def remove(self, item: T) -> None:
        """Remove an item without a call."""
        self._items.pop(item, None)

    def __iter__(self) -> Iterator[T]:
        """The items, the least recently used one first."""
        return iter(self._items)

    def clear(self) -> None:
        """Remove all items without a call."""
        self._items.clear()
        self._timer.cancel()

    def _arm(self) -> None:
        # Without a loop there is no timer: an item that is due ends with the next use.
        if self._items and not self._timer.is_set and self._run.has_loop:
            self._timer.set_at(next(iter(self._items.values())))

    def _ring(self) -> None:
        self.end_expired()
        self._arm()
