from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import nkeys
import pytest

from penstock.streams.base.errors import CannotConnect, ServerTooOld
from penstock.streams.nats.client import client
from penstock.streams.nats.client.connection import connect
from penstock.streams.nats.client.server import Servers
from tests.helpers.until import until


@pytest.mark.parametrize(
    ("version", "old"), [("2.10.0", True), ("2.11.0", False), ("3.0.0", False)]
)
def test_a_server_that_cannot_count_what_is_unfinished_is_named(version: str, old: bool) -> None:
    left = asyncio.Event()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = f'INFO {{"server_id":"a","version":"{version}","client_id":1,"max_payload":9}}'
        writer.write(greeting.encode() + b"\r\n")
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()
        await writer.wait_closed()
        left.set()

    async def story() -> None:
        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        urls = [f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"]
        if old:
            with pytest.raises(
                ServerTooOld, match=r"version 2\.10; direct reads in batches.* 2\.11"
            ):
                await connect(urls)
        else:
            client = await connect(urls)
            assert str(client.connected_server_version.major) == version[0]
            await client.close()
        await left.wait()
        server.close()
        await server.wait_closed()

    asyncio.run(story())


def test_a_refusal_that_is_cut_off_is_still_reported() -> None:
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


def test_a_refusal_is_reported_although_the_connection_is_reset_while_it_is_closed() -> None:
    async def speak_in_clear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.write(b'INFO {"server_id":"a","version":"2.12.0","max_payload":9}\r\n')
        writer.transport.abort()

    async def story() -> None:
        server = await asyncio.start_server(speak_in_clear, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(CannotConnect, match="does not speak TLS"):
            await connect([f"tls://127.0.0.1:{port}"], patience=60)
        server.close()
        await server.wait_closed()

    asyncio.run(story())


@pytest.mark.parametrize(
    "meanwhile",
    ["", "-----BEGIN NATS USER JWT-----\njwt\n", "{jwt}-----BEGIN USER NKEY SEED-----\nSUA\n"],
)
def test_a_file_of_credentials_that_is_just_being_written_is_read_again(
    meanwhile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jwt = "-----BEGIN NATS USER JWT-----\njwt\n------END NATS USER JWT------\n"
    seed = nkeys.encode_seed(bytes(32), nkeys.PREFIX_BYTE_USER).decode()
    whole = f"{jwt}-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    place = tmp_path / "me.creds"
    place.write_text(whole, encoding="utf-8")
    monkeypatch.setenv("NATS_CREDS", str(place))
    info = b'{"server_id":"a","version":"2.12.0","max_payload":9,"auth_required":true,"nonce":"n"}'

    async def story() -> None:
        callers: list[asyncio.StreamWriter] = []

        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            callers.append(writer)
            writer.write(b"INFO " + info + b"\r\n")
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        client = await connect([f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"])
        place.write_text(meanwhile.format(jwt=jwt), encoding="utf-8")
        callers[0].close()
        await until(lambda: len(callers) >= 3)
        assert not client.is_connected
        place.write_text(whole, encoding="utf-8")
        await until(lambda: client.is_connected)
        await client.close()
        server.close()
        await server.wait_closed()

    asyncio.run(story())


def test_a_connection_that_breaks_as_soon_as_it_is_made_is_made_again() -> None:
    async def story() -> None:
        callers = 0

        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal callers
            callers += 1
            first = callers == 1
            writer.write(b'INFO {"server_id":"a","version":"2.12.0","max_payload":9}\r\n')
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
                    if first:
                        break
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        client = await connect([f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"])
        async with asyncio.timeout(10):
            await client.subscribe("here")
            while not client.is_connected:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await client.flush()
        assert callers == 2
        await client.close()
        server.close()
        await server.wait_closed()

    asyncio.run(story())


IMPORTS = """
import asyncio, sys, threading
from penstock import write_jetstream
from penstock import from_iterable

class Imports:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "nats":
            imported[name] = threading.current_thread() is threading.main_thread()

async def run():
    sys.meta_path.insert(0, Imports())
    await pipeline.run()

imported = {}
pipeline = from_iterable(()).to(write_jetstream("imports", sys.argv[1]))
asyncio.run(run())
print("nats.js" in imported, any(imported.values()))
"""


def test_the_loop_goes_on_while_the_client_is_imported(server: Servers) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, server.urls[0]],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "True False\n", done.stderr


def test_a_connection_that_is_made_when_its_caller_is_cancelled_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(client.Client):
        """Is connected when it is told to be."""

        begun, may_end = asyncio.Event(), asyncio.Event()
        is_ended = False

        async def connect(self, *_: object, **__: object) -> None:
            self.begun.set()
            await self.may_end.wait()

        async def close(self) -> None:
            Slow.is_ended = True

    async def story() -> None:
        task = asyncio.create_task(connect(["nats://127.0.0.1"]))
        await Slow.begun.wait()
        Slow.may_end.set()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert Slow.is_ended

    monkeypatch.setattr(client, "Client", Slow)
    asyncio.run(story())


def test_a_connection_whose_client_swallows_a_cancellation_is_given_up_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `wait_for` of Python 3.11 does if what it waits for ends at that moment."""

    async def connecting(self: client.Client, *args: object, **options: object) -> None:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def story() -> None:
        calling = asyncio.ensure_future(connect(["nats://127.0.0.1:9"]))
        await begun.wait()
        calling.cancel()
        ended, _ = await asyncio.wait([calling], timeout=20)
        assert [one.cancelled() for one in ended] == [True]

    begun = asyncio.Event()
    monkeypatch.setattr(client.Client, "connect", connecting)
    asyncio.run(story())
