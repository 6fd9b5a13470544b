"""The states that a run has of those that move with the partitions of its source.

    assigned ──> adopt: the backend restores, then events begin ──> commits
    revoked  ──> what has begun ends and is committed ──> release
    lost     ──> release: what is not committed is void, and the next owner does it again

A state moves with the partition of the events that have made it. So all events of a key have to be
in one partition, as they are if the source is partitioned by that key; of several sources in those
of one number, which come and go together.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.streams.base.errors import BuildError, PenstockError, describe
from penstock.streams.delivery.commit import Commit
from penstock.streams.delivery.marks import Participant
from penstock.streams.state.backend import Moving, Restoring, Row, Unit
from penstock.streams.state.changes import Cell, Change, Room, Root, changes_of
from penstock.streams.state.reads import Reads
from penstock.streams.state.sources import Sources
from penstock.streams.state.states import States

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["Moves"]

T = TypeVar("T")

# Seconds between two looks whether all of a partition that is given up is committed.
_PAUSE = 0.02
# Partitions that come at once, of those that one run has.
_MOST = 1_000


class _Stage(Protocol):
    @property
    def all_states(self) -> Sequence[States]: ...

    def moved(self) -> None:
        """States have come or gone: read again which timers are due."""
        ...


class Moves:
    """The partitions whose states a run has.

    `lose` is told of roots that will never be committed. Time: O(n) in the keys in memory for each
    partition that comes or goes, and O(1) for each change that is committed.
    """

    def __init__(
        self,
        run: Run,
        backend: Moving,
        name: str,
        sources: Sources,
        reads: Reads,
        commit: Commit,
        lose: Callable[[Root], None],
    ) -> None:
        self.stages: list[_Stage] = []
        self._run = run
        self._backend = backend
        self._name = name
        self._sources = sources
        self._reads = reads
        self._commit = commit
        self._lose = lose
        self._source: Participant | None = None
        self._held: set[int] = set()
        # Those of which events have begun.
        self._emitted: set[int] = set()
        # One comes only when it has gone.
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        # Each that comes has a thread of its own: many at once, which may wait for long, would take
        # all those of the loop, in which commits are made.
        self._threads = ThreadPoolExecutor(_MOST, "penstock restore")
        self._begun: dict[int, asyncio.Event] = {}
        run.on_close(self._end)

    # What a source calls.

    def take(self, source: Participant) -> None:
        """Note a source whose partitions states move with. Raises BuildError for a second one that
        does not go with the first."""
        if self._source is None:
            self._source = source
        elif not source.moves_with(self._source):
            raise BuildError(
                f"{self._name}: two sources of the pipeline keep there what is done, and states "
                "move with the partitions of one, with which those of the other do not go. Write "
                "the events of both to one topic or stream, with the same key, and read that; or "
                "use a Store in a file, in one process"
            )

    async def adopt(self, partition: int, count: int) -> None:
        """Have the states of a partition, of `count`, before its first event begins. Raises
        CannotOpen, and Moved if it was released meanwhile."""
        async with self._locks[partition]:
            await self._restore(partition, count)
            marks = await self._called(self._backend.marks_of, partition)
            # A read that began before does not have them.
            await self._reads.ended()
            self._held.add(partition)
            self._sources.adopted(partition, marks)
            self._forget(partition)

    def begin(self, partition: int) -> None:
        """The events of an adopted partition begin, and all watermarks wait for it: from now on
        what is due of its keys is done."""
        if partition in self._held:
            self._emitted.add(partition)
            self._forget(partition)

    async def release(self, partition: int, patience: float = 0.0) -> None:
        """Give up a partition of which no event begins any more. For up to `patience` seconds it
        waits for the commit of what has ended; what is not committed then never is."""
        until = self._run.now() + patience
        while self._is_changed(partition) and self._run.now() < until:
            self._commit.due()
            await asyncio.sleep(_PAUSE)
        self._held.discard(partition)
        self._emitted.discard(partition)
        await self._commit.ended()
        if (begun := self._begun.get(partition)) is not None:
            # Or it would be adopted after it was released.
            await begun.wait()
        await self._called(self._backend.release, partition)
        await self._reads.ended()
        self._lost(partition)

    def taken(self, partition: int) -> None:
        """Another run has adopted a partition, of which nothing is being written."""
        self._run.errors.warn(
            f"{self._name}: another run has the states of partition {partition} now. What is not "
            "committed of it here is done there; nothing more of it begins here until it comes back"
        )
        self._sources.taken(partition)
        self._lost(partition)

    def _lost(self, partition: int) -> None:
        self._held.discard(partition)
        self._emitted.discard(partition)
        self._forget(partition)
        self._sources.forget(partition)

    async def _restore(self, partition: int, count: int) -> None:
        if not self._is_in_thread:
            self._backend.adopt(partition, count)
            return
        loop, begun = self._run.loop, asyncio.Event()

        def adopt() -> None:
            loop.call_soon_threadsafe(begun.set)
            self._backend.adopt(partition, count)

        self._begun[partition] = begun
        try:
            await _shielded(loop.run_in_executor(self._threads, adopt))
        finally:
            del self._begun[partition]

    async def _end(self) -> None:
        self._threads.shutdown(wait=False)

    @property
    def _is_in_thread(self) -> bool:
        return self._backend.in_thread or self._backend.reads_in_thread

    async def _called(self, call: Callable[..., T], *numbers: int) -> T:
        if not self._is_in_thread:
            return call(*numbers)
        return await _shielded(self._run.loop.run_in_executor(None, call, *numbers))

    def _cells(self, partition: int) -> Iterable[tuple[States, list[Cell]]]:
        """The cells of a partition, by the states that have them."""
        for stage in self.stages:
            for states in stage.all_states:
                yield states, [one for one in states.cells.values() if self._of(one) == partition]

    def _is_changed(self, partition: int) -> bool:
        return any(one.last is not None for _, cells in self._cells(partition) for one in cells)

    def _forget(self, partition: int) -> None:
        """Have nothing in memory of a partition, and read again what is due."""
        roots: dict[Root, None] = {}
        for states, cells in self._cells(partition):
            for cell in cells:
                change = cell.last
                while change is not None:
                    roots[change.root.root] = None
                    change = change.before
            # Those that were read while nobody here had them say nothing.
            states.forget(cells)
            states.forget(
                [one for one in states.cells.values() if one.partition is None and not one.last]
            )
        for stage in self.stages:
            stage.moved()
        for root in roots:
            if not root.is_lost:
                self._lose(root)

    def _of(self, cell: Cell) -> int | None:
        """The partition of a cell."""
        if cell.partition is not None:
            return cell.partition
        change = cell.last
        while change is not None:
            for one in change.root.root.all():
                partition = self._sources.partition_of(one)
                if partition is not None:
                    return partition
            change = change.before
        return None

    def _of_others(self, root: Root, cell: Cell) -> int | None:
        """The partition of the other states that a root has changed: what became due of one may
        have changed the state of a stage below."""
        others = (change.cell for change in changes_of(root.root) if change.cell is not cell)
        return next((found for other in others if (found := self._of(other)) is not None), None)

    def here(self, rows: Iterable[Row]) -> list[Row]:
        """The rows of partitions that have begun: not those of one whose watermark is not here."""
        return [row for row in rows if row.partition in self._emitted]

    # What commits call.

    def has_gone(self, partition: int | None) -> bool:
        """Whether a partition is not here any more, which its source may not know yet."""
        return partition is not None and partition not in self._held

    def split(
        self, changes: Mapping[Room, list[Change]]
    ) -> dict[int, defaultdict[Room, list[Change]]]:
        """The last changes of keys, by the partition that they move with. Raises PenstockError for
        a key that moves with two of them, or with none."""
        found: dict[int, defaultdict[Room, list[Change]]] = {}
        for room, changed in changes.items():
            for change in changed:
                partition = self._partition(change)
                if partition not in found:
                    found[partition] = defaultdict(list)
                found[partition][room].append(change)
        return found

    def _partition(self, last: Change) -> int:
        """The partition of a key, by its last change."""
        cell = last.cell
        found, first = cell.partition, None
        change: Change | None = last
        while change is not None:
            for one in change.root.root.all():
                partition = self._sources.partition_of(one)
                if partition is None:
                    partition = self._of_others(one, cell)
                if partition is None:
                    continue
                if found is None:
                    found, first = partition, one
                elif found != partition:
                    raise self._apart(cell, found, first, one)
            change = change.before
        if found is None:
            raise PenstockError(
                f"{self._name}: the key {describe(cell.key)} of {cell.room.name!r} was changed by "
                "an event of no partition, and states here move with the partitions of a source "
                "that keeps in this store what is done. Use another store, or no other source"
            )
        cell.partition = found
        return found

    def _apart(self, cell: Cell, number: int, first: Root | None, second: Root) -> PenstockError:
        """The error of a key with an event that is not in the partition of its state; `first` is
        one that is there, if it is known."""
        found = [self._sources.place_of(one) for one in (first, second) if one is not None]
        places = [place for place, _ in found] if first else [f"partition {number}", found[0][0]]
        return PenstockError(
            f"{self._name}: the key {describe(cell.key)} of {cell.room.name!r} has events in "
            f"{' and in '.join(places)}, and its state moves with one of them. {found[-1][1]}"
        )

    def marks(self, unit: Unit) -> None:
        """Put the marks of a unit to the partitions that they are of."""
        for name, mark in unit.marks.items():
            partition = self._sources.partition_of_mark(name)
            if partition in self._held:
                unit.partitions.setdefault(partition, Unit()).marks[name] = mark
        unit.marks = {}

    # What is shown.

    def restoring(self) -> list[Restoring]:
        return self._backend.restoring()

    def standby_lag(self) -> int | None:
        return self._backend.standby_lag()


async def _shielded(calling: asyncio.Future[T]) -> T:
    """The result of a call in a thread, which goes on if nobody waits for it any more."""
    calling.add_done_callback(_looked_at)
    return await asyncio.shield(calling)


def _looked_at(ended: asyncio.Future[T]) -> None:
    """Have an error that nobody waits for not be reported."""
    if not ended.cancelled():
        ended.exception()
