"""A limit that never changes."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol
from weakref import ref

from penstock.streams.base.clock import call_on, running_loop
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import check_count
from penstock.streams.limits.limiter import Outcome

__all__ = ["Fixed", "Follower"]


class Follower(Protocol):
    """A part of a run that obeys a limit."""

    def assigned(self) -> None:
        """Another limit was assigned."""


@recorded
class Fixed:
    """Always `limit` events at once, whatever happens.

    Assign `limit`, in any thread, to change it while it is in use: waiting calls begin at once.
    Raises BadArgument if it is not an int of at least 1.
    """

    __slots__ = ("__weakref__", "_followers", "_limit", "made_by")

    reason = "fixed"

    def __init__(self, limit: int) -> None:
        # Each with its loop. A list, which other threads can read while it is replaced.
        self._followers: list[tuple[ref[Follower], asyncio.AbstractEventLoop | None]] = []
        self._limit = check_count("the limit of Fixed", limit)

    @property
    def limit(self) -> int:
        """The number of events in progress at once."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = check_count("the limit of Fixed", limit)
        for known, loop in self._followers:
            follower = known()
            if follower is not None:
                call_on(loop, follower.assigned)

    def tell(self, follower: Follower) -> None:
        """Tell `follower` of each assignment, on the running loop, as long as something else keeps
        it."""
        alive = [one for one in self._followers if one[0]() is not None]
        self._followers = [*alive, (ref(follower), running_loop())]

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has followers of its own.
        return Fixed, (self._limit,)

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
