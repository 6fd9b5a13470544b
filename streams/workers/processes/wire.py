"""Messages over a socket, between a worker and its parent."""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
from collections.abc import Callable
from typing import Any, cast

from penstock.streams.workers.messages import packed

__all__ = ["Wire", "framed"]

# 8 bytes: an event may have more than 4 GiB.
_LENGTH = struct.Struct("<Q")


class Wire(asyncio.Protocol):
    """Messages over a socket, each behind its length.

    `received` is called with each message, and `ended` once, after the last one. A message that
    cannot be read is the last one; before its end `failed` is called with the error in words. When
    one side has called `close`, the other closes the socket after it has read all that was sent.
    """

    def __init__(
        self,
        received: Callable[[Any], None],
        ended: Callable[[], None],
        failed: Callable[[str], None] = lambda error: None,
    ) -> None:
        self.received = received
        self._ended = ended
        self._failed = failed
        self.failure: str | None = None
        """Which message cannot be read, and why."""
        self.pid: int | None = None
        """The process of the worker, once its parent knows it."""
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._is_closed = False

    def connect(self, end: socket.socket) -> None:
        """Begin to use a socket; what is sent before that is done is kept."""
        end.setblocking(False)
        loop = asyncio.get_running_loop()
        # Kept here, because a loop does not keep its tasks.
        self._connecting = loop.create_task(loop.connect_accepted_socket(lambda: self, end))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.writelines(self._early)
        self._early.clear()
        if self._is_closed:
            self._transport.write_eof()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            try:
                with memoryview(buffer) as view:
                    message = pickle.loads(view[start + _LENGTH.size : end])
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                self.failure = f"a result that cannot be read, {why}"
                self._failed(why)
                assert self._transport is not None
                self._transport.close()
                break
            start = end
            self.received(message)
        del buffer[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._is_closed = True
        self._ended()

    def send(self, message: Any) -> None:
        whole = framed(message)
        if self._is_closed:
            return
        if self._transport is None:
            self._early.append(whole)
        elif not self._transport.is_closing():
            self._transport.write(whole)

    def close(self) -> None:
        """Send nothing more.

        The socket stays open for what the other side still sends: a write to a closed one fails,
        and the other side would lose what it has not read yet.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()


def framed(message: Any) -> bytes:
    """The bytes of a message behind their length. Raises NotPicklable."""
    data = packed(message)
    return _LENGTH.pack(len(data)) + data
