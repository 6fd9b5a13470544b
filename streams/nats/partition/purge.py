"""Deletes the messages of a partition that are long done."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from penstock.streams.delivery.lease import Lease
    from penstock.streams.nats.cluster.layout import Layout
    from penstock.streams.nats.partition.floors import Mark

__all__ = ["Purge"]

# Seconds between two deletions.
_PURGED = 5.0


class Purge:
    """Keeps messages above the floor, and those stored within two deduplication windows: from these
    servers restore identities after a restart, and the next owner the batches' identities."""

    def __init__(self, number: int, lease: Lease, js: JetStreamContext, layout: Layout) -> None:
        self._number = number
        self._lease = lease
        self._js = js
        self._layout = layout
        # When the servers had which floor.
        self._known: deque[tuple[float, Mark]] = deque()
        self._purged, self._purged_at = 0, 0.0

    async def look(self, floor: Mark, oldest: float) -> None:
        """Delete what may be deleted, given the floor on the servers and when the oldest unfinished
        message was stored. Raises an error if the servers do not answer."""
        now = self._lease.now()
        if now < self._purged_at + _PURGED:
            return
        self._purged_at = now
        known = self._known
        known.append((now, floor))
        keep = max(2 * self._layout.window, 1)
        # From the events of batches, owners know the duplicates of unfinished ones.
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
