"""Handlers that take a second, and one that counts its open calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Gauge:
    """A handler that takes some seconds and counts its open calls."""

    def __init__(self, seconds: Callable[[Any], float] = lambda _: 1.0) -> None:
        self.open = self.peak = 0
        self.started: list[tuple[float, Any]] = []
        self._seconds = seconds

    async def __call__(self, value: Any) -> Any:
        self.open += 1
        self.peak = max(self.peak, self.open)
        self.started.append((asyncio.get_running_loop().time(), value))
        try:
            await asyncio.sleep(self._seconds(value))
        finally:
            self.open -= 1
        return value


def later(value: int) -> Any:
    return asyncio.sleep(1, value)


async def declared(value: int) -> int:
    return await asyncio.sleep(1, value)
