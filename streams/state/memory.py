"""A backend in memory, for tests: it lasts as long as the `Store` that has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any

from penstock.streams.base.errors import CannotOpen
from penstock.streams.state.backend import MOST_OVER, KeptStage, Row, Unit

__all__ = ["Memory"]


class Memory:
    """States in dicts. It can be opened again after a crash, without `close`."""

    in_thread = reads_in_thread = False
    database: tuple[Any, ...] | None = None

    def __init__(self) -> None:
        self._stages: dict[str, KeptStage] = {}
        self._rows: dict[str, dict[bytes, Row]] = {}
        self._marks: dict[str, bytes] = {}

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

    def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
        rows = self._rows.get(stage, {})
        return [rows[key] for key in keys if key in rows]

    def due(self, stage: str, after: float, until: float, most: int) -> list[tuple[float, bytes]]:
        rows = self._rows.get(stage, {}).values()
        found = [(row.due, row.key) for row in rows if row.due is not None]
        return sorted(one for one in found if after <= one[0] < until)[:most]

    def mark(self, partition: str) -> bytes | None:
        return self._marks.get(partition)

    def marks(self) -> list[tuple[str, bytes]]:
        return sorted(self._marks.items())

    def commit(self, unit: Unit) -> None:
        if unit.parts:
            raise CannotOpen("A store in memory is not a database: rows of tables cannot be in it.")
        for stage, rows in unit.rows.items():
            kept = self._rows.setdefault(stage, {})
            for row in rows:
                kept[row[0]] = row
        for stage, keys in unit.gone.items():
            for key in keys:
                self._rows.get(stage, {}).pop(key, None)
        for stage, until in unit.over.items():
            for _, key in self.due(stage, -inf, until, MOST_OVER):
                del self._rows[stage][key]
        self._marks.update(unit.marks)

    def scan(self, stage: str) -> Iterator[Row]:
        return iter(sorted(self._rows.get(stage, {}).values()))

    def size(self, stage: str) -> tuple[int, int]:
        rows = self._rows.get(stage, {}).values()
        return len(rows), sum(len(row.key) + len(row.state) for row in rows)
