"""What the statistics, the live page and the metrics say of a stage with states."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock import Fixed, Store, adaptive_flat_map, for_each, from_iterable, inbox, stateful
from penstock.streams.testing.plugin import Run
from tests.helpers.metrics import exposition
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
    assert samples["penstock_state_grown_keys", "2", "stateful"] == 1
    without = run(story(from_iterable([1]).to(for_each(bool))))
    assert not [name for name, *_ in without if "commit" in name or "state_" in name]


def test_states_without_a_ttl_are_counted_as_they_grow_in_a_run(run: Run) -> None:
    store = Store.memory()

    def kept(n: int | None, event: dict[str, Any]) -> tuple[int | None, list[Any]]:
        return event["state"], []

    async def grown_by(events: str, **options: Any) -> Any:
        box = inbox(1)
        stage = stateful(kept, "user", name="kept", **{"store": store, **options})
        async with box.pipe(stage).to(for_each(bool)).start() as running:
            for user, *state in events.split():
                await box.put({"user": user, "state": int("".join(state)) or None})
                # Each has a commit of its own.
                await asyncio.sleep(1)
            numbers = running.statistics()["stages"][1]
            running.cancel()
        return numbers["grown"]

    def grown(events: str, **options: Any) -> Any:
        """Of events such as "a1 b0": the state of a is 1, and b has none any more."""
        return run(grown_by(events, **options))

    # A key, in quotes, and its state are four bytes.
    assert grown("a1 b2 c3 a4") == {"keys": 3, "bytes": 12}
    assert grown("a1 b2 d3 a0 e1 e0") == {"keys": 0, "bytes": 0}
    assert grown("a1 f0 a0 a1 f1") == {"keys": 2, "bytes": 8}
    assert grown("a1", ttl=9) is None
    assert grown("a1", store=None) is None


def test_a_store_that_has_grown_by_many_keys_has_a_line_in_the_report_and_on_the_page(
    run: Run,
) -> None:
    async def story(users: int) -> tuple[str, str]:
        source = from_iterable([{"user": user} for user in range(10_000, 10_000 + users)])
        stage = stateful(visits, "user", start=0, store=Store.memory())
        async with source.pipe(stage).to(for_each(bool)).start() as running:
            lines = await lines_of(running, 5)
            report = await running.wait()
        return str(report), str(looked_at(opened(*lines), shown=("boxes",))[-1]["boxes"])

    report, page = run(story(10_000))
    said = (
        "  stage 2 'stateful' has 10,000 keys more in its store, some 60,000 bytes: without a ttl= "
    )
    assert f"{said}they are kept until a state is None" in report.splitlines()
    assert "10,000 keys more than at the start, some 60.0 kB" in page
    report, page = run(story(9_999))
    assert "keys more" not in report
    assert "9,999 keys more than at the start" in page


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
