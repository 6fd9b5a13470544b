"""How long work may go on before the loop has its turn, and how much of it to take at a time."""

from __future__ import annotations

__all__ = ["SLICE", "fitting"]

SLICE = 0.005
"""The loop gets a turn at least this often (seconds), unless a single step takes longer."""

# Events taken at a time, however quick they are.
_LARGEST = 256


def fitting(size: int, took: float) -> int:
    """How many events to take next, when the last `size` of them took so many seconds."""
    if took < SLICE / 4:
        return min(size * 2, _LARGEST)
    if took > SLICE:
        return max(1, size // 4)
    return size
