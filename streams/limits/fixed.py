"""A limit that never changes."""

from __future__ import annotations

from penstock.streams.limits.limiter import Outcome
from penstock.streams.validation import check_count

__all__ = ["Fixed"]


class Fixed:
    """Always `limit` events at once, whatever happens.

    BadArgument if `limit` is not an int of at least 1.
    """

    __slots__ = ("limit",)

    reason = "fixed"

    def __init__(self, limit: int) -> None:
        self.limit = check_count("the limit of Fixed", limit)

    @property
    def floor(self) -> int:
        """The limit itself."""
        return self.limit

    @property
    def ceiling(self) -> int:
        """The limit itself."""
        return self.limit

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        """Change nothing."""

    def __repr__(self) -> str:
        return f"Fixed({self.limit})"
