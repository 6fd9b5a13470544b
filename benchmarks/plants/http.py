"""An HTTP server on the loopback that serves 8 requests at once, then 24, then 8 again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.plants.plant import Phase, Plant

__all__ = ["HTTP"]


class _Client:
    """A client; the server is a separate process, so that they share no loop."""

    def __init__(self) -> None:
        self._session: Any = None
        self._url = ""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Any]:
        """The server and a session; gives the handler, which fetches a page."""
        import aiohttp

        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.plants.http_server"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            self._url = f"http://127.0.0.1:{int(await server.stdout.readline())}"
            # No bound on connections but the limiter, which is what is measured.
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector) as self._session:
                yield self._fetch
        finally:
            # The server ends with its input.
            server.stdin.close()
            await server.wait()

    async def _fetch(self, number: int) -> bytes:
        async with self._session.get(f"{self._url}/work") as response:
            response.raise_for_status()
            return await response.read()

    def serves(self, at_once: int, *levels: int) -> Phase:
        """The phase in which the server serves `at_once` requests at once."""

        async def begin() -> None:
            async with self._session.put(f"{self._url}/at_once/{at_once}") as response:
                response.raise_for_status()

        return Phase(f"{at_once} at once", begin, levels)


_client = _Client()
_few = _client.serves(8, 6, 8, 10, 12)
_many = _client.serves(24, 16, 20, 24, 28, 34)

HTTP = Plant("http", _client.opened, (_few, _many, _few))
