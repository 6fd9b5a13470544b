"""The records of a changelog: what a store with its states in a topic of Kafka writes there.

The newest record of a key is its state, and one without a value deletes it, so the topic may be
compacted. The marks of a partition, and the stages that have written there, are records too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from orjson import dumps, loads

from penstock.streams.state.backend import Columns, KeptStage, Unit

__all__ = ["COMMIT", "Change", "changes_in", "records_of", "stage_record"]

Record = tuple[bytes, bytes | None]
"""A key and a value; no value deletes the key."""

# Stages have names, so no key of a state begins with this.
_OWN = b"\0"
_MARK = b"\0mark\0"
_STAGE = b"\0stage\0"

COMMIT = b"\0commit"
"""The key of the record that names the last commit: it tells whether that has happened."""


class Change(NamedTuple):
    """What some records change in a copy of a partition."""

    rows: dict[tuple[str, bytes], Columns | None]
    marks: dict[str, bytes]
    stages: list[KeptStage]
    commits: set[bytes]


def records_of(unit: Unit) -> Iterator[Record]:
    """The records of one partition's part of a unit."""
    for stage, rows in unit.rows.items():
        prefix = stage.encode() + _OWN
        for key, state, version, timers, due in rows:
            head = b"%d\t%s\t%s\n" % (version, b"" if due is None else repr(due).encode(), timers)
            yield prefix + key, head + state
    for stage, keys in unit.gone.items():
        prefix = stage.encode() + _OWN
        for key in keys:
            yield prefix + key, None
    for name, mark in unit.marks.items():
        yield _MARK + name.encode(), mark + b""


def stage_record(stage: KeptStage) -> Record:
    """The record that says by which key a stage keeps its states, and in which version."""
    return _STAGE + stage.name.encode(), dumps({"by": stage.by, "version": stage.version})


def changes_in(records: Iterable[Record]) -> Change:
    """What records change, the newest of each key."""
    found = Change({}, {}, [], set())
    for key, value in records:
        if not key.startswith(_OWN):
            stage, _, text = key.partition(_OWN)
            found.rows[stage.decode(), text] = None if value is None else _columns(text, value)
        elif value is None:
            continue
        elif key == COMMIT:
            found.commits.add(value)
        elif key.startswith(_MARK):
            found.marks[key[len(_MARK) :].decode()] = value
        elif key.startswith(_STAGE):
            said = loads(value)
            found.stages.append(KeptStage(key[len(_STAGE) :].decode(), said["by"], said["version"]))
    return found


def _columns(key: bytes, value: bytes) -> Columns:
    head, _, state = value.partition(b"\n")
    version, due, timers = head.split(b"\t", 2)
    return key, state, int(version), timers, float(due) if due else None
