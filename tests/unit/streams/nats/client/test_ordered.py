"""The consumers of one who reads a stream by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from penstock.streams.nats.client import ordered
from penstock.streams.testing import run_virtual


def test_consumers_that_deliver_nothing_are_replaced_a_few_times_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = 0

    async def api(_: Any, what: str, __: Any) -> dict[str, Any]:
        nonlocal made
        made += what.startswith("CONSUMER.CREATE")
        return {"name": "c", "num_pending": 1, "state": {"last_seq": 1}}

    class Fails:
        """Requests that servers refuse each time."""

        on_request = 0

        def __init__(self, *parts: Any, **_: Any) -> None:
            self._failed = cast(Callable[[Exception], None], parts[-1])
            self.stop = AsyncMock()

        async def start(self) -> None:
            self._failed(LookupError("refused"))

    monkeypatch.setattr(ordered, "api", api)
    monkeypatch.setattr(ordered, "Requests", Fails)
    reader = ordered.Ordered(AsyncMock(), "s", [], 1, lambda: 10)

    async def read() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                async for _ in reader.messages():
                    await asyncio.sleep(0)
                    # Without pauses it would not end.
                    assert made < 100

    run_virtual(read())
    assert 10 < made < 100
