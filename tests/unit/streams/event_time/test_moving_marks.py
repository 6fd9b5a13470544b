"""The stored watermarks of partitions that move: each is that of the run that has it now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orjson import dumps, loads

from penstock.streams.event_time.stored import keep_time
from tests.unit.streams.event_time.test_partitions import Source

NAME = "event_time at 0"


class Partition:
    """One of the number 0, as long as a run has it."""

    def __init__(self) -> None:
        self.number, self.is_ours = 0, True


class Store:
    """The commits of a store whose states move; it has no mark at first."""

    moves = True
    part: Any = None

    def is_read(self, name: str) -> bool:
        return False

    def mark(self, name: str) -> None: ...

    def keep(self, origin: Any, part: Any) -> Callable[[], None]:
        self.part = part
        return lambda: None

    def waits(self, root: Any, event: Any) -> bool:
        return False


class Kept:
    """A source, and the part of it that writes its watermarks into a store."""

    def __init__(self) -> None:
        self.source: Any = Source()
        store: Any = Store()
        keep_time(self.source.time, store)
        self.part = store.part

    def join(self) -> Partition:
        """The partition comes."""
        partition = Partition()
        self.source.watcher.joined(partition, "0")
        return partition

    def lose(self, partition: Partition) -> None:
        """Another run has it now."""
        partition.is_ours = False
        self.part.released(0)
        self.source.watcher.left(partition)

    @property
    def marks(self) -> dict[str, Any]:
        """The greatest times that the next commit writes, by the names of the marks."""
        marks = {name: loads(mark) for name, mark in self.part.marks([])}
        return {name: mark["0"]["greatest"] for name, mark in marks.items()}


def test_a_partition_that_is_here_has_a_mark() -> None:
    kept = Kept()
    kept.source.put(kept.join(), 100)
    assert kept.marks == {NAME: 100}
    assert kept.part.partition_of_mark(NAME) == 0


def test_events_of_before_a_partition_was_lost_are_in_no_mark_when_it_has_come_back() -> None:
    kept = Kept()
    before = kept.join()
    kept.source.emit(before, 100)
    kept.lose(before)
    # They are void. Nobody has committed any, so it comes back without a mark.
    kept.part.adopted(0, [])
    assert kept.marks == {}
    now = kept.join()
    assert kept.marks == {}
    kept.source.put(now, 40)
    assert kept.marks == {NAME: 40}


def test_a_partition_that_comes_back_has_the_mark_of_the_run_that_had_it_meanwhile() -> None:
    kept = Kept()
    before = kept.join()
    kept.source.emit(before, 100)
    kept.lose(before)
    stored = {"0": {"greatest": 60.0, "first": 60.0, "ahead": list[Any]()}}
    kept.part.adopted(0, [(NAME, dumps(stored))])
    # It is in the store already.
    assert kept.marks == {}
    kept.join()
    assert kept.marks == {NAME: 60}
