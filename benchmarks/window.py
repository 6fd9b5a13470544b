"""The uuids of the last ten seconds, in a plain dict; shared with the peers, which have none."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.workload import WINDOW_SECONDS, Event

__all__ = ["Window"]

WINDOW_NS = WINDOW_SECONDS * 1_000_000_000


class Window:
    """The keys seen in the last ten seconds; the dict keeps them in the order of their time."""

    def __init__(self) -> None:
        self._first_seen: dict[str, int] = {}
        self._next_sweep = 0
        self.duplicates = 0

    def unseen(self, events: Iterable[Event], now: int) -> list[Event]:
        """Those of `events` whose uuid was not seen in the last ten seconds."""
        if now >= self._next_sweep:
            self._forget(now)
        first_seen = self._first_seen
        fresh = []
        for event in events:
            key = event["uuid"]
            if key in first_seen:
                if now - first_seen[key] < WINDOW_NS:
                    self.duplicates += 1
                    continue
                # Overwriting would leave the key at its old place, before older ones.
                del first_seen[key]
            first_seen[key] = now
            fresh.append(event)
        return fresh

    def is_new(self, event: Event, now: int) -> bool:
        """The same for one event, for pipes that have no chunks."""
        if now >= self._next_sweep:
            self._forget(now)
        first_seen = self._first_seen
        key = event["uuid"]
        if key in first_seen:
            if now - first_seen[key] < WINDOW_NS:
                self.duplicates += 1
                return False
            del first_seen[key]
        first_seen[key] = now
        return True

    def _forget(self, now: int) -> None:
        # A hundredth of the window at a time: to find the first live entry a dict walks over all
        # deleted ones at its front, which would take too long for every chunk.
        self._next_sweep = now + WINDOW_NS // 100
        expired = []
        for key, at in self._first_seen.items():
            if now - at < WINDOW_NS:
                break
            expired.append(key)
        for key in expired:
            del self._first_seen[key]
