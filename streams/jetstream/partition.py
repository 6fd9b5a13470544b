"""One partition that this worker owns: what was delivered of it and is not done yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from streams.jetstream.connection import jetstream
from streams.jetstream.place import place_of
from streams.jetstream.requests import Requests

if TYPE_CHECKING:
    from streams.jetstream.client import Client
    from streams.jetstream.floors import Floor, Floors
    from streams.jetstream.layout import Layout
    from streams.jetstream.lease import Lease
    from streams.jetstream.message import Message

__all__ = ["Delivery", "Partition", "Reader"]

# Events of a partition that are here and not done. More are asked for when it is half of that or
# less, for which a request costs the servers as much as an event.
_WINDOW = 128
# Events that are done above the floor, one slow event; then no more is asked for.
_MOST_ABOVE = 4096
# Seconds in which a server makes a reader of a partition, or is away.
_ANSWER = 3.0
# Seconds until an event that a stage reverted is given again.
_AGAIN = 1.0
# Seconds between two deletions of what is long done.
_PURGED = 5.0


class Delivery(NamedTuple):
    """A message as the mark of its event: where it stands, and its key as it stands in subjects."""

    partition: Partition
    sequence: int
    data: bytes
    stored: float
    key: str

    def __str__(self) -> str:
        return f"message {self.sequence} of partition {self.partition.number}"


class Reader(Protocol):
    """Whoever puts what is delivered into the pipeline."""

    def arrived(self, delivery: Delivery) -> None:
        """A message came, in its partition's order."""

    def withdraw(self, partition: Partition) -> None:
        """Let what is not in the pipeline yet go: it is delivered to the next owner."""


