"""The workers known to a master, and their capacity."""

from __future__ import annotations

from penstock.streams import clock
from penstock.streams.work_pulling.wire import BEAT

__all__ = ["Crew"]

# Seconds after which a silent worker no longer counts.
_GONE = 3.5 * BEAT


class Crew:
    """The capacity of each worker, by its id; `capacity` is the total."""

    def __init__(self) -> None:
        self.capacity = 0
        self._workers: dict[str, tuple[int, float]] = {}

    def hear(self, worker: str, capacity: int) -> None:
        """Record how many jobs a worker can hold in all; 0 when it leaves."""
        before, _ = self._workers.pop(worker, (0, 0.0))
        if capacity:
            self._workers[worker] = capacity, clock.monotonic()
        self.capacity += capacity - before

    def forget_the_silent(self) -> None:
        """Forget silent workers; to be called periodically."""
        gone = clock.monotonic() - _GONE
        for worker in [one for one, (_, heard) in self._workers.items() if heard < gone]:
            self.hear(worker, 0)

    def __len__(self) -> int:
        return len(self._workers)
