from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from streams.errors import CannotConnect, ServerTooOld
from streams.jetstream import client
from streams.jetstream.connection import connect


class OldServer:
    """A connection to a server of a version."""

    def __init__(self, major: int, minor: int) -> None:
        self.connected_server_version = _Version(major=major, minor=minor)
        self.closed = False
        self.connect: Any = None

    async def close(self) -> None:
        self.closed = True


class _Version(SimpleNamespace):
    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.0"


@pytest.mark.parametrize(("major", "minor", "old"), [(2, 10, True), (2, 11, False), (3, 0, False)])
def test_a_server_that_cannot_count_what_is_unfinished_is_named(
    monkeypatch: pytest.MonkeyPatch, major: int, minor: int, old: bool
) -> None:
    server = OldServer(major, minor)

    async def connected(*_: Any, **__: Any) -> None:
        pass

    server.connect = connected
    monkeypatch.setattr(client, "StrictClient", lambda: server)
    if old:
        with pytest.raises(
            ServerTooOld, match=r"version 2\.10\.0; direct reads in batches.* 2\.11"
        ):
            asyncio.run(connect(["nats://a"]))
        assert server.closed
    else:
        assert asyncio.run(connect(["nats://a"])) is server


def test_a_refusal_that_is_cut_off_is_still_told() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"a","auth_required":true}\r\n')
        await writer.drain()
        writer.transport.abort()

    async def story() -> None:
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(CannotConnect, match="refuses these credentials"):
            await connect([f"nats://me:wrong@127.0.0.1:{port}"], patience=0.5)
        server.close()
        await server.wait_closed()

    asyncio.run(story())
