"""Latencies in an HDR histogram, summarised in the article's terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hdrh import histogram as _hdrh  # type: ignore[import-untyped]  # ships no types

__all__ = ["Latencies", "Latency"]

_MICROSECONDS = 1_000_000
_HIGHEST = 3600 * _MICROSECONDS


@dataclass(frozen=True, slots=True)
class Latency:
    """A summary: the number of values, and the values in seconds; all 0 where there is none."""

    count: int
    min: float
    max: float
    mean: float
    median: float
    p75: float
    p95: float
    p98: float
    p99: float
    p999: float


class Latencies:
    """Records seconds to three significant digits, from a microsecond to an hour.

    What is outside is counted at the nearer end; the mean is exact. Memory: about 200 kB.
    """

    def __init__(self) -> None:
        # Any: the package has no type information.
        self._histogram: Any = _hdrh.HdrHistogram(1, _HIGHEST, 3)
        # The histogram can only find its mean by walking over all its counters.
        self._sum = 0

    def record(self, seconds: float) -> None:
        """Count one value."""
        microseconds = min(max(0, round(seconds * _MICROSECONDS)), _HIGHEST)
        self._histogram.record_value(microseconds)
        self._sum += microseconds

    def summary(self) -> Latency:
        """What was recorded so far."""

        histogram = self._histogram
        count = histogram.get_total_count()
        if not count:
            return Latency(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        at = histogram.get_percentile_to_value_dict([50, 75, 95, 98, 99, 99.9])

        def seconds(microseconds: float) -> float:
            return microseconds / _MICROSECONDS

        return Latency(
            count=count,
            min=seconds(histogram.get_min_value()),
            max=seconds(histogram.get_max_value()),
            mean=seconds(self._sum / count),
            median=seconds(at[50]),
            p75=seconds(at[75]),
            p95=seconds(at[95]),
            p98=seconds(at[98]),
            p99=seconds(at[99]),
            p999=seconds(at[99.9]),
        )
