"""Read a stream of NATS JetStream, which others may own, share and fill.

Items:   the object of each message, as a dict, or its bytes (`raw`); in the stream's order, but
         for what is delivered again. Readers with the same `durable` share the messages.
Time:    as they come; an event counts as created when the server stored it. While an event is
         worked on its lease is renewed, three times in its length.
Memory:  the messages that were requested and did not go out before a pause.
Demand:  connects at the first request, and then has exactly as many messages on request as there
         is demand for, in requests that wait at the server: nothing is asked twice.
Ends:    never, or with `follow=False` when it has caught up. An event that finished, or was
         dropped, skipped or routed, is acknowledged; one that failed comes again `retry_after`
         seconds later, one that was returned at once, to whichever reader asks. Drain and cancel
         withdraw the requests; what is delivered meanwhile is returned.
Errors:  CannotConnect, StreamMissing and StreamDiffers arrive as errors at the first request. A
         connection that breaks is made anew. A message that is no JSON object is reported,
         counted and never delivered again (`on_bad_message="report"`), ends the stream ("stop"),
         or goes to a sink of dead letters (`route(sink)`).

    stream           a--b----c-
    request          2-------1-
    read_jetstream   a--b----c-
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

from orjson import JSONDecodeError, loads

from streams import clock
from streams.errors import BadLine, BuildError, PenstockError, describe
from streams.event import Event
from streams.faults import Route
from streams.flowable import Flowable
from streams.jetstream.addresses import Servers, addresses_of
from streams.jetstream.connection import connect, jetstream
from streams.jetstream.consumers import Since, consumer_of
from streams.jetstream.pull import place_of
from streams.jetstream.replies import ACK, TERM, WORKING, Replies, later
from streams.jetstream.requests import Requests
from streams.run import Run
from streams.source import Emission
from streams.stage import StageInfo, Subscriber

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js.api import ConsumerInfo

__all__ = ["read_jetstream"]

OnBadMessage = Literal["report", "stop"] | Route

_CHUNK = 256


@overload
def read_jetstream(
    subject_or_stream: str,
    durable: str | None = ...,
    servers: Servers = ...,
    *,
    raw: Literal[False] = ...,
    follow: bool = ...,
    since: Since = ...,
    lease: float = ...,
    retry_after: float = ...,
    on_bad_message: OnBadMessage = ...,
) -> Flowable[dict[str, Any]]: ...


@overload
def read_jetstream(
    subject_or_stream: str,
    durable: str | None = ...,
    servers: Servers = ...,
    *,
    raw: Literal[True],
    follow: bool = ...,
    since: Since = ...,
    lease: float = ...,
    retry_after: float = ...,
    on_bad_message: OnBadMessage = ...,
) -> Flowable[bytes]: ...


def read_jetstream(
    subject_or_stream: str,
    durable: str | None = None,
    servers: Servers = "nats://localhost:4222",
    *,
    raw: bool = False,
    follow: bool = True,
    since: Since = "first",
    lease: float = 30.0,
    retry_after: float = 5.0,
    on_bad_message: OnBadMessage = "report",
) -> Flowable[Any]:
    """Read a stream by its name, or those of its messages with a subject (`orders.*`).

    `durable` names a consumer that remembers what is acknowledged; it is used as it is if it is
    there, else made. Without a name each running reads everything anew. A new consumer begins
    with the `first` message or with what is `new`, and gives a message to another reader when
    nobody has spoken of it for `lease` seconds. `servers` may hold user and password. Raises
    BuildError for addresses, names and times that cannot be.
    """
    if not subject_or_stream or (set(subject_or_stream) & set(" \t\r\n")):
        raise BuildError(f"read_jetstream({subject_or_stream!r}): give a stream or a subject")
    if durable is not None and (not durable or set(durable) & set(" .*>/\\\t\r\n")):
        raise BuildError(
            f"read_jetstream(durable={durable!r}): a consumer's name has no dots, blanks, * or >"
        )
    if not lease > 0 or retry_after < 0:
        raise BuildError(
            f"read_jetstream(lease={lease!r}, retry_after={retry_after!r}): must be positive"
        )
    if on_bad_message not in ("report", "stop") and type(on_bad_message) is not Route:
        raise BuildError(
            f'read_jetstream(on_bad_message={on_bad_message!r}): use "report", "stop" or '
            "route(sink)"
        )
    settings = _Settings(
        subject_or_stream,
        durable,
        addresses_of(servers),
        raw,
        follow,
        since,
        lease,
        retry_after,
        on_bad_message,
    )
    detail = subject_or_stream if durable is None else f"{subject_or_stream}, as {durable}"
    note = "requests what is asked for"
    info = StageInfo("read_jetstream", detail, 0, note, acknowledges=True)

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        _Reading(downstream, run, flowable.info, settings).start()

    flowable: Flowable[Any] = Flowable(attach, info, mappings=not raw)
    return flowable


class _Settings(NamedTuple):
    what: str
    durable: str | None
    servers: tuple[str, ...]
    raw: bool
    follow: bool
    since: Since
    lease: float
    retry_after: float
    on_bad_message: OnBadMessage


class _Message(NamedTuple):
    """A message as the mark of its event."""

    subject: str
    sequence: int
    reply: str
    data: bytes
    stored: float

    def __str__(self) -> str:
        return f"message {self.sequence}, '{self.subject}'"


class _Reading(Emission[Any]):
    """`_arrived` messages have not gone out; those in `_held` are not settled."""

    _client: Client | None = None
    _consumer: ConsumerInfo | None = None
    _requests: Requests | None = None
    _stopping: asyncio.Task[None] | None = None
    _opening = False
    # Whether the reader has caught up, where that is the end.
    _caught_up = False
    # The message that ends the stream, once the events before it are out.
    _failure: BadLine | None = None

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        settings: _Settings,
    ) -> None:
        super().__init__(downstream, run, info)
        self.ack = self._acknowledge
        self.nack = self._return
        self._settings = settings
        on_bad = settings.on_bad_message
        self._letters = run.letters(on_bad.sink) if isinstance(on_bad, Route) else None
        self._arrived: deque[_Message] = deque()
        self._held: dict[str, None] = {}
        self._replies: Replies | None = None
        # From the servers' clock, which is that of the wall, to the loop's.
        self._offset = run.now() - clock.wall()

    # Connecting.

    def produce(self) -> None:
        if not self._opening:
            self._opening = True
            self.run.on_close(self._close)
            self.run.spawn(self._open(), "read_jetstream")
        arrived = self._arrived
        while arrived and self.demand and self._failure is None:
            events: list[Event[Any]] = []
            while arrived and len(events) < min(self.demand, _CHUNK) and self._failure is None:
                event = self._event(arrived.popleft())
                if event is not None:
                    events.append(event)
            self.send(events)
            if self._slice.is_over(self.run.now()):
                return
        if self._failure is not None:
            self.error(self._failure)
        elif self._caught_up and not arrived:
            self.complete()
        elif self._requests is not None:
            self._requests.look()

    async def _open(self) -> None:
        settings = self._settings
        try:
            client = self._client = await connect(settings.servers, resets=False)
            self._replies = Replies(client)
            self._consumer = consumer = await consumer_of(
                client, settings.what, settings.durable, settings.lease, settings.since
            )
        except PenstockError as error:
            self.error(error)
            return
        if not settings.follow and not consumer.num_pending:
            self.complete()
        if self.done:
            return
        assert consumer.config is not None
        self._requests = Requests(
            client, consumer.stream_name, consumer.name, self._room, self._came, self.error
        )
        await self._requests.start()
        lease = consumer.config.ack_wait or settings.lease
        self.run.spawn(self._renew(lease / 3), "leases of read_jetstream")

    async def _renew(self, every: float) -> None:
        assert self._replies is not None
        while True:
            await asyncio.sleep(every)
            self._replies.send_all([(reply, WORKING) for reply in self._held])

    # Messages.

    def _room(self) -> int:
        """How many messages may be on request."""
        if self.done or self._caught_up:
            return 0
        return self.demand - len(self._arrived)

    def _came(self, message: Msg) -> None:
        assert self._replies is not None
        if self.done:
            self._replies.send(message.reply, later(0))
            return
        place = place_of(message.reply)
        self._held[message.reply] = None
        self._arrived.append(
            _Message(message.subject, place.sequence, message.reply, message.data, place.stored)
        )
        if not place.pending and not self._settings.follow:
            self._caught_up = True
        self.wake_soon()

    def _event(self, message: _Message) -> Event[Any] | None:
        created = min(message.stored + self._offset, self.run.now())
        if self._settings.raw:
            return Event(message.data, created, self, message)
        try:
            value: Any = loads(message.data)
        except JSONDecodeError as error:
            fault = f"is no JSON ({error})"
        else:
            if value.__class__ is dict:
                return Event(value, created, self, message)
            fault = "is JSON, but not an object"
        text = message.data.decode("utf-8", "backslashreplace")
        bad = BadLine(f"{message} {fault}: {describe(text)}")
        self.run.count_bad_line(bad)
        if self._letters is not None:
            self.received += 1
            letter = Event(text, created, self, message)
            self._letters.send(letter, bad, str(self.info), 1)
        elif self._settings.on_bad_message == "stop":
            self._failure = bad
            self._settle(message, later(0))
        else:
            self._settle(message, TERM)
        return None

    # What became of them.

    def _settle(self, message: _Message, what: bytes) -> None:
        assert self._replies is not None
        self._held.pop(message.reply, None)
        self._replies.send(message.reply, what)

    def _acknowledge(self, event: Event[Any]) -> None:
        self._settle(event.token, ACK)

    def _return(self, event: Event[Any]) -> None:
        self._settle(event.token, later(0))

    def failed(self, event: Event[Any], error: BaseException, acknowledged: bool, /) -> None:
        self.counts["failed"] += 1
        self._settle(event.token, ACK if acknowledged else later(self._settings.retry_after))

    # The end.

    def release(self) -> None:
        if self._replies is not None:
            for message in self._arrived:
                self._settle(message, later(0))
        self._arrived.clear()
        if self._requests is not None:
            self._stopping = self.run.loop.create_task(
                self._requests.stop(), name="penstock read_jetstream"
            )

    async def _close(self) -> None:
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
                # The server forgets it by itself.
                pass
        await self._client.close()

    def statistics(self) -> dict[str, Any]:
        """What every source has, and the messages `read_ahead` (that wait out a pause)."""
        return {**super().statistics(), "read_ahead": len(self._arrived)}
