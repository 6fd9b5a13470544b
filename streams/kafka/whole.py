"""A reader of all partitions of topics, in no group: every process that runs it has all records.

It begins at the first record in each run, and commits nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf

from penstock.streams.base.errors import PenstockError
from penstock.streams.kafka.group import Consumer, GroupSettings, Reader
from penstock.streams.kafka.membership import Membership
from penstock.streams.kafka.offsets.partition import Partition
from penstock.streams.runtime.context import Run

__all__ = ["WholeReader"]

# Seconds between two looks for partitions that were added.
_ADDED_EVERY = 30.0


class WholeReader(Membership):
    """Calls `come` once all records that were there at the beginning have ended.

    These are the ones below the end that each partition had when it was assigned.
    """

    def __init__(
        self, run: Run, reader: Reader, settings: GroupSettings, come: Callable[[], object]
    ) -> None:
        super().__init__(run, reader, settings, None)
        self._come = come
        # The ends that partitions had, until they are reached; None before they are known.
        self._ends: dict[tuple[str, int], int] | None = None
        self._look_for_added_at = run.now() + _ADDED_EVERY

    async def _join(self, consumer: Consumer) -> None:
        self._ends = await self._assign(consumer)

    async def _assign(self, consumer: Consumer) -> dict[tuple[str, int], int]:
        """Read the partitions that are not read yet from their first record; returns their ends."""
        await self.beginnings.identify(set(self._settings.topics))
        ends: dict[tuple[str, int], int] = {}
        places: list[Partition] = []
        for topic in self._settings.topics:
            for number in range(self.beginnings.counts[topic]):
                key = topic, number
                if key in self.partitions:
                    continue
                first, ends[key] = await self.beginnings.bounds(consumer, key)
                partition = self.beginnings.partition(key, first)
                self._hold(partition, None, None)
                places.append(partition)
        begins = [partition.place(partition.position) for partition in places]
        self._announce(begins)
        await self._fetching.begin(consumer, begins)
        return ends

    async def _commit_if_due(self, consumer: Consumer) -> None:
        if self._ends is not None:
            self._ends = {key: end for key, end in self._ends.items() if not self._has(key, end)}
            if not self._ends:
                self._ends = None
                self._come()
        now = self._run.now()
        if now >= self._look_at:
            self._look_soon()
            await self._look_at_lag(consumer)
        if now >= self._look_for_added_at:
            self._look_for_added_at = now + _ADDED_EVERY
            # Brokers that are away are asked again.
            with suppress(PenstockError):
                for topic in self._settings.topics:
                    await self.beginnings.find(consumer, topic)
                await self._assign(consumer)

    def _has(self, key: tuple[str, int], end: int) -> bool:
        """Whether all records of a partition up to this end have ended. The last ones may be none,
        such as marks of transactions."""
        partition = self.partitions[key]
        floor = partition.floor
        assert floor is not None
        read = partition.position
        return floor >= end or (partition.at_end and floor == read)

    def _due_in(self) -> float:
        return inf

    # The brokers do not count it as a member of the group, so it loses no partition to another.

    def is_sure(self) -> bool:
        return True

    def _look_at_doubt(self) -> None:
        """There is none."""

    @property
    def unconfirmed_for(self) -> float:
        return 0.0

    async def _close(self) -> None:
        assert self._consumer is not None
        self._forget(list(self.partitions.values()))
        await self._consumer.close()
