"""The watermark of the time lines of a source, kept in a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.streams.delivery.marks import Participant
from penstock.streams.event_time.source_time import SourceTime
from penstock.streams.protocol.event import Ending, Event
from penstock.streams.state.commits import Commits

__all__ = ["keep_time"]


class _StoredTime(Participant):
    """Writes the watermark with the commits of the events that have moved it.

    It is stored as it was before the oldest event that will come again: otherwise that would be
    late then.
    """

    follows = True

    def __init__(self, source: SourceTime, name: str, commits: Commits) -> None:
        self._source = source
        self._name = name
        self._commits = commits

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        raise NotImplementedError("it is the origin of no event")

    def marks(self, events: Sequence[Event[Any]]) -> Iterable[tuple[str, bytes]]:
        return ((self._name, self._source.mark(self._commits.waits)),)

    def written(self) -> None:
        self._source.written()


class _MovingTime(_StoredTime):
    """The same of partitions that move: each has a mark of its own."""

    def __init__(self, source: SourceTime, name: str, commits: Commits) -> None:
        super().__init__(source, name, commits)
        self._numbers: dict[str, int] = {}

    def marks(self, events: Sequence[Event[Any]]) -> Iterable[tuple[str, bytes]]:
        for partition, name, mark in self._source.marks(self._commits.waits):
            if not getattr(partition, "is_ours", True):
                # What was read of it and is not committed comes again.
                continue
            mark_name = f"{self._name} {name}"
            self._numbers[mark_name] = partition.number
            yield mark_name, mark

    def partition_of_mark(self, name: str) -> int | None:
        return self._numbers.get(name)

    def adopted(self, partition: int, marks: Iterable[tuple[str, bytes]]) -> None:
        for name, mark in marks:
            # Others with fields of this name have numbers behind it.
            if name.rpartition(" ")[0] == self._name:
                self._numbers[name] = partition
                self._source.coming(mark)

    def released(self, partition: int) -> None:
        for name, number in self._numbers.items():
            if number == partition:
                self._source.goes(name.removeprefix(f"{self._name} "))


def keep_time(source: SourceTime, commits: Commits) -> None:
    """Keep the watermark of a source with the marks of a store, and go on with the one kept there.

    Nothing is done for a second stage with this store behind the source. Sources with times in
    fields of one name have numbers, in the order in which they are made.
    """
    if source.is_kept_in(commits):
        return
    name, number = source.name, 1
    while commits.is_read(name):
        number += 1
        name = f"{source.name} {number}"
    source.moves = commits.moves is not None
    stored = (_MovingTime if source.moves else _StoredTime)(source, name, commits)
    source.restore(commits, commits.mark(name), commits.keep(stored, stored))
