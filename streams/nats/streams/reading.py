"""The source stage that reads a stream of others: requests, leases and acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.streams.base.errors import BadLine, DeliveriesExceeded, PenstockError, StreamMissing
from penstock.streams.delivery.lease import Lease
from penstock.streams.delivery.leased_source import LeasedSource
from penstock.streams.failures.policy import OnBadInput
from penstock.streams.io.body import json_object, text_of, value_of
from penstock.streams.nats.client.answers import info_of
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.message import fields_of
from penstock.streams.nats.client.place import Place, place_of
from penstock.streams.nats.client.requests import Requests
from penstock.streams.nats.streams.consumers import Since, Standing, consumer_of, standing_of
from penstock.streams.nats.streams.leases import Leased, Leases
from penstock.streams.nats.streams.replies import ACK, TERM, Replies, later
from penstock.streams.nats.streams.standstill import Standstill
from penstock.streams.protocol.event import Ending, Event
from penstock.streams.protocol.identity import Identity
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.tasks import new_task

if TYPE_CHECKING:
    from penstock.streams.nats.client.client import Client
    from penstock.streams.nats.client.message import Message

__all__ = ["ReadMessage", "Reading", "ReadingSettings", "event_of"]


# Seconds until a reader from which nothing comes asks the server why: when it may have caught up,
# otherwise, and at most.
_FIRST, _QUIET, _LONGEST = 0.02, 0.5, 5.0


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


class ReadMessage(Leased):
    """A message as the token of its event; `delivered` is how often it was."""

    __slots__ = ("data", "delivered", "headers", "sequence", "stored", "subject")

    def __init__(
        self, message: Message, place: Place, lease: Lease, *, tracing: bool = False
    ) -> None:
        super().__init__(message.reply, lease)
        self.subject = message.subject
        self.data = message.data
        self.sequence = place.sequence
        self.stored = place.stored
        self.delivered = place.delivered
        self.headers: Mapping[str, str] = {}
        if tracing and message.header:
            self.headers = fields_of(message.header)

    @property
    def key(self) -> tuple[int, float]:
        """Two numbers that messages of an earlier stream of that name do not share."""
        return self.sequence, self.stored

    def __str__(self) -> str:
        return f"message {self.sequence}, '{self.subject}'"

    __repr__ = __str__


def event_of(
    source: LeasedSource[ReadMessage], token: ReadMessage, now: float, *, raw: bool
) -> Event[Any] | None:
    """The event of a message that leaves the source; None if it has no value."""
    created = min(token.stored + source.from_wall, now)
    if raw:
        return Event(token.data, created, source, token)
    try:
        return Event(value_of(token.data, json_object, token), created, source, token)
    except BadLine as error:
        source.bad(token, error, text_of(token.data), created)
        return None


class Reading(LeasedSource[ReadMessage]):
    """One run of `penstock.read_jetstream`. Messages that the leases hold are not settled."""

    _client: Client | None = None
    _consumer: Standing | None = None
    _requests: Requests | None = None
    _replies: Replies
    _leases: Leases[tuple[int, float], ReadMessage]
    _stopping: asyncio.Task[None] | None = None

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        settings: ReadingSettings,
    ) -> None:
        super().__init__(downstream, run, info, settings.on_bad_message, settings.retry_after)
        self.ack = self._acknowledge
        self.nack = self._return
        self._settings = settings
        self._standstill = Standstill(run.errors)
        # Messages whose leases ran out, those that other readers have, and when the last one came
        # or ended.
        self._lost = self._elsewhere = 0
        self._moved_at = 0.0
        # Messages of the stream that have not been delivered, as of the last one.
        self._pending: int | None = None

    # Connecting.

    def open(self) -> None:
        self.run.on_close(self._disconnect)
        self.run.spawn(self._open(), "read_jetstream", stage=self)

    def has_room(self) -> None:
        if self._requests is not None:
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
        if self.state:
            return
        run = self.run
        self._pending = consumer.pending
        self._leases = Leases(client, consumer.stream, consumer.name, consumer.lease, run.now)
        self._requests = Requests(
            client, consumer.stream, consumer.name, self._room, self._came, self.fail
        )
        await self._requests.start()
        self._standstill.warn_of_bounds(consumer)
        run.spawn(self._renew(), "leases of read_jetstream", stage=self)
        run.spawn(self._watch(), "standing of read_jetstream", stage=self)

    def holds(self, token: ReadMessage, /) -> bool:
        return token.lease.held

    def identity(self, token: ReadMessage, /) -> Identity:
        consumer = self._consumer
        assert consumer is not None, "messages are there"
        return Identity(consumer.stream, consumer.born.replace(" ", "T"), token.sequence)

    async def _renew(self) -> None:
        while True:
            await self._leases.renew()
            await self._look()

    async def _look(self) -> Standing | None:
        """Ask where the consumer stands, and keep to its present settings."""
        from nats.errors import Error

        before = self._consumer
        assert self._client is not None
        assert before is not None
        try:
            now = standing_of(await info_of(self._client, before.stream, before.name), before.born)
        except PenstockError as error:
            self.fail(error)
            return None
        except (Error, TimeoutError):
            # It has no leader, or is deleted, which the requests notice.
            return None
        if now.created != before.created:
            self.fail(
                StreamMissing(
                    f"the consumer '{now.name}' of the stream '{now.stream}' has been deleted and "
                    "made again. Start again, to read with that one."
                )
            )
        self._consumer = now
        self._leases.length = now.lease
        self._standstill.warn_of_bounds(now)
        return now

    async def _watch(self) -> None:
        """While nothing comes, ask why; without `follow`, end when nothing will."""
        settings, pause = self._settings, _FIRST
        while not self.state:
            moved_at = self._moved_at
            await asyncio.sleep(pause)
            self._look_for_starvation()
            if self._moved_at != moved_at or not self.demand or self.arrived or self.run.calls:
                pause = _FIRST if self._pending == 0 and not settings.follow else _QUIET
                continue
            pause = min(2 * pause, _LONGEST)
            await self._replies.flush()
            now, held = await self._look(), len(self._leases.held)
            if now is None or self._moved_at != moved_at:
                continue
            self._pending, self._elsewhere = now.pending, max(0, now.out - held)
            quiet = self.run.now() - moved_at
            self._standstill.explain(now, held, quiet)
            if not settings.follow and self._standstill.has_caught_up(
                now, held, quiet, settings.retry_after
            ):
                self.complete()

    def _look_for_starvation(self) -> None:
        if self._consumer is not None:
            starves = self.demand > 0 and not self.arrived and self.run.is_starved
            pending = self._pending if starves else 0
            held = len(self._leases.held)
            self._standstill.starve(self._consumer, pending or 0, held, self.run.now())

    @property
    def is_connected(self) -> bool:
        return self._requests is not None and self._client is not None and self._client.is_connected

    # Messages.

    def _room(self) -> int:
        """How many messages may be on request."""
        if self.state:
            return 0
        return self.demand - len(self.arrived)

    def _came(self, message: Message) -> None:
        leases, place = self._leases, place_of(message.reply)
        self._moved_at = self.run.now()
        if leases.came_again((place.sequence, place.stored), message.reply):
            return
        if self.state:
            self._replies.send(message.reply, later(0))
            return
        one = ReadMessage(message, place, leases.newest, tracing=self.run.tracing is not None)
        leases.held[one.key] = one
        self.arrived.append(one)
        self._pending = place.pending
        self.wake_soon()

    def event(self, token: ReadMessage, now: float, /) -> Event[Any] | None:
        return event_of(self, token, now, raw=self._settings.raw)

    def give_back(self, tokens: Iterable[ReadMessage], /) -> None:
        self._settle(tokens, later(0))

    def refuse(self, token: ReadMessage, /) -> None:
        self._settle((token,), TERM)

    # Outcomes.

    def _settle(self, messages: Iterable[ReadMessage], what: bytes) -> None:
        """Send the outcome of messages. What is to come again does so without a word if its lease
        is over, and another reader may have it by now."""
        self._moved_at = self.run.now()
        replies: list[tuple[str, bytes]] = []
        for message in messages:
            self._leases.held.pop(message.key, None)
            if (held := message.lease.held) or what in (ACK, TERM):
                replies.append((message.reply, what))
            if not held:
                self._count_lost(message)
        self._replies.send_all(replies)

    def _count_lost(self, message: ReadMessage) -> None:
        if not self._lost:
            self.run.errors.warn(
                f"read_jetstream: the lease of {message} was over before it had ended: other "
                "readers get such messages too. A handler blocks the loop, the process was frozen, "
                "or the server did not answer"
            )
        self._lost += 1

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        most = 0 if self._consumer is None else self._consumer.most_deliveries
        if most and ending >= Ending.RETURNED:
            last = [event for event in events if event.token.delivered >= most]
            events = [event for event in events if event.token.delivered < most]
            if last:
                self._give_up(last, why)
        if events:
            super().settle(events, ending, why)

    def _give_up(self, events: list[Event[Any]], why: BaseException | None) -> None:
        """The consumer delivers these events to nobody any more."""
        messages = [event.token for event in events]
        self.count_failures(len(events), True)
        for message in messages:
            error = DeliveriesExceeded(
                f"{message} is not finished and never comes again: its consumer has delivered it "
                f"{message.delivered} times, the most that it does (max_deliver)"
            )
            error.__cause__ = why
            self.run.errors.count(error)
        self._settle(messages, later(0))

    def _acknowledge(self, events: list[Event[Any]]) -> None:
        self._settle([event.token for event in events], ACK)

    def _return(self, events: list[Event[Any]], error: BaseException | None) -> None:
        seconds = 0 if error is None else self._settings.retry_after
        self._settle([event.token for event in events], later(seconds))
        if error is not None:
            # The server delivers them then, perhaps to another reader.
            self.retry([event.token for event in events])

    # The end.

    def release(self) -> None:
        super().release()
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
        if self._requests is not None:
            self._settle(list(self._leases.held.values()), later(0))
        await self._replies.flush()
        if self._settings.durable is None and self._consumer is not None:
            try:
                js = jetstream(self._client)
                await js.delete_consumer(self._consumer.stream, self._consumer.name)
            except (Error, TimeoutError):
                # The server deletes it by itself.
                pass
        await self._client.close()

    def statistics(self) -> dict[str, Any]:
        """The statistics of every source, the messages `read_ahead` (waiting during a pause), those
        `pending` in the stream after the last one that has arrived, those `elsewhere`, delivered to
        other readers or to come again, as of the last look, and `lost_leases`."""
        return {
            **super().statistics(),
            "read_ahead": len(self.arrived),
            "pending": self._pending,
            "elsewhere": self._elsewhere,
            "lost_leases": self._lost,
        }
