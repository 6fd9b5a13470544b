"""Handlers that fail on some values, async and plain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest


def fails(bad: set[int], error: type[BaseException] = ValueError, seconds: float = 1) -> Any:
    async def handler(value: int) -> int:
        await asyncio.sleep(seconds)
        if value in bad:
            raise error(value)
        return value

    return handler


def fails_inline(bad: set[int], error: type[BaseException] = ValueError) -> Any:
    def handler(value: int) -> int:
        if value in bad:
            raise error(value)
        return value

    return handler


BOTH = pytest.mark.parametrize("make", [fails, fails_inline], ids=["async", "plain"])
