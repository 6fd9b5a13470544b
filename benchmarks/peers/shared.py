"""The parts that all peers lack: the deduplication window, and the histogram as a last step."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from benchmarks.latencies import Latencies
from benchmarks.window import Window
from benchmarks.workload import Event, Result, project

__all__ = ["Stamped", "Steps", "Timed"]

Stamped = tuple[int, Event]
"""When an event was received, and the event."""

Timed = tuple[int, int, Result]
"""Waiting and service in nanoseconds, and the result."""

RECORD_EVERY = 16_384


class Steps:
    """The functions that a peer's pipe is made of."""

    def __init__(self) -> None:
        self.window = Window()
        self.latencies = Latencies()
        self.finished = 0

    def stamp(self, event: Event) -> Stamped:
        """Record the time of receipt."""
        return monotonic_ns(), event

    def is_new(self, stamped: Stamped) -> bool:
        """Whether the uuid was not seen in the last ten seconds."""
        return self.window.is_new(stamped[1], stamped[0])

    def handle(self, stamped: Stamped) -> Timed:
        """The plain handler, timed."""
        started = monotonic_ns()
        result = project(stamped[1])
        return started - stamped[0], monotonic_ns() - started, result

    def record(self, timed: Timed) -> Result:
        """Put the times of a result into the histogram."""
        self.finished += 1
        self.latencies.waiting.append(timed[0])
        self.latencies.service.append(timed[1])
        if len(self.latencies.waiting) >= RECORD_EVERY:
            self.latencies.record()
        return timed[2]

    def outcome(self) -> dict[str, Any]:
        """The result that a case prints."""
        return {
            "finished": self.finished,
            "duplicates": self.window.duplicates,
            **self.latencies.report(),
        }
