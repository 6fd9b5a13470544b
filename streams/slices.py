"""How long work may go on before the loop has its turn, and how much of it to take at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streams.run import Run

__all__ = ["SLICE", "Slice", "fitting"]

SLICE = 0.005
"""The loop gets a turn at least this often (seconds), unless a single step takes longer."""

# Events taken at a time, however quick they are.
_LARGEST = 256


class Slice:
    """Somebody's slice of time, which lasts until the loop has had its turn.

    However often the work is taken up meanwhile, no new slice begins. `go_on` is called in that
    turn if it was left for it. Costs one callback of the loop in `SLICE` seconds at most.
    """

    __slots__ = ("_due", "_go_on", "_left", "_run", "end")

    def __init__(self, run: Run, go_on: Callable[[], object] = lambda: None) -> None:
        self._run = run
        self._go_on = go_on
        self.end = float("-inf")
        # Whether the loop has had no turn since the slice began, and whether work waits for it.
        self._due = self._left = False

    def is_over(self, now: float) -> bool:
        """Whether the loop must have its turn first. Where no loop runs, nobody waits for one."""
        if now < self.end:
            return False
        if self._due:
            self._left = True
            return True
        if self._run.has_loop:
            self._due = True
            self.end = now + SLICE
            self._run.loop.call_soon(self._turn)
        return False

    def _turn(self) -> None:
        self._due = False
        if self._left:
            self._left = False
            self._go_on()


def fitting(size: int, took: float) -> int:
    """How many events to take next, when the last `size` of them took so many seconds."""
    if took < SLICE / 4:
        return min(size * 2, _LARGEST)
    if took > SLICE:
        return max(1, size // 4)
    return size
