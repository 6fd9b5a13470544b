"""Connects to the servers, and explains to the user why it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import CannotConnect, ServerTooOld
from penstock.streams.base.extras import missing_extra
from penstock.streams.nats.client.addresses import shown
from penstock.streams.nats.client.credentials import credentials

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from penstock.streams.nats.client.client import Client

__all__ = ["Urls", "connect", "is_refused", "jetstream", "refusal"]

Urls = Sequence[str]

_PATIENCE = 10.0
# Seconds after which what was cancelled, and has not ended, is cancelled again.
_AGAIN = 1.0
# Messages of errors that no retry can cure: the server refuses us, or we do not trust it.
_FOR_GOOD = (
    *("authorization", "authentication expired", "authentication revoked"),
    *("certificate", "does not speak tls"),
)
# The first version whose direct reads report how many messages follow.
_OLDEST = (2, 11)


async def connect(
    urls: Urls, *, name: str = "penstock", patience: float = _PATIENCE, counts: bool = True
) -> Client:
    """Connect to any of `urls`, and stay connected.

    A connection that breaks is made anew as often as needed, for as long as that takes, also while
    the servers refuse it (`is_refused`). Raises CannotConnect if no server has
    accepted the connection within `patience` seconds, MissingExtra without nats-py, and
    ServerTooOld if the caller `counts` messages and the server cannot report them.
    """
    try:
        # In a thread: it may take a second, for which the loop would be blocked.
        module = await asyncio.to_thread(import_module, "penstock.streams.nats.client.client")
        client: Client = module.Client()
        untyped: Any = client
    except ImportError as error:
        raise missing_extra("Running on NATS needs nats-py", "cluster") from error
    last: list[Exception] = []
    refused = asyncio.Event()

    async def noted(error: Exception) -> None:
        # An error of closing the connection afterwards is not the reason.
        if not refused.is_set():
            last[:] = [error]
        if _is_for_good(error):
            refused.set()

    connecting = asyncio.create_task(
        untyped.connect(
            list(urls),
            name=name,
            error_cb=noted,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,
            connect_timeout=2,
            ping_interval=10,
            skip_subject_validation=True,
            **credentials(),
        )
    )
    # The client would retry for ever, even with wrong credentials.
    refusal = asyncio.create_task(refused.wait())
    is_connected = False
    try:
        await asyncio.wait(
            [connecting, refusal], timeout=patience, return_when=asyncio.FIRST_COMPLETED
        )
        if not connecting.done():
            raise CannotConnect(await _why(urls, last[0] if last else None, patience))
        connecting.result()
        is_connected = True
    except CannotConnect:
        raise
    except Exception as error:
        raise CannotConnect(await _why(urls, error, patience)) from error
    finally:
        refusal.cancel()
        # An accepted connection may have lost its server already; a new one is made.
        if not is_connected:
            # Again and again: wait_for of Python 3.11, which the client uses, swallows a
            # cancellation if what it waits for ends at that moment.
            while not connecting.done():
                connecting.cancel()
                await asyncio.wait([connecting], timeout=_AGAIN)
            await asyncio.gather(connecting, return_exceptions=True)
            # A half-open connection would warn when it is garbage-collected, and so would one that
            # was made when this call was cancelled or given up.
            with suppress(Exception):
                await client.close()
    version = client.connected_server_version
    if counts and (version.major, version.minor) < _OLDEST:
        await client.close()
        raise ServerTooOld(
            f"The NATS server at {shown(urls)} is of version {version.major}.{version.minor}; "
            "direct reads in batches, by which unfinished events are counted, need 2.11 or newer. "
            "Update the server."
        )
    return client


def jetstream(client: Client, timeout: float = 2.0) -> JetStreamContext:
    """The client's JetStream side, whose requests get an answer within `timeout` seconds."""
    untyped: Any = client
    context: JetStreamContext = untyped.jetstream(timeout=timeout)
    return context


def is_refused(client: Client) -> bool:
    """Whether a connection has broken that the servers do not accept again."""
    untyped: Any = client
    return not client.is_connected and _is_for_good(untyped.last_error)


async def refusal(client: Client) -> CannotConnect:
    """The error for such a connection."""
    untyped: Any = client
    urls = [uri.geturl() for uri in untyped.servers]
    return CannotConnect(await _why(urls, untyped.last_error, _PATIENCE))


def _is_for_good(error: Exception | None) -> bool:
    text = str(error).lower()
    return any(word in text for word in _FOR_GOOD)


async def _why(urls: Urls, error: Exception | None, patience: float) -> str:
    text = "" if error is None else str(error) or type(error).__name__
    if any(word in text.lower() for word in ("certificate", "tls")):
        return (
            f"No connection to the NATS server at {shown(urls)} can be trusted ({text}). Set "
            "NATS_CA to the certificates to trust, and NATS_CERT and NATS_KEY to the client's own."
        )
    # A server may close the connection before its refusal has been read.
    if "authorization" in text.lower() or any([await _asks_who(url) for url in urls]):
        return (
            f"The NATS server at {shown(urls)} refuses these credentials ({text}). Use others, as "
            "in nats://user:password@host:4222, or set NATS_USER and NATS_PASSWORD, NATS_TOKEN, "
            "NATS_CREDS or NATS_NKEY."
        )
    return (
        f"No NATS server answered at {shown(urls)} within {patience:g} s"
        + (f" ({text})" if text else "")
        + ". Check the address, or that the server runs with JetStream (nats-server -js)."
    )


async def _asks_who(url: str) -> bool:
    """Whether a server answers there that requires authentication."""
    # Slow to import, and only for messages.
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 4222)
            try:
                greeting = await reader.readline()
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError, ValueError):
        return False
    return b'"auth_required":true' in greeting
