"""The local copy of what a stream has, in an SQLite file: it is never ahead of the stream."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, NamedTuple

from orjson import dumps, loads

from penstock.streams.base.errors import CannotOpen
from penstock.streams.state.backend import KeptStage, Row, Unit
from penstock.streams.state.jetstream.messages import Subjects, kind_of, mark_in, row_in, stage_in
from penstock.streams.state.jetstream.reading import Stored
from penstock.streams.state.sqlite import SQLite

__all__ = ["At", "Copy"]


class At(NamedTuple):
    """How far a copy is: when the stream was created, which run's commits it has, the sequence of
    its last message, and when that was stored."""

    born: str
    run: str
    sequence: int
    stored: float


class _AtKind:
    """Parts of a commit in the copy that say how far it is then."""

    def write(self, transaction: Any, values: list[At], /) -> None:
        for at in values:
            transaction.execute(
                "REPLACE INTO penstock VALUES ('copy', ?)", (dumps(tuple(at)).decode(),)
            )


_AT = _AtKind()


class Copy(SQLite):
    """The rows and marks of one partition of a stream, in the file `path`; `of` names the store in
    errors of the file."""

    def __init__(self, path: str, of: str) -> None:
        super().__init__(path)
        self._of = of
        # The names of stages by their tokens in subjects.
        self._by_token: dict[str, str] = {}

    def backup(self, path: str) -> None:
        if os.path.exists(path):
            raise CannotOpen(f"Cannot copy the store {self._of} to {path}: it exists.")
        super().backup(path)

    @property
    def at(self) -> At | None:
        """How far it is; None if it is empty."""
        found = self._read("SELECT value FROM penstock WHERE name = 'copy'")
        return At(*loads(found[0][0])) if found else None

    def empty(self) -> None:
        """Delete all of it, and open it again."""
        self.close()
        for end in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.remove(self._path + end)
        self.open()

    def has(self, unit: Unit, at: At) -> None:
        """Write a unit that the stream has."""
        self.commit(Unit(unit.rows, unit.gone, unit.marks, {_AT: [at]}))

    def add_stages(self, messages: list[Stored], subjects: Subjects) -> None:
        """Write the stages of a stream, all of which are given, and forget all others."""
        stages: list[KeptStage] = []
        self._by_token = {}
        for message in messages:
            if (stage := stage_in(message.body)) is not None:
                stages.append(stage)
                self._by_token[subjects.stage_of(message.subject)] = stage.name
        for stage in self.stages():
            if stage.name not in self._by_token.values():
                self.forget(stage.name)
        self.declare(stages)

    def add(self, messages: list[Stored], subjects: Subjects, at: At) -> None:
        """Write messages of a stream, in its order."""
        rows: dict[str, dict[bytes, Row | None]] = {}
        marks: dict[str, bytes] = {}
        for message in messages:
            kind = kind_of(message.subject)
            if kind == "state":
                stage = self._by_token.get(subjects.stage_of(message.subject))
                if stage is None:
                    # It is forgotten.
                    continue
                row = row_in(message.body)
                of_stage = rows.setdefault(stage, {})
                if isinstance(row, Row):
                    of_stage[row.key] = row
                else:
                    of_stage[row] = None
            elif kind == "mark":
                partition, mark = mark_in(message.body)
                marks[partition] = mark
        unit = Unit(marks=marks)
        for stage, of_stage in rows.items():
            unit.rows[stage] = [row for row in of_stage.values() if row is not None]
            unit.gone[stage] = [key for key, row in of_stage.items() if row is None]
        self.has(unit, at)
