"""How many groups are in the rotation at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streams.lane import Lane

__all__ = ["Feeders"]


class Feeders:
    """At most `most` lanes are in; others wait, and the first enters when one runs empty.

    Source: the job spreader's feeders, each of which works on one list of jobs.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._inside: set[Lane] = set()
        self.outside: dict[Lane, None] = {}

    def admit(self, lane: Lane) -> bool:
        """Whether `lane` is in the rotation; else it waits until it is."""
        if lane in self._inside:
            return True
        if len(self._inside) < self._most:
            self._inside.add(lane)
            return True
        self.outside[lane] = None
        return False

    def dismiss(self, lane: Lane) -> Lane | None:
        """`lane` has run empty; the one that is to be admitted in its place, if any."""
        if lane not in self._inside:
            return None
        self._inside.discard(lane)
        following = next(iter(self.outside), None)
        if following is not None:
            del self.outside[following]
        return following
