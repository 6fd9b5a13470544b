"""Pull requests for exactly as many messages as there is room for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from orjson import dumps

from penstock.streams.base.errors import PenstockError, StreamMissing
from penstock.streams.nats.client.answers import info_of
from penstock.streams.nats.client.connection import is_refused, refusal
from penstock.streams.nats.client.message import Message, fields_of
from penstock.streams.nats.client.refusals import rights_missing
from penstock.streams.runtime.tasks import new_task

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

    from penstock.streams.nats.client.client import Client

__all__ = ["Requests"]

log = logging.getLogger("penstock")

_NANOSECONDS = 1_000_000_000
# The prefix of acknowledgement subjects.
_ACK = "$JS.ACK."
# Seconds for which the server keeps a request without messages, unless the consumer allows less.
_EXPIRES = 30.0
# The most messages per request; at most twice as many are on request, however great the demand.
_LARGEST = 256
# Seconds between two heartbeats of a request without messages, and until a silent one counts as
# lost.
_BEAT, _SILENT = 1.0, 3.0
# Seconds until the next request after a refused one, and between checks of the connection.
_PAUSE, _LOOK = 0.1, 0.5
# Seconds for which servers may refuse a connection that has broken, as while they are given new
# credentials. The same as for the first connection.
_REFUSED = 10.0


class Requests:
    """Keeps as many messages on request as `room()` returns; requests are long-lived.

    `arrived` is called with each message, in the order in which they come; `failed` with any error
    it raises, when the consumer is gone or, with `easily`, may be gone, and when the servers do not
    accept the credentials any more. `look` is to be called
    when there may be more room. More is requested when half of the room or less is on request, so
    that few requests wait at the server. After a reconnection, or without heartbeats, servers may
    have lost the requests: they are repeated in another inbox. A consumer may limit what is
    requested at a time: it is asked for its limits when it refuses a request. `beat` is called with
    each heartbeat and the number of messages that the consumer has delivered in all.
    """

    def __init__(
        self,
        client: Client,
        stream: str,
        consumer: str,
        room: Callable[[], int],
        arrived: Callable[[Message], None],
        failed: Callable[[Exception], None],
        *,
        easily: bool = False,
        beat: Callable[[int], None] | None = None,
    ) -> None:
        self.on_request = 0
        self._client = client
        self._stream = stream
        self._consumer = consumer
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._acks = f"$JS.ACK.{stream}.{consumer}."
        self._room = room
        self._arrived = arrived
        self._failed = failed
        self._easily = easily
        self._beat = beat
        self._wanted = asyncio.Event()
        self._signs = 0
        self._subscription: Subscription | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._doubtful = False
        # What the consumer accepts in one request.
        self._most, self._expires = _LARGEST, _EXPIRES
        # Messages that are neither of the stream nor about a request.
        self.foreign = 0

    async def start(self) -> None:
        """Ask for messages from now on."""
        self._client.watch(self._refused)
        await self._subscribe()
        name = f"penstock {self._stream}.{self._consumer}"
        self._tasks = [
            new_task(self._ask(), name),
            new_task(self._watch(), name),
        ]
        self.look()

    async def _subscribe(self) -> None:
        self._inbox = self._client.new_inbox()
        self._subscription = await self._client.subscribe_at_once(self._inbox, self._message)

    def look(self) -> None:
        """There may be room for more; the demand of one loop iteration is requested together."""
        self._wanted.set()

    async def stop(self) -> None:
        """Stop requesting; when this returns, everything under way has arrived, or never will."""
        from nats.errors import Error

        for task in self._tasks:
            task.cancel()
        self._client.unwatch(self._refused)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        subscription: Any = self._subscription
        self._subscription = None
        if subscription is not None:
            # A lost connection delivers nothing either.
            with suppress(Error, TimeoutError):
                async with asyncio.timeout(1):
                    await subscription.drain()
        self._arrived = _ignored

    async def _ask(self) -> None:
        from nats.errors import Error

        while True:
            await self._wanted.wait()
            self._wanted.clear()
            room = min(self._room(), 2 * _LARGEST)
            missing = min(room - self.on_request, self._most)
            if missing <= 0 or missing < min(self.on_request, self._most):
                continue
            if missing == self._most:
                self.look()
            self.on_request += missing
            # A request that is not sent is repeated after the reconnection.
            with suppress(Error):
                await self._client.publish(
                    self._subject,
                    dumps(
                        {
                            "batch": missing,
                            "expires": int(self._expires * _NANOSECONDS),
                            # Servers refuse more than half of the request's time.
                            "idle_heartbeat": int(min(_BEAT, self._expires / 2) * _NANOSECONDS),
                        }
                    ),
                    reply=self._inbox,
                )

    def _message(self, message: Message) -> None:
        self._signs += 1
        if message.reply.startswith(_ACK):
            self.on_request = max(0, self.on_request - 1)
            try:
                self._arrived(message)
            except Exception as error:
                self._failed(error)
            self.look()
            return
        fields = fields_of(message.header)
        status = fields.get("Status")
        if status is None or message.reply:
            self._passed_over(message)
        elif status == "100":
            if self._beat is not None:
                self._beat(_number(fields, "Nats-Last-Consumer", 0))
        else:
            # A request has ended, with so many of its messages not sent.
            left = _number(fields, "Nats-Pending-Messages", self.on_request)
            self.on_request = max(0, self.on_request - left)
            if status in ("404", "408"):
                self.look()
            else:
                # No leader, a server shutting down, a deleted consumer, or one with limits.
                self._doubt()
                asyncio.get_running_loop().call_later(_PAUSE, self.look)

    def _passed_over(self, message: Message) -> None:
        self.foreign += 1
        if self.foreign == 1:
            log.warning(
                f"a message of {len(message.data):,} bytes on {message.subject} is not from the "
                f"stream '{self._stream}', and was ignored"
            )

    def _refused(self, text: str) -> None:
        """The server refuses something to this user."""
        for subject, whole in ((self._subject, True), (self._acks, False)):
            if f'publish to "{subject.lower()}{chr(34) * whole}' in text:
                self._failed(rights_missing(f"a message for {subject!r}", text, "publish there"))
        if f'subscription to "{self._inbox.lower()}"' in text:
            what = f"a subscription to {self._inbox!r}"
            self._failed(rights_missing(what, text, "subscribe there"))

    def _doubt(self) -> None:
        if self._easily:
            self._failed(self._gone())
        else:
            self._doubtful = True

    async def _watch(self) -> None:
        connections, signs, silent, refused = self._connections(), -1, 0.0, 0.0
        while True:
            await asyncio.sleep(_LOOK)
            refused = refused + _LOOK if is_refused(self._client) else 0.0
            if refused >= _REFUSED:
                refused = 0.0
                self._failed(await refusal(self._client))
            silent = silent + _LOOK if self.on_request and self._signs == signs else 0.0
            signs = self._signs
            if connections != (connections := self._connections()):
                await self._begin_again()
            elif silent >= _SILENT:
                silent = 0.0
                await self._begin_again()
                self._doubt()
            if self._doubtful:
                self._doubtful = False
                await self._verify()

    async def _begin_again(self) -> None:
        """The requests are lost."""
        from nats.errors import Error

        old = self._subscription
        await self._subscribe()
        self.on_request = 0
        self.look()
        if old is not None:
            with suppress(Error):
                await old.unsubscribe()

    def _connections(self) -> int:
        client: Any = self._client
        return int(client.stats["reconnects"])

    async def _verify(self) -> None:
        """Look for the consumer, and for its limits."""
        from nats.errors import Error
        from nats.js.errors import NotFoundError

        try:
            config = (await info_of(self._client, self._stream, self._consumer))["config"]
        except NotFoundError:
            self._failed(self._gone())
            return
        except PenstockError as error:
            self._failed(error)
            return
        except (Error, TimeoutError):
            # No leader yet: the next request shows it.
            return
        self._most = min(_LARGEST, config.get("max_batch") or _LARGEST)
        self._expires = min(_EXPIRES, (config.get("max_expires") or inf) / _NANOSECONDS)

    def _gone(self) -> StreamMissing:
        return StreamMissing(
            f"the consumer '{self._consumer}' of the stream '{self._stream}' has been deleted. "
            "Start again, which creates a new one."
        )


def _number(fields: Mapping[str, str], name: str, otherwise: int) -> int:
    text = fields.get(name, "")
    return int(text) if text.isdecimal() else otherwise


def _ignored(message: Message) -> None:
    """The message came too late."""
