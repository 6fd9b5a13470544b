"""A connection to a server that is slow, or can be cut."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

__all__ = ["Wire"]


class Wire:
    """A connection to a server on which everything takes `delay` seconds, and through which nothing
    comes once it is cut."""

    def __init__(self, url: str, delay: float = 0.0) -> None:
        self._delay = delay
        self._parts = urlsplit(url)
        self._whole = asyncio.Event()
        self._whole.set()
        self._pipes: set[asyncio.Task[None]] = set()
        self.url = ""

    async def lay(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        user, at, _ = self._parts.netloc.rpartition("@")
        self.url = self._parts._replace(netloc=f"{user}{at}127.0.0.1:{port}").geturl()

    async def remove(self) -> None:
        self._server.close()
        for task in self._pipes:
            task.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pipe(source, sink))
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self._whole.wait()
                await asyncio.sleep(self._delay)
                sink.write(data)
                await sink.drain()
        except OSError:
            return
        finally:
            sink.transport.abort()
