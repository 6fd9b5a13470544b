"""Sends acknowledgements to the server without waiting for answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.streams.runtime.tasks import new_task

if TYPE_CHECKING:
    from penstock.streams.nats.client.client import Client

__all__ = ["ACK", "TERM", "WORKING", "Replies", "later"]

ACK, TERM, WORKING = b"+ACK", b"+TERM", b"+WPI"
_NAK = b"-NAK"


def later(seconds: float) -> bytes:
    """Redeliver after so many seconds."""
    if seconds <= 0:
        return _NAK
    return b'%s {"delay": %d}' % (_NAK, int(seconds * 1_000_000_000))


class Replies:
    """Sends replies in order, and the replies of one loop iteration together.

    A loss with a connection is not noticed here, but by the server's timer, which redelivers, or by
    a reader that compares its acknowledgements with those the server knows.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: list[tuple[str, bytes]] = []
        self._sending: asyncio.Task[None] | None = None

    def send(self, reply: str, what: bytes) -> None:
        """Send the outcome of the message with the acknowledgement subject `reply`."""
        self.send_all([(reply, what)])

    def send_all(self, replies: Iterable[tuple[str, bytes]]) -> None:
        """The same for several."""
        self._waiting.extend(replies)
        if self._sending is None:
            self._sending = new_task(self._send(), "penstock acknowledgements")

    async def _send(self) -> None:
        from nats.errors import Error

        publish = self._client.publish
        while self._waiting:
            replies, self._waiting = self._waiting, []
            for reply, what in replies:
                with suppress(Error):
                    await publish(reply, what)
        self._sending = None

    async def flush(self, patience: float = 5.0) -> bool:
        """Wait until everything sent has reached the server; returns whether it has within so many
        seconds."""
        from nats.errors import Error

        while self._sending is not None:
            await self._sending
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(patience):
                await self._client.flush()
                return True
        return False
