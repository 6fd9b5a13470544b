"""What is written together with the ends of events, in the transactions of a store.

A source takes part in them as a `Participant`: its mark says how far it is finished, or its own
rows end there. A sink adds `Part`s. So an event is wholly done in the store, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Protocol

from penstock.streams.delivery.commit import Part
from penstock.streams.protocol.event import Ending, Event, Origin
from penstock.streams.runtime.context import Run

__all__ = ["Marks", "MarksOfRun", "Participant"]


class Participant:
    """A source that takes part in the commits of a store."""

    lends = False
    """Whether others may have got its events by the time that these are done: it is asked before
    they are committed, and is told that they are done only after that."""

    follows = False
    """Whether its mark may be another whenever events of any source are done."""

    outlives_power = False
    """Whether it would keep what it is told after a commit when a power failure undoes that."""

    def during_commit(self) -> AbstractAsyncContextManager[Any]:
        """What is held while its events are committed."""
        return nullcontext()

    def has(self, event: Event[Any]) -> bool:
        """Whether the event is still the source's; if not, it is returned."""
        return True

    def end(self, event: Event[Any], ending: Ending, why: Any) -> Part[Any] | None:
        """The part that writes this end, if it is not in the mark."""
        return None

    def marks(self, events: Sequence[Event[Any]]) -> Iterable[tuple[str, bytes]]:
        """The partitions whose marks have changed since they were `written`, with these, as they
        are when these events are done too."""
        return ()

    def written(self) -> None:
        """The last `marks` are written."""

    def partition_of(self, event: Event[Any]) -> int | None:
        """The number of the partition of an event, for a store whose states move with those; None
        if it is in none."""
        return None

    def place_of(self, event: Event[Any]) -> str:
        """The partition of an event that is in one, for messages."""
        return f"partition {self.partition_of(event)}"

    def how_to_partition(self) -> str:
        """What to do when events of one key are in several partitions, for messages."""
        return (
            "Have the events partitioned by this key: write them with this key to another pipeline,"
            " and read that"
        )

    def partition_of_mark(self, name: str) -> int | None:
        """The number of the partition that a mark is written with, for such a store."""
        return None

    def moves_with(self, first: Participant) -> bool:
        """Whether its partitions are those with the numbers that `first` has, the source with whose
        partitions states move. From now on they are, if they can be."""
        return False

    def fence(self) -> Any:
        """What proves to the writer of a commit that this source has its partitions; None if there
        is nothing of that kind."""
        return None

    def taken(self, partition: int) -> None:
        """Another run has adopted a partition: nothing of it may begin any more."""

    def adopted(self, partition: int, marks: Iterable[tuple[str, bytes]]) -> None:
        """A partition has come, of which these marks were written, also those of others."""

    def released(self, partition: int) -> None:
        """A partition has gone, or another run has adopted it."""

    def finish(self, events: Sequence[Event[Any]]) -> None:
        """These events are done."""


class MarksOfRun(Protocol):
    """Writes marks and parts in one run, together with what the events have done."""

    database: tuple[Any, ...] | None
    """The database that has all this, as `database_of` names it; None if parts cannot be written
    there."""

    committed: int
    """The commits that were made."""

    @property
    def is_busy(self) -> bool:
        """Whether a commit is to be made, or is under way: events that it has may come again."""
        ...

    def mark(self, partition: str) -> bytes | None:
        """The mark that was kept last of a partition, for a source that is about to read it; None
        if there is none. Raises CannotOpen for a partition that another source of the run reads.
        """
        ...

    async def mark_of(self, partition: str) -> bytes | None:
        """As `mark`; the loop waits for no database."""
        ...

    def keep(self, origin: Origin, source: Participant) -> Callable[[], None]:
        """Have a source take part. Returns the function to call when its mark has changed for
        another reason than that its events are done."""
        ...

    def holds(self, event: Event[Any]) -> bool:
        """Whether the event's end, or that of an event it was made of, is held back here."""
        ...

    async def adopt(self, partition: int, count: int) -> None:
        """Have the marks and the states of a partition, of `count`, before its first event begins,
        where states move with partitions. Raises CannotOpen, and Moved if it was released.
        """
        ...

    def begin(self, partition: int) -> None:
        """The events of an adopted partition begin."""
        ...

    async def release(self, partition: int, patience: float = 0.0) -> None:
        """Give up a partition of which no event begins any more. For up to `patience` seconds it
        waits for the commit of what has ended; what is not committed then never is."""
        ...

    def restoring(self) -> Sequence[Any]:
        """The partitions whose states are being restored: each with `partition`, the records `done`
        of `total`, and the `seconds` so far."""
        ...

    def standby_lag(self) -> int | None:
        """The records of other runs' partitions that a copy here does not have yet; None without
        such a copy."""
        ...

    def hold(self, events: Iterable[Event[Any]]) -> Sequence[object]:
        """Hold back the ends of events that have not ended."""
        ...

    def accept(self, event: Event[Any], part: Part[Any], key: Any = None) -> None:
        """Finish an event, and write the part in one transaction with its end, not before earlier
        parts of the same key. If it will never be done, the part is void: also if it has ended, and
        its end is not held back.

        The part is released if the event has more results to come, or waits for other events.
        """
        ...

    def again(self, event: Event[Any]) -> Event[Any]:
        """An event in place of one that has ended, and of which a part was refused: it ends as this
        one does."""
        ...


class Marks(Protocol):
    """Keeps the marks of partitions from run to run."""

    name: str
    """What it is, for messages, such as the path of a file."""

    @property
    def moves(self) -> bool:
        """Whether several runs use it, each with the marks of the partitions that it has."""
        ...

    def marks_in(self, run: Run) -> MarksOfRun:
        """What keeps them in this run. Raises CannotOpen."""
        ...
