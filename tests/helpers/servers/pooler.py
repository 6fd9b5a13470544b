"""A pooler in front of a PostgreSQL, with the pool modes of PgBouncer."""

from __future__ import annotations

import asyncio
import secrets
from urllib.parse import urlsplit

__all__ = ["Pooler"]

_READY = b"Z\x00\x00\x00\x05I"
_REFUSED = b"SERROR\0C08P01\0Mtransaction blocks not allowed in statement pooling mode\0\0"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pooler:
    """Lends its clients one of at most `size` sessions, for a session, transaction or statement.

    Those given back first are lent last, unless `in_turn`. `busy` programs take and give one back
    all the time.
    """

    def __init__(
        self, url: str, mode: str, *, size: int = 9, in_turn: bool = False, busy: int = 0
    ) -> None:
        self._mode = mode
        self._in_turn = in_turn
        self._busy = busy
        self._parts = urlsplit(url)
        self._left = size
        self._idle: list[Streams] = []
        self._servers: list[asyncio.StreamWriter] = []
        self._given_back = asyncio.Condition()
        self._greeting = b""
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def __aenter__(self) -> Pooler:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        user = self._parts.netloc.rpartition("@")[0]
        self.url = self._parts._replace(netloc=f"{user}@127.0.0.1:{port}").geturl()
        self._tasks |= {asyncio.create_task(self._use()) for _ in range(self._busy)}
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._servers:
            writer.transport.abort()
        await asyncio.sleep(0)

    # The server's sessions.

    async def _take(self) -> Streams:
        async with self._given_back:
            await self._given_back.wait_for(lambda: self._idle or self._left)
            if self._idle:
                return self._idle.pop(0 if self._in_turn else -1)
            self._left -= 1
        reader, writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        self._servers.append(writer)
        name = f"user\0{self._parts.username}\0database\0{self._parts.path[1:]}\0\0".encode()
        writer.write((8 + len(name)).to_bytes(4) + (196608).to_bytes(4) + name)
        greeting = b""
        while (message := await _message(reader)) != _READY:
            greeting += message if message[:1] == b"S" else b""
        self._greeting = greeting
        return reader, writer

    async def _give_back(self, server: Streams) -> None:
        async with self._given_back:
            self._idle.append(server)
            self._given_back.notify_all()

    async def _use(self) -> None:
        while True:
            server = await self._take()
            await asyncio.sleep(0)
            await self._give_back(server)
            await asyncio.sleep(0)

    # The clients.

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return  # A handler that is cancelled would be reported.
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            start = await reader.readexactly(int.from_bytes(await reader.readexactly(4)) - 4)
            if start[:4] == (196608).to_bytes(4):
                break
            writer.write(b"N")  # no encryption
        if not self._greeting:
            await self._give_back(await self._take())
        key = b"K\x00\x00\x00\x0c" + secrets.token_bytes(8)
        writer.write(b"R\x00\x00\x00\x08\x00\x00\x00\x00" + self._greeting + key + _READY)
        if self._mode == "session":
            await self._lend(reader, writer)
            return
        while (asked := await _message(reader))[:1] != b"X":
            if self._mode == "statement" and b"BEGIN" in asked:
                writer.write(b"E" + (4 + len(_REFUSED)).to_bytes(4) + _REFUSED + _READY)
                return
            server = await self._take()
            answer = b""
            while answer != _READY:
                server[1].write(asked)
                if asked[:1] in b"QS":
                    while (answer := await _message(server[0]))[:1] != b"Z":
                        writer.write(answer)
                    if answer != _READY:
                        writer.write(answer)
                if answer != _READY:
                    asked = await _message(reader)
            await self._give_back(server)
            writer.write(answer)

    async def _lend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Lend a session until the client ends its connection."""
        server = await self._take()

        async def answers() -> None:
            while True:
                writer.write(await _message(server[0]))

        answering = asyncio.create_task(answers())
        try:
            while (asked := await _message(reader))[:1] != b"X":
                server[1].write(asked)
        finally:
            answering.cancel()
        server[1].write(b"Q\x00\x00\x00\x10DISCARD ALL\0")
        while await _message(server[0]) != _READY:
            pass
        await self._give_back(server)


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(int.from_bytes(head[1:]) - 4)
