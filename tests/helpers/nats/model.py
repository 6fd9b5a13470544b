"""A model of the servers: one partition of a stream, a table, and lost messages."""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

from penstock.streams.nats.client.message import Message, header_with

__all__ = ["Client", "Message", "Server", "Table"]

_LATENCY = 0.001
_NONE: Mapping[str, str] = {}


class Server:
    """One partition of a stream: a request gets the next messages, from the newest consumer.
    A new consumer `lags` that many messages, like a copy of the stream that is behind."""

    def __init__(self) -> None:
        self.stored: list[tuple[float, Message]] = []
        self.table = Table()
        self.lose_deliveries = self.lags = self.deleted = 0
        self.delivery = self.asked = 0
        self._next = 1
        self._requests: deque[tuple[Client, str, int]] = deque()

    def publish(self, subject: str, data: bytes, fields: Mapping[str, str] = _NONE) -> None:
        now = asyncio.get_running_loop().time()
        self.stored.append((now, Message(subject, "", header_with(fields), data)))
        self._deliver()

    def first_since(self, stored: float) -> int:
        """The first message that was stored then or later."""
        return 1 + bisect_left(self.stored, stored, key=lambda one: one[0])

    def pull(self, client: Client, inbox: str, batch: int) -> None:
        self.asked += 1
        self._requests.append((client, inbox, batch))
        self._deliver()

    def read_from(self, sequence: int) -> None:
        """Make a consumer."""
        self._next = max(1, sequence - self.lags)
        self.delivery = self.lags = 0
        self._requests.clear()

    def forget_requests(self) -> None:
        """As when another server becomes the leader of the consumer."""
        self._requests.clear()

    def beat(self) -> None:
        """Give the newest request a sign of life."""
        if self._requests:
            client, inbox, _ = self._requests[-1]
            header = f"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: {self.delivery}\r\n\r\n"
            client.deliver(inbox, Message(inbox, "", header.encode(), b""))

    def _deliver(self) -> None:
        while self._requests and max(self._next, self.deleted + 1) <= len(self.stored):
            client, inbox, batch = self._requests.popleft()
            if batch > 1:
                self._requests.appendleft((client, inbox, batch - 1))
            sequence = max(self._next, self.deleted + 1)
            self._next = sequence + 1
            self.delivery += 1
            if self.lose_deliveries:
                self.lose_deliveries -= 1
                continue
            stored, message = self.stored[sequence - 1]
            pending = len(self.stored) - sequence
            at = round(stored * 1e9)
            reply = f"$JS.ACK.stream.p0.1.{sequence}.{self.delivery}.{at}.{pending}"
            client.deliver(inbox, message._replace(reply=reply))


class Table:
    """A table in which an entry is written only if nobody has written since; a write may get lost
    on its way, or its answer, and the last one may arrive late, or again. Without a quorum a write
    is under way until there is one, and others are refused meanwhile, as servers do."""

    def __init__(self) -> None:
        self.entries: dict[str, tuple[bytes, int]] = {}
        self.lose_writings = self.lose_answers = 0
        self.has_quorum = True
        self._under_way: dict[str, tuple[bytes, int]] = {}
        self._revision = 0
        self._last: tuple[str, bytes, int] | None = None

    @property
    def floor(self) -> int:
        """The floor of the one partition."""
        return self.reached[0] - 1

    @property
    def said(self) -> dict[str, Any]:
        """The fields of the entry of the one partition."""
        value, _ = self.entries.get("p.0", (b':::{"floor": 0}', 0))
        return dict(json.loads(value.split(b":", 3)[3]))

    @property
    def reached(self) -> tuple[int, int]:
        """The first event of the one partition that is not done, by its message and place."""
        said = self.said
        # Its messages follow each other.
        floor = int(said["floor"])
        assert said.get("after", floor + 1) == floor + 1
        return floor + 1, int(said.get("begun", 0))

    async def get(self, key: str) -> Any:
        await asyncio.sleep(_LATENCY)
        if key not in self.entries:
            raise KeyNotFoundError
        value, revision = self.entries[key]
        return SimpleNamespace(value=value, revision=revision)

    async def update(self, key: str, value: bytes, last: int) -> int:
        await asyncio.sleep(_LATENCY)
        if not self.has_quorum:
            if key in self._under_way:
                raise KeyWrongLastSequenceError
            self._under_way[key] = value, last
            raise TimeoutError
        self._last = key, value, last
        if self.lose_writings:
            self.lose_writings -= 1
            raise TimeoutError
        self._write(key, value, last)
        await asyncio.sleep(_LATENCY)
        if self.lose_answers:
            self.lose_answers -= 1
            raise TimeoutError
        return self.entries[key][1]

    def agree(self) -> None:
        """There is a quorum again, which stores what was under way."""
        self.has_quorum = True
        for key, (value, last) in self._under_way.items():
            self._write(key, value, last)
        self._under_way.clear()

    def arrives_late(self) -> None:
        if self._last is not None:
            with suppress(KeyWrongLastSequenceError):
                self._write(*self._last)

    def _write(self, key: str, value: bytes, last: int) -> None:
        if self.entries.get(key, (b"", 0))[1] != last:
            raise KeyWrongLastSequenceError
        self._revision += 1
        self.entries[key] = value, self._revision


