"""nats-py's client, which trusts less, and reads faster what comes in masses."""

from __future__ import annotations

from typing import Any

import nats.aio.client
from nats.aio.subscription import Subscription
from nats.errors import Error

from streams.jetstream.frames import Arrived, Frames

__all__ = ["Client"]


class Client(nats.aio.client.Client):
    """Insists on TLS where the address says `tls://`: the client as it comes would go on in clear,
    credentials and all, with a server, or with somebody in between, that says it does without.

    What `subscribe_at_once` subscribes to skips the queue and the task that other subscriptions
    have: ten microseconds a message, more than a pipeline takes for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ps = self._frames = Frames(self)

    async def subscribe_at_once(self, subject: str, arrived: Arrived) -> Subscription:
        """Call `arrived`, which must not raise, with each message as soon as it is read. However
        slow it is, nothing is dropped, so the caller sees to it that no more comes than it asks."""
        untyped: Any = self
        made: Any = await untyped.subscribe(subject, cb=_never)
        self._frames.at_once[b"%d" % made._id] = arrived
        subscription: Subscription = made
        return subscription

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        super()._remove_sub(sid, max_msgs)
        self._frames.at_once.pop(b"%d" % sid, None)

    def _connect_command(self) -> bytes:
        server = self._current_server
        if server and server.uri.scheme == "tls" and not self._server_info.get("tls_required"):
            raise Error("the server does not speak TLS, on which the address insists by tls://")
        return super()._connect_command()


async def _never(message: object) -> None:
    """Its messages go another way."""
