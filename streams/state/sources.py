"""The sources that take part in the commits of a store, and their marks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from penstock.streams.base.errors import CannotOpen
from penstock.streams.delivery.marks import Participant
from penstock.streams.protocol.acknowledgement import roots
from penstock.streams.protocol.event import Event, Origin
from penstock.streams.state.backend import Unit
from penstock.streams.state.changes import Root

__all__ = ["Done", "Sources", "comes_again"]

Done = dict[Participant, list[Event[Any]]]
"""Events that are to be done, by the source that takes part."""


class Sources:
    """The sources by origin, and those whose marks have changed since the last commit."""

    def __init__(self) -> None:
        self._known: dict[Origin, Participant] = {}
        self._changed: set[Participant] = set()
        # The partitions of all of them.
        self._partitions: set[str] = set()

    @property
    def most_marks(self) -> int:
        """The most marks of one commit."""
        return len(self._partitions)

    def has(self, partition: str) -> bool:
        """Whether a source reads a partition."""
        return partition in self._partitions

    def claim(self, partition: str) -> None:
        """Note that a source reads a partition. Raises CannotOpen if another one does."""
        if self.has(partition):
            raise CannotOpen(
                f"Two sources of the pipeline read {partition}, and keep what is done in one store:"
                " each would overwrite what the other has kept. Read it once, with share()."
            )
        self._partitions.add(partition)

    def keep(
        self, origin: Origin, source: Participant, due: Callable[[], None]
    ) -> Callable[[], None]:
        self._known[origin] = source

        def changed() -> None:
            self._changed.add(source)
            due()

        changed()
        return changed

    def _source_of(self, root: Root) -> Participant | None:
        """The source of a root, if it takes part."""
        source = self._known.get(root.origin)
        if source is None:
            found = (self._known.get(origin) for origin, _ in roots(root.event))
            source = next((one for one in found if one is not None), None)
        return source

    def partition_of(self, root: Root) -> int | None:
        """The number of the partition of a root; None if its source does not take part."""
        source = self._source_of(root)
        return None if source is None else source.partition_of(root.event)

    def place_of(self, root: Root) -> tuple[str, str]:
        """The partition of a root that is in one, and what to do if others of its key are in
        another one, both for messages."""
        source = self._source_of(root)
        assert source is not None
        return source.place_of(root.event), source.how_to_partition()

    def may_commit(self, root: Root) -> bool:
        """Whether the event of a root is still its source's, as far as that takes part."""
        source = self._source_of(root)
        return source is None or source.has(root.event)

    def partition_of_mark(self, name: str) -> int | None:
        """The number of the partition that a mark is written with."""
        numbers = (one.partition_of_mark(name) for one in self._known.values())
        return next((one for one in numbers if one is not None), None)

    def adopted(self, partition: int, marks: Iterable[tuple[str, bytes]]) -> None:
        """A partition has come, with these marks."""
        for source in self._known.values():
            source.adopted(partition, marks)

    def taken(self, partition: int) -> None:
        """Another run has adopted a partition."""
        for source in self._known.values():
            source.taken(partition)

    def forget(self, partition: int) -> None:
        """A partition has gone, and may come back to the same source."""
        for source in self._known.values():
            source.released(partition)
        self._partitions = {
            name for name in self._partitions if self.partition_of_mark(name) != partition
        }

    async def hold(self, held: AsyncExitStack) -> None:
        """Hold what the sources hold during a commit."""
        for source in self._known.values():
            await held.enter_async_context(source.during_commit())

    def done(self, roots_done: Iterable[Root]) -> Done:
        """The events of these roots, except for those of sources that do not take part."""
        done: Done = {}
        known = self._known
        if not known:
            return done
        for one in roots_done:
            origin = one.origin
            if origin not in known:
                ((origin, _),) = roots(one.event)
                if origin not in known:
                    continue
            done.setdefault(known[origin], []).append(one.event)
        return done

    def add_marks(self, unit: Unit, done: Done) -> set[Participant]:
        """Add the marks that are to be written; returns the sources of these."""
        changed, self._changed = self._changed | done.keys(), set()
        if done:
            changed |= {one for one in self._known.values() if one.follows}
        unit.fences += [proof for one in self._known.values() if (proof := one.fence()) is not None]
        for source in changed:
            events: Sequence[Event[Any]] = done.get(source, ())
            unit.durable = unit.durable or (source.outlives_power and bool(events))
            if events and not _may_be_refused(unit, source):
                # This takes less time.
                source.finish(events)
                events = ()
            unit.marks.update(source.marks(events))
        return changed

    def not_written(self, changed: set[Participant]) -> None:
        """Their marks were not written."""
        self._changed |= changed

    def written(self, unit: Unit, done: Done, changed: set[Participant]) -> None:
        """Note that events are done, and that these marks are written."""
        for source in changed:
            source.written()
        for source, events in done.items():
            if _may_be_refused(unit, source):
                source.finish(events)


def _may_be_refused(unit: Unit, source: Participant) -> bool:
    """Whether an event of the source may not be done although it is in the unit."""
    return source.lends or bool(unit.parts)


def comes_again(root: Root) -> bool:
    """Whether its sources give all its events again in this run."""
    return all(
        getattr(origin, "gives_again", True) for one in root.all() for origin, _ in roots(one.event)
    )
