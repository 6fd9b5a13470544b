"""A backend in memory whose states move: the twin of real ones, for tests on virtual time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nsmallest
from typing import Any

from penstock.streams.base.errors import CannotOpen
from penstock.streams.state.backend import (
    MOST_OVER,
    Columns,
    KeptStage,
    Moved,
    MovingRow,
    NotNow,
    Restoring,
    Row,
    Unit,
    another_count,
)

__all__ = ["Fleet", "FleetMember"]

_Rows = defaultdict[str, dict[bytes, Columns]]


class _Partition:
    """The rows and marks of a partition, and how often it was adopted."""

    def __init__(self) -> None:
        self.generation = 0
        self.rows: _Rows = defaultdict(dict[bytes, Columns])
        self.marks: dict[str, bytes] = {}

    def copy(self) -> _Partition:
        copied = _Partition()
        copied.generation = self.generation
        copied.rows.update({stage: dict(rows) for stage, rows in self.rows.items()})
        copied.marks = dict(self.marks)
        return copied

    def write(self, unit: Unit) -> None:
        for stage, rows in unit.rows.items():
            self.rows[stage].update((columns[0], columns) for columns in rows)
        for stage, keys in unit.gone.items():
            for key in keys:
                self.rows[stage].pop(key, None)
        self.marks.update(unit.marks)


class Fleet:
    """What the backends of all runs share. `refuse` says whether the next commit is put off."""

    def __init__(self) -> None:
        self.stages: dict[str, KeptStage] = {}
        self.partitions: defaultdict[int, _Partition] = defaultdict(_Partition)
        self.count: int | None = None
        """How many partitions the source has."""
        self.refuse: Callable[[], bool] = lambda: False

    def member(self) -> FleetMember:
        """A backend for one run at a time."""
        return FleetMember(self)

    def states(self, stage: str) -> dict[bytes, bytes]:
        """The states of all keys of a stage that are committed."""
        found: dict[bytes, bytes] = {}
        for partition in self.partitions.values():
            for key, state, *_ in partition.rows[stage].values():
                assert key not in found, f"{key!r} is in two partitions"
                found[key] = state
        return found


class FleetMember:
    """States of the partitions that were adopted, in copies that only this run changes."""

    in_thread = reads_in_thread = False
    most_rows: int | None = None
    database: tuple[Any, ...] | None = None

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._copies: dict[int, _Partition] = {}

    def open(self) -> None:
        self._copies.clear()

    def close(self) -> None:
        self._copies.clear()

    def stages(self) -> list[KeptStage]:
        return list(self._fleet.stages.values())

    def declare(self, stages: Iterable[KeptStage]) -> None:
        self._fleet.stages.update((stage.name, stage) for stage in stages)

    def forget(self, stage: str) -> None:
        self._fleet.stages.pop(stage, None)
        for partition in (*self._fleet.partitions.values(), *self._copies.values()):
            partition.rows.pop(stage, None)

    # Partitions.

    def adopt(self, partition: int, count: int) -> None:
        if self._fleet.count not in (None, count):
            raise another_count("fleet", self._fleet.count, count)
        self._fleet.count = count
        adopted = self._fleet.partitions[partition]
        adopted.generation += 1
        self._copies[partition] = adopted.copy()

    def release(self, partition: int) -> None:
        self._copies.pop(partition, None)

    def marks_of(self, partition: int) -> list[tuple[str, bytes]]:
        return sorted(self._copies[partition].marks.items())

    def restoring(self) -> list[Restoring]:
        return []

    def standby_lag(self) -> int | None:
        return None

    # Reading.

    def _rows(self, stage: str) -> Iterator[Row]:
        for number, copy in self._copies.items():
            for columns in copy.rows[stage].values():
                yield MovingRow.of(columns, number)

    def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
        return [
            MovingRow.of(copy.rows[stage][key], number)
            for number, copy in self._copies.items()
            for key in keys
            if key in copy.rows[stage]
        ]

    def due(self, stage: str, after: float, until: float, most: int) -> list[tuple[float, bytes]]:
        due = ((row.due, row.key) for row in self._rows(stage) if row.due is not None)
        return nsmallest(most, (one for one in due if after <= one[0] < until))

    def mark(self, partition: str) -> bytes | None:
        return dict(self.marks()).get(partition)

    def marks(self) -> list[tuple[str, bytes]]:
        return sorted(one for copy in self._copies.values() for one in copy.marks.items())

    def scan(self, stage: str) -> Iterator[Row]:
        return iter(sorted(self._rows(stage)))

    def size(self, stage: str) -> tuple[int, int]:
        rows = list(self._rows(stage))
        return len(rows), sum(len(row.key) + len(row.state) for row in rows)

    # Writing.

    def commit(self, unit: Unit) -> None:
        if unit.parts:
            raise CannotOpen("A store in memory is not a database: rows of tables cannot be in it.")
        if self._fleet.refuse():
            raise NotNow("another time")
        touched = {*unit.partitions, *(self._copies if unit.over else ())}
        all_ = self._fleet.partitions
        moved = [
            number
            for number in touched
            if number not in self._copies
            or self._copies[number].generation != all_[number].generation
        ]
        for number in moved:
            self.release(number)
        if moved:
            raise Moved(moved)
        for of_it in unit.partitions.values():
            self._check(of_it)
        for number, of_it in unit.partitions.items():
            for one in (all_[number], self._copies[number]):
                one.write(of_it)
        for stage, until in unit.over.items():
            for _, key in self.due(stage, float("-inf"), until, MOST_OVER):
                for number, copy in self._copies.items():
                    if copy.rows[stage].pop(key, None) is not None:
                        all_[number].rows[stage].pop(key, None)

    @staticmethod
    def _check(unit: Unit) -> None:
        """Raise TypeError for what is not bytes, before anything is written."""
        values = [columns[1] for rows in unit.rows.values() for columns in rows]
        for value in (*values, *unit.marks.values()):
            len(value)
