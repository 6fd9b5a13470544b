"""One partition that this worker owns: what was delivered of it and is not acknowledged yet."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from streams.jetstream.connection import jetstream
from streams.jetstream.pull import Pull, place_of
from streams.jetstream.replies import ACK

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from streams.jetstream.layout import Layout
    from streams.jetstream.lease import Lease

__all__ = ["Delivery", "Partition", "Reader"]

# Acknowledged events above the floor, one slow event, that are remembered; then no more is pulled.
_MOST_ABOVE = 4096
# Rounds in which the floor stands still before acknowledgements are sent again, and before the
# partition is read anew.
_SEND_AGAIN, _READ_ANEW = 2, 4
# Seconds in which a server answers an acknowledgement, or is away.
_SETTLED = 5.0


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

    def acknowledge(self, reply: str) -> None:
        """Send an acknowledgement, soon."""


class Partition:
    """Delivers in order, acknowledges, and finds out what got lost on the way.

    A hole in the deliveries, or acknowledgements that never arrive, mean that the partition is
    read anew from the acknowledgement floor: after `reset_consumer`, into a new inbox, when what
    is in the pipeline has ended. What was acknowledged above the floor and comes again is only
    acknowledged again.
    """

    def __init__(
        self, number: int, lease: Lease, client: Client, layout: Layout, reader: Reader
    ) -> None:
        self.number = number
        self.lease = lease
        self.reads_anew = False
        self._client = client
        self._js = jetstream(client)
        self._layout = layout
        self._reader = reader
        self._pull: Pull | None = None
        # Delivered and not acknowledged, in order; and acknowledged, perhaps above the floor.
        self._open: dict[int, Delivery] = {}
        self._acknowledged: dict[int, str] = {}
        self._in_pipe = 0
        self._empty: asyncio.Future[None] | None = None
        self._closing = False
        self._last_delivery = self._sent_before = 0
        self._floor = self._purged = self._standing = 0
        self._floors: deque[tuple[float, int]] = deque()

    async def open(self) -> None:
        """Read from the acknowledgement floor on, in the stream's order."""
        js: Any = self._js
        consumer = f"p{self.number}"
        await js.add_consumer(self._layout.stream, self._layout.consumer(self.number))
        await self._js.reset_consumer(self._layout.stream, consumer)
        self._open.clear()
        self._last_delivery = self._sent_before = 0
        self._in_pipe = 0
        self._closing = self.reads_anew = False
        self._pull = Pull(
            self._client, self._layout.stream, consumer, self._arrived, room=self._has_room
        )
        await self._pull.start()

    def _has_room(self) -> bool:
        return len(self._acknowledged) < _MOST_ABOVE

    def _arrived(self, message: Msg) -> None:
        if self._closing or not self.lease.held:
            return
        place = place_of(message.reply)
        if place.delivery != self._last_delivery + 1:
            self.read_anew()
            return
        self._last_delivery = place.delivery
        if place.sequence in self._acknowledged:
            self._acknowledged[place.sequence] = message.reply
            self._reader.acknowledge(message.reply)
            return
        key = message.subject.rpartition(".")[2]
        delivery = Delivery(self, place.sequence, message.reply, message.data, place.stored, key)
        self._open[place.sequence] = delivery
        self._reader.arrived(delivery)

    # What becomes of events.

    def entered(self) -> None:
        """One of its events is in the pipeline."""
        self._in_pipe += 1

    def done(self, delivery: Delivery) -> None:
        """Every sink accepted the event, or it was let go on purpose."""
        if self._open.pop(delivery.sequence, None) is not None and self.lease.held:
            self._acknowledged[delivery.sequence] = delivery.reply
            self._reader.acknowledge(delivery.reply)
        self._left()

    def returned(self) -> None:
        """An event left the pipeline unfinished: it is delivered again, to whoever owns it then."""
        self._left()

    def _left(self) -> None:
        self._in_pipe -= 1
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
        if self._pull is not None:
            await self._pull.stop()
        self._reader.withdraw(self)
        if self._in_pipe > 0:
            self._empty = asyncio.get_running_loop().create_future()
            await self._empty
        await self._settle()

    async def abandon(self) -> None:
        """The lease is lost: whatever comes of the events in the pipeline, say nothing of it."""
        self._closing = True
        if self._pull is not None:
            await self._pull.stop()
        self._reader.withdraw(self)
        self._open.clear()

    async def _settle(self) -> None:
        """A round trip, so that no acknowledgement arrives after the reset of the next reader."""
        from nats.errors import Error

        if self._acknowledged:
            last = self._acknowledged[next(reversed(self._acknowledged))]
            with suppress(Error, TimeoutError):
                await self._client.request(last, ACK, timeout=_SETTLED)

    async def look(self) -> None:
        """Compare with what the server knows; once a second or so.

        Raises what the server's silence raises; it is then asked again the next time.
        """
        if self.reads_anew:
            if self._pull is not None:
                await self.stop()
            await self.open()
            return
        info = await self._js.consumer_info(self._layout.stream, f"p{self.number}")
        floor = 0 if info.ack_floor is None else info.ack_floor.stream_seq
        for sequence in [one for one in self._acknowledged if one <= floor]:
            del self._acknowledged[sequence]
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
        oldest = next(iter(self._open), None)
        should_be = max(
            (one for one in self._acknowledged if oldest is None or one < oldest), default=0
        )
        stands = floor == self._floor and should_be > floor
        self._standing = self._standing + 1 if stands else 0
        self._floor = floor
        if self._standing == _SEND_AGAIN:
            for reply in self._acknowledged.values():
                self._reader.acknowledge(reply)
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
