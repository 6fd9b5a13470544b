"""How many events a working stage requests before there are slots for them."""

from __future__ import annotations

__all__ = ["QUICK", "Pace"]

QUICK = 0.001
"""Seconds for which the result of a call waits at most for those of calls that follow it."""

_MOST = 64


class Pace:
    """Counts calls that end, and chooses how many events are requested ahead of their slots.

    They are as many as the slots work off in a millisecond, beyond one for each: none where calls
    take that long, so that an event waits in front of its stage, where others may still overtake
    it. The rate is measured anew in each millisecond in which a call ends.
    """

    __slots__ = ("_ahead", "_ended", "_since")

    def __init__(self) -> None:
        self._ahead = self._ended = 0
        self._since = float("-inf")

    def ahead(self, ended: int, now: float, slots: int) -> int:
        """The number from now on, after so many calls have ended."""
        self._ended += ended
        took = now - self._since
        if not 0 <= took < QUICK:
            in_time = int(self._ended * QUICK / took) if took > 0 else 0
            self._ahead = max(0, min(in_time - slots, _MOST))
            self._ended, self._since = 0, now
        return self._ahead
