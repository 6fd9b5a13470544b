"""The samples of a whole run, however long: where there are many, each stands for more seconds."""

from __future__ import annotations

from typing import NamedTuple

from penstock.streams.recording.recorder import Sample

__all__ = ["POINTS", "History", "Point"]

POINTS = 600
"""The points that are kept at most."""


class Point(NamedTuple):
    """One or more seconds of a run. Counts of events are those of the time since the last point."""

    at: float
    """Seconds since the start, at its end."""
    arrived: int
    finished: int
    failed: int
    waiting: int
    """The most that were seen."""
    calls: dict[int, tuple[int, int]]
    """For each stage with a limit: calls in flight and the limit, of its last second."""


class History:
    """Points over time. Memory: 600 points of five numbers, and of two more a stage."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._together = 1
        self._open: list[Sample] = []

    def add(self, sample: Sample) -> None:
        """Add the sample of the next second."""
        self._open.append(sample)
        if len(self._open) >= self._together:
            self._close()

    def end(self) -> None:
        """No more samples will come."""
        if self._open:
            self._close()

    def _close(self) -> None:
        samples, self._open = self._open, []
        self.points.append(
            Point(
                samples[-1].at,
                sum(sample.arrived for sample in samples),
                sum(sample.finished for sample in samples),
                sum(sample.failed for sample in samples),
                max(sample.waiting for sample in samples),
                {stage: numbers[:2] for stage, numbers in samples[-1].calls.items()},
            )
        )
        if len(self.points) >= POINTS:
            self._together *= 2
            self.points = [
                _joined(*pair) for pair in zip(self.points[::2], self.points[1::2], strict=True)
            ]


def _joined(first: Point, second: Point) -> Point:
    return Point(
        second.at,
        first.arrived + second.arrived,
        first.finished + second.finished,
        first.failed + second.failed,
        max(first.waiting, second.waiting),
        second.calls,
    )
