"""Time slices: how long synchronous work may run before it yields to the loop, and in what
chunks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["LARGEST", "PAUSE", "SLICE", "TimeSlice", "fitting", "slices_made"]

SLICE = 0.005
"""The loop runs at least this often (seconds), unless a single step takes longer."""

LARGEST = 256
"""Events taken at a time, however quick they are."""


class _Pause:
    __await__ = (None,).__iter__


PAUSE = cast("Awaitable[None]", _Pause())
"""Awaited, it yields to the loop for one iteration, without calling a Python function."""


class TimeSlice:
    """A time budget for synchronous work, renewed on each loop iteration.

    However often the work is resumed meanwhile, no new slice begins. `go_on` is called in the next
    iteration if work is left for it. Costs at most one callback of the loop in `SLICE` seconds.
    """

    __slots__ = ("_due", "_go_on", "_info", "_run", "end", "is_left")

    def __init__(self, run: Run, go_on: Callable[[], object] = lambda: None) -> None:
        self._run = run
        self._info = run.attaching
        self._go_on = go_on
        self.end = float("-inf")
        # Whether the slice began in this loop iteration, and whether work is left for the next.
        self._due = self.is_left = False
        if run.slices is not None:
            run.slices.append(self)

    def is_over(self, now: float) -> bool:
        """Whether the work must yield to the loop first. Without a running loop it never must."""
        if now < self.end:
            return False
        if self._due:
            self.is_left = True
            return True
        if self._run.has_loop:
            self._due = True
            self.end = now + SLICE
            self._run.call_soon(self._info, self._renew)
        return False

    def _renew(self) -> None:
        self._due = False
        if self.is_left:
            self.is_left = False
            self._go_on()


@contextmanager
def slices_made(run: Run) -> Generator[list[TimeSlice]]:
    """The slices of the stages that are attached in this context."""
    outer, run.slices = run.slices, []
    try:
        yield run.slices
    finally:
        if outer is not None:
            outer += run.slices
        run.slices = outer


def fitting(size: int, took: float) -> int:
    """How many events to take next, when the last `size` of them took `seconds`."""
    if took < SLICE / 4:
        return min(size * 2, LARGEST)
    if took > SLICE:
        return max(1, size // 4)
    return size
