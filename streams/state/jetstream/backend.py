"""A backend in a JetStream stream, whose commits are atomic batches.

    commit ──> batch: states, marks, head ──> stream (one message of each subject)
       └─────> the same rows ──> local copy (SQLite) <── reads

The last message of a commit is the head of the partition, which is expected to be the one that this
run wrote last: a run that another one has followed is refused as a whole. A commit is in the local
copy after it is in the stream, with its sequence, so the copy is never ahead: after a crash the
next run reads only what the copy lacks. States are read from the copy.

A connection that is lost is made again, for up to a minute.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, TypeVar

from penstock.streams.base.errors import CannotOpen
from penstock.streams.io.file_lock import locked
from penstock.streams.state.backend import (
    MOST_OVER,
    KeptStage,
    NotNow,
    OfMany,
    Unit,
    Unknown,
    another_run,
)
from penstock.streams.state.copied import Copied
from penstock.streams.state.copy import Copy
from penstock.streams.state.jetstream.background import Background
from penstock.streams.state.jetstream.messages import New
from penstock.streams.state.jetstream.partition import FORMAT, MOST_ROWS, Partition, in_parts, write
from penstock.streams.state.jetstream.stream import Stream, address_in

__all__ = ["WHOLE", "JetStream", "Streaming"]

T = TypeVar("T")

# Runs whose copies may be in one folder.
_MOST_COPIES = 1_000

_NO_ANSWER = "no NATS server has answered"

WHOLE = "all"
"""The partition of a store that one run writes."""


class Streaming(Copied):
    """A connection to the stream of a URL, whose states have copies in the folder `local`, or in a
    temporary one."""

    database: tuple[Any, ...] | None = None

    def __init__(self, url: str, local: str | None = None) -> None:
        super().__init__()
        servers, name = address_in(url)
        self._stream = Stream(servers, name)
        self._local = local
        self._temporary = ""
        self._lock: int | None = None
        self._background: Background | None = None
        # The commit that is under way, and whether nobody waits for one any longer.
        self._writing: Future[dict[int, object] | list[Partition]] | None = None
        self._is_given_up = False

    def close(self) -> None:
        if self._background is not None:
            with suppress(Exception):
                self._call(self._stream.close())
            self._background.stop()
            self._background = None
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._temporary:
            rmtree(self._temporary, ignore_errors=True)
            self._temporary = ""

    def _refuse_parts(self, unit: Unit) -> None:
        if unit.parts:
            raise CannotOpen(
                f"The store {self._stream.where} is not an SQL database: rows of tables cannot be "
                "in it."
            )

    def _open_copy(self, *, is_temporary: bool = False, is_one_of_several: bool = False) -> None:
        """Open the copy of the stream, which is known: in the folder, and if several runs may have
        theirs there, in the first file that no other uses."""
        folder = None if is_temporary else self._local
        if folder is None:
            folder = self._temporary = mkdtemp(prefix="penstock-")
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise CannotOpen(f"Cannot make the folder {folder} for a copy: {error}.") from error
        others = 0
        while True:
            path = os.path.join(folder, f"{self._stream.name}.{others}.state")
            try:
                self._lock = locked(f"{path}.lock", "another run uses the store.")
                break
            except CannotOpen:
                others += 1
                if not is_one_of_several or others == _MOST_COPIES:
                    raise
        copy = self._file = Copy(path, "NATS")
        copy.open(self._stream.born)

    def _begin(self) -> None:
        """Open: until it is closed, calls are made."""
        self._background = Background("penstock store in NATS")
        self._is_given_up = False

    def give_up(self) -> None:
        self._is_given_up = True
        # Read once: the thread that writes sets it.
        if (writing := self._writing) is not None:
            writing.cancel()

    def _written(
        self, parts: Sequence[tuple[Partition, list[New]]]
    ) -> dict[int, object] | list[Partition]:
        """What `write` returns. Raises NotNow and Unknown once it is given up."""
        if self._is_given_up:
            raise NotNow(_NO_ANSWER)
        if self._background is None:
            raise CancelledError
        writing = self._writing = self._background.begin(write(self._stream, parts))
        if self._is_given_up:
            writing.cancel()
        try:
            return writing.result()
        except CancelledError:
            if self._is_given_up:
                raise Unknown(_NO_ANSWER) from None
            raise
        finally:
            self._writing = None

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine. Raises CancelledError once this is closed."""
        if self._background is None:
            work.close()
            raise CancelledError
        return self._background.call(work)


class JetStream(Streaming):
    """States that one run uses at a time."""

    most_rows: int | None = MOST_ROWS

    def __init__(self, url: str, local: str | None = None) -> None:
        super().__init__(url, local)
        self._partition: Partition | None = None

    def open(self) -> None:
        self._begin()
        self._call(self._stream.open(makes=True))
        self._open_copy()
        if set(self._call(self._stream.heads())) - {WHOLE}:
            raise OfMany(
                f"The states in {self._stream.where} move with the partitions of a pipeline on many"
                " machines: run it there, or give one that runs in one process another store."
            )
        self._call(self._stream.refuse_another())
        partition = self._partition = Partition(self._stream, WHOLE, self._copy)
        self._call(partition.claim())
        self._call(partition.restore())
        self._copy.partitions = {partition.number}

    def open_to_read(self) -> None:
        """Read what the stream has, also during a run, or while many runs use it. Raises CannotOpen
        if it is not a store."""
        self._begin()
        self._call(self._stream.open(makes=False))
        self._call(self._stream.check_format(FORMAT))
        # That of a run is in use.
        self._open_copy(is_temporary=True)
        partition = self._partition = Partition(self._stream, "*", self._copy)
        self._call(partition.restore())
        self._copy.partitions = {partition.number}

    def close(self) -> None:
        self._partition = None
        super().close()

    def stages(self) -> list[KeptStage]:
        return self._copy.stages()

    def declare(self, stages: Iterable[KeptStage]) -> None:
        new, partition = list(stages), self._opened
        if messages := partition.stages_as_new(new):
            places = self._store(messages)
            self._copy.declare(new)
            self._copy.write({}, places)

    def forget(self, stage: str) -> None:
        partition = self._opened
        self._delete(stage, [row.key for row in self._copy.scan(stage)])
        places = self._store([partition.subjects.forget(stage)])
        self._copy.forget(stage)
        self._copy.write({}, places)

    def commit(self, unit: Unit) -> None:
        self._refuse_parts(unit)
        if unit.rows or unit.gone or unit.marks:
            self._write(unit)
        for stage, until in unit.over.items():
            # Whatever is not deleted now is over at the next commit too.
            self._delete(stage, [key for _, key in self._copy.over(stage, until, MOST_OVER)])

    def _write(self, unit: Unit) -> None:
        places = self._store(self._opened.messages(unit))
        self._copy.write({self._opened.number: unit}, places)

    def _store(self, messages: list[New]) -> dict[int, object]:
        written = self._written([(self._opened, messages)])
        if isinstance(written, list):
            raise another_run(self._stream.where)
        return written

    def _delete(self, stage: str, keys: list[bytes]) -> None:
        for part in in_parts(keys):
            self._write(Unit(gone={stage: part}))

    def backup(self, path: str) -> None:
        """Write a copy of the current state to a new SQLite file, which is a store. Raises
        CannotOpen."""
        if os.path.exists(path):
            raise CannotOpen(f"Cannot copy the store {self._stream.where} to {path}: it exists.")
        self._copy.backup(path)

    # What it is made of.

    @property
    def _opened(self) -> Partition:
        assert self._partition is not None
        return self._partition
