"""The source stage that reads a stream of others: requests, leases and acknowledgements."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.streams import clock
from penstock.streams.errors import BadLine, PenstockError
from penstock.streams.failures.policy import OnBadInput, Route
from penstock.streams.io.body import json_object, text_of, value_of
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.message import fields_of
from penstock.streams.nats.client.requests import Requests
from penstock.streams.nats.partition.place import place_of
from penstock.streams.nats.streams.consumers import Since, consumer_of
from penstock.streams.nats.streams.replies import ACK, TERM, WORKING, Replies, later
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.source_stage import SourceStage
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.tasks import new_task

if TYPE_CHECKING:
    from nats.js.api import ConsumerInfo

    from penstock.streams.nats.client.client import Client
    from penstock.streams.nats.client.message import Message

__all__ = ["Reading", "ReadingSettings"]


_CHUNK = 256


class ReadingSettings(NamedTuple):
    """The arguments of `penstock.read_jetstream`, which documents each."""

    what: str
    durable: str | None
    servers: tuple[str, ...]
    raw: bool
    follow: bool
    since: Since
    lease: float
    retry_after: float
    on_bad_message: OnBadInput


class _Message(NamedTuple):
    """A message as the token of its event."""

    subject: str
    sequence: int
    reply: str
    data: bytes
    stored: float
    headers: Mapping[str, str] = {}

    def __str__(self) -> str:
        return f"message {self.sequence}, '{self.subject}'"


class Reading(SourceStage[Any]):
    """One run of `penstock.read_jetstream`.

    `_arrived` messages have not gone out; those in `_held` are not settled.
    """

    _client: Client | None = None
    _consumer: ConsumerInfo | None = None
    _requests: Requests | None = None
    _stopping: asyncio.Task[None] | None = None
    _opening = False
    # Whether the reader has caught up, with `follow=False`.
    _caught_up = False
    # The message that ends the stream, once the events before it are out.
    _failure: BadLine | None = None

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        settings: ReadingSettings,
    ) -> None:
        super().__init__(downstream, run, info)
        self.ack = self._acknowledge
        self.nack = self._return
        self._settings = settings
        on_bad = settings.on_bad_message
        self._letters = run.letters.open(on_bad.sink) if isinstance(on_bad, Route) else None
        self._arrived: deque[_Message] = deque()
        self._held: dict[str, None] = {}
        # When messages that failed are due again; the server then gives them to any reader.
        self._due: deque[float] = deque()
        self._replies: Replies | None = None
        # Messages of the stream that have not been delivered, as of the last one.
        self._pending: int | None = None
        # From the servers' clock, which is wall time, to the loop's.
        self._offset = run.now() - clock.wall()

    # Connecting.

    def produce(self) -> None:
        if not self._opening:
            self._opening = True
            self.run.on_close(self._disconnect)
            self.run.spawn(self._open(), "read_jetstream")
        arrived = self._arrived
        while arrived and self.demand and self._failure is None:
            events: list[Event[Any]] = []
            while arrived and len(events) < min(self.demand, _CHUNK) and self._failure is None:
                event = self._event(arrived.popleft())
                if event is not None:
                    events.append(event)
            self.send_all(events)
            if self._slice.is_over(self.run.now()):
                return
        if self._failure is not None:
            self.fail(self._failure)
        elif self._caught_up and not arrived:
            self.complete()
        elif self._requests is not None:
            self._requests.look()

    async def _open(self) -> None:
        settings = self._settings
        try:
            client = self._client = await connect(settings.servers, counts=False)
            self._replies = Replies(client)
            self._consumer = consumer = await consumer_of(
                client, settings.what, settings.durable, settings.lease, settings.since
            )
        except PenstockError as error:
            self.fail(error)
            return
        if not settings.follow and not consumer.num_pending:
            self.complete()
        if self.state:
            return
        assert consumer.config is not None
        self._pending = consumer.num_pending
        self._requests = Requests(
            client, consumer.stream_name, consumer.name, self._room, self._came, self.fail
        )
        await self._requests.start()
        lease = consumer.config.ack_wait or settings.lease
        self.run.spawn(self._renew(lease / 3), "leases of read_jetstream")

    async def _renew(self, every: float) -> None:
        assert self._replies is not None
        while True:
            await asyncio.sleep(every)
            self._replies.send_all([(reply, WORKING) for reply in self._held])

    @property
    def is_connected(self) -> bool:
        return self._requests is not None and self._client is not None and self._client.is_connected

    # Messages.

    def _room(self) -> int:
        """How many messages may be on request."""
        if self.state or self._caught_up:
            return 0
        return self.demand - len(self._arrived)

    def _came(self, message: Message) -> None:
        assert self._replies is not None
        if self.state:
            self._replies.send(message.reply, later(0))
            return
        place = place_of(message.reply)
        self._held[message.reply] = None
        self._arrived.append(
            _Message(
                message.subject,
                place.sequence,
                message.reply,
                message.data,
                place.stored,
                fields_of(message.header) if message.header and self.run.tracing else {},
            )
        )
        self._pending = place.pending
        if not place.pending and not self._settings.follow:
            self._caught_up = True
        self.wake_soon()

    def _event(self, message: _Message) -> Event[Any] | None:
        created = min(message.stored + self._offset, self.run.now())
        if self._settings.raw:
            return Event(message.data, created, self, message)
        try:
            return Event(value_of(message.data, json_object, message), created, self, message)
        except BadLine as error:
            bad = error
        self.run.errors.count_bad_line(bad)
        if self._letters is not None:
            self.received += 1
            letter = Event(text_of(message.data), created, self, message)
            self._letters.send(letter, bad, str(self.info), 1)
        elif self._settings.on_bad_message == "stop":
            self._failure = bad
            self._settle([message], later(0))
        else:
            self._settle([message], TERM)
        return None

    # Outcomes.

    def _settle(self, messages: Iterable[_Message], what: bytes) -> None:
        assert self._replies is not None
        replies = [message.reply for message in messages]
        for reply in replies:
            self._held.pop(reply, None)
        self._replies.send_all([(reply, what) for reply in replies])

    def _acknowledge(self, events: list[Event[Any]]) -> None:
        self._settle([event.token for event in events], ACK)

    def _return(self, events: list[Event[Any]], error: BaseException | None) -> None:
        seconds = 0 if error is None else self._settings.retry_after
        self._settle([event.token for event in events], later(seconds))
        if error is not None and not self.state:
            self._forget_due()
            self._due += [self.run.now() + seconds] * len(events)

    def _forget_due(self) -> None:
        while self._due and self._due[0] <= self.run.now():
            self._due.popleft()

    # The end.

    def release(self) -> None:
        self._forget_due()
        self.leave_to_others(len(self._due))
        if self._replies is not None:
            self._settle(self._arrived, later(0))
        self._arrived.clear()
        if self._requests is not None:
            self._stopping = new_task(
                self._requests.stop(), "penstock read_jetstream", self.run.loop
            )

    async def _disconnect(self) -> None:
        from nats.errors import Error

        if self._stopping is not None:
            await self._stopping
        if self._requests is not None:
            await self._requests.stop()
        if self._client is None:
            return
        assert self._replies is not None
        for reply in self._held:
            self._replies.send(reply, later(0))
        await self._replies.flush()
        if self._settings.durable is None and self._consumer is not None:
            try:
                js = jetstream(self._client)
                await js.delete_consumer(self._consumer.stream_name, self._consumer.name)
            except (Error, TimeoutError):
                # The server deletes it by itself.
                pass
        await self._client.close()

    def statistics(self) -> dict[str, Any]:
        """The statistics of every source, the messages `read_ahead` (waiting during a pause), and
        those `pending` in the stream after the last one that has arrived."""
        return {
            **super().statistics(),
            "read_ahead": len(self._arrived),
            "pending": self._pending,
        }
