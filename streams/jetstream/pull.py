"""A continuous pull of a consumer's messages, in the order in which it delivers them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

__all__ = ["Place", "Pull", "place_of"]

_NANOSECONDS = 1_000_000_000
# Seconds between two looks whether there is room again.
_LOOK = 0.1


class Place(NamedTuple):
    """Where a message stands: how often it was delivered, its number in the stream and among the
    consumer's deliveries, when it was stored (seconds since 1970), and how many come after it."""

    delivered: int
    sequence: int
    delivery: int
    stored: float
    pending: int


def place_of(reply: str) -> Place:
    """Read a message's place from the subject that acknowledges it."""
    words = reply.split(".")
    # Newer servers put the domain and a hash of the account in front.
    first = 4 if len(words) < 11 else 6
    delivered, sequence, delivery, stored, pending = map(int, words[first : first + 5])
    return Place(delivered, sequence, delivery, stored / _NANOSECONDS, pending)


class Pull:
    """Keeps up to `window` messages requested while there is `room`, and hands each to `arrived`.

    It has an inbox of its own: what was sent to an earlier one after a reset is void.
    """

    def __init__(
        self,
        client: Client,
        stream: str,
        consumer: str,
        arrived: Callable[[Msg], None],
        *,
        room: Callable[[], bool] = lambda: True,
        window: int = 64,
        expires: float = 5.0,
    ) -> None:
        self._client = client
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._arrived = arrived
        self._room = room
        self._window = window
        self._expires = expires
        self._request = json.dumps(
            {"batch": window, "expires": int(expires * _NANOSECONDS)}
        ).encode()
        self._left = 0
        self._again = asyncio.Event()
        self._subscription: Subscription | None = None
        self._asking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Ask for messages from now on."""
        inbox = self._client.new_inbox()
        client: Any = self._client
        self._subscription = await client.subscribe(inbox, cb=self._message)
        self._asking = asyncio.create_task(self._ask(inbox), name=f"penstock {self._subject}")

    async def stop(self) -> None:
        """Ask for no more; what still comes is not handed on."""
        asking, self._asking = self._asking, None
        subscription, self._subscription = self._subscription, None
        if asking is not None:
            asking.cancel()
        if subscription is not None:
            from nats.errors import Error

            # A connection that is closed has no subscription any more.
            with suppress(Error):
                await subscription.unsubscribe()

    async def _ask(self, inbox: str) -> None:
        from nats.errors import Error

        while True:
            if not self._room():
                await asyncio.sleep(_LOOK)
                continue
            self._again.clear()
            self._left = self._window
            # While the connection is made anew the request is lost or late: ask again.
            with suppress(Error, TimeoutError):
                await self._client.publish(self._subject, self._request, reply=inbox)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._expires + 1):
                    await self._again.wait()

    async def _message(self, message: Msg) -> None:
        if self._asking is None:
            return
        headers: dict[str, Any] = message.headers or {}
        status = headers.get("Status")
        if status is not None:
            # 100 is a heartbeat; the others say that the request is over.
            if status not in ("404", "408", "100"):
                await asyncio.sleep(0.05)
            if status != "100":
                self._again.set()
            return
        self._left -= 1
        if self._left <= 0:
            self._again.set()
        self._arrived(message)
