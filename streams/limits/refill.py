"""Completions that began below the limit, but only while a burst was filling it up again.

Calls of equal length that begin together end together. Where the next events come one after the
other only then, from a source that is asynchronous, all but the last begin below the limit, though
it is the limit that holds the work back.
"""

from __future__ import annotations

from streams.limits.tally import Tally

__all__ = ["Refill"]


class Refill:
    """Completions in a row, each with one more in flight at its start than the one before.

    Between the starts of two such calls nothing ended. Once the row has come up to the limit, all
    of it counts. Calls of different lengths end in another order than they began in; but those end
    one by one as well, and are replaced one by one. Memory: constant.
    """

    __slots__ = ("_in_flight", "_started", "size", "tally")

    def __init__(self) -> None:
        self.tally = Tally()
        self._started = 0.0
        self.clear()

    def clear(self) -> None:
        """Forget the row."""
        self.size = self._in_flight = 0
        self.tally.clear()

    def continues(self, started: float, in_flight: int) -> bool:
        """Whether a call of which this is told at its end is the next one of the row."""
        return started >= self._started and 0 < self._in_flight == in_flight - 1

    def add(self, gap: float, started: float, in_flight: int, took: float, success: bool) -> None:
        """Take in one completion, `gap` seconds after the last one of any kind."""
        self._started, self._in_flight = started, in_flight
        self.size += 1
        self.tally.seconds += gap
        self.tally.add(took, success)
