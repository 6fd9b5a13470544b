"""Who keeps how far a source is finished, in place of a file of the source's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from penstock.streams.protocol.event import Event, Origin
from penstock.streams.runtime.context import Run

__all__ = ["Marks", "MarksOfRun"]


class MarksOfRun(Protocol):
    """Keeps the marks of partitions in one run."""

    def mark(self, partition: str) -> bytes | None:
        """The mark that was kept last of a partition, for a source that is about to read it; None
        if there is none. Raises CannotOpen for a partition that another source of the run reads.
        """
        ...

    def keep(
        self,
        origin: Origin,
        marks: Callable[[], Iterable[tuple[str, bytes]]],
        finish: Callable[[Sequence[Event[Any]]], None],
    ) -> Callable[[], None]:
        """Keep the marks of a source, and what its events do, together.

        Before a commit, `finish` is called with events of the source that are done by it, and after
        that `marks`, for the names and the marks of the partitions whose marks have changed.
        Returns the function to call when a mark has changed for another reason.
        """
        ...


class Marks(Protocol):
    """Keeps the marks of partitions from run to run."""

    name: str
    """What it is, for messages, such as the path of a file."""

    def marks_in(self, run: Run) -> MarksOfRun:
        """What keeps them in this run. Raises CannotOpen."""
        ...
