"""The source of a worker's pipeline: the deliveries of all its partitions."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any

from orjson import JSONDecodeError, loads

from penstock.streams.base.errors import (
    BadLine,
    BuildError,
    CannotConnect,
    PenstockError,
    WorkerLost,
)
from penstock.streams.delivery.leased_source import LeasedSource
from penstock.streams.delivery.ranges import Range
from penstock.streams.failures.dead_letters import channel_to
from penstock.streams.io.body import json_value, value_of
from penstock.streams.nats.cluster.states import MovingStates
from penstock.streams.nats.partition.partition import Arrival, Delivery, Partition
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.acknowledgement import roots
from penstock.streams.protocol.event import Event, new_events
from penstock.streams.protocol.identity import Identity
from penstock.streams.protocol.partitions import PartitionsWatcher
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery as EventDelivery
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run

if TYPE_CHECKING:
    from penstock.streams.failures.policy import DeadLetter
    from penstock.streams.stages.sink_stage import Sink

__all__ = ["Deliveries"]

_CHUNK = 256
# Seconds for which events that must be alone wait for the others, if a lease is longer, and others
# for them.
_PATIENCE = 10.0
# Seconds between two looks at whether handlers are called, and how often none is called before what
# is in the pipeline is held by operators.
_LOOK, _QUIET = 0.5, 6


class Deliveries:
    """The events that have arrived, for the current run; runs may follow one another.

    Events leave in the order in which they were stored, across partitions; otherwise some keys
    would wait while others fill the pipeline. For the same reason the events of a full message do
    not all leave at once.

    Memory: the delivered, unfinished events, 128 per partition, or four full messages; more if the
    pipeline needs more for its handlers.
    """

    def __init__(self, stream: str, letters: Sink[DeadLetter]) -> None:
        self.flowable: Flowable[Any] = Flowable(
            self._attach,
            StageInfo(
                *("jetstream", stream, 0, "128 unfinished per partition, or as needed"),
                delivery=EventDelivery(enlists=True),
            ),
        )
        # A heap of the partitions with waiting events, by their first event.
        self.ready: list[tuple[float, int, Partition]] = []
        self.stream = stream
        self.letters = letters
        self.silences = 0
        """How often the worker has said that it waits for servers, or for other workers."""
        self._stage: _Stage | None = None
        # The partition whose events alone may leave, and the number of all events in the pipeline.
        self._only: Partition | None = None
        self._one = asyncio.Lock()
        self._in_pipe = 0
        self._empty: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> bool:
        """Whether any may leave."""
        return bool(self.ready) if self._only is None else bool(self._only.queue)

    @asynccontextmanager
    async def alone(self, partition: Partition) -> AsyncGenerator[None]:
        async with self._one:
            self._only = partition
            try:
                await self._until_empty(partition)
                yield
            finally:
                self._only = None
                if self._stage is not None:
                    self._stage.wake_soon()

    async def _until_empty(self, partition: Partition) -> None:
        if self._in_pipe > 0:
            self._empty = asyncio.get_running_loop().create_future()
            # Events that operators hold until more come do not leave.
            lease = partition.lease
            patience = min(lease.until - lease.now(), _PATIENCE)
            await asyncio.wait([self._empty], timeout=max(0.0, patience))

    async def until_left(self, partition: Partition, left: asyncio.Future[None]) -> None:
        """Wait until `left` is done, but not for what takes long, nor if no handler has been called
        for a while: operators hold what is in the pipeline, until more comes."""
        quiet, until = 0, partition.lease.now() + _PATIENCE
        while not left.done() and quiet < _QUIET and partition.lease.now() < until:
            await asyncio.wait([left], timeout=_LOOK)
            is_quiet = not partition.queue and self._stage is not None and not self._stage.run.calls
            quiet = quiet + 1 if is_quiet else 0

    def entered(self, partition: Partition, count: int) -> None:
        """So many events go into the pipeline."""
        self._in_pipe += count
        partition.entered(count)

    def left(self, count: int) -> None:
        self._in_pipe -= count
        if self._in_pipe <= 0 and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def _attach(self, downstream: Subscriber[Any], run: Run) -> None:
        self._in_pipe = 0
        self._stage = _Stage(downstream, run, self.flowable.info, self)
        self._stage.start()

    def arrived(self, arrival: Arrival, places: Sequence[int]) -> None:
        partition = arrival.partition
        partition.queue.append((arrival, places))
        if len(partition.queue) == 1:
            heappush(self.ready, _entry(partition))
        if self._stage is not None:
            self._stage.wake_soon()

    async def adopt(self, partition: Partition) -> Sequence[Range] | None:
        stage = self._stage
        return None if stage is None else await stage.adopt(partition)

    async def release(self, partition: Partition) -> None:
        if self._stage is not None:
            await self._stage.give_up(partition)

    def joined(self, partition: Partition) -> None:
        if self._stage is not None:
            self._stage.joined(partition)

    def emptied(self, partition: Partition) -> None:
        if self._stage is not None:
            self._stage.emptied(partition)

    def filled(self, partition: Partition) -> None:
        if self._stage is not None:
            self._stage.filled(partition)

    def again(self, arrival: Arrival, places: Sequence[int]) -> None:
        if self._stage is None or self._stage.state:
            return
        partition = arrival.partition
        self._forget(partition)
        waiting = [(arrival, places), *partition.queue]
        partition.queue = deque(sorted(waiting, key=_first_place))
        heappush(self.ready, _entry(partition))
        self._stage.wake_soon()

    def restoring(self) -> list[dict[str, Any]]:
        """The partitions whose states are being restored, as `MovingStates` says."""
        return [] if self._stage is None else self._stage.restoring()

    def repeated(self, count: int) -> None:
        if self._stage is not None:
            self._stage.repeated(count)

    def first(self, most: int) -> tuple[Arrival, Sequence[int]]:
        """The events stored first, of one message, at most so many, and no more than its
        partition's share of a chunk."""
        partition = self.ready[0][2] if self._only is None else self._only
        queue = partition.queue
        arrival, places = queue.popleft()
        most = min(most, -(-_CHUNK // len(self.ready)))
        if len(places) > most:
            queue.appendleft((arrival, places[most:]))
            places = places[:most]
        if partition is not self.ready[0][2]:
            self._forget(partition)
            if queue:
                heappush(self.ready, _entry(partition))
        elif queue:
            heapreplace(self.ready, _entry(partition))
        else:
            heappop(self.ready)
        return arrival, places

    def _forget(self, partition: Partition) -> None:
        self.ready[:] = [one for one in self.ready if one[2] is not partition]
        heapify(self.ready)

    def starves(self, partition: Partition) -> bool:
        stage = self._stage
        return (
            stage is not None and stage.demand > 0 and not partition.queue and stage.run.is_starved
        )

    def is_full(self, partition: Partition, why: str) -> None:
        if self._stage is not None:
            self._stage.is_full(partition.number, why)

    def leaves_out(self, partition: Partition) -> None:
        if self._stage is not None:
            self._stage.leaves_out(partition.number)

    def withdraw(self, partition: Partition) -> None:
        if partition.queue:
            self._forget(partition)
            partition.queue.clear()

    def let_go(self) -> None:
        if self._stage is not None:
            self._stage.let_go()


def _first_place(waiting: tuple[Arrival, Sequence[int]]) -> tuple[int, int]:
    arrival, places = waiting
    return arrival.sequence, places[0]


def _entry(partition: Partition) -> tuple[float, int, Partition]:
    arrival, places = partition.queue[0]
    return arrival.position(places[0]), partition.number, partition


class _Stage(LeasedSource[tuple[Arrival, Sequence[int]]]):
    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        deliveries: Deliveries,
    ) -> None:
        super().__init__(downstream, run, info)
        self.ack = self._done
        self.nack = self._returned
        self._deliveries = deliveries
        # Partitions that have been full, and partitions where a fact could not be noted.
        self._full: set[int] = set()
        self._left_out: set[int] = set()
        # None if the pipeline has no states, and before a partition comes.
        self._states: MovingStates | None = None
        # Who is told of partitions and holds them; those that are read, and of which it is to be
        # told that there is nothing more, since what was read of them before is still here.
        self._watchers: list[PartitionsWatcher] = []
        self._holders: dict[Partition, set[object]] = {}
        self._read: set[Partition] = set()
        self._ends: dict[Partition, None] = {}

    def open(self) -> None:
        """The partitions are read already."""

    async def adopt(self, partition: Partition) -> Sequence[Range] | None:
        """Restore the states of a partition; an error that cannot pass ends the run."""
        stores = self.run.root.stores
        if not stores:
            return None
        try:
            if self._states is None:
                self._states = MovingStates(stores, self, self._deliveries.stream)
            return await self._states.adopt(partition)
        except CannotConnect:
            raise
        except BuildError as error:
            self.run.failed(error)
            raise

    def restoring(self) -> list[dict[str, Any]]:
        is_open = self._states is not None and self.run.is_open
        return self._states.restoring() if self._states is not None and is_open else []

    async def give_up(self, partition: Partition) -> None:
        """Give up the states of a partition; a run that has ended has done so."""
        if self._states is not None and self.run.is_open:
            await self._states.release(partition)
        # Only now: as long as its states are here, the watermark must not pass theirs.
        self._ends.pop(partition, None)
        if partition in self._read:
            self._read.discard(partition)
            for watcher in self._watchers:
                watcher.left(partition)

    # Partitions, for those who watch them.

    def partition_of(self, token: Delivery, /) -> Partition:
        return token[0].partition

    def sequence_of(self, token: Delivery, /) -> int:
        return token[0].partition.position(token)

    def watch(self, watcher: PartitionsWatcher, /) -> None:
        self._watchers.append(watcher)

    def hold(self, partition: Partition, by: object, /) -> None:
        self._holders.setdefault(partition, set()).add(by)
        partition.hold()

    def let_go_of(self, partition: Partition, by: object, /) -> None:
        holders = self._holders.pop(partition, set()) - {by}
        if holders:
            self._holders[partition] = holders
        else:
            partition.let_go()

    def joined(self, partition: Partition) -> None:
        self._read.add(partition)
        for watcher in self._watchers:
            watcher.joined(partition, self._name(partition))

    def emptied(self, partition: Partition) -> None:
        if self._watchers and partition in self._read:
            self._ends[partition] = None
            self.wake_soon()

    def filled(self, partition: Partition) -> None:
        if partition in self._ends:
            del self._ends[partition]
        elif partition in self._read:
            for watcher in self._watchers:
                watcher.filled(partition)

    def has_room(self) -> None:
        for partition in [one for one in self._ends if one.is_out]:
            del self._ends[partition]
            for watcher in self._watchers:
                watcher.emptied(partition)

    @staticmethod
    def _name(partition: Partition) -> str:
        return f"{partition.layout.stream}/{partition.number}"

    def holds(self, token: Delivery, /) -> bool:
        return token[0].partition.begin(token)

    def identity(self, token: Delivery, /) -> Identity:
        arrival, place = token
        partition = arrival.partition
        return Identity(
            self._name(partition), partition.born.replace(" ", "T"), (arrival.sequence, place)
        )

    def let_go(self) -> None:
        """Take what is left to the next owners of partitions out of the pipeline."""
        self.run.withdraw(self._is_left)

    def _is_left(self, event: Event[Any]) -> bool:
        return any(
            origin is self and token[0].partition.is_left(token) for origin, token in roots(event)
        )

    def next_of(self, most: int) -> list[tuple[Arrival, Sequence[int]]]:
        deliveries, found = self._deliveries, list[tuple[Arrival, Sequence[int]]]()
        while deliveries.waiting and most:
            found.append(deliveries.first(most))
            most -= len(found[-1][1])
        return found

    def events(
        self, tokens: Iterable[tuple[Arrival, Sequence[int]]], now: float
    ) -> list[Event[Any]]:
        events: list[Event[Any]] = []
        for arrival, places in tokens:
            if arrival.partition.lease.held:
                self._deliveries.entered(arrival.partition, len(places))
                events += self._events_of(arrival, places, now)
        return events

    def _events_of(self, arrival: Arrival, places: Sequence[int], now: float) -> list[Event[Any]]:
        created = min(arrival.stored + self.from_wall, now)
        found = arrival.deliveries(places)
        if len(found) > 1:
            bodies = arrival.events
            with suppress(JSONDecodeError):
                return new_events([loads(bodies[place]) for place in places], created, self, found)
        # One by one: so that an error names its event, and a single event leaves sooner.
        return [event for event in map(partial(self._event, created), found) if event]

    def _event(self, created: float, delivery: Delivery) -> Event[Any] | None:
        error: PenstockError
        try:
            event: Event[Any] = Event(
                value_of(delivery.data, json_value, delivery), created, self, delivery
            )
        except BadLine as bad:
            event = Event(delivery.data, created, self, delivery)
            error, attempts = bad, 1
            self.run.errors.count_bad_line(bad)
        else:
            if not (attempts := delivery[0].partition.cost_if_given_up(delivery)):
                return event
            error = WorkerLost(
                f"{attempts} workers that had only this event at work died, or were blocked for "
                "longer than their leases last"
            )
            self.run.errors.warn(f"{delivery} goes to the dead letters: {error}")
        self.received += 1
        letters = channel_to(self._deliveries.letters, self.run)
        letters.send(event, error, "jetstream", attempts)
        return None

    def repeated(self, count: int) -> None:
        """Count events that were dropped before they arrived here."""
        self.received += count
        self.drops["duplicate"] = self.drops.get("duplicate", 0) + count

    def is_full(self, number: int, why: str) -> None:
        """Report a full partition, once."""
        if not self._full:
            self.run.errors.warn(
                f"nothing more of partition {number} is read, although handlers are free: {why}. "
                "Hold fewer in operators, or let slow events go by timeout= or overflow=route(sink)"
            )
        self._full.add(number)

    def leaves_out(self, number: int) -> None:
        """Report a partition with finished events that cannot be noted, once."""
        if not self._left_out:
            self.run.errors.warn(
                f"events of partition {number} are done and cannot be noted, because too many "
                "separate ones before them are not: they are repeated if this worker is killed "
                "before that changes"
            )
        self._left_out.add(number)

    def statistics(self) -> dict[str, Any]:
        """The statistics of every source; how many partitions could not be read for a time because
        too much was unfinished (`full`), and how many have finished events that could not be noted
        (`left_out`); and how often it was said that servers do not answer, or that others have this
        worker's share (`silences`)."""
        return {
            **super().statistics(),
            "full": len(self._full),
            "left_out": len(self._left_out),
            "silences": self._deliveries.silences,
        }

    def _done(self, events: list[Event[Any]]) -> None:
        places: defaultdict[Arrival, list[int]] = defaultdict(list)
        for event in events:
            arrival, place = event.token
            places[arrival].append(place)
        for arrival, done in places.items():
            arrival.partition.done(arrival, done)

    def _returned(self, events: list[Event[Any]], error: BaseException | None) -> None:
        if error is not None:
            for event in events:
                partition: Partition = event.token[0].partition
                partition.reverted(event.token)
            return
        places: defaultdict[Arrival, list[int]] = defaultdict(list)
        for event in events:
            arrival, place = event.token
            places[arrival].append(place)
        for arrival, returned in places.items():
            arrival.partition.returned(arrival, sorted(returned))
