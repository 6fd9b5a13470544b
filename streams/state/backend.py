"""What keeps the states of a store: SQLite, memory, or a class of your own.

A `Backend` knows nothing of events: it keeps rows by stage and key, and texts by name, and writes a
`Unit` of them in one transaction. `tests/contract/stored/store_laws.py` has the laws that each
keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

__all__ = ["Backend", "KeptStage", "Row", "Unit"]


class Row(NamedTuple):
    """The state of a key as it is kept.

    `key` and `state` are JSON. `version` is that of the stage which has written it. `timers` is
    JSON too, empty if there are none; `due` is when the first of them, or the end of the state, is
    due, in seconds since 1970, None for never.
    """

    key: bytes
    state: bytes
    version: int
    timers: bytes
    due: float | None


class KeptStage(NamedTuple):
    """A stage of which states are kept: its name, what its key is read by, and its version."""

    name: str
    by: str
    version: int


@dataclass(slots=True)
class Unit:
    """What is written in one transaction: rows by stage, keys that go, and marks by partition."""

    rows: dict[str, list[Row]] = field(default_factory=dict[str, list[Row]])
    gone: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])
    marks: dict[str, bytes] = field(default_factory=dict[str, bytes])


class Backend(Protocol):
    """Keeps the rows of stages, by key, and the marks of partitions. Errors are its own."""

    in_thread: bool
    """Whether `commit` may take long, and is called in a thread. The other methods are called in
    the thread that opened it, also while a commit is under way: they give what was there before or
    after it."""

    def open(self) -> None:
        """Begin a run, the only one that may commit from now on. Raises CannotOpen while another
        one is open, where that can be known."""

    def close(self) -> None:
        """End the run; no commit is under way."""

    def stages(self) -> list[KeptStage]:
        """The stages of which states are kept."""
        ...

    def declare(self, stages: Iterable[KeptStage]) -> None:
        """Keep states of these stages too, or under another version."""

    def forget(self, stage: str) -> None:
        """Delete a stage and all its states."""

    def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
        """The rows of those of the keys that there are. Time: O(log n) for each."""
        ...

    def due(self, stage: str, after: float, until: float, most: int) -> list[tuple[float, bytes]]:
        """Up to `most` keys with `after <= due < until`, by `due`, with that."""
        ...

    def mark(self, partition: str) -> bytes | None:
        """The mark of a partition, None if there is none."""
        ...

    def marks(self) -> list[tuple[str, bytes]]:
        """All marks, by partition."""
        ...

    def commit(self, unit: Unit) -> None:
        """Write all of the unit, or nothing. Raises CannotOpen if another run was opened since."""

    def scan(self, stage: str) -> Iterator[Row]:
        """All rows of a stage, as of the beginning of the scan."""
        ...

    def size(self, stage: str) -> tuple[int, int]:
        """How many keys of a stage there are, and the bytes of their keys and states. Time: O(n)"""
        ...
