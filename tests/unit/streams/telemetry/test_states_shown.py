"""What the statistics, the live page and the metrics say of a stage with states."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock import Fixed, Store, adaptive_flat_map, for_each, from_iterable, stateful
from penstock.streams.telemetry.metrics import exposition
from penstock.streams.testing.plugin import Run
from tests.helpers.page_in_node import lines_of, looked_at, opened


def visits(n: int, event: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    return n + 1, [event]


async def sleep(event: dict[str, Any]) -> None:
    await asyncio.sleep(event["seconds"])


def pipeline() -> Any:
    """Two quick events of ann wait for a slow one, and one of bob does not."""
    events = [
        {"user": "ann", "seconds": 10},
        {"user": "ann", "seconds": 0},
        {"user": "bob", "seconds": 0},
        {"user": "ann", "seconds": 0},
    ]
    stage = stateful(visits, "user", start=0, store=Store.memory())
    return from_iterable(events).pipe(stage, adaptive_flat_map(sleep, Fixed(9))).to(for_each(bool))


def test_a_commit_names_the_key_and_the_age_of_the_event_that_it_waits_for(run: Run) -> None:
    async def story() -> list[Any]:
        async with pipeline().start() as running:
            await asyncio.sleep(4)
            at = running.statistics()["stages"][1]
            found = [at["held"], at["commits"], at["waits_for"]]
            await asyncio.sleep(7)
            at = running.statistics()["stages"][1]
            found += [at["held"], at["waits_for"]]
        return found

    assert run(story()) == [3, 1, {"key": "ann", "age": 4}, 0, None]


def test_the_metrics_have_series_of_each_stage_with_states_and_none_without(run: Run) -> None:
    async def story(source: Any) -> dict[tuple[str, ...], float]:
        async with source.start() as running:
            recorder = running.record()
            await asyncio.sleep(4)
            text = exposition(running.statistics(), recorder).decode()
            running.cancel()
        return {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    samples = run(story(pipeline()))
    assert samples["penstock_state_keys", "2", "stateful"] == 2
    assert samples["penstock_state_held", "2", "stateful"] == 3
    assert samples["penstock_state_waits_seconds", "2", "stateful"] == 4
    assert samples["penstock_commits_total", "2", "stateful"] == 1
    assert ("penstock_commit_seconds", "0.99", "2", "stateful") in samples
    without = run(story(from_iterable([1]).to(for_each(bool))))
    assert not [name for name, *_ in without if "commit" in name or "state_" in name]


def test_the_page_names_the_key_that_a_commit_waits_for_only_with_values(run: Run) -> None:
    async def story(*, show_values: bool) -> str:
        async with pipeline().start() as running:
            lines = await lines_of(running, 4.5, show_values=show_values)
            running.cancel()
        return str(looked_at(opened(*lines), shown=("boxes",))[-1]["boxes"])

    shown = run(story(show_values=True))
    assert "2 keys · 3 held · 1 commit of " in shown
    assert "commits wait for an event of ann, 4 s old" in shown
    hidden = run(story(show_values=False))
    assert "commits wait for an event, 4 s old" in hidden
    assert "ann" not in hidden
