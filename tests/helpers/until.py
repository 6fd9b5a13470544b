"""Waiting, on real time, for what other threads, processes and servers do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["until"]

# Seconds; much more than anything takes.
_PATIENCE = 60.0


async def until(true: Callable[[], bool | Awaitable[bool]]) -> None:
    """Look again and again until `true()` is; raises TimeoutError if it never is."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            found = true()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.005)
