from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import StaleConnectionError
from nats.protocol.parser import Parser

from penstock.streams.nats.client.client import Client
from penstock.streams.nats.client.connection import connect
from penstock.streams.nats.client.message import Message, fields_of
from penstock.streams.pipelines.pipeline import new_event_loop

HEADER = b"NATS/1.0\r\nNats-Msg-Id: MSG 1\r\n\r\n"
AT_ONCE = b"1"

bodies = st.sampled_from([b"", b"{}", b"\r\n", b"PING\r\n", b"MSG a 1 3\r\nabc\r\n", b"x" * 5000])
subscriptions = st.sampled_from([AT_ONCE, b"2"])


def message(sid: bytes, reply: bytes, header: bytes, body: bytes) -> bytes:
    words = [b"HMSG" if header else b"MSG", b"a.b", sid, *([reply] if reply else [])]
    words += [b"%d" % len(header)] if header else []
    line = b" ".join([*words, b"%d" % (len(header) + len(body))])
    return line + b"\r\n" + header + body + b"\r\n"


frames = st.one_of(
    st.sampled_from([b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b'INFO {"port":1}\r\n']),
    st.builds(
        *(message, subscriptions, st.sampled_from([b"", b"$JS.ACK.1"])),
        *(st.sampled_from([b"", HEADER]), bodies),
    ),
)


class Told:
    """The calls of a parser to its client."""

    def __init__(self) -> None:
        self.messages: dict[bytes, list[Any]] = {AT_ONCE: [], b"2": []}
        self.signs: list[Any] = []

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, header: Any):  # type: ignore[no-untyped-def]
        told = Message(subject.decode(), reply.decode(), header or b"", data)
        self.messages[b"%d" % sid].append(told)

    async def _process_ping(self) -> None:
        self.signs.append("ping")

    async def _process_pong(self) -> None:
        self.signs.append("pong")

    async def _process_info(self, info: Any) -> None:
        self.signs.append(info)


def parser_of(told: Told) -> Any:
    """The parser of our client, which calls a recorder instead of the client."""
    client = Client()
    untyped: Any = client
    parser: Any = untyped._ps
    parser.nc = told
    parser.at_once[AT_ONCE] = told.messages[AT_ONCE].append
    return parser


async def parse(parser: Any, pieces: list[bytes]) -> None:
    for piece in pieces:
        await parser.parse(piece)


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 12_000), max_size=6))
def test_messages_at_once_are_those_that_the_usual_way_gives(
    sent: list[bytes], cuts: list[int]
) -> None:
    everything = b"".join(sent)
    at = [0, *sorted(min(cut, len(everything)) for cut in cuts), len(everything)]
    pieces = [everything[a:b] for a, b in itertools.pairwise(at)]
    usual, ours = Told(), Told()
    asyncio.run(parse(Parser(usual), [everything]))
    asyncio.run(parse(parser_of(ours), pieces))
    assert ours.messages == usual.messages
    assert ours.signs == usual.signs


def test_what_came_by_a_broken_connection_is_forgotten() -> None:
    told = Told()
    parser = parser_of(told)
    whole = message(AT_ONCE, b"", b"", b"new")

    async def broken() -> None:
        parser.reset()

    async def story() -> None:
        await parser.parse(message(AT_ONCE, b"", b"", b"old")[:-4])
        parser.reset()
        await parser.parse(whole)
        told._process_ping = broken  # type: ignore[method-assign]
        await parser.parse(b"PING\r\n" + message(AT_ONCE, b"", b"", b"old"))
        await parser.parse(whole)

    asyncio.run(story())
    assert [one.data for one in told.messages[AT_ONCE]] == [b"new", b"new"]


def test_a_header_is_read_with_its_fields_and_status() -> None:
    assert fields_of(HEADER) == {"Nats-Msg-Id": "MSG 1"}
    header = b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 7\r\n\r\n"
    assert fields_of(header) == {"Status": "408", "Nats-Pending-Messages": "7"}


