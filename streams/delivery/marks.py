"""Who keeps how far a source is finished, in place of a file of the source's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.streams.protocol.event import Event, Origin
from penstock.streams.runtime.context import Run

__all__ = ["Marks", "MarksOfRun"]


class MarksOfRun(Protocol):
    """Keeps the marks of partitions in one run."""

    def mark(self, partition: str) -> bytes | None:
        """The mark that was kept last of a partition; None if there is none."""
        ...

    def keep(
        self,
        origin: Origin,
        partition: Callable[[], tuple[str, bytes]],
        finish: Callable[[Sequence[Event[Any]]], None],
    ) -> Callable[[], None]:
        """Keep the mark of a source, and what its events do, together.

        Before it is written, `finish` is called with events of the source that are done then, and
        after that `partition`, for its name and its mark. Returns the function to call when the
        mark has changed for another reason.
        """
        ...


class Marks(Protocol):
    """Keeps the marks of partitions from run to run."""

    name: str
    """What it is, for messages, such as the path of a file."""

    def marks_in(self, run: Run) -> MarksOfRun:
        """What keeps them in this run. Raises CannotOpen."""
        ...