class Client:
    """One worker's connection; its messages are in order, and may get lost."""

    is_connected = True

    def __init__(self, server: Server) -> None:
        self.server = server
        self.stats = {"reconnects": 0}
        self._inboxes: dict[str, Callable[[Message], None]] = {}
        self._queue: asyncio.Queue[tuple[str, Message]] = asyncio.Queue()
        self._reading = asyncio.get_running_loop().create_task(self._read())
        self._count = 0

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    def deliver(self, inbox: str, message: Message) -> None:
        self._queue.put_nowait((inbox, message))

    async def _read(self) -> None:
        while True:
            inbox, message = await self._queue.get()
            await asyncio.sleep(_LATENCY)
            arrived = self._inboxes.get(inbox)
            if arrived is not None:
                arrived(message)

    def new_inbox(self) -> str:
        self._count += 1
        return f"inbox {self._count}"

    async def subscribe_at_once(self, inbox: str, arrived: Callable[[Message], None]) -> Any:
        self._inboxes[inbox] = arrived

        async def unsubscribe() -> None:
            self._inboxes.pop(inbox, None)

        return SimpleNamespace(unsubscribe=unsubscribe, drain=unsubscribe)

    def watch(self, refused: Callable[[str], None]) -> None:
        """Nothing is ever refused."""

    def unwatch(self, refused: Callable[[str], None]) -> None:
        """Nothing ever was."""

    async def publish(self, subject: str, payload: bytes = b"", reply: str = "") -> None:
        if subject.startswith("$JS.API.CONSUMER.MSG.NEXT"):
            self.server.pull(self, reply, json.loads(payload)["batch"])
            return
        assert subject.startswith("$JS.API.CONSUMER.DELETE")

    def jetstream(self, timeout: float) -> Client:
        return self

    async def add_consumer(self, stream: str, config: Any) -> Any:
        await asyncio.sleep(_LATENCY)
        since = config.opt_start_time
        self.server.read_from(
            (config.opt_start_seq or 1)
            if since is None
            else self.server.first_since(since.timestamp())
        )
        return SimpleNamespace(name="reader")

    async def request(self, subject: str, payload: bytes, timeout: float) -> Any:  # noqa: ASYNC109
        await asyncio.sleep(_LATENCY)
        if subject.startswith("$JS.API.STREAM.MSG.GET"):
            return SimpleNamespace(data=json.dumps(self._found(json.loads(payload)["seq"])))
        if subject.startswith("$JS.API.STREAM.INFO"):
            return SimpleNamespace(data=b'{"state": {"last_seq": %d}}' % len(self.server.stored))
        assert subject.startswith("$JS.API.CONSUMER.INFO")
        return SimpleNamespace(data=b'{"config": {}}')

    def _found(self, sequence: int) -> dict[str, Any]:
        if not self.server.deleted < sequence <= len(self.server.stored):
            return {"error": {"code": 404, "err_code": 10037, "description": "no message found"}}
        stored, _ = self.server.stored[sequence - 1]
        return {
            "message": {"seq": sequence, "time": datetime.fromtimestamp(stored, UTC).isoformat()}
        }

    async def purge_stream(self, stream: str, seq: int, subject: str) -> None:
        assert seq <= self.server.table.floor + 1
        self.server.deleted = max(self.server.deleted, seq - 1)
