"""The stage that a thread is in, noted for a watchdog that asks from another thread.

Compiled stages have no frames on the stack of their thread. Each notes itself, once for a list of
events or a run of its drain loop, and then puts back what was noted before; between the two nothing
is awaited.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["Current", "current"]

R = TypeVar("R")


class Current:
    """What one thread is doing for stages, of whatever runs."""

    __slots__ = ("stage", "tasks")

    def __init__(self) -> None:
        self.stage: Any = None
        """The innermost stage in whose call the thread is, or the StageInfo of one; None outside
        of all such calls."""
        self.tasks: WeakKeyDictionary[asyncio.Task[Any], Any] = WeakKeyDictionary()
        """The stages that call functions of the user's in tasks of their own, by task."""

    def call(self, stage: object, function: Callable[..., R], /, *args: Any) -> R:
        """Call a function of the stage, which is noted until it returns."""
        outer, self.stage = self.stage, stage
        try:
            return function(*args)
        finally:
            self.stage = outer


_here = threading.local()


def current() -> Current:
    """That of the thread that calls."""
    found: Current | None = getattr(_here, "current", None)
    if found is None:
        found = _here.current = Current()
    return found
