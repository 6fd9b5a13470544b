"""How many futures a loop makes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

__all__ = ["count_futures"]


def count_futures() -> Callable[[], int]:
    """Begin to count those of the running loop; the function returns how many there were so far."""
    loop, count = asyncio.get_running_loop(), 0
    create_future = loop.create_future

    def counted() -> asyncio.Future[Any]:
        nonlocal count
        count += 1
        return create_future()

    loop.create_future = counted  # type: ignore[method-assign]
    return lambda: count
