"""nats-py's client, with TLS enforced, prompt errors of rights, and fast subscriptions."""

from __future__ import annotations

import asyncio
from asyncio import StreamWriter
from collections import UserString
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import nats.aio.client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error
from nats.protocol.parser import PERMISSIONS_ERR

from penstock.streams.nats.client.frames import Arrived, Frames
from penstock.streams.nats.client.refusals import rights_missing
from penstock.streams.runtime.tasks import cancellable

__all__ = ["Client", "Refused"]

# Seconds in which a server that is there answers.
_ANSWER = 2

Refused = Callable[[str], None]


class Client(nats.aio.client.Client):
    """Insists on TLS if the address says `tls://`: the original client would continue in clear
    text, credentials included, with a server, or a man in the middle, that claims not to use TLS.

    An answer that comes after its flush was given up does not end the connection. One that the
    server ends with an error, such as credentials that have expired, is made again like any other:
    the original client would close itself for ever.

    Subscriptions by `subscribe_at_once` skip the queue and the task of other subscriptions: ten
    microseconds per message, more than a pipeline spends on it.

    A request that the server refuses fails at once: the original client waits for an answer,
    because the refusal names only the subject, not the request. So does a subscription by `listen`;
    publishers are notified of refusals by `watch`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ps = self._frames = Frames(self)
        self._asking: dict[asyncio.Task[Any], str] = {}
        self._refused: dict[asyncio.Task[Any], str] = {}
        self._watching: dict[Refused, None] = {}

    async def request(self, subject: str, *arguments: Any, **options: Any) -> Any:
        """As the client's. Raises RightsMissing."""
        untyped: Any = super()
        asking = asyncio.create_task(untyped.request(subject, *arguments, **options))
        self._asking[asking] = subject
        try:
            return await cancellable(asking)
        except asyncio.CancelledError:
            if asking in self._refused:
                raise rights_missing(
                    f"a request to {subject!r}",
                    self._refused[asking],
                    "publish there, and to subscribe to _INBOX.>",
                ) from None
            raise
        finally:
            del self._asking[asking]
            self._refused.pop(asking, None)

    async def listen(self, subject: str, heard: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Have `heard` called with each message on `subject`. Raises RightsMissing."""
        refusals: list[str] = []

        def refused(text: str) -> None:
            if f'subscription to "{subject.lower()}"' in text:
                refusals.append(text)

        self.watch(refused)
        try:
            untyped: Any = self
            subscription: Subscription = await untyped.subscribe(subject, cb=heard)
            # The server refuses before it answers. After a reconnection the client subscribes
            # again.
            with suppress(Error, TimeoutError):
                await self.flush(_ANSWER)
        finally:
            self.unwatch(refused)
        if refusals:
            raise rights_missing(f"a subscription to {subject!r}", refusals[0], "subscribe there")
        return subscription

    async def flush(self, timeout: int = 10) -> None:  # noqa: ASYNC109 - as the client has it
        """As the client's, whose ping overtakes what still waits to be written."""
        await self._flush_pending(force_flush=True)
        await cancellable(super().flush(timeout))

    async def _flush_pending(self, force_flush: bool = False) -> asyncio.Future[None]:
        """As the client's, which ignores that its caller is cancelled."""
        untyped: Any = super()
        return await cancellable(untyped._flush_pending(force_flush))

    async def _process_connect_init(self) -> None:
        """As the client's, which leaves a connection open that the server has refused, and never
        tries again after an error that is not of the connection."""
        try:
            await super()._process_connect_init()
        except Exception as error:
            transport: Any = self._transport
            transport.close()
            if isinstance(error, (OSError, Error, TimeoutError)):
                raise
            raise Error(f"nats: {type(error).__name__}: {error}") from error

    def _read_creds_user_jwt(self, creds: Any) -> Any:
        """As the client's, which would read a file without a JWT for ever, blocking the loop."""
        text = Path(creds).read_text(encoding="utf-8")
        if "BEGIN NATS USER JWT" not in text:
            raise Error(f"nats: {creds} contains no JWT of a user")
        untyped: Any = super()
        return untyped._read_creds_user_jwt(UserString(text))

    async def _process_pong(self) -> None:
        """As the client's, which silently stops reading when the flush was given up that this
        answers."""
        untyped: Any = self
        flushes: list[asyncio.Future[Any]] = untyped._pongs
        if flushes and flushes[0].done():
            flushes[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _attempt_reconnect(self) -> None:
        """As the client's, which waits without end until the lost connection has taken what was
        sent."""
        ending = self._abort_soon()
        try:
            await super()._attempt_reconnect()
        finally:
            ending.cancel()

    def _abort_soon(self) -> asyncio.TimerHandle:
        """End the connection for good if it has not taken soon what was sent."""
        writer: StreamWriter | None = getattr(self._transport, "_io_writer", None)
        abort = _no_connection if writer is None else writer.transport.abort
        return asyncio.get_running_loop().call_later(_ANSWER, abort)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """As the client's, which would write what waits to a connection that is lost, and waits
        without end for a server that does not read."""
        if self.is_reconnecting:
            untyped: Any = self
            untyped._pending, untyped._pending_data_size = [], 0
            # An attempt to connect may miss that it is cancelled, and would be repeated for ever.
            untyped._server_pool.clear()
        ending = self._abort_soon()
        try:
            await super()._close(status, do_cbs)
        finally:
            ending.cancel()

    def watch(self, refused: Refused) -> None:
        """Call `refused` with the server's message, in lower case, when it refuses something to
        this user; the message quotes the subject."""
        self._watching[refused] = None

    def unwatch(self, refused: Refused) -> None:
        """Call it no more."""
        self._watching.pop(refused, None)

    async def _process_err(self, err_msg: str) -> None:
        # The parser has converted it to lower case.
        answers = bytes(self._resp_sub_prefix or b"\0").decode().lower()
        for asking, subject in self._asking.items():
            if f'"{subject.lower()}"' in err_msg or f'to "{answers}' in err_msg:
                self._refused[asking] = err_msg.strip("'")
                asking.cancel()
        text = err_msg.strip("'")
        for refused in list(self._watching):
            refused(text)
        if PERMISSIONS_ERR in err_msg:
            await super()._process_err(err_msg)
            return
        await self._process_op_err(Error(f"nats: {text}"))

    async def subscribe_at_once(self, subject: str, arrived: Arrived) -> Subscription:
        """Call `arrived`, which must not raise, with each message as soon as it is read. However
        slow it is, nothing is dropped, so the caller must bound the messages by its requests."""
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
            raise Error("the server does not speak TLS, which the address requires by tls://")
        _end_with_eof(self._transport)
        return super()._connect_command()


def _end_with_eof(transport: Any) -> None:
    """Say that TLS has no half-open connections, which asyncio warns about at the server's end.

    nats-py makes the protocol of an upgraded connection as if it had none.
    """
    writer: StreamWriter | None = getattr(transport, "_io_writer", None)
    if writer is None or writer.get_extra_info("ssl_object") is None:
        return
    # A connection that the server has refused may be closed already, and have no protocol.
    protocol: Any = writer.transport.get_protocol()
    if protocol is None:
        return
    received = protocol.eof_received

    def eof_received() -> bool:
        received()
        return False

    protocol.eof_received = eof_received


def _no_connection() -> None:
    """There is nothing to end."""


async def _never(message: object) -> None:
    """Its messages bypass the queue."""
