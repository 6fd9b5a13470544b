"""Queues that are emptied many items at a time."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

__all__ = ["taken"]

T = TypeVar("T")


def taken(queue: deque[T], n: int) -> list[T]:
    """Take the first `n` items, or all that there are. Time: O(n), hardly any of it if all."""
    if n < len(queue):
        return [queue.popleft() for _ in range(n)]
    items = list(queue)
    queue.clear()
    return items
