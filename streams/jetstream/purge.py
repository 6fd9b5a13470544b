"""Delete what is long done of a partition."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from streams.jetstream.floors import Mark
    from streams.jetstream.layout import Layout
    from streams.jetstream.lease import Lease

__all__ = ["Purge"]

# Seconds between two deletions.
_PURGED = 5.0


class Purge:
    """Keeps what is above the floor, and what was done within two windows for duplicates: by it
    servers know identities again after a restart, and the next owner those of batches."""

    def __init__(self, number: int, lease: Lease, js: JetStreamContext, layout: Layout) -> None:
        self._number = number
        self._lease = lease
        self._js = js
        self._layout = layout
        # When the servers had which floor.
        self._known: deque[tuple[float, Mark]] = deque()
        self._purged, self._purged_at = 0, 0.0

    async def look(self, floor: Mark, oldest: float) -> None:
        """Delete what may be, now that the servers have this floor, and the oldest that is not done
        was stored then. Raises what their silence raises."""
        now = self._lease.now()
        if now < self._purged_at + _PURGED:
            return
        self._purged_at = now
        known = self._known
        known.append((now, floor))
        keep = max(2 * self._layout.window, 1)
        # By the events of batches owners know the duplicates of what is not done yet.
        needed = oldest - keep if self._layout.in_batches else inf

        def is_old(one: tuple[float, Mark]) -> bool:
            at, mark = one
            return at < now - keep and mark.stored < needed

        while len(known) > 1 and is_old(known[1]):
            known.popleft()
        old = known[0][1].sequence
        if is_old(known[0]) and old > self._purged and self._lease.held:
            subject = self._layout.subject(self._number)
            await self._js.purge_stream(self._layout.stream, seq=old + 1, subject=subject)
            self._purged = old
