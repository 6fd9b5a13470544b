"""What has been idle for too long, or longer than all else, has to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any, Generic, TypeVar, cast

from cachetools import Cache, TTLCache

from streams.run import Run

__all__ = ["Idle"]

T = TypeVar("T")

# A look at an item that does not count as a use of it.
_look_at: Callable[[TTLCache[Any, float], Any], float] = cast(Any, Cache).__getitem__


class Idle(Generic[T]):
    """Items that were last used some time ago; `end(item)` is told when one must go.

    That is `seconds` after its last use, by one timer for all, or when `end_oldest` asks for
    it. Memory: an entry for each item. Time: constant for each call, and for each item ended.
    """

    def __init__(self, seconds: float, run: Run, end: Callable[[T], None]) -> None:
        self._seconds = seconds
        self._run = run
        self._end = end
        self._info = run.attaching
        self._items = _Expiring(seconds, run.now, end)
        self._timer: asyncio.TimerHandle | None = None

    def used(self, item: T) -> None:
        """`item` has just been used: it is the last to go."""
        self._items[item] = self._run.now() + self._seconds
        self._arm()

    def end_expired(self) -> None:
        """End what is due, should the timer be late."""
        self._items.expire()

    def end_oldest(self) -> bool:
        """End the least recently used item. False if there is none."""
        if not self._items:
            return False
        self._end(self._items.popitem()[0])
        return True

    def clear(self) -> None:
        """Forget all items, and end none of them."""
        self._items.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        # Without a loop there is no time to wait for: an item that is due ends with the next use.
        if self._timer is None and self._run.has_loop and (due := self._items.due()) is not None:
            self._timer = self._run.call_at(due, self._info, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._items.expire()
        self._arm()


class _Expiring(TTLCache[T, float]):
    """From items to the time when they are due."""

    def __init__(self, seconds: float, now: Callable[[], float], end: Callable[[T], None]) -> None:
        super().__init__(inf, seconds, now)
        self._end = end

    def due(self) -> float | None:
        """When the next item is due."""
        first = next(iter(self), None)
        return None if first is None else _look_at(self, first)

    def expire(self, time: float | None = None) -> list[tuple[T, float]]:
        # The cache calls this by itself, too, before it takes or gives an item.
        expired = super().expire(time)
        for item, _ in expired:
            self._end(item)
        return expired
