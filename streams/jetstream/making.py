"""What is made on servers of which one may be away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["made"]

T = TypeVar("T")

# Seconds, for longer than a server takes to restart, and between two tries.
_PATIENCE, _PAUSE = 30.0, 0.25


async def made(make: Callable[[], Awaitable[T]]) -> T:
    """What `make` answers, which is called again while too few servers are there to make it."""
    from nats.js.errors import APIError

    loop = asyncio.get_running_loop()
    end = loop.time() + _PATIENCE
    while True:
        try:
            return await make()
        except APIError as error:
            if not _is_passing(error) or loop.time() > end:
                raise
        await asyncio.sleep(_PAUSE)


def _is_passing(error: Exception) -> bool:
    from nats.js.errors import APIError, ServiceUnavailableError

    if isinstance(error, ServiceUnavailableError):
        return True
    # "no suitable peers for placement", which is for good for any other reason.
    return isinstance(error, APIError) and "offline" in (error.description or "")
