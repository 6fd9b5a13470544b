"""One partition that this worker owns: what was delivered of it and is not acknowledged yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from streams.jetstream.connection import jetstream
from streams.jetstream.place import place_of
from streams.jetstream.replies import ACK
from streams.jetstream.requests import Requests

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from streams.jetstream.layout import Layout
    from streams.jetstream.lease import Lease

__all__ = ["Delivery", "Partition", "Reader"]

# Events of a partition that are here and not done. More are asked for when it is half of that or
# less: servers that copy each other what they have delivered do so once for what goes together.
_WINDOW = 128
# Events that are done above the floor, one slow event; then no more is asked for.
_MOST_ABOVE = 4096
# Rounds in which the floor stands still before it is told again, and before the partition is read
# anew.
_TELL_AGAIN, _READ_ANEW = 2, 4
# Seconds in which a server answers what begins or ends the reading of a partition, or is away.
_ANSWER = 5.0
# Seconds that a server keeps a request for which there is no message. One that has come to lead
# does not know of those before.
_EXPIRES = 5.0


class Delivery(NamedTuple):
    """A message as the mark of its event: where it stands, the subject that acknowledges it, and
    its key as it stands in subjects."""

    partition: Partition
    sequence: int
    reply: str
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

    def acknowledge(self, partition: Partition) -> None:
        """Send what it has not told yet of its floor, soon."""

    def flush(self) -> Awaitable[None]:
        """Wait until the servers have what was to be sent, if they can be reached."""
        ...


class Partition:
    """Delivers in order, acknowledges, and finds out what got lost on the way.

    One acknowledgement is for all events up to the floor, below which everything is done: what
    is done above it would be delivered again, after a reset, in any case. A hole in the
    deliveries, or acknowledgements that never arrive, mean that the partition is read anew from
    the floor: after `reset_consumer`, into a new inbox, when what is in the pipeline has ended.
    What is done above the floor and comes again is not worked on again.
    """

    def __init__(
        self, number: int, lease: Lease, client: Client, layout: Layout, reader: Reader
    ) -> None:
        self.number = number
        self.lease = lease
        self.reads_anew = False
        self._client = client
        self._js = jetstream(client)
        self._patient = jetstream(client, _ANSWER)
        self._layout = layout
        self._reader = reader
        self._requests: Requests | None = None
        # Delivered, in order, from the floor on; and which of these, or of those that will come
        # again, are done.
        self._above: deque[Delivery] = deque()
        self._done: set[int] = set()
        self._here = self._in_pipe = 0
        self._empty: asyncio.Future[None] | None = None
        self._closing = False
        self._last_delivery = self._sent_before = 0
        # The last event below which everything is done, the server's answer to it, and whether
        # that is still to be sent.
        self._floor, self._reply, self._untold = 0, "", False
        self._floor_there = self._purged = self._standing = 0
        self._floors: deque[tuple[float, int]] = deque()

    async def open(self) -> None:
        """Read from the acknowledgement floor on, in the stream's order."""
        js: Any = self._patient
        stream, consumer = self._layout.stream, f"p{self.number}"
        # Servers do not answer a reset of a consumer that is not there.
        await js.add_consumer(stream, self._layout.consumer(self.number))
        await js.reset_consumer(stream, consumer)
        self._above.clear()
        self._reply, self._untold = "", False
        self._last_delivery = self._sent_before = 0
        self._here = self._in_pipe = 0
        self._closing = self.reads_anew = False
        self._requests = Requests(
            self._client, stream, consumer, self._room, self._arrived, self._deleted, _EXPIRES
        )
        await self._requests.start()

    def _room(self) -> int:
        room = _WINDOW - self._here
        if self._closing or room < _WINDOW // 2 or len(self._done) >= _MOST_ABOVE:
            return 0
        return room

    def _arrived(self, message: Msg) -> None:
        if self._closing or not self.lease.held:
            return
        place = place_of(message.reply)
        if place.delivery != self._last_delivery + 1:
            self.read_anew()
            return
        if not self._last_delivery:
            # Below where it is read anew nothing comes again.
            self._done = {one for one in self._done if one >= place.sequence}
        self._last_delivery = place.delivery
        key = message.subject.rpartition(".")[2]
        delivery = Delivery(self, place.sequence, message.reply, message.data, place.stored, key)
        self._above.append(delivery)
        if place.sequence in self._done:
            self._rise()
            return
        self._here += 1
        self._reader.arrived(delivery)

    def _deleted(self, error: Exception) -> None:
        """Somebody deleted the consumer: it is made again."""
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
        while above and above[0].sequence in done:
            last = above.popleft()
            done.remove(last.sequence)
            self._floor, self._reply = last.sequence, last.reply
            if not self._untold:
                self._untold = True
                self._reader.acknowledge(self)

    def tell(self) -> str:
        """The subject that acknowledges all that is done; empty if that is known."""
        if not self._untold or not self.lease.held:
            return ""
        self._untold = False
        return self._reply

    def returned(self) -> None:
        """An event left the pipeline unfinished: it is delivered again, to whoever owns it then."""
        self._left()

    def _left(self) -> None:
        self._in_pipe -= 1
        self._here -= 1
        if self._here <= _WINDOW // 2 and self._requests is not None:
            self._requests.look()
        if self._in_pipe <= 0 and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    # Life.

    def read_anew(self) -> None:
        """Something is missing: take in no more, and let `look` read from the floor."""
        self._closing = True
        self.reads_anew = True

    async def stop(self) -> None:
        """Take in no more, and wait until what is in the pipeline has ended."""
        self._closing = True
        if self._requests is not None:
            await self._requests.stop()
        self._reader.withdraw(self)
        if self._in_pipe > 0:
            self._empty = asyncio.get_running_loop().create_future()
            await self._empty
        await self._settle()

    async def abandon(self) -> None:
        """The lease is lost: whatever comes of the events in the pipeline, say nothing of it."""
        self._closing = True
        if self._requests is not None:
            await self._requests.stop()
        self._reader.withdraw(self)

    async def _settle(self) -> None:
        """A round trip, so that no acknowledgement arrives after the reset of the next reader."""
        from nats.errors import Error

        await self._reader.flush()
        if self._reply:
            with suppress(Error, TimeoutError):
                await self._client.request(self._reply, ACK, timeout=_ANSWER)

    async def look(self) -> None:
        """Compare with what the server knows; once a second or so.

        Raises what the server's silence raises; it is then asked again the next time.
        """
        if self.reads_anew:
            if self._requests is not None:
                await self.stop()
            await self.open()
            return
        info = await self._js.consumer_info(self._layout.stream, f"p{self.number}")
        floor = 0 if info.ack_floor is None else info.ack_floor.stream_seq
        delivered = 0 if info.delivered is None else info.delivered.consumer_seq
        self._look_for_lost(delivered)
        self._compare(floor)
        await self._purge(floor)

    def _look_for_lost(self, delivered: int) -> None:
        """What was sent before the last look and is not here by now has got lost."""
        if self._last_delivery < self._sent_before:
            self.read_anew()
        self._sent_before = delivered

    def _compare(self, floor: int) -> None:
        stands = floor == self._floor_there and self._floor > floor
        self._standing = self._standing + 1 if stands else 0
        self._floor_there = floor
        if self._standing == _TELL_AGAIN and self._reply:
            self._untold = True
            self._reader.acknowledge(self)
        elif self._standing >= _READ_ANEW:
            self._standing = 0
            self.read_anew()

    async def _purge(self, floor: int) -> None:
        """Delete what is below the floor and older than two windows for duplicates."""
        now = self.lease.now()
        floors = self._floors
        floors.append((now, floor))
        keep = max(2 * self._layout.window, 1)
        while len(floors) > 1 and floors[1][0] < now - keep:
            floors.popleft()
        at, old = floors[0]
        if at < now - keep and old > self._purged and self.lease.held:
            subject = self._layout.subject(self.number)
            await self._js.purge_stream(self._layout.stream, seq=old + 1, subject=subject)
            self._purged = old
