"""The lease of what a reader holds: until when it is sure that nobody else has it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

__all__ = ["Lease"]


class Lease:
    """Held `until` a time of the holder's own clock `now`, counted from before the request that the
    other side has granted.

    Source: M. Kleppmann, "How to do distributed locking", 2016.
    """

    __slots__ = ("now", "until")

    def __init__(self, now: Callable[[], float], until: float = -inf) -> None:
        self.now = now
        self.until = until

    @property
    def held(self) -> bool:
        """Whether it is certain that nobody else has what it is about."""
        return self.now() < self.until

    def renew(self, until: float) -> None:
        """Prolong it, if it is not over. What a late answer says does not count: others may have
        had it in between."""
        if self.held:
            self.until = until
