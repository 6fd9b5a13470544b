"""Takes many items from the front of a queue at once."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

__all__ = ["taken"]

T = TypeVar("T")


def taken(queue: deque[T], n: int) -> list[T]:
    """Take the first `n` items, or all. Time: O(n), and almost none for all of them."""
    if n < len(queue):
        return [queue.popleft() for _ in range(n)]
    items = list(queue)
    queue.clear()
    return items