class Partition:
    """Delivers in order, knows what is done, and finds out what got lost on the way.

    A consumer without acknowledgements delivers from a message on. Where a number is missing among
    its deliveries, or it is no more, another goes on after the last message that is here. The
    floor, up to which everything is done, is in a table; what is done above it is delivered again
    to the next owner, but not worked on again by this one.
    """

    def __init__(
        self,
        number: int,
        lease: Lease,
        client: Client,
        layout: Layout,
        reader: Reader,
        floors: Floors,
        attend: Callable[[Partition], None] = lambda partition: None,
    ) -> None:
        self.number = number
        self.lease = lease
        self.reads_anew = True
        # What has arrived and is not in the pipeline; the reader's.
        self.queue: deque[Delivery] = deque()
        self._client = client
        self._js = jetstream(client, _ANSWER)
        self._layout = layout
        self._reader = reader
        self._floors = floors
        self._attend = attend
        self._kept: Floor | None = None
        self._consumer = ""
        self._requests: Requests | None = None
        # Delivered, in order, from the floor on; and which of these, or of those that will come
        # again, are done.
        self._above: deque[Delivery] = deque()
        self._done: set[int] = set()
        self._here = self._in_pipe = 0
        # What waits to be given again, by its number.
        self._reverted: dict[int, asyncio.TimerHandle] = {}
        self._empty: asyncio.Future[None] | None = None
        self._closing = False
        self._last_delivery = self._floor = 0
        # When the servers had which floor.
        self._known: deque[tuple[float, int]] = deque()
        self._purged, self._purged_at = 0, 0.0

    async def open(self) -> None:
        """Read on after what is here, in the stream's order, by another consumer."""
        if self._kept is None:
            owner = f"{self.lease.owner.decode()} {self.lease.epoch}"
            self._kept = await self._floors.claim(self.number, owner)
            self._floor = self._kept.known
        await self._close()
        js: Any = self._js
        stream = self._layout.stream
        last = self._above[-1].sequence if self._above else self._floor
        made = await js.add_consumer(stream, self._layout.consumer(self.number, last + 1))
        self._consumer = made.name
        self._last_delivery = 0
        self.reads_anew = False
        self._requests = Requests(
            self._client,
            stream,
            self._consumer,
            self._room,
            self._arrived,
            self._gone,
            easily=True,
            beat=self._delivered,
        )
        await self._requests.start()

    async def _close(self) -> None:
        """Read no more from the consumer that was."""
        from nats.errors import Error

        requests, self._requests = self._requests, None
        if requests is not None:
            await requests.stop()
            # Whether that arrives or not: it is forgotten some time in any case.
            with suppress(Error):
                stream = self._layout.stream
                await self._client.publish(f"$JS.API.CONSUMER.DELETE.{stream}.{self._consumer}")

    def _room(self) -> int:
        room = _WINDOW - self._here
        if self._closing or room < _WINDOW // 2 or len(self._done) >= _MOST_ABOVE:
            return 0
        return room

    def _arrived(self, message: Message) -> None:
        if self._closing or self.reads_anew or not self.lease.held:
            return
        place = place_of(message.reply)
        if place.delivery != self._last_delivery + 1:
            self.read_anew()
            return
        self._last_delivery = place.delivery
        sequence = place.sequence
        # A copy of the stream that lags behind begins earlier.
        if sequence <= (self._above[-1].sequence if self._above else self._floor):
            return
        if not self._above and self._done:
            # What was deleted meanwhile does not come again.
            self._done = {one for one in self._done if one >= sequence}
        key = message.subject.rpartition(".")[2]
        delivery = Delivery(self, sequence, message.data, place.stored, key)
        self._above.append(delivery)
        if sequence in self._done:
            self._rise()
            return
        self._here += 1
        self._reader.arrived(delivery)

    def _delivered(self, count: int) -> None:
        """The consumer has nothing more at the moment, and has delivered so many."""
        if count > self._last_delivery:
            self.read_anew()

    def _gone(self, error: Exception) -> None:
        """Its server is away, or somebody deleted it."""
        self.read_anew()

    # What becomes of events.

    def entered(self) -> None:
        """One of its events is in the pipeline."""
        self._in_pipe += 1

    def done(self, delivery: Delivery) -> None:
        """Every sink accepted the event, or it was let go on purpose."""
        if self.lease.held:
            self._done.add(delivery.sequence)
            self._rise()
        self._left()

    def _rise(self) -> None:
        above, done = self._above, self._done
        if not above or above[0].sequence not in done:
            return
        last = self._floor
        while above and above[0].sequence in done:
            last = above.popleft().sequence
            done.remove(last)
        self._floor = last
        if self._kept is not None:
            self._kept.rise(last)

    def returned(self) -> None:
        """An event left the pipeline unfinished: it is delivered again, to whoever owns it then."""
        self._left()

    def reverted(self, delivery: Delivery) -> None:
        """A stage gave the event back: it is given again later. What comes after it goes on."""
        self._out_of_pipe()
        if not self._closing:
            loop = asyncio.get_running_loop()
            again = loop.call_later(_AGAIN, self._give_again, delivery)
            self._reverted[delivery.sequence] = again

    def _give_again(self, delivery: Delivery) -> None:
        del self._reverted[delivery.sequence]
        self._reader.arrived(delivery)

    def _withdraw(self) -> None:
        self._reader.withdraw(self)
        for again in self._reverted.values():
            again.cancel()
        self._reverted.clear()

    def _left(self) -> None:
        self._here -= 1
        if self._here <= _WINDOW // 2 and self._requests is not None:
            self._requests.look()
        self._out_of_pipe()

    def _out_of_pipe(self) -> None:
        self._in_pipe -= 1
        if self._in_pipe <= 0 and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    # Life.

    def read_anew(self) -> None:
        """Something is missing: take in no more, and let `look` read on after what is here."""
        if not self.reads_anew:
            self.reads_anew = True
            self._attend(self)

    def begin_anew(self) -> None:
        """The pipeline was cancelled: read from the floor on."""
        self._withdraw()
        self._above.clear()
        self._here = self._in_pipe = 0
        self.reads_anew = True

    async def stop(self) -> None:
        """Take in no more, wait until what is in the pipeline has ended, and have it written."""
        from nats.errors import Error

        self._closing = True
        await self._close()
        self._withdraw()
        if self._in_pipe > 0:
            self._empty = asyncio.get_running_loop().create_future()
            await self._empty
        if self._kept is not None:
            with suppress(Error, TimeoutError):
                await self._kept.settle()

    async def abandon(self) -> None:
        """The lease is lost: whatever comes of the events in the pipeline, say nothing of it."""
        self._closing = True
        await self._close()
        self._withdraw()

    async def look(self) -> None:
        """Read anew where something is missing; delete what is long done. Once a second or so.

        Raises what the server's silence raises; it is then tried again the next time.
        """
        if self.reads_anew:
            await self.open()
        elif self._kept is not None:
            await self._purge(self._kept.known)

    async def _purge(self, floor: int) -> None:
        """Delete what is below the floor and older than two windows for duplicates."""
        now = self.lease.now()
        if now < self._purged_at + _PURGED:
            return
        self._purged_at = now
        known = self._known
        known.append((now, floor))
        keep = max(2 * self._layout.window, 1)
        while len(known) > 1 and known[1][0] < now - keep:
            known.popleft()
        at, old = known[0]
        if at < now - keep and old > self._purged and self.lease.held:
            subject = self._layout.subject(self.number)
            await self._js.purge_stream(self._layout.stream, seq=old + 1, subject=subject)
            self._purged = old
