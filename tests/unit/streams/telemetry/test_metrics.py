"""The metrics of graphs that are more than a line of stages."""

from __future__ import annotations

from collections import Counter
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock import Fixed, adaptive_flat_map, for_each, from_iterable, ops
from penstock.streams.telemetry.metrics import exposition
from penstock.streams.testing.plugin import Run


async def work(value: Any) -> Any:
    return value


def test_streams_with_stages_of_the_same_names_have_one_series_for_each_name(run: Run) -> None:
    def other(count: int) -> Any:
        return from_iterable(range(count)).pipe(adaptive_flat_map(work, Fixed(2)))

    stream = other(3).pipe(ops.merge(other(5), other(7)))

    async def story() -> bytes:
        async with stream.to(for_each(bool)).start() as running:
            recorder = running.record()
        return exposition(running.statistics(), recorder)

    samples = [
        (sample.name, *sorted(sample.labels.values()), sample.value)
        for family in text_string_to_metric_families(run(story()).decode())
        for sample in family.samples
    ]
    # A scraper refuses a series that comes twice.
    names = Counter(sample[:-1] for sample in samples)
    assert [name for name, count in names.items() if count > 1] == []
    assert ("penstock_stage_sent_total", "2", "adaptive_flat_map", 3) in samples
    assert ("penstock_stage_sent_total", "3/2", "adaptive_flat_map", 12) in samples
    assert ("penstock_limit", "3/2", "adaptive_flat_map", 4) in samples
