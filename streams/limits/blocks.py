"""A few calls of one size in a row, boiled down to what a comparison needs; and how they differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log

__all__ = ["Block", "Variance"]

_FADE = 0.9  # for each block or trial


@dataclass(slots=True)
class Block:
    """A few calls at one size, one after the other."""

    size: int
    took: list[float] = field(default_factory=list[float])
    oldest: float = 0.0

    def add(self, seconds: float, oldest: float) -> None:
        self.took.append(seconds)
        self.oldest += oldest

    @property
    def rate(self) -> float:
        """The logarithm of the events a second."""
        # Without the slowest: now and then a call takes very much longer.
        usual = sorted(self.took)[: max(2, len(self.took) - 1)]
        return log(self.size) - sum(map(log, usual)) / len(usual)

    @property
    def latency(self) -> float:
        """What the oldest event of a call took, on average."""
        return self.oldest / len(self.took)


class Variance:
    """The mean of squares that fade; of what they were taken to be, at first."""

    def __init__(self, value: float, weight: float) -> None:
        self._sum, self._weight = value * weight, weight

    def add(self, squares: float, weight: float = 1.0) -> None:
        self._sum = _FADE * self._sum + squares
        self._weight = _FADE * self._weight + weight

    @property
    def value(self) -> float:
        return self._sum / self._weight
