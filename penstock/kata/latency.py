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

    What is outside is counted at the nearer end. Memory: constant, about 200 kB.
    """

    def __init__(self) -> None:
        # Any: the package has no type information.
        self._histogram: Any = _hdrh.HdrHistogram(1, _HIGHEST, 3)

    def record(self, seconds: float) -> None:
        """Count one value."""
        self._histogram.record_value(min(max(0, round(seconds * _MICROSECONDS)), _HIGHEST))

    def summary(self) -> Latency:
        """What was recorded so far."""

        def percentile(share: float) -> float:
            if not self._histogram.get_total_count():
                return 0.0
            return float(self._histogram.get_value_at_percentile(share)) / _MICROSECONDS

        return Latency(
            count=int(self._histogram.get_total_count()),
            min=float(self._histogram.get_min_value()) / _MICROSECONDS,
            max=float(self._histogram.get_max_value()) / _MICROSECONDS,
            mean=float(self._histogram.get_mean_value()) / _MICROSECONDS,
            median=percentile(50),
            p75=percentile(75),
            p95=percentile(95),
            p98=percentile(98),
            p99=percentile(99),
            p999=percentile(99.9),
        )
