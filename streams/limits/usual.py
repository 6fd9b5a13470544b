"""What is usual of a plant, and how to tell that it has changed."""

from __future__ import annotations

from collections import deque
from math import sqrt

from streams.limits.window import Spread, Window

__all__ = ["Usual"]

_CHANGED = 0.35  # a move of ln goodput at about one level by which the plant itself has changed
_MEMORY = 6  # windows


class Usual:
    """The goodput of the last windows on hold, whatever their limits: those differ little.

    One window says nothing: two in a row must be off. Memory: constant.
    """

    __slots__ = ("_drift", "_goodputs", "_odd", "_spread")

    def __init__(self, spread: Spread) -> None:
        self._spread = spread
        self._goodputs: deque[float] = deque(maxlen=_MEMORY)
        self._odd = 0  # windows in a row that were far off
        self._drift = 0  # which way the last window was a little off: -1, 0 or 1

    def clear(self) -> None:
        """Forget: the next window will be the first."""
        self._goodputs.clear()
        self._odd = self._drift = 0

    @property
    def goodput(self) -> float | None:
        """The mean of ln goodput; None if nothing is known."""
        return sum(self._goodputs) / len(self._goodputs) if self._goodputs else None

    def add(self, window: Window) -> None:
        """Take in a window on hold."""
        if self._goodputs:
            self._spread.compare(window, self._goodputs)
        self._goodputs.append(window.goodput)

    def odd(self, window: Window, away: float) -> bool:
        """Whether a window is far off; `away` is what its limit alone may explain.

        Call it once for each window, then `changed`.
        """
        usual = self.goodput
        if usual is None:
            return False
        far = abs(window.goodput - usual) > max(_CHANGED, 3 * self._noise(window)) + away
        self._odd = self._odd + 1 if far else 0
        if far:
            self._spread.compare(window, self._goodputs, at_most=_CHANGED)
        return far

    @property
    def changed(self) -> bool:
        """Whether the last two windows were odd."""
        return self._odd >= 2

    def drifts(self, window: Window) -> int:
        """-1 or 1 if the goodputs of two windows on hold were a little too low or high, else 0."""
        usual = self.goodput
        moved = 0.0 if usual is None else window.goodput - usual
        before, self._drift = self._drift, 0
        if abs(moved) > 2 * self._noise(window):
            self._drift = 1 if moved > 0 else -1
        return self._drift if self._drift == before else 0

    def _noise(self, window: Window) -> float:
        own = window.goodput_error**2 + window.wobble**2
        return sqrt(own * (1 + 1 / max(1, len(self._goodputs))))
