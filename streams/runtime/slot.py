"""The slot of a call: a task that makes one call after another."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

from penstock.streams.protocol.event import Event

__all__ = ["Slot"]


class Slot:
    """One task of a stage, and what those know who watch its calls."""

    __slots__ = ("deadline", "event", "has_begun", "is_late", "span", "task")

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
        self.span: Any = None
        """The tracer's own."""
