"""The states of a pipeline on many machines, which move with the partitions of its events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import BuildError
from penstock.streams.delivery.marks import MarksOfRun, Participant
from penstock.streams.delivery.ranges import Range
from penstock.streams.nats.partition.mark import ranges_in
from penstock.streams.protocol.event import Event, Origin

if TYPE_CHECKING:
    from penstock.streams.nats.partition.partition import Partition

__all__ = ["MovingStates"]

# Seconds for which the commit of what has ended is waited for, when a partition is handed over.
_PATIENCE = 10.0


class MovingStates(Participant):
    """What one run has in its store of the partitions that its worker owns.

    A partition is adopted before its first event begins, and released when what has begun of it is
    committed. The mark of a partition has what is done of it; what the bucket of floors knows may
    be less.
    """

    lends = True

    def __init__(self, stores: Sequence[Any], origin: Origin, stream: str) -> None:
        if len(stores) > 1:
            raise BuildError(
                "the pipeline has stages with different stores: after a crash only one of them "
                "would have an event. Give all stages the same store"
            )
        self._prefix = f"nats {stream}/"
        self._partitions: dict[int, Partition] = {}
        self._marks: dict[int, bytes] = {}
        self._store: MarksOfRun = stores[0]
        self._store.keep(origin, self)

    async def adopt(self, partition: Partition) -> list[Range] | None:
        """Restore the states of a partition; returns the positions that are done in them, None if
        this run has them already. Raises CannotOpen, and Moved if it was released meanwhile."""
        number = partition.number
        if self._partitions.get(number) is partition:
            return None
        await self._store.adopt(number, len(partition.layout.numbers))
        self._partitions[number] = partition
        self._store.begin(number)
        mark = self._marks.pop(number, None)
        return [] if mark is None else ranges_in(mark, partition.born)

    async def release(self, partition: Partition) -> None:
        """Give up a partition of which nothing is in the pipeline any more."""
        self._partitions.pop(partition.number, None)
        await self._store.release(partition.number, _PATIENCE)

    def restoring(self) -> list[dict[str, Any]]:
        """The partitions whose states are being restored: each with the rows that are `done`, of
        `total`, and the `seconds` so far."""
        return [
            {
                "partition": one.partition,
                "done": one.done,
                "total": one.total,
                "seconds": one.seconds,
            }
            for one in self._store.restoring()
        ]

    # What the store calls.

    def adopted(self, partition: int, marks: Iterable[tuple[str, bytes]]) -> None:
        for name, mark in marks:
            if self.partition_of_mark(name) == partition:
                self._marks[partition] = mark

    def taken(self, partition: int) -> None:
        lost = self._partitions.pop(partition, None)
        if lost is not None:
            # If this worker has the lease, it takes the partition anew.
            lost.lease.lose()

    def partition_of(self, event: Event[Any]) -> int | None:
        partition: Partition = event.token[0].partition
        return partition.number

    def partition_of_mark(self, name: str) -> int | None:
        return int(name.removeprefix(self._prefix)) if name.startswith(self._prefix) else None

    def has(self, event: Event[Any]) -> bool:
        partition: Partition = event.token[0].partition
        return partition.lease.held and self._partitions.get(partition.number) is partition

    def marks(self, events: Sequence[Event[Any]]) -> Iterable[tuple[str, bytes]]:
        done: dict[Partition, list[tuple[int, int]]] = {}
        for event in events:
            arrival, place = event.token
            done.setdefault(arrival.partition, []).append((arrival.sequence, place))
        for partition, places in done.items():
            yield f"{self._prefix}{partition.number}", partition.mark(places)