@asynccontextmanager
async def connected(got: Callable[[bytes], None] = lambda _: None) -> AsyncIterator[Any]:
    """A client of a server that answers pings and requests; `got` gets what it receives."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"s","version":"2.15.0","max_payload":1000}\r\n')
        answers = b""
        while line := await reader.readline():
            got(line)
            match line.split():
                case [b"PING"]:
                    writer.write(b"PONG\r\n")
                case [b"SUB", _, _, sid] | [b"SUB", _, sid]:
                    answers = sid
                case [b"PUB", _, reply, _]:
                    writer.write(message(answers, b"", b"", b"{}").replace(b"a.b", reply))
                case _:
                    pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    client = await connect([f"nats://127.0.0.1:{port}"], counts=False)
    try:
        yield client
    finally:
        await client.close()
        server.close()


def test_a_flush_does_not_overtake_what_was_sent_before_it() -> None:
    got = bytearray()

    async def story() -> None:
        async with connected(got.extend) as client:
            await client.publish("subject", b"first")
            await client.flush()

    asyncio.run(story())
    assert got.index(b"first") < got.rindex(b"PING\r\n")


async def cancelled_by(
    answer: asyncio.Future[Any], message: object, task: asyncio.Task[Any]
) -> bool:
    """Give the task its answer, and cancel it at the same time; whether it ends so."""
    answer.set_result(message)
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


def test_a_request_that_is_cancelled_as_its_answer_comes_ends_its_task() -> None:
    async def story() -> bool:
        async with connected() as client:
            first = await client.request("one", b"")
            assert first.data == b"{}"
            task = asyncio.create_task(client.request("another", b""))
            while not client._resp_map:  # noqa: ASYNC110
                await asyncio.sleep(0)
            [answer] = client._resp_map.values()
            return await cancelled_by(answer, first, task)

    assert asyncio.run(story())


def test_a_flush_that_is_cancelled_as_its_answer_comes_ends_its_task() -> None:
    async def story() -> bool:
        async with connected() as client:
            task = asyncio.create_task(client.flush())
            while not client._pongs:  # noqa: ASYNC110
                await asyncio.sleep(0)
            return await cancelled_by(client._pongs.pop(), True, task)

    assert asyncio.run(story())


def test_a_client_reads_on_when_the_answer_comes_after_a_flush_was_given_up() -> None:
    async def story() -> bytes:
        async with connected() as client:
            flushes = [asyncio.create_task(client.flush()) for _ in range(3)]
            while len(client._pongs) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0)
            flushes[0].cancel()
            flushes[2].cancel()
            await flushes[1]
            return (await client.request("subject", b"")).data  # type: ignore[no-any-return]

    assert asyncio.run(story()) == b"{}"


def test_a_flush_that_is_cancelled_at_once_ends_its_task() -> None:
    async def story() -> bool:
        async with connected() as client:
            task = asyncio.create_task(client.flush())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            return task.cancelled()

    assert asyncio.run(story())


def test_a_task_that_was_cancelled_can_still_ask_to_clean_up() -> None:
    async def story() -> bytes:
        async with connected() as client:

            async def work() -> bytes:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    return (await client.request("last", b"")).data  # type: ignore[no-any-return]
                raise AssertionError

            task = asyncio.create_task(work())
            await asyncio.sleep(0)
            task.cancel()
            return await task

    assert asyncio.run(story()) == b"{}"


async def without_server() -> Any:
    """A client whose server has gone, and which has tried to connect again."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"s","version":"2.15.0","max_payload":1000}\r\n')
        while line := await reader.readline():
            if line == b"PING\r\n":
                writer.write(b"PONG\r\n")
            elif line.startswith(b"PUB"):
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    client: Any = await connect([f"nats://127.0.0.1:{port}"], counts=False)
    server.close()
    connect_to, tried = client._connect_to_server, asyncio.Event()

    async def connect_again(to: object) -> None:
        try:
            await connect_to(to)
        finally:
            tried.set()

    client._connect_to_server = connect_again
    await client.publish("last", b"")
    await tried.wait()
    return client


def test_a_client_whose_server_has_gone_ends_although_messages_wait() -> None:
    async def story() -> None:
        client = await without_server()
        await client.publish("waits", b"")
        await client.close()
        assert client.is_closed

    asyncio.run(story())
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(story())


@asynccontextmanager
async def frozen_server() -> AsyncIterator[Any]:
    """A client with more to send than a connection holds, whose server reads no more; a second
    connection is read."""
    writers: list[asyncio.StreamWriter] = []
    ends = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(b'INFO {"server_id":"s","version":"2.15.0","max_payload":100000000}\r\n')
        while line := await reader.readline():
            if line == b"PING\r\n":
                writer.write(b"PONG\r\n")
            elif line.startswith(b"PUB big") and len(writers) == 1:
                await ends.wait()
                return

    server = await asyncio.start_server(serve, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    client: Any = await connect([f"nats://127.0.0.1:{port}"], counts=False)
    publishing = asyncio.ensure_future(client.publish("big", bytes(50_000_000)))
    await asyncio.sleep(0.1)
    try:
        yield client
    finally:
        ends.set()
        await asyncio.gather(publishing, return_exceptions=True)
        if not client.is_closed:
            await client.close()
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


def test_a_client_ends_although_its_server_reads_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with frozen_server() as client:
            closing = asyncio.ensure_future(client.close())
            done, _ = await asyncio.wait([closing], timeout=20)
            assert done
            assert client.is_closed

    monkeypatch.setattr("penstock.streams.nats.client.client._ANSWER", 0.1)
    asyncio.run(story())


def test_a_client_connects_again_although_its_server_reads_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with frozen_server() as client:
            # As when its pings are not answered.
            await client._process_op_err(StaleConnectionError())
            done, _ = await asyncio.wait([client._reconnection_task], timeout=20)
            assert done
            assert client.is_connected

    monkeypatch.setattr("penstock.streams.nats.client.client._ANSWER", 0.1)
    asyncio.run(story())


def test_an_attempt_to_connect_that_misses_its_cancellation_is_not_repeated() -> None:
    async def story() -> None:
        client = await without_server()
        connect_to, begun = client._connect_to_server, asyncio.Event()

        async def misses(_: object) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                client._connect_to_server = connect_to
                raise ConnectionRefusedError from None

        client._connect_to_server = misses
        await begun.wait()
        connecting = client._reconnection_task
        await client.close()
        done, _ = await asyncio.wait([connecting], timeout=10)
        assert done

    asyncio.run(story())
