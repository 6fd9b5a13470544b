"""Where the position in a growing table is kept: in a small file of its own, or in a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from penstock.streams.base.errors import CannotOpen
from penstock.streams.delivery.commit import Commit
from penstock.streams.delivery.marks import Marks, Participant
from penstock.streams.io.file_lock import locked
from penstock.streams.protocol.event import Event, Origin
from penstock.streams.runtime.context import Run

__all__ = ["InFile", "InStore"]

Content = Callable[[Sequence[Event[Any]]], str | None]
"""The position as it is when these events are done too; None before the first row."""


class InFile:
    """A position in a file of its own, which is written in the loop iteration after it changed."""

    def __init__(self, path: str, run: Run, content: Content) -> None:
        self.name = path
        self.again = f"remove {path}"
        self._content = content
        self._lock: int | None = None
        self._commit = Commit(
            "position", self._write, partial(run.call_soon, run.attaching), run.failed
        )
        self.changed = self._commit.due

    async def load(self) -> str | None:
        """The position that the last run has kept; None if there is none. Raises CannotOpen."""
        why = "another run keeps its position there. Wait until it has ended, or give another one."
        self._lock = locked(f"{self.name}.lock", why)
        return self._read()

    def _read(self) -> str | None:
        try:
            with open(self.name, encoding="utf-8", errors="surrogateescape") as file:
                return file.read().removesuffix("\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CannotOpen(f"Cannot read {self.name}: {error.strerror}.") from error

    def begin(self) -> None:
        """The first row may be read."""

    def _write(self) -> None:
        text = self._content(())
        if text is None:
            return
        with open(f"{self.name}.new", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text + "\n")
        os.replace(f"{self.name}.new", self.name)

    async def close(self) -> None:
        try:
            await self._commit.flush()
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None


class InStore(Participant):
    """A position in a store, which writes it together with what its rows have done.

    `finish` notes that events are done.
    """

    again = "give a new store"

    def __init__(
        self,
        marks: Marks,
        run: Run,
        origin: Origin,
        table: str,
        content: Content,
        finish: Callable[[Sequence[Event[Any]]], None],
    ) -> None:
        self.name = marks.name
        self.changed: Callable[[], None] = _nothing
        self._partition = f"rows of {table}"
        self._marks = marks.marks_in(run)
        self._origin = origin
        self._content = content
        self._finish = finish

    async def load(self) -> str | None:
        """The position that the last run has kept; None if there is none. Raises CannotOpen."""
        mark = await self._marks.mark_of(self._partition)
        return None if mark is None else mark.decode(errors="surrogateescape")

    def begin(self) -> None:
        """The first row may be read."""
        self.changed = self._marks.keep(self._origin, self)

    def marks(self, events: Sequence[Event[Any]]) -> Iterator[tuple[str, bytes]]:
        text = self._content(events)
        if text is not None:
            yield self._partition, text.encode(errors="surrogateescape")

    def finish(self, events: Sequence[Event[Any]]) -> None:
        self._finish(events)

    async def close(self) -> None:
        """The store writes what is left when the run ends."""


def _nothing() -> None: ...
