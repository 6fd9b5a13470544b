from __future__ import annotations

import asyncio
import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from nats.protocol.parser import Parser

from penstock.streams.nats.client.client import Client
from penstock.streams.nats.client.connection import connect
from penstock.streams.nats.client.message import Message, fields_of

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


def test_a_flush_does_not_overtake_what_was_sent_before_it() -> None:
    got = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"s","version":"2.15.0","max_payload":1000}\r\n')
        while data := await reader.read(1000):
            got.extend(data)
            writer.write(b"PONG\r\n" * data.count(b"PING\r\n"))
        writer.close()

    async def story() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1")
        port = server.sockets[0].getsockname()[1]
        client: Any = await connect([f"nats://127.0.0.1:{port}"], counts=False)
        await client.publish("subject", b"first")
        await client.flush()
        await client.close()
        server.close()

    asyncio.run(story())
    assert got.index(b"first") < got.rindex(b"PING\r\n")
