"""The metrics of graphs that are more than a line of stages."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock import (
    Fixed,
    adaptive_flat_map,
    for_each,
    from_iterable,
    latency_histogram,
    objective,
    ops,
    rate_limit,
)
from penstock.streams.testing import run_virtual
from penstock.streams.testing.plugin import Run
from tests.helpers.local_workers import LocalCrew
from tests.helpers.metrics import exposition


async def work(value: Any) -> Any:
    return value


def test_each_stage_of_each_stream_that_is_read_has_a_series_of_its_own(run: Run) -> None:
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
    assert ("penstock_stage_sent_total", "4", "adaptive_flat_map", 5) in samples
    assert ("penstock_stage_sent_total", "6", "adaptive_flat_map", 7) in samples
    assert ("penstock_limit", "6", "adaptive_flat_map", 2) in samples


def test_results_that_wait_for_the_next_stage_wait_in_their_own(run: Run) -> None:
    async def story() -> tuple[bytes, dict[str, Any]]:
        working = from_iterable(range(1_000)).pipe(adaptive_flat_map(work, Fixed(8)))
        pipeline = working.pipe(rate_limit(1, per=900)).to(for_each(bool))
        async with pipeline.start() as running:
            recorder = running.record()
            await asyncio.sleep(1)
            numbers = running.statistics()
            running.cancel()
        return exposition(numbers, recorder), numbers

    text, numbers = run(story())
    waiting = {
        sample.labels["name"]: sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name == "penstock_stage_waiting"
    }
    assert numbers["stages"][1]["waiting"] == 0
    assert waiting["adaptive_flat_map"] == numbers["stages"][1]["undelivered"] > 200
    # Every event that waits is in one of them.
    assert sum(waiting.values()) == numbers["waiting"]


def test_progress_has_a_series_where_the_size_of_the_input_is_known(run: Run) -> None:
    async def story(source: Any) -> dict[str, float]:
        async with source.to(for_each(bool)).start() as running:
            recorder = running.record()
        families = text_string_to_metric_families(
            exposition(running.statistics(), recorder).decode()
        )
        return {sample.name: sample.value for family in families for sample in family.samples}

    assert run(story(from_iterable(range(9))))["penstock_progress_ratio"] == 1
    assert "penstock_progress_ratio" not in run(story(from_iterable(n for n in range(9))))


def test_worker_processes_that_do_not_answer_are_a_number_of_their_stage() -> None:
    crew = LocalCrew(2)

    async def slow(value: int) -> None:
        await asyncio.sleep(0.5)

    async def story() -> list[float]:
        found: list[float] = []
        pipeline = from_iterable(range(60)).pipe(adaptive_flat_map(slow, Fixed(2)))
        async with pipeline.to(for_each(bool)).start(workers=crew) as running:
            recorder = running.record()
            await asyncio.sleep(0.6)
            for change in (crew.freeze, crew.thaw):
                change(1)
                await asyncio.sleep(6)
                text = exposition(running.statistics(), recorder).decode()
                found += [
                    sample.value
                    for family in text_string_to_metric_families(text)
                    for sample in family.samples
                    if sample.name == "penstock_silent_workers"
                ]
        return found

    assert run_virtual(story()) == [1, 0]


def test_an_objective_has_counters_and_burn_rates(run: Run) -> None:
    async def story() -> dict[tuple[str, ...], float]:
        asked = objective("total < 1s", share=0.75)
        stream = from_iterable([0, 0, 0, 2]).pipe(adaptive_flat_map(asyncio.sleep, Fixed(4)))
        async with stream.to(asked).start() as running:
            recorder = running.record()
        families = text_string_to_metric_families(
            exposition(running.statistics(), recorder).decode()
        )
        return {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in families
            for sample in family.samples
            if "objective" in sample.name
        }

    found = run(story())
    of = "total < 1s"
    assert found[("penstock_objective_good_total", of)] == 3
    assert found[("penstock_objective_bad_total", of)] == 1
    assert found[("penstock_objective_ratio", of)] == 0.75
    rates = [found[("penstock_objective_burn_rate", *sorted((of, w)))] for w in ("5m", "6h")]
    assert rates == [1, 1]


@pytest.mark.parametrize("show_values", [False, True])
def test_the_hottest_keys_have_latencies_and_are_named_only_where_values_are_shown(
    run: Run, show_values: bool
) -> None:
    async def story() -> dict[tuple[str, ...], float]:
        sink = latency_histogram(None, report=None, by=lambda n: f"c{n}", keys=1, stage=2)
        stream = from_iterable([1, 1, 2]).pipe(
            adaptive_flat_map(lambda n: asyncio.sleep(n, n), Fixed(4))
        )
        async with stream.to(sink).start() as running:
            recorder = running.record()
        text = exposition(running.statistics(), recorder, show_values=show_values).decode()
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    found = run(story())
    named = {
        ("penstock_key_events_total", "c1", "3"): 2,
        ("penstock_key_latency_seconds", "c1", "service", "0.99", "3"): 1,
    }
    for name, value in named.items():
        assert found.get(name) == (pytest.approx(value, rel=0.02) if show_values else None)
    assert any("c1" in name for name in found) == show_values
    assert found["penstock_other_keys_events_total", "3"] == 1
    others = found["penstock_other_keys_latency_seconds", "service", "0.5", "3"]
    assert others == pytest.approx(2, rel=0.02)
    # A histogram of the stage that it measures.
    assert found["penstock_stage_latency_seconds_bucket", "1.0", "service", "2"] == 2
    assert found["penstock_stage_latency_seconds_count", "service", "2"] == 3


def test_the_buckets_of_a_latency_are_cumulative_and_have_its_sum(run: Run) -> None:
    async def story() -> bytes:
        stream = from_iterable([0.1] * 3).pipe(adaptive_flat_map(asyncio.sleep, Fixed(1)))
        async with stream.to(for_each(bool)).start() as running:
            recorder = running.record()
        return exposition(running.statistics(), recorder)

    samples = [
        sample
        for family in text_string_to_metric_families(run(story()).decode())
        for sample in family.samples
        if family.name == "penstock_latency_seconds" and sample.labels["part"] == "service"
    ]
    buckets = {s.labels["le"]: s.value for s in samples if s.name.endswith("_bucket")}
    assert (buckets["0.05"], buckets["0.2"], buckets["+Inf"]) == (0, 3, 3)
    assert list(buckets.values()) == sorted(buckets.values())
    (total,) = (s.value for s in samples if s.name.endswith("_sum"))
    assert total == pytest.approx(0.3, rel=0.001)
