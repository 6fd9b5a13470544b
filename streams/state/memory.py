"""A backend in memory, for tests: it lasts as long as the `Store` that has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, nsmallest
from operator import itemgetter
from typing import Any

from penstock.streams.base.errors import CannotOpen
from penstock.streams.state.backend import MOST_OVER, Columns, KeptStage, Row, Unit

__all__ = ["Memory"]

_key_of: Callable[[Columns], bytes] = itemgetter(0)


class Memory:
    """States in dicts. It can be opened again after a crash, without `close`."""

    in_thread = reads_in_thread = False
    most_rows: int | None = None
    database: tuple[Any, ...] | None = None

    def __init__(self) -> None:
        self._stages: dict[str, KeptStage] = {}
        self._rows: dict[str, dict[bytes, Columns]] = {}
        self._marks: dict[str, bytes] = {}
        # Of stages whose rows are deleted when they are over: when each is due, and its key. Those
        # that were written again or deleted are out of date.
        self._ends: dict[str, list[tuple[float, bytes]]] = {}

    def open(self) -> None: ...

    def close(self) -> None: ...

    def stages(self) -> list[KeptStage]:
        return list(self._stages.values())

    def declare(self, stages: Iterable[KeptStage]) -> None:
        for stage in stages:
            self._stages[stage.name] = stage

    def forget(self, stage: str) -> None:
        self._stages.pop(stage, None)
        self._rows.pop(stage, None)
        self._ends.pop(stage, None)

    def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
        rows = self._rows.get(stage, {})
        return [Row(*rows[key]) for key in keys if key in rows]

    def due(self, stage: str, after: float, until: float, most: int) -> list[tuple[float, bytes]]:
        return nsmallest(most, (one for one in self._due(stage) if after <= one[0] < until))

    def _due(self, stage: str) -> list[tuple[float, bytes]]:
        rows = self._rows.get(stage, {}).values()
        return [(due, key) for key, _, _, _, due in rows if due is not None]

    def mark(self, partition: str) -> bytes | None:
        return self._marks.get(partition)

    def marks(self) -> list[tuple[str, bytes]]:
        return sorted(self._marks.items())

    def commit(self, unit: Unit) -> None:
        if unit.parts:
            raise CannotOpen("A store in memory is not a database: rows of tables cannot be in it.")
        for stage, rows in unit.rows.items():
            self._rows.setdefault(stage, {}).update(zip(map(_key_of, rows), rows, strict=True))
            if (ends := self._ends.get(stage)) is not None:
                for key, _, _, _, due in rows:
                    if due is not None:
                        heappush(ends, (due, key))
        for stage, keys in unit.gone.items():
            for key in keys:
                self._rows.get(stage, {}).pop(key, None)
        for stage, until in unit.over.items():
            self._delete_over(stage, until)
        self._marks.update(unit.marks)

    def _delete_over(self, stage: str, until: float) -> None:
        rows, ends = self._rows.get(stage, {}), self._ends.get(stage)
        if ends is None:
            ends = self._ends[stage] = self._due(stage)
            heapify(ends)
        left = MOST_OVER
        while left and ends and ends[0][0] < until:
            due, key = heappop(ends)
            if key in rows and rows[key][4] == due:
                del rows[key]
                left -= 1

    def scan(self, stage: str) -> Iterator[Row]:
        return iter([Row(*row) for row in sorted(self._rows.get(stage, {}).values())])

    def size(self, stage: str) -> tuple[int, int]:
        rows = self._rows.get(stage, {}).values()
        return len(rows), sum(len(key) + len(state) for key, state, *_ in rows)
