"""A partition that this worker owns: reads it in order, and tracks what is not done yet.

The event at a place of a message has the position `size * sequence + place` in its ledger, where
`size` is how many events a message of the stream holds at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from itertools import repeat
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from penstock.streams.base.errors import StreamMissing
from penstock.streams.delivery.ledger import Ledger
from penstock.streams.delivery.ranges import Range, finished_in, merged, text_of_most
from penstock.streams.delivery.trial import Doubt, Trial
from penstock.streams.nats.client.answers import stored_at
from penstock.streams.nats.client.connection import jetstream
from penstock.streams.nats.client.place import place_of
from penstock.streams.nats.client.requests import Requests
from penstock.streams.nats.partition.batches import events_of, identities_of
from penstock.streams.nats.partition.floors import Above, Mark
from penstock.streams.nats.partition.mark import mark_of
from penstock.streams.nats.partition.purge import Purge
from penstock.streams.nats.partition.seen import Seen
from penstock.streams.nats.partition.suspects import Suspects

if TYPE_CHECKING:
    from nats.js.api import ConsumerConfig

    from penstock.streams.nats.client.client import Client
    from penstock.streams.nats.client.message import Message
    from penstock.streams.nats.cluster.layout import Layout
    from penstock.streams.nats.cluster.lease_entry import LeaseEntry
    from penstock.streams.nats.partition.floors import Floor, Floors

__all__ = ["Arrival", "Delivery", "Partition", "Reader"]

# Unfinished events of a partition in this worker, or as many as so many full messages hold. More
# are requested at half of that or less, as a request costs servers as much as a message. If the
# pipeline needs more, to have work for its handlers, it is so many times as many, again and again.
_WINDOW, _MESSAGES, _GROWS = 128, 4, 4
# The most of these, and the most that are done above the floor, which one slow event holds down.
# Chosen: more than a group_by holds by default, in memory and on disk.
_MOST = 1 << 17
# Bytes of the text of what is done above the floor: enough for any pattern of the next 98,000
# positions, or for 6,000 separate runs.
_TEXT = 1 << 14
# Seconds between two looks at whether the pipeline needs more, and how often it must be so.
_NEED, _OFTEN = 0.05, 3
# Seconds in which a server creates a consumer, or counts as unavailable.
_ANSWER = 3.0
# A number that no message gets.
_NO_MESSAGE = 1 << 62
# Seconds by which times differ that are the same, with fewer digits.
_SAME = 0.001
# Seconds until an event that a stage reverted is redelivered.
_AGAIN = 1.0


class Reader(Protocol):
    """Puts delivered events into the pipeline."""

    def arrived(self, arrival: Arrival, places: Sequence[int]) -> None:
        """A message arrived, in its partition's order, or parts of it again; its events at these
        places are to be processed."""

    async def adopt(self, partition: Partition) -> Sequence[Range] | None:
        """Restore the states of the partition, before its first event begins; returns the positions
        that are done in them, None if they are there already, or the pipeline has none."""
        ...

    async def release(self, partition: Partition) -> None:
        """Give up its states: nothing of it is in the pipeline any more."""

    def joined(self, partition: Partition) -> None:
        """It is read from now on, or is read again after a time in which it was not."""

    def emptied(self, partition: Partition) -> None:
        """Nothing more of it is stored now."""

    def filled(self, partition: Partition) -> None:
        """More of it was stored after all, or that is not known any more."""

    def again(self, arrival: Arrival, places: Sequence[int]) -> None:
        """These events have left the pipeline unfinished: they come again, before later ones."""

    def repeated(self, count: int) -> None:
        """So many events were dropped as duplicates."""

    def left(self, count: int) -> None:
        """So many events have left the pipeline."""

    def alone(self, partition: Partition) -> AbstractAsyncContextManager[None]:
        """Inside the block, only events of this partition enter the pipeline, and no others are in
        it, except those that have been there for as long as a lease."""
        ...

    async def until_left(self, partition: Partition, left: asyncio.Future[None]) -> None:
        """Wait until `left` is done, or what is in the pipeline of the partition is not expected
        to end soon."""

    def starves(self, partition: Partition) -> bool:
        """Whether the pipeline needs more events, and has all that have arrived of the
        partition."""
        ...

    def leaves_out(self, partition: Partition) -> None:
        """Events that are done cannot be noted, because too many separate ones are."""

    def is_full(self, partition: Partition, why: str) -> None:
        """The partition needs more room than it may have: nothing more of it is read."""

    def withdraw(self, partition: Partition) -> None:
        """Drop what is not in the pipeline yet: it is delivered to the next owner."""

    def let_go(self) -> None:
        """Take what is left to the next owners of partitions out of the pipeline."""


@dataclass(slots=True, eq=False)
class Arrival:
    """A message of a partition: its number in the stream and when it was stored (seconds since
    1970), and how many events it holds; `below` is the mark of all messages before it.

    `token` is the key of its event as written in the subject, empty if there are several.
    """

    partition: Partition
    below: Mark
    sequence: int
    stored: float
    body: bytes
    token: str
    count: int
    started: set[int] = field(init=False, default_factory=set[int])
    """The places of the events that have begun."""
    _events: list[bytes] = field(init=False, default_factory=list[bytes])

    @property
    def events(self) -> list[bytes]:
        """The JSON of each."""
        if not self._events:
            # Split only when needed: until then one object holds all of them.
            self._events = [self.body] if self.token else events_of(self.body)
        return self._events

    def position(self, place: int) -> float:
        """The place an event would have if each message's events had been stored one by one, evenly
        spaced since the message before."""
        before = self.below.sequence
        return before + (place + 1) / self.count * (self.sequence - before)

    def deliveries(self, places: Iterable[int]) -> list[Delivery]:
        """The events at these places, as tokens."""
        return list(map(Delivery, zip(repeat(self), places)))


class Delivery(tuple[Arrival, int]):
    """One event: its message, and its place in it."""

    __slots__ = ()

    @property
    def data(self) -> bytes:
        """Its JSON."""
        return self[0].events[self[1]]

    @property
    def key(self) -> str:
        """Its key as written in subjects."""
        return self[0].token or self[0].partition.layout.key_of(self.data)

    def __str__(self) -> str:
        arrival, place = self
        of = f"event {place + 1} of " if arrival.count > 1 else ""
        return f"{of}message {arrival.sequence} of partition {arrival.partition.number}"


class Partition:
    """Delivers in order, tracks what is done, and detects lost deliveries.

    A consumer without acknowledgements delivers from a message on. If a delivery is missing, or the
    consumer is gone, another one continues after the last message received. The floor, up to which
    everything is done, is in a bucket, with what is done above it: that is delivered again, but not
    processed again.

    Memory: the unfinished events, at most 128 or four full messages unless the pipeline needs more,
    and some numbers for each range of what is done above the floor.
    """

    def __init__(
        self,
        number: int,
        lease: LeaseEntry,
        client: Client,
        layout: Layout,
        reader: Reader,
        floors: Floors,
        attend: Callable[[Partition], None] = lambda partition: None,
        *,
        attempts: int = 3,
        blameless: str = "",
    ) -> None:
        self.number = number
        self.lease = lease
        self.layout = layout
        self.reads_anew = True
        self.is_held = False
        """Whether nothing more of it is requested, because others have to come as far."""
        # Arrived and not yet in the pipeline; belongs to the reader.
        self.queue: deque[tuple[Arrival, Sequence[int]]] = deque()
        self.born = floors.born
        self.owner = f"{lease.owner.decode()} {lease.epoch}"
        self._attempts = attempts
        self._blameless = blameless
        self.suspects: Suspects | None = None
        # What arrived and may not begin while others are in doubt, and the position behind all
        # that was stored when this owner came.
        self._held: deque[tuple[Arrival, Sequence[int]]] = deque()
        self._end: float = inf
        self._client = client
        self._js = jetstream(client, _ANSWER)
        self._reader = reader
        self._floors = floors
        self._attend = attend
        self._kept: Floor | None = None
        self._consumer = ""
        self._requests: Requests | None = None
        # How many events a message may hold.
        self._largest = layout.batch or 1
        # Whether the reader was told that there is nothing more.
        self._is_empty = False
        # How many runs of the pipeline have begun since.
        self._runs = 0
        # Its events from the floor on, each with its message; the mark of all messages in it; and
        # of what was done above the floor when this owner came, the last message.
        self._ledger: Ledger[Arrival | None]
        # The floor of the ledger to which `_floor` has risen.
        self._risen: int | None
        self._read = Mark()
        self._known_top = 0, 0.0
        # The number of its events in the pipeline.
        self._in_pipe = 0
        # The last message received, or 0.
        self._last = 0
        self._least = self._window = max(_WINDOW, _MESSAGES * self._largest)
        # How often in succession the pipeline needed more, and when that is looked at next.
        self._needed: int = 0
        self._need: asyncio.TimerHandle | None = None
        self._seen: Seen | None = None
        # Deliveries that wait to be redelivered.
        self._reverted: dict[Delivery, asyncio.TimerHandle] = {}
        self._empty: asyncio.Future[None] | None = None
        self._closing = False
        self._fault: Exception | None = None
        self._last_delivery: int = 0
        # How many messages came after the last one when it was sent, and whether there are none.
        self._behind, self._is_read = 1, False
        self._floor = Mark()
        self._begin(Above())
        self._purge = Purge(number, lease, self._js, layout)

    async def open(self) -> None:
        """Continue reading after the last message received, with another consumer."""
        runs = self._runs
        if self._kept is None:
            self._kept = await self._floors.claim(
                self.number,
                self.owner,
                self._least,
                self._blameless,
                self._is_there,
            )
            self._floor = self._kept.known
            self._begin(self._kept.above)
            self._kept.look_above = self._look_above
        if not self.lease.held:
            # The states are the next owner's.
            return
        done = await self._reader.adopt(self)
        if done is not None:
            self._begin(self._look_above(), done)
            self._last = 0
        if self._kept.doubt.lost and self.suspects is None and self._end == inf:
            last = await stored_at(self._client, self.layout.stream, _NO_MESSAGE)
            self._end = self._largest * (last + 1)
            self._doubt()
        await self._close()
        js: Any = self._js
        stream = self.layout.stream
        made = await js.add_consumer(stream, self._wanted())
        self._consumer = made.name
        if runs != self._runs:
            # What was adopted meanwhile is of the run before.
            return
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
        self._reader.joined(self)

    def _begin(self, above: Above, also: Iterable[Range] = ()) -> None:
        """Have read nothing above the floor, where so much is done, and these positions."""
        floor, size = self._floor, self._largest
        known, done = list[Range](), size * (floor.sequence + 1)
        if floor.begun:
            known.append((size * floor.after, done := size * floor.after + floor.begun))
        ranges = merged(finished_in(above.base, above.text), also)
        known += [(max(begin, done), end) for begin, end in ranges if end > done]
        self._ledger = Ledger(size * (floor.sequence + 1), known)
        self._risen = None
        self._read = floor._replace(after=0, begun=0)
        self._known_top = above.sequence, above.stored

    async def _is_there(self, floor: Mark) -> bool:
        """Whether the stream can have got as far as a floor: it has another message with that
        number, or none so far, if it was restored, or if servers that lost power had not written
        its end."""
        if not floor.sequence:
            return True
        message = await stored_at(self._client, self.layout.stream, floor.sequence)
        if isinstance(message, float):
            return abs(message - floor.stored) < _SAME
        return floor.sequence <= message

    def _doubt(self) -> None:
        """Try the events in doubt first."""
        if self._kept is not None and self._kept.doubt.lost:
            search = Trial(self._ledger, self._kept.doubt, self._attempts, self._end)
            self.suspects = Suspects(self._kept, search, self)

    def let_in(self, reach: float) -> None:
        """Pass on the events that are held before this position."""
        held = self._held
        while held and (before := reach - held[0][0].sequence * self._largest) > 0:
            arrival, places = held.popleft()
            if here := [place for place in places if place < before]:
                self._reader.arrived(arrival, here)
            if len(here) < len(places):
                held.appendleft((arrival, [place for place in places if place >= before]))
                return

    @property
    def window(self) -> int:
        """How many events may be unfinished."""
        return self._window

    @property
    def is_read(self) -> bool:
        """Whether all that was stored has arrived, as far as is known."""
        return self._is_read or not self._behind

    def position(self, delivery: Delivery) -> int:
        """The place of an event among all of the stream."""
        arrival, place = delivery
        return arrival.sequence * self._largest + place

    def cost_if_given_up(self, delivery: Delivery) -> int:
        """The number of workers that an event has cost, if it must not begin any more; else 0."""
        position = self.position(delivery)
        return 0 if self.suspects is None else self.suspects.cost_if_given_up(position)

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Inside, nothing else is in the pipeline."""
        return self._reader.alone(self)

    async def until_left(self, left: asyncio.Future[None]) -> None:
        """Wait until `left` is done, or what is in the pipeline is not expected to end soon."""
        await self._reader.until_left(self, left)

    def _wanted(self) -> ConsumerConfig:
        """The consumer to continue with; the first one begins before the floor, for the identities
        to remember."""
        number, layout = self.number, self.layout
        if not self._last:
            self._see_anew()
            if self._seen is not None and self._floor.sequence:
                return layout.consumer(number, since=self._floor.stored - 2 * layout.window)
            self._last = self._floor.sequence
        return layout.consumer(number, self._last + 1)

    def _see_anew(self) -> None:
        """Servers know the identities of messages; the owner has to remember the identities of
        events in batches."""
        layout, kept, floor = self.layout, self._kept, self._floor
        if layout.in_batches and layout.identity is not None and kept is not None:
            if kept.seen is not None:
                kept.renewed = kept.seen.renewed(floor.stored)
            self._seen = kept.seen = Seen(layout.window, kept.renewed)

    async def _close(self) -> None:
        """Read no more from the consumer that was."""
        from nats.errors import Error

        requests, self._requests = self._requests, None
        if requests is not None:
            await requests.stop()
            # It need not arrive: the consumer expires in any case.
            with suppress(Error):
                stream = self.layout.stream
                await self._client.publish(f"$JS.API.CONSUMER.DELETE.{stream}.{self._consumer}")

    def _room(self) -> int:
        room = self._window - len(self._ledger)
        if self._closing:
            return 0
        if self.is_held:
            self._fill()
            return 0
        if room < self._window // 2 or self._done_above >= _MOST:
            if self._need is None:
                loop = asyncio.get_running_loop()
                self._need = loop.call_later(_NEED, self._look_at_need)
            return 0
        return max(1, room // self._largest)

    @property
    def _done_above(self) -> int:
        """How many events above the floor are done."""
        return self._read.ended - self._floor.ended - len(self._ledger)

    def _look_at_need(self) -> None:
        """While no more are requested, note whether the pipeline needs more."""
        self._need = None
        is_over = self.suspects is None or self.suspects.is_over
        self._needed = self._needed + 1 if is_over and self._reader.starves(self) else 0
        if self._needed < _OFTEN:
            if not self._room() or self._requests is None:
                return
            self._requests.look()
        elif self._window < _MOST and self._done_above < _MOST:
            self._attend(self)
        elif (first := self._ledger.mark(None)) is not None:
            held = Delivery((first, self._floor.begun))
            self._reader.is_full(
                self,
                f"{len(self._ledger):,} of its events are in the pipeline, and "
                f"{self._done_above:,} are done that come after {held}, the first of them; at "
                f"most {_MOST:,} of each may be",
            )

    async def _resize(self) -> None:
        """Have more room if the pipeline needs it, or less again, once that is recorded."""
        kept, window = self._kept, self._window
        assert kept is not None
        if self._needed >= _OFTEN:
            window = min(_MOST, _GROWS * window)
            self._needed = 0
        elif len(self._ledger) < window // (_GROWS * _GROWS):
            window = max(self._least, window // _GROWS)
        if window != self._window:
            # Fewer at once: what is in the pipeline has room.
            self._window = min(window, self._window)
            if not kept.doubt.lost:
                kept.doubt = Doubt(begun=window)
            await kept.settle()
            self._window = window
            if self._requests is not None:
                self._requests.look()

    def _look_above(self) -> Above:
        base = self._largest * (self._floor.sequence + 1)
        # What is known of a message may go on behind its last event, below the base.
        done = [(max(base, begin), end) for begin, end in self._ledger.finished() if end > base]
        text, left_out = text_of_most(base, done, _TEXT)
        if left_out:
            self._reader.leaves_out(self)
            # Of the last range perhaps a part, and it is not known when its message was stored.
            text, _ = text_of_most(base, finished_in(base, text)[:-1], _TEXT)
        if not text:
            return Above()
        # The last message: the one before an event that is not done, or with one.
        last = (finished_in(base, text)[-1][1] - 1) // self._largest
        known = [self._known_top, self._read[:2]]
        for one in filter(None, {*self._ledger.marks()}):
            known += [(one.sequence, one.stored), one.below[:2]]
        return Above(base, text, *max(one for one in known if one[0] <= last))

    def _arrived(self, message: Message) -> None:
        if self._closing or self.reads_anew or not self.lease.held:
            return
        place = place_of(message.reply)
        if place.delivery != self._last_delivery + 1:
            self.read_anew()
            return
        self._last_delivery = place.delivery
        self._fill()
        # A copy of the stream that lags behind begins earlier.
        if place.sequence <= self._last:
            return
        self._behind = place.pending
        several = identities_of(message)
        if several is not None and several[1] > self._largest:
            # Not a message of this stream, like one in another format.
            several = None
        key = message.subject.rpartition(".")[2] if several is None else ""
        identities, count = several or ([], 1)
        places: Sequence[int] = range(count)
        if self._seen is not None and identities:
            repeated = self._seen.repeats(identities, place.stored, place.sequence)
            if repeated:
                places = [one for one in places if one not in repeated]
        self._last = place.sequence
        self._take_in(
            Arrival(self, self._read, place.sequence, place.stored, message.data, key, count),
            places,
        )

    def _take_in(self, arrival: Arrival, places: Sequence[int]) -> None:
        """Take in a message; all its events but those at these places are duplicates."""
        sequence, count, before = arrival.sequence, arrival.count, arrival.below
        if sequence <= before.sequence:
            return
        dropped = count - len(places)
        self._read = Mark(
            *(sequence, arrival.stored),
            ended=before.ended + count,
            dropped=before.dropped + dropped,
        )
        ledger, first = self._ledger, sequence * self._largest
        if ledger.resumes:
            new = {one for one in range(count) if ledger.read(first + one, arrival)}
        else:
            ledger.read_run(first, count, arrival)
            new = None
        if dropped:
            for place in set(range(count)).difference(places):
                ledger.finish(first + place)
        if new is not None and len(new) < count:
            places = [place for place in places if place in new]
        elif dropped:
            self._reader.repeated(dropped)
        if not places:
            self._rise()
        elif self.suspects is None or self.suspects.is_over:
            self._reader.arrived(arrival, places)
        else:
            self._held.append((arrival, places))
            self.suspects.look()

    def _delivered(self, count: int) -> None:
        """The consumer has nothing more at the moment, and has delivered so many."""
        if count > self._last_delivery:
            self.read_anew()
            return
        self._is_read = True
        if not self._is_empty:
            self._is_empty = True
            self._reader.emptied(self)
        if self.suspects is not None:
            self.suspects.look()

    def _fill(self) -> None:
        if self._is_empty:
            self._is_empty = False
            self._reader.filled(self)

    def hold(self) -> None:
        """Request no more."""
        self.is_held = True

    def let_go(self) -> None:
        """Request more again."""
        self.is_held = False
        if self._requests is not None:
            self._requests.look()

    @property
    def is_out(self) -> bool:
        """Whether all that has arrived is in the pipeline, or done."""
        return not self.queue and not self._held

    def _gone(self, error: Exception) -> None:
        """Its server is away, somebody deleted it, or a message cannot be taken in."""
        if not isinstance(error, StreamMissing):
            self._fault = error
        self.read_anew()

    # Outcomes of events.

    def entered(self, count: int) -> None:
        """So many of its events are in the pipeline."""
        self._in_pipe += count

    def begin(self, delivery: Delivery) -> bool:
        """An event is about to begin; returns whether it may."""
        arrival, place = delivery
        if not self.lease.held or (self._closing and place not in arrival.started):
            return False
        arrival.started.add(place)
        return True

    def is_left(self, delivery: Delivery) -> bool:
        """Whether an event is left to the next owner: one that has not begun."""
        arrival, place = delivery
        return self._closing and place not in arrival.started

    def done(self, arrival: Arrival, places: list[int]) -> None:
        """The events at these places of a message are done: every sink accepted them, or they were
        dropped on purpose."""
        ledger, first = self._ledger, arrival.sequence * self._largest
        begin = places[0]
        if places == [*range(begin, begin + len(places))]:
            ledger.finish_all(first + begin, first + places[-1])
        else:
            for place in places:
                ledger.finish(first + place)
        if self.lease.held:
            self._rise()
            if len(ledger) and self._kept is not None:
                self._kept.changed()
        self._left(len(places))

    def _rise(self) -> None:
        ledger, floor = self._ledger, self._floor
        if ledger.floor == self._risen:
            return
        self._risen = ledger.floor
        arrival = ledger.mark(None)
        if arrival is None:
            self._floor = self._read
        elif begun := (ledger.floor or 0) - arrival.sequence * self._largest:
            below = arrival.below
            self._floor = Mark(*below[:2], arrival.sequence, begun, *below[4:])
        else:
            self._floor = arrival.below
        if self._floor != floor and self._kept is not None:
            self._kept.rise(self._floor)

    def mark(self, places: Iterable[tuple[int, int]]) -> bytes:
        """What is done of it when the events at these places of messages are done as well."""
        size = self._largest
        done = (sequence * size + place for sequence, place in places)
        return mark_of(self._ledger.after(done), self.born)

    def returned(self, arrival: Arrival, places: Sequence[int]) -> None:
        """Events left the pipeline unfinished: they are delivered again, to the next owner if there
        is to be another."""
        self._left(len(places))
        if not self._closing and self.lease.held:
            self._reader.again(arrival, places)

    def reverted(self, delivery: Delivery) -> None:
        """A stage reverted the event: it is redelivered later. Later events go on."""
        self._out_of_pipe(1)
        if not self._closing:
            loop = asyncio.get_running_loop()
            again = loop.call_later(_AGAIN, self._give_again, delivery)
            self._reverted[delivery] = again

    def _give_again(self, delivery: Delivery) -> None:
        del self._reverted[delivery]
        arrival, place = delivery
        self._reader.arrived(arrival, (place,))

    def _withdraw(self) -> None:
        if self.suspects is not None:
            self.suspects.stop()
            self.suspects = None
        self._held.clear()
        self._reader.withdraw(self)
        if self._need is not None:
            self._need.cancel()
            self._need = None
        for again in self._reverted.values():
            again.cancel()
        self._reverted.clear()

    def _left(self, count: int) -> None:
        if len(self._ledger) <= self._window // 2 and self._requests is not None:
            self._requests.look()
        self._out_of_pipe(count)

    def _out_of_pipe(self, count: int) -> None:
        self._in_pipe -= count
        self._reader.left(count)
        if self.suspects is not None:
            self.suspects.look()
        if self._in_pipe <= 0 and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    # Life.

    def read_anew(self) -> None:
        """A delivery is missing: take in no more, and let `look` continue after the last message
        received."""
        if not self.reads_anew:
            self.reads_anew = True
            self._fill()
            self._attend(self)

    def begin_anew(self) -> None:
        """The pipeline was cancelled: read again from the floor."""
        self._runs += 1
        self.is_held = self._is_empty = False
        self._withdraw()
        self._begin(self._look_above())
        self._in_pipe = self._last = 0
        self.reads_anew = True
        self._doubt()

    def leave(self) -> None:
        """Take in no more, and take what has not begun out of the pipeline: it is left to the next
        owner."""
        if not self._closing:
            self._closing = True
            self._withdraw()
            self._reader.let_go()

    async def stop(self) -> None:
        """Leave, wait until what is in the pipeline has ended, and have it written."""
        from nats.errors import Error

        self.leave()
        await self._close()
        if self._in_pipe > 0:
            self._empty = asyncio.get_running_loop().create_future()
            await self._empty
        await self._reader.release(self)
        if self._kept is not None:
            with suppress(Error, TimeoutError):
                await self._kept.hand_over()

    async def abandon(self) -> None:
        """The lease is lost: ignore the outcomes of events in the pipeline."""
        self._closing = True
        await self._close()
        self._withdraw()

    def _oldest(self) -> float:
        """When the first unfinished message was stored."""
        if (first := self._ledger.mark(None)) is not None:
            return first.stored
        return self._floor.stored if self._behind else inf

    async def look(self) -> None:
        """Periodic work, about once a second: read again if a delivery is missing; delete what is
        long done.

        Raises what the server's silence raises, and why a message could not be taken in; it is then
        tried again the next time.
        """
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault
        if self.reads_anew:
            await self.open()
        elif self._kept is not None:
            await self._resize()
            await self._purge.look(self._kept.known, self._oldest())
