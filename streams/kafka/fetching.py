"""The partitions that the client fetches: none without room, and not those that wait for others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.streams.kafka.group import Consumer, Reader
from penstock.streams.kafka.offsets.partition import Partition
from penstock.streams.kafka.offsets.suspects import Suspects

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

__all__ = ["Fetching"]


class Fetching:
    """Pauses partitions in the client, and resumes them."""

    def __init__(
        self,
        partitions: Mapping[tuple[str, int], Partition],
        reader: Reader,
        suspects: Suspects | None,
    ) -> None:
        self.is_paused = False
        """Whether nothing is fetched."""
        self._partitions = partitions
        self._reader = reader
        self._suspects = suspects
        # Partitions that wait for others, and those that are paused for that.
        self._waiting: set[tuple[str, int]] = set()
        self._waits_paused: set[tuple[str, int]] = set()

    def hold(self, partition: Partition) -> None:
        """Let a partition wait from the next `look` on."""
        self._waiting.add(partition.key)

    def let_go(self, partition: Partition) -> None:
        """Let it wait no more."""
        self._waiting.discard(partition.key)

    async def begin(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Have records fetched from these offsets on."""
        if places:
            await consumer.incremental_assign(places)
            if self.is_paused:
                await consumer.pause(places)

    async def pause(self, consumer: Consumer, paused: bool) -> None:
        """Fetch nothing, or all that does not wait."""
        self.is_paused = paused
        if not paused:
            self._waits_paused = set(self._waiting)
        places = [
            partition.place()
            for partition in self._partitions.values()
            if paused or self._may_be_fetched(partition)
        ]
        if places:
            await (consumer.pause(places) if paused else consumer.resume(places))
        if paused:
            self.ask_again(self._partitions.values())

    async def look(self, consumer: Consumer) -> None:
        """Pause the partitions that wait now, and resume those that wait no more."""
        if self._waiting == self._waits_paused or self.is_paused:
            return
        before, self._waits_paused = self._waits_paused, set(self._waiting)
        held = self._partitions
        waiting = [held[key] for key in self._waiting - before if key in held]
        others = [held[key] for key in before - self._waiting if key in held]
        again = [one.place() for one in others if self._may_be_fetched(one)]
        if waiting:
            await consumer.pause([one.place() for one in waiting])
            self.ask_again(waiting)
        if again:
            await consumer.resume(again)

    def ask_again(self, paused: Iterable[Partition]) -> None:
        """What a partition has that is paused is not known before it is fetched again. The client
        then says again that it is at its end."""
        for partition in paused:
            if partition.at_end:
                self._reader.filled(partition)

    def _may_be_fetched(self, partition: Partition) -> bool:
        if partition.key in self._waiting:
            return False
        return self._suspects is None or self._suspects.may_be_fetched(partition)
