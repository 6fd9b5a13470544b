"""The workers that a master has heard of, and what they have room for."""

from __future__ import annotations

from streams import clock
from streams.work.wire import BEAT

__all__ = ["Crew"]

# Seconds after which a worker that has said nothing does not count any more.
_GONE = 3.5 * BEAT


class Crew:
    """What each worker can hold, by its id; `capacity` is that of all together."""

    def __init__(self) -> None:
        self.capacity = 0
        self._workers: dict[str, tuple[int, float]] = {}

    def hear(self, worker: str, capacity: int) -> None:
        """A worker says how many jobs it can hold in all; one that leaves says 0."""
        before, _ = self._workers.pop(worker, (0, 0.0))
        if capacity:
            self._workers[worker] = capacity, clock.monotonic()
        self.capacity += capacity - before

    def forget_the_silent(self) -> None:
        """To be called now and then."""
        gone = clock.monotonic() - _GONE
        for worker in [one for one, (_, heard) in self._workers.items() if heard < gone]:
            self.hear(worker, 0)

    def __len__(self) -> int:
        return len(self._workers)
