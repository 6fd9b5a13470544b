"""Commits by a store whose states move with the partitions of the reader's topic.

The states of a partition are restored before its first record is fetched, and are given up when
what has begun of it is committed, before another member gets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from penstock.streams.base.errors import CannotOpen, PenstockError
from penstock.streams.delivery.marks import MarksOfRun, Participant
from penstock.streams.kafka.offsets.commits import Committing
from penstock.streams.kafka.offsets.partition import Partition
from penstock.streams.kafka.offsets.stored import Done, Records, StoredOffsets, mark_name
from penstock.streams.kafka.producer import is_member
from penstock.streams.protocol.event import Event
from penstock.streams.state.backend import Moved

__all__ = ["MovingOffsets"]

# Seconds for which the commit of what has ended is waited for, when a partition is given up.
_PATIENCE = 10.0

_Key = tuple[str, int]


class MovingOffsets(StoredOffsets):
    """Commits of one member of a group, each of which has the states of its partitions.

    A partition that comes back is another one: somebody else may have had it.
    """

    is_shared = True

    def __init__(self, *arguments: Any, topic: str) -> None:
        self.topic = topic
        self.leader: MovingOffsets = self
        """That of the reader whose partitions are those of a member of the group: this one, or the
        one that was made before in the run."""
        self.member: Any = None
        """What reads as that member."""
        self._followers: list[MovingOffsets] = []
        self._restoring: dict[_Key, asyncio.Task[None]] = {}
        self.metadata: Any = None
        """By which brokers know this member of the group, and its generation; None if it is in
        none."""
        super().__init__(*arguments)
        self.is_alone = True

    def _records(self) -> Records:
        return _MovingRecords(self, self._partitions, self._due)

    def follow(self, leader: MovingOffsets) -> None:
        """Have the partitions with the numbers of those of another one."""
        self.leader = leader
        leader._followers.append(self)

    @property
    def topics(self) -> list[str]:
        """Its own topic, and those of the ones that follow."""
        return [one.topic for one in (self, *self._followers)]

    def fence(self) -> Any:
        """What proves that this is a member of the group, with the offsets of its partitions and of
        those that go with them; None if it is in none."""
        if self.metadata is None:
            return None
        every = [one for each in (self, *self._followers) for one in each._partitions.values()]
        marks = ((one, one.mark()) for one in every if one.is_ours)
        return self.metadata, [one.place(*mark) for one, mark in marks if mark is not None]

    # Where to begin.

    async def done(self, cluster: str, key: _Key, generation: str) -> Done | None:
        done = await super().done(cluster, key, generation)
        if done is not None and done.follows != self._follows:
            goes, went = (
                f"those of {one!r}" if one else "what the group gives"
                for one in (self._follows, done.follows)
            )
            raise CannotOpen(
                f"read_kafka({key[0]!r}): the partitions of {key[0]!r} went with {went}, and now "
                f"with {goes}. Members that read another topic first would have other partitions: "
                "read the topics in the order of before, or begin anew with a new store and a new "
                "group."
            )
        return done

    @property
    def _follows(self) -> str:
        return "" if self.leader is self else self.leader.topic

    def hold(self, partition: Partition) -> None:
        partition.follows = self._follows
        super().hold(partition)

    async def renew(self, consumer: Committing) -> None:
        """Find out by what the brokers know this member now."""
        metadata = await consumer.consumer_group_metadata()
        self.metadata = metadata if is_member(metadata) else None

    @property
    def marks_of_run(self) -> MarksOfRun:
        """What keeps the marks in this run."""
        return self._marks

    def restoring(self) -> list[dict[str, Any]]:
        """The partitions whose states are being restored: `done` of `total` records, how many
        `per_second`, and the seconds that are `left`."""
        return [
            {
                "partition": one.partition,
                "done": one.done,
                "total": one.total,
                "per_second": one.done / one.seconds if one.seconds else 0.0,
                "left": (one.total - one.done) * one.seconds / one.done if one.done else None,
            }
            for one in self._marks.restoring()
        ]

    def standby_lag(self) -> int | None:
        return self._marks.standby_lag()

    # Partitions that come.

    @property
    def is_restoring(self) -> bool:
        """Whether a partition of this member has not begun."""
        return bool(self._restoring)

    def begin_restoring(
        self, keys: Iterable[_Key], counts: Mapping[str, int], wake: Callable[[], None]
    ) -> None:
        """Restore the states of partitions that have come, of topics with so many; `wake` is called
        after each."""
        for key in keys:
            topic, number = key
            # One that was added since the start tells that there are more.
            count = max(counts[topic], number + 1)
            restoring = self._marks.adopt(number, count)
            self._restoring[key] = task = asyncio.Task(restoring, name=f"penstock restore {number}")
            task.add_done_callback(partial(_restored, wake))

    def restored(self) -> list[_Key]:
        """The partitions whose states have been restored since the last call. Raises CannotOpen."""
        found: list[_Key] = []
        for key, task in list(self._restoring.items()):
            if task.done():
                del self._restoring[key]
                error = task.exception()
                if error is None:
                    found.append(key)
                elif not isinstance(error, Moved):
                    raise error
        return found

    def begin(self, numbers: Iterable[int]) -> None:
        """The events of partitions begin, of all topics that are read."""
        for number in numbers:
            self._marks.begin(number)

    def again(self, key: _Key) -> Partition | None:
        return None

    def look_for_others(
        self, counts: Mapping[str, int], held: Mapping[_Key, Partition], now: float
    ) -> None:
        """Others are welcome."""

    # Partitions that go.

    async def give_up(self, keys: Iterable[_Key], *, is_lost: bool = False) -> None:
        """Give up the states of partitions; if they are lost, nothing more of them is committed."""
        for key in keys:
            task = self._restoring.pop(key, None)
            await self._marks.release(key[1], 0.0 if is_lost else _PATIENCE)
            for one in (self, *self._followers):
                one._partitions.pop((one.topic, key[1]), None)
            if task is not None:
                await asyncio.wait([task])
                error = task.exception()
                if isinstance(error, PenstockError):
                    self._run.errors.warn(f"read_kafka: {error}")


def _restored(wake: Callable[[], None], task: asyncio.Task[None]) -> None:
    # Of several errors only the first is told: the others are looked at here.
    if not task.cancelled():
        task.exception()
    wake()


class _MovingRecords(Records):
    """Records of partitions that others may have got by the time that they are done."""

    lends = True

    def __init__(
        self,
        offsets: MovingOffsets,
        partitions: Mapping[_Key, Partition],
        due: dict[Partition, None],
    ) -> None:
        super().__init__(partitions, due)
        self._offsets = offsets

    def moves_with(self, first: Participant) -> bool:
        if not isinstance(first, _MovingRecords):
            return False
        self._offsets.follow(first._offsets)
        return True

    def fence(self) -> Any:
        return self._offsets.fence() if self._offsets.leader is self._offsets else None

    def has(self, event: Event[Any]) -> bool:
        partition: Partition = event.token.partition
        return partition.is_ours and self._partitions.get(partition.key) is partition

    def taken(self, partition: int) -> None:
        for one in self._partitions.values():
            if one.number == partition:
                # The group tells it later.
                one.held = one.is_ours = False

    def partition_of(self, event: Event[Any]) -> int | None:
        partition: Partition = event.token.partition
        return partition.number

    def place_of(self, event: Event[Any]) -> str:
        partition: Partition = event.token.partition
        return f"partition {partition.number} of {partition.topic!r}"

    def how_to_partition(self) -> str:
        topics = self._offsets.leader.topics
        many = len(topics) > 1
        return (
            f"Events of a key in {' and '.join(map(repr, topics))} must be in "
            f"{'partitions of one number' if many else 'one partition'}: "
            "written with this key, to as many partitions since the first event, by producers with "
            "one partitioner (murmur2_random is that of Java's clients and of write_kafka, "
            "consistent_random that of others). Where they are not, write all events with this key "
            "to a new topic by write_kafka(key=), and read that, with a new store and a new group"
        )

    def partition_of_mark(self, name: str) -> int | None:
        for partition in self._partitions.values():
            if mark_name(partition.cluster, partition.key) == name:
                return partition.number
        return None
