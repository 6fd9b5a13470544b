"""Several topics whose partitions go together: one reader is the member of the group, and the
others follow it.

A group gives partitions of one topic without regard to those of another. So only the leader, the
first reader of a pipeline whose states move, subscribes; a follower reads the same numbers of its
own topic. The brokers check the member and the generation of a commit, and not its topics: what a
follower has done is committed by the leader, and is refused with what that has done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from penstock.streams.kafka.group import Consumer, GroupSettings, Reader, reading_error
from penstock.streams.kafka.membership import Membership
from penstock.streams.kafka.offsets.moving import MovingOffsets
from penstock.streams.kafka.offsets.partition import Partition
from penstock.streams.kafka.offsets.stored import StoredOffsets
from penstock.streams.kafka.whole import WholeReader
from penstock.streams.runtime.context import Run

if TYPE_CHECKING:
    import asyncio

    from confluent_kafka import TopicPartition

__all__ = ["membership"]

_Work = Callable[[Consumer], Awaitable[Any]]


def membership(run: Run, reader: Reader, settings: GroupSettings) -> Membership:
    """The partitions that a reader has: those of a member of its group, or those that go with the
    ones of another reader of the pipeline, or all. Raises BuildError if they cannot."""
    if settings.whole is not None:
        return WholeReader(run, reader, settings, settings.whole)
    offsets, error = settings.offsets, partial(reading_error, settings)
    if offsets is None:
        return Membership(run, reader, settings, None)
    options = run, error, offsets, reader, settings.group, settings.session
    if not offsets.moves:
        return Membership(run, reader, settings, StoredOffsets(*options))
    stored = MovingOffsets(*options, topic=settings.topics[0])
    # The leader is a member for as long as a follower reads.
    if stored.leader is stored:
        leader = Membership(run.root, reader, settings, stored)
        stored.member = leader
        return leader
    return Follower(run.root, reader, settings, stored)


class Follower(Membership):
    """A reader of the partitions with the numbers of those that the leader has.

    The leader tells it which these are, and waits until it knows where to begin in each. Its client
    is in no group.
    """

    def __init__(
        self, run: Run, reader: Reader, settings: GroupSettings, stored: MovingOffsets
    ) -> None:
        super().__init__(run, reader, settings, stored)
        self.reader = reader
        self.topic = settings.topics[0]
        leader: Membership = stored.leader.member
        leader.lead(self, settings)
        self._leader = leader
        self._left = leader.some_left
        # What the leader wants to be done with the client, in order.
        self._works: deque[tuple[_Work, asyncio.Future[Any]]] = deque()

    def start(self) -> None:
        if self._consumer is None:
            super().start()
            self._leader.start()

    async def _join(self, consumer: Consumer) -> None:
        """It is told what to read."""

    # What the leader calls.

    async def prepared(self, numbers: Sequence[int]) -> list[TopicPartition]:
        """Hold partitions, of which nothing is read yet; returns where to begin in each."""
        places = [self.beginnings.place((self.topic, number)) for number in numbers]
        found: list[TopicPartition] = await self._ask(lambda one: self._prepare(one, places))
        return found

    def begin(self, places: list[TopicPartition]) -> None:
        """Read partitions that are prepared."""
        self._announce(places)
        self._ask(lambda one: self._fetching.begin(one, places))

    def let_go_of(self, numbers: Iterable[int]) -> list[Partition]:
        """Let nothing of these partitions begin any more; returns them."""
        return self._hold_back([(self.topic, number) for number in numbers])

    def left(self, leaving: Iterable[Partition]) -> None:
        """The states of partitions have gone; others than its own are passed over."""
        for partition in self._own(leaving):
            self.reader.left(partition)

    def end(self, leaving: Iterable[Partition]) -> None:
        """Read partitions no more; others than its own are passed over."""
        own = self._own(leaving)
        self._forget(own)
        if own:
            places = [one.place() for one in own]
            self._ask(lambda client: client.incremental_unassign(places))

    def _own(self, partitions: Iterable[Partition]) -> list[Partition]:
        return [one for one in partitions if one.topic == self.topic]

    def _ask(self, work: _Work) -> asyncio.Future[Any]:
        """Have something done with the client by its own task: the client does one thing at a
        time."""
        done: asyncio.Future[Any] = self._run.loop.create_future()
        self._works.append((work, done))
        self.wake()
        return done

    # What its task does.

    async def _begin_those_that_wait(self, consumer: Consumer) -> None:
        while self._works:
            work, done = self._works.popleft()
            found = await work(consumer)
            if not done.done():
                done.set_result(found)

    def _due_in(self) -> float:
        return inf

    async def _commit_if_due(self, consumer: Consumer) -> None:
        if self._run.now() >= self._look_at:
            self._look_soon()
            await self._look_at_lag(consumer)

    # What the leader knows.

    def is_sure(self) -> bool:
        return self._leader.is_sure()

    def _look_at_doubt(self) -> None:
        self.in_doubt = self._leader.in_doubt

    @property
    def has_all(self) -> bool:
        return self._leader.has_all and not self._works

    @property
    def unconfirmed_for(self) -> float:
        return self._leader.unconfirmed_for

    def restoring(self) -> list[dict[str, Any]]:
        return []

    def standby_lag(self) -> int | None:
        return None

    async def _close(self) -> None:
        # The leader commits what is finished of the partitions, and forgets them.
        assert self._consumer is not None
        await self._consumer.close()
