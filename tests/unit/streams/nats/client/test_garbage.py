"""Messages of other programs on our subjects are skipped and reported once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from orjson import dumps

from penstock.streams.nats.client.message import Message, header_with
from penstock.streams.nats.client.requests import Requests
from penstock.streams.nats.client.server import Servers
from penstock.streams.testing import VirtualTimeLoop
from penstock.streams.work_pulling.decoding import hello_in, report_in
from tests.helpers.nats.model import Client, Server
from tests.helpers.nats.stand import Stand

HELLO = {"worker": "all", "capacity": 4}
NOTHING: dict[str, Any] = {"done": [], "failed": [], "returned": [], "asked": [], "alone": []}
NO_JSON = [b"", b"garbage", b"\xff", b"null", b"[]", b"7", b'"text"', b"{}"]
NO_HELLO = [
    *NO_JSON,
    *map(
        dumps,
        [
            {"worker": "all"},
            {"worker": 1, "capacity": 4},
            {"worker": "all", "capacity": "4"},
            {"worker": "all", "capacity": -4},
            {"worker": "all", "capacity": 4.5},
            {"worker": "all", "capacity": True},
            {"worker": ["all"], "capacity": 4},
        ],
    ),
]
NO_REPORT = [
    *NO_HELLO,
    *map(
        dumps,
        [
            HELLO,
            {**HELLO, **NOTHING, "done": None},
            {**HELLO, **NOTHING, "done": [[1]]},
            {**HELLO, **NOTHING, "done": [[[], 0, "x"]]},
            {**HELLO, **NOTHING, "failed": [[1, 0, "ValueError", None, 1]]},
            {**HELLO, **NOTHING, "returned": {"1": 0}},
            {**HELLO, **NOTHING, "asked": [["1", "0"]]},
        ],
    ),
]


@pytest.mark.parametrize("data", NO_HELLO)
def test_what_no_worker_says_is_not_a_greeting(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        hello_in(data)


@pytest.mark.parametrize("data", NO_REPORT)
def test_what_no_worker_says_is_not_a_report(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        report_in(data)


def test_garbage_neither_ends_nor_stalls_a_master_and_is_reported_once(
    server: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        results: list[Any] = []
        async with Stand(server, "garbage") as stand:
            running = await stand.offer(["a1", "a2"], results)
            for hello in NO_HELLO:
                await stand.say(hello, b"garbage")
            for report in NO_REPORT:
                await stand.say(b"garbage", report)
            for text in ("first", "second"):
                job = await stand.take()
                await stand.report({"done": [[*job, text]]})
            await asyncio.wait_for(running.wait(), 60)
            assert results == ["first", "second"]

    asyncio.run(story())
    (told,) = caplog.messages
    assert "on penstock.work.garbage.hello is not a worker's, and was ignored" in told


@pytest.mark.parametrize(
    "message",
    [
        Message("inbox 1", "", b"", b"garbage"),
        Message("inbox 1", "elsewhere", b"", b"garbage"),
        Message("inbox 1", "elsewhere", header_with({"Status": "100"}), b""),
        Message("inbox 1", "", b"NATS/1.0\r\nno status\r\n", b""),
    ],
)
def test_garbage_in_an_inbox_takes_nothing_from_what_is_on_request(
    message: Message, caplog: pytest.LogCaptureFixture
) -> None:
    loop = VirtualTimeLoop()

    async def story() -> None:
        server = Server()
        client: Any = Client(server)
        arrived: list[bytes] = []
        requests = Requests(
            *(client, "stream", "consumer", lambda: 1),
            *(lambda message: arrived.append(message.data), pytest.fail),
            easily=True,
        )
        await requests.start()
        await asyncio.sleep(0.1)
        for _ in range(3):
            client.deliver("inbox 1", message)
        await asyncio.sleep(0.1)
        assert (requests.on_request, requests.foreign) == (1, 3)
        server.publish("key", b"1")
        await asyncio.sleep(0.1)
        assert arrived == [b"1"]
        assert server.asked == 2
        await requests.stop()
        await client.close()

    loop.run_until_complete(story())
    loop.close()
    (told,) = caplog.messages
    assert "is not from the stream 'stream', and was ignored" in told


def test_numbers_of_a_status_that_are_none_end_nothing() -> None:
    loop = VirtualTimeLoop()

    async def story() -> None:
        server = Server()
        client: Any = Client(server)
        beats: list[int] = []
        requests = Requests(
            *(client, "stream", "consumer", lambda: 1, pytest.fail, pytest.fail), beat=beats.append
        )
        await requests.start()
        await asyncio.sleep(0.1)
        for status, number in (("100", "Nats-Last-Consumer"), ("408", "Nats-Pending-Messages")):
            header = f"NATS/1.0 {status}\r\n{number}: many\r\n\r\n".encode()
            client.deliver("inbox 1", Message("inbox 1", "", header, b""))
        await asyncio.sleep(0.1)
        assert beats == [0]
        # The request was over, and the next one is in progress.
        assert (requests.on_request, server.asked) == (1, 2)
        await requests.stop()
        await client.close()

    loop.run_until_complete(story())
    loop.close()
