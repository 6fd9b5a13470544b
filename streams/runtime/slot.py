"""The slot of a call: a task that makes one call after another."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

from penstock.streams.protocol.acknowledgement import Withdrawn
from penstock.streams.protocol.event import Event

__all__ = ["Slot"]


class Slot:
    """One task of a stage, and what those know who watch its calls."""

    __slots__ = ("deadline", "event", "has_begun", "is_late", "is_withdrawn", "span", "task")

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self.has_begun = False
        """Whether the task has run."""
        self.event: Event[Any] | None = None
        """The event of its call, where that is watched."""
        self.deadline = inf
        """When its call is late, in seconds of the loop's clock; `inf` if it has no limit now."""
        self.is_late = False
        """Whether its call has passed the deadline and has not ended."""
        self.is_withdrawn = False
        """Whether its call was cancelled, and has not ended, because its source lost the event."""
        self.span: Any = None
        """The tracer's own."""

    def withdraw(self) -> None:
        """Cancel its call once: whatever becomes of it, the event is withdrawn."""
        if not self.is_withdrawn:
            self.is_withdrawn = True
            # Not once more: it is cleaning up.
            if not self.is_late:
                self.task.cancel()

    def withdrawn(self, error: BaseException) -> BaseException:
        """The error with which a call has failed that was withdrawn and has raised `error`.

        The cancellation is undone (`Task.uncancel`), so that only those by others remain.
        """
        self.is_withdrawn = False
        others = self.task.uncancel()
        if isinstance(error, Exception) or (
            isinstance(error, asyncio.CancelledError) and not others
        ):
            return Withdrawn()
        return error
