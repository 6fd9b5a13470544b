"""Commits by a store whose states move with the partitions of the reader's topic.

The states of a partition are restored before its first record is fetched, and are given up when
what has begun of it is committed, before another member gets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.streams.base.errors import PenstockError
from penstock.streams.delivery.marks import MarksOfRun
from penstock.streams.kafka.offsets.commits import Committing
from penstock.streams.kafka.offsets.partition import Partition
from penstock.streams.kafka.offsets.stored import Records, StoredOffsets, mark_name
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

    def __init__(self, *arguments: Any) -> None:
        self._restoring: dict[_Key, asyncio.Task[None]] = {}
        self.metadata: Any = None
        """By which brokers know this member of the group, and its generation; None if it is in
        none."""
        super().__init__(*arguments)
        self.is_alone = True

    def _records(self) -> Records:
        return _MovingRecords(self._partitions, self._due, lambda: self.metadata)

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
            task.add_done_callback(lambda _: wake())

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
            self._partitions.pop(key, None)
            if task is not None:
                await asyncio.wait([task])
                error = task.exception()
                if isinstance(error, PenstockError):
                    self._run.errors.warn(f"read_kafka: {error}")


class _MovingRecords(Records):
    """Records of partitions that others may have got by the time that they are done."""

    lends = True

    def __init__(
        self,
        partitions: Mapping[_Key, Partition],
        due: dict[Partition, None],
        metadata: Callable[[], Any],
    ) -> None:
        super().__init__(partitions, due)
        self._metadata = metadata

    def fence(self) -> Any:
        metadata = self._metadata()
        if metadata is None:
            return None
        marks = ((one, one.mark()) for one in self._partitions.values() if one.is_ours)
        places = [one.place(*mark) for one, mark in marks if mark is not None]
        return metadata, places

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

    def partition_of_mark(self, name: str) -> int | None:
        for partition in self._partitions.values():
            if mark_name(partition.cluster, partition.key) == name:
                return partition.number
        return None
