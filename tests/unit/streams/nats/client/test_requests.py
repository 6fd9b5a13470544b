from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.streams.base.errors import StreamMissing
from penstock.streams.nats.client.message import Message
from penstock.streams.nats.client.requests import Requests
from penstock.streams.testing import VirtualTimeLoop
from tests.helpers.nats.model import Client, Server

# Seconds without a sign of life, and half a second until the check.
SILENT = 3.5


@pytest.mark.parametrize("easily", [False, True])
def test_a_request_that_gives_no_sign_of_life_is_made_again(easily: bool) -> None:
    loop = VirtualTimeLoop()

    async def story() -> None:
        server = Server()
        client: Any = Client(server)
        arrived: list[tuple[float, bytes]] = []
        failed: list[Exception] = []

        def came(message: Any) -> None:
            arrived.append((round(loop.time(), 1), message.data))

        requests = Requests(
            client, "stream", "consumer", lambda: 2, came, failed.append, easily=easily
        )
        await requests.start()
        await asyncio.sleep(0.1)
        server.forget_requests()
        server.publish("key", b"1")
        await asyncio.sleep(SILENT + 1)
        assert [data for _, data in arrived] == [b"1"]
        assert 3 <= arrived[0][0] <= SILENT + 0.1
        # If another consumer can be made at once, the reader is notified.
        assert [type(error) for error in failed] == [StreamMissing] * easily
        await requests.stop()
        await client.close()

    loop.run_until_complete(story())
    loop.close()


def test_a_request_that_gives_signs_of_life_is_left_alone() -> None:
    loop = VirtualTimeLoop()

    async def story() -> None:
        server = Server()
        client: Any = Client(server)
        beats: list[int] = []
        arrived: list[Message] = []
        requests = Requests(
            *(client, "stream", "consumer", lambda: 2, arrived.append, pytest.fail),
            beat=beats.append,
        )
        await requests.start()
        await asyncio.sleep(0.1)
        for _ in range(10):
            server.beat()
            await asyncio.sleep(1)
        assert server.asked == 1
        assert beats == [0] * 10
        await requests.stop()
        await client.close()

    loop.run_until_complete(story())
    loop.close()
