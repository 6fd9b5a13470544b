"""The interface between a store and its storage: SQLite, PostgreSQL, memory, or your own class.

A `Backend` stores rows by stage and key, and marks by partition, and writes a `Unit` of them in one
transaction. It does not see events. The laws in `streams/testing/backend_laws.py` test what every
backend does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from penstock.streams.base.errors import CannotOpen
from penstock.streams.delivery.commit import Kind, Parts

__all__ = [
    "MOST_OVER",
    "Backend",
    "Columns",
    "GivesUp",
    "KeptStage",
    "Moved",
    "Moving",
    "MovingRow",
    "NotNow",
    "NotWritten",
    "PartsRefused",
    "Restoring",
    "Row",
    "Unit",
    "Unknown",
    "another_count",
    "another_run",
    "find_refused",
    "other_format",
]

MOST_OVER = 2_000
"""The most rows of a stage that one commit deletes because they are over. Chosen: it takes some ten
milliseconds, also when all rows were over before the run began."""


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

    @property
    def partition(self) -> int | None:
        """The number of the partition that the row moves with; None if it does not move."""
        return None


Columns = tuple[bytes, bytes, int, bytes, float | None]
"""The columns of a `Row` that are written, in its order: a plain tuple, which is made in less
time."""


class MovingRow(Row):
    """A row of a backend that is `Moving`."""

    _partition: int

    @classmethod
    def of(cls, columns: Columns, partition: int) -> MovingRow:
        """The row with these columns, of the partition with this number."""
        row = cls(*columns)
        row._partition = partition
        return row

    @property
    def partition(self) -> int | None:
        return self._partition


class KeptStage(NamedTuple):
    """A stage with states in a store: its name, its key as text, and its version."""

    name: str
    by: str
    version: int


@dataclass(slots=True)
class Unit:
    """The content of one transaction: rows, as plain tuples, and deleted keys by stage, marks by
    partition, and parts of others, such as rows of a table.

    The kind of a part writes it: `kind.write(connection, values)`. `durable`: even if the store is
    not, it must survive a power failure.

    `over` has times by stage: of the rows whose `due` is before that, the oldest `MOST_OVER` are
    deleted, after all else is written.

    For a backend that is `Moving`, `partitions` has the rows, deleted keys and marks by the number
    of the partition that they move with, each as a unit without parts; those here are empty then.
    `fences` is what proves to the writer that the sources still have their partitions, if one of
    them has such a proof.
    """

    rows: dict[str, Sequence[Columns]] = field(default_factory=dict[str, Sequence[Columns]])
    gone: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])
    marks: dict[str, bytes] = field(default_factory=dict[str, bytes])
    parts: Parts = field(default_factory=dict[Kind, list[Any]])
    durable: bool = False
    over: dict[str, float] = field(default_factory=dict[str, float])
    partitions: dict[int, Unit] = field(default_factory=dict[int, "Unit"])
    fences: list[Any] = field(default_factory=list[Any])


class PartsRefused(Exception):
    """Nothing of a unit was written, because the database refuses parts of one `kind`: the `errors`
    by the places of their values."""

    def __init__(self, kind: Kind, errors: dict[int, Exception]) -> None:
        super().__init__(kind, errors)
        self.kind = kind
        self.errors = errors


class NotWritten(Exception):
    """A part was not written, for this `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class NotNow(Exception):
    """Nothing of a unit was written, and the same may be written later, for this reason."""


class Unknown(Exception):
    """Whether a unit was written is not known, for this reason, and nobody waits any longer to find
    out. It was written as a whole, or not at all."""


class Moved(Exception):
    """Nothing of a unit was written, since other runs have adopted these `partitions` of it."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self.partitions = frozenset(partitions)
        super().__init__(*sorted(self.partitions))


class Backend(Protocol):
    """Stores the rows of stages by key, and the marks of partitions. Raises errors of its own."""

    in_thread: bool
    """Whether `commit` may block, and is called in a thread."""

    reads_in_thread: bool
    """Whether `read`, `due` and `mark` may block too, as over a network: then they are called in
    threads, several at a time; `mark` also in the thread that opened the backend, as all other
    methods are.

    Whatever reads may be called during a commit, and reads the rows from before or after it."""

    @property
    def most_rows(self) -> int | None:
        """The most rows, deleted keys and marks of a unit, None if there is no limit: the store
        makes units of whole events that have no more."""
        ...

    @property
    def database(self) -> tuple[Any, ...] | None:
        """The database of the backend, if it can write parts there, as `database_of` names it."""
        ...

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
        """Write all of the unit or nothing. Raises CannotOpen if another run has been opened, and
        PartsRefused for parts that cannot be written, as `find_refused` finds them.

        A backend without `database` need not write parts: it gets none.
        """

    def scan(self, stage: str) -> Iterator[Row]:
        """All rows of a stage, as of the beginning of the scan."""
        ...

    def size(self, stage: str) -> tuple[int, int]:
        """The number of keys of a stage, and the bytes of its keys and states. Time: O(n)."""
        ...


@runtime_checkable
class GivesUp(Protocol):
    """A backend whose commits wait for servers, for as long as these are away."""

    def give_up(self) -> None:
        """End the commit that is under way, since the run ends and waits no longer: it raises
        `NotNow` if nothing of it is written, and `Unknown` if that is not known. So does each that
        is begun from now on, until `open`. Called during a commit, by another thread; does not
        block."""


class Restoring(NamedTuple):
    """A partition whose states are being restored: `done` of `total` records or rows, in so many
    `seconds`."""

    partition: int
    done: int
    total: int
    seconds: float


@runtime_checkable
class Moving(Backend, Protocol):
    """A backend that several runs have open at a time, each with the states of the partitions that
    it has adopted: they move with the partitions of the source from run to run.

    Keys are read, scanned, counted and due only in partitions that this run has adopted, and so are
    marks; rows that are read are `MovingRow`s. A key is in one partition. A commit has
    `Unit.partitions`; it raises `Moved` for partitions that another run has adopted since, which
    this run has no more then, and `NotNow` while it cannot be written, as while members join a
    group.

    `adopt`, `release` and `restoring` are called in threads if `reads_in_thread` or `in_thread`,
    `adopt` for several partitions at a time, all beside commits and reads of other partitions.
    """

    def adopt(self, partition: int, count: int) -> None:
        """Have the states of a partition, of `count`, as they were committed last, by whoever it
        was. What the run that had it before commits from now on is refused. Raises CannotOpen, also
        if the states were written with another number of partitions, by which keys move."""

    def release(self, partition: int) -> None:
        """Give a partition up, or end the `adopt` that is under way, which raises `Moved`. Nothing
        of it is being committed."""

    def marks_of(self, partition: int) -> list[tuple[str, bytes]]:
        """The marks that were written with an adopted partition."""
        ...

    def restoring(self) -> list[Restoring]:
        """The partitions that are being adopted, and whose states are not all there yet."""
        ...

    def standby_lag(self) -> int | None:
        """The records of partitions of other runs that this run's copy does not have yet; None if
        it keeps no copy of these."""
        ...


def find_refused(
    parts: Parts,
    write: Callable[[Kind, list[Any]], object],
    apart: Callable[[], AbstractContextManager[object]],
    is_refusal: Callable[[Exception], bool],
) -> PartsRefused | None:
    """The refused parts of the first kind that has any, each written as if those before it that are
    refused were not there; None if all can be written.

    `write` writes within a transaction that is rolled back afterwards, and `apart` undoes what is
    done within it if that raises. An error that `is_refusal` denies is raised: its cause is not the
    part.
    """
    for kind, values in parts.items():
        errors: dict[int, Exception] = {}
        for place, value in enumerate(values):
            try:
                with apart():
                    write(kind, [value])
            except Exception as error:
                if not is_refusal(error):
                    raise
                errors[place] = error
        if errors:
            return PartsRefused(kind, errors)
    return None


class OfMany(CannotOpen):
    """The states are those of many processes, and one alone was to use them."""


def another_run(store: str) -> CannotOpen:
    """The error of a commit after another run has opened the store of this name."""
    return CannotOpen(
        f"Another run has opened the store {store}: this one may not write to it any more, so "
        "nothing more of it is committed. Let only one run at a time use a store."
    )


def another_count(store: str, before: int | None, now: int) -> CannotOpen:
    """The error of a store whose states were written with another number of partitions."""
    return CannotOpen(
        f"The states in {store} were written with {before} partitions of the source, and now it "
        f"has {now}: keys are in other partitions than their states, and than their old events. "
        f"Make a new topic or pipeline with {now} partitions, write all events to it again with "
        "their keys, and read that with a new store and a new group; or, if it never had others, "
        f"read one with {before} partitions."
    )


def other_format(store: str, found: object, known: int) -> CannotOpen:
    """The error of a store of this name whose format is not the one that is known."""
    return CannotOpen(
        f"The store {store} has the format {found}, and this version of penstock reads format "
        f"{known}: use the version that has written it."
    )
