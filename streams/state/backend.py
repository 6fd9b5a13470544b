"""The interface between a store and its storage: SQLite, PostgreSQL, memory, or your own class.

A `Backend` stores rows by stage and key, and marks by partition, and writes a `Unit` of them in one
transaction. It does not see events. The laws in `streams/testing/backend_laws.py` test what every
backend does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

__all__ = ["Backend", "KeptStage", "Row", "Unit"]


class Row(NamedTuple):
    """The state of a key as it is stored.

    `key` and `state` are JSON. `version` is that of the stage when it wrote the row. `timers` is
    JSON too, empty if there are none; `due` is the time of the first of them or of the end of the
    state, in seconds since 1970, and None if there is neither.
    """

    key: bytes
    state: bytes
    version: int
    timers: bytes
    due: float | None


class KeptStage(NamedTuple):
    """A stage with states in a store: its name, its key as text, and its version."""

    name: str
    by: str
    version: int


@dataclass(slots=True)
class Unit:
    """The content of one transaction: rows and deleted keys by stage, and marks by partition."""

    rows: dict[str, list[Row]] = field(default_factory=dict[str, list[Row]])
    gone: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])
    marks: dict[str, bytes] = field(default_factory=dict[str, bytes])


class Backend(Protocol):
    """Stores the rows of stages by key, and the marks of partitions. Raises errors of its own."""

    in_thread: bool
    """Whether `commit` may block, and is called in a thread."""

    reads_in_thread: bool
    """Whether `read` and `due` may block too, as over a network: then they are called in threads,
    several at a time. All other methods are called in the thread that opened the backend.

    Whatever reads may be called during a commit, and reads the rows from before or after it."""

    def open(self) -> None:
        """Begin a run; from now on no other may commit. Raises CannotOpen while another is open, if
        the backend can detect that."""

    def close(self) -> None:
        """End the run. Not called during a commit or a read in another thread."""

    def stages(self) -> list[KeptStage]:
        """The stages that were declared and not deleted."""
        ...

    def declare(self, stages: Iterable[KeptStage]) -> None:
        """Add these stages, or replace the key and the version of those with the same name."""

    def forget(self, stage: str) -> None:
        """Delete a stage and all its rows."""

    def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
        """The rows of the keys that have one. Time: O(log n) for each."""
        ...

    def due(self, stage: str, after: float, until: float, most: int) -> list[tuple[float, bytes]]:
        """Up to `most` pairs of `due` and key with `after <= due < until`, sorted."""
        ...

    def mark(self, partition: str) -> bytes | None:
        """The mark of a partition, None if there is none."""
        ...

    def marks(self) -> list[tuple[str, bytes]]:
        """All marks, by partition."""
        ...

    def commit(self, unit: Unit) -> None:
        """Write all of the unit or nothing. Raises CannotOpen if another run has been opened."""

    def scan(self, stage: str) -> Iterator[Row]:
        """All rows of a stage, as of the beginning of the scan."""
        ...

    def size(self, stage: str) -> tuple[int, int]:
        """The number of keys of a stage, and the bytes of its keys and states. Time: O(n)."""
        ...
