"""A histogram of distances, in events, between neighbours of a group; its size is bounded."""

from __future__ import annotations

from collections import Counter

__all__ = ["Distances"]

_EXACT = 16
_BITS = 4


class Distances:
    """Counts distances from 1 up: exact below 16, above with the first four binary digits.

    Memory: at most 16 counts, and 8 for each power of two.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def count(self, distance: int) -> None:
        """Count one distance."""
        if distance >= _EXACT:
            dropped = distance.bit_length() - _BITS
            distance = distance >> dropped << dropped
        self._counts[distance] += 1

    def numbers(self) -> dict[int, int]:
        """How often each distance was counted, in ascending order.

        A distance of 16 and more stands for those up to the next one that can be counted.
        """
        return dict(sorted(self._counts.items()))
