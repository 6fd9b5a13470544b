"""A frame parser for the NATS protocol, with a shorter path than nats-py's for some messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nats.protocol.parser import Parser

from penstock.streams.nats.client.message import Message

__all__ = ["Arrived", "Frames"]

_END = b"\r\n"
# Operations that a body follows, with the number of words where there is a subject to reply to.
_WITH_BODY = {b"MSG": 5, b"HMSG": 6}

Arrived = Callable[[Message], None]


class Frames(Parser):
    """Cuts the server's bytes into frames, and leaves other subscriptions' frames to nats-py.

    https://docs.nats.io/reference/reference-protocols/nats-protocol
    """

    def __init__(self, client: object) -> None:
        self.at_once: dict[bytes, Arrived] = {}
        # The part of an incomplete frame that has arrived, and how many bytes it lacks at least.
        self._rest: list[bytes] = []
        self._lacking = 0
        self._resets = 0
        untyped: Any = super()
        untyped.__init__(client)

    def reset(self) -> None:
        super().reset()
        self._rest = []
        self._resets += 1

    async def parse(self, data: bytes = b"") -> None:
        if self._rest:
            self._rest.append(data)
            self._lacking -= len(data)
            if self._lacking > 0:
                return
            data = b"".join(self._rest)
            self._rest = []
        lacking = 1
        resets = self._resets
        at = 0
        while (end := data.find(_END, at) + 2) > 1:
            words = data[at:end].split()
            operation = words[0] if words else b""
            body = end
            if operation in _WITH_BODY:
                end += int(words[-1]) + 2
                if end > len(data):
                    lacking = end - len(data)
                    break
                arrived = self.at_once.get(words[2])
                if arrived is not None:
                    head = body + int(words[-2]) if operation == b"HMSG" else body
                    reply = words[3].decode() if len(words) == _WITH_BODY[operation] else ""
                    subject = words[1].decode()
                    arrived(Message(subject, reply, data[body:head], data[head : end - 2]))
                    at = end
                    continue
            await super().parse(data[at:end])
            if self._resets != resets:
                # The remainder belongs to a closed connection.
                return
            at = end
        if at < len(data):
            self._rest, self._lacking = [data[at:]], lacking
