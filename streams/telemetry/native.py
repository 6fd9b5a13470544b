"""Native histograms of Prometheus: buckets that grow by a constant factor, only where events are.

As in "Native Histograms" of the documentation of Prometheus, with the standard schema 3: eight
buckets for each power of two, so a bound is 9 % above the one before it. OpenMetrics can write them
from version 2.0 on.
"""

from __future__ import annotations

from collections import Counter
from math import ceil, log2
from typing import Any

from penstock.streams.diagnostics.histogram import LatencyHistogram

__all__ = ["add_native", "has_native"]

SCHEMA = 3
_A_POWER = 2**SCHEMA

# Latencies below half a microsecond have no bucket: they are known as 0.
_ZERO = 5e-7


def has_native() -> bool:
    """Whether the client library knows native histograms, and can write them."""
    try:
        from prometheus_client.openmetrics import exposition
        from prometheus_client.samples import NativeHistogram as _  # noqa: F401
    except ImportError:
        return False
    return hasattr(exposition, "CONTENT_TYPE_LATEST_2_0")


def add_native(family: Any, labels: dict[str, str], histogram: LatencyHistogram) -> None:
    """Add a histogram to a family of prometheus-client, with these labels."""
    from prometheus_client.samples import BucketSpan, NativeHistogram

    zero = 0
    buckets: Counter[int] = Counter()
    for microseconds, count in histogram.cells():
        if microseconds:
            # A cell of the histogram is a tenth of a percent wide, and its lowest value is here.
            buckets[ceil(log2(microseconds / 1e6) * _A_POWER)] += count
        else:
            zero += count
    spans: list[list[int]] = []
    deltas: list[int] = []
    before = next_one = 0
    for bucket, count in sorted(buckets.items()):
        if spans and bucket == next_one:
            spans[-1][1] += 1
        else:
            # The first is where it begins, each other how far after the one before.
            spans.append([bucket - next_one, 1])
        next_one = bucket + 1
        deltas.append(count - before)
        before = count
    summary = histogram.snapshot()
    family.add_sample(
        family.name,
        labels,
        0.0,
        native_histogram=NativeHistogram(
            summary.count,
            summary.mean * summary.count,
            SCHEMA,
            _ZERO,
            zero,
            [BucketSpan(*span) for span in spans] or None,
            None,
            deltas or None,
        ),
    )
