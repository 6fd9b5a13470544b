"""What the statistics, the report, the live page and the metrics say of event times and windows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock import (
    Store,
    agg,
    count_over_time,
    event_time,
    for_each,
    from_iterable,
    inbox,
    join,
    lookup,
    route,
    session,
    sliding,
    table,
    tumbling,
    window,
)
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.running import Running
from penstock.streams.testing import MemorySink
from penstock.streams.testing.plugin import Run
from tests.helpers.metrics import exposition
from tests.helpers.page_in_node import lines_of, looked_at, opened

EVENTS = [("ann", 101), ("bob", 104), ("ann", 118), ("ann", 122), ("bob", 103), ("bob", 126)]


async def started(shape: Any) -> Running:
    """Windows of two users at 126 s, of which bob's last but one event was late for its own."""
    box = inbox(10)
    timed, counts = event_time("at", idle=20, max_ahead=None), window(shape, agg.count(), "user")
    running = box.pipe(timed, counts).to(for_each(bool)).start()
    running.record()
    for user, at in EVENTS:
        await box.put({"user": user, "at": at})
    await asyncio.sleep(1)
    return running


def of_page(line: Any) -> list[str]:
    return [str(box) for box in line["boxes"]]


def test_a_watermark_has_its_lag_behind_the_clock_and_is_idle_after_silence(run: Run) -> None:
    async def story() -> list[Any]:
        async with await started(tumbling(10)) as running:
            found = running.statistics()["stages"][1]["watermarks"]
            await asyncio.sleep(30)
            found += running.statistics()["stages"][1]["watermarks"]
            running.cancel()
        return found

    assert run(story()) == [
        {"partition": "", "watermark": 126, "lag": 1 - 126, "idle": False, "late": 1},
        {"partition": "", "watermark": 157, "lag": 31 - 157, "idle": True, "late": 1},
    ]


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        # ann's and bob's from 120 on.
        (tumbling(10), 2),
        # ann's that end at 130 to 150, and bob's.
        (sliding(30, every=10), 6),
        # bob's of 103 is over, and each has one that goes on.
        (session(8), 2),
        (tumbling(count=2), 2),
    ],
)
def test_open_windows_are_counted(run: Run, shape: Any, count: int) -> None:
    async def story() -> Any:
        async with await started(shape) as running:
            found = running.statistics()["stages"][2]
            running.cancel()
        return found["open_windows"]

    assert run(story()) == count


def test_of_very_many_keys_their_number_is_estimated(run: Run) -> None:
    async def story() -> Any:
        box = inbox(5_000)
        counts = window(tumbling(10), agg.count(), "user")
        running = box.pipe(event_time("at"), counts).to(for_each(bool)).start()
        for user in range(3_000):
            await box.put({"user": user, "at": 5})
        await asyncio.sleep(1)
        found = running.statistics()["stages"][2]
        running.cancel()
        return found["open_windows"]

    assert run(story()) == 3_000


def test_the_metrics_have_series_of_watermarks_and_windows_and_none_without(run: Run) -> None:
    async def story(running: Running) -> dict[tuple[str, ...], float]:
        async with running:
            text = exposition(running.statistics(), running.record()).decode()
            running.cancel()
        return {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def with_windows() -> Any:
        return await story(await started(tumbling(10)))

    async def without() -> Any:
        return await story(from_iterable([1]).to(for_each(bool)).start())

    samples = run(with_windows())
    of_time = "", "2", "event_time"
    assert samples["penstock_watermark_timestamp_seconds", *of_time] == 126
    assert samples["penstock_watermark_lag_seconds", *of_time] == 1 - 126
    assert samples["penstock_partition_idle", *of_time] == 0
    assert samples["penstock_open_windows", "3", "window"] == 2
    assert samples["penstock_late_events_total", "3", "window"] == 1
    words = "watermark", "idle", "window", "late_events"
    assert not [name for name, *_ in run(without()) if any(word in name for word in words)]


def test_the_page_shows_the_watermark_that_is_furthest_behind_and_what_is_idle(run: Run) -> None:
    async def story() -> Any:
        async with await started(tumbling(10)) as running:
            lines = await lines_of(running, 0.5)
            running.cancel()
        return lines[0]

    line = run(story())
    _, timed, counted, _ = of_page(looked_at(opened(line), shown=("boxes",))[0])
    assert "watermark 2 min ahead of the clock · 1 late" in timed
    assert "2 open windows · 1 late" in counted
    parts = [("p0", 40, False), ("p1", 70, False), ("p2", 300, True)]
    line["now"]["stages"]["2"]["watermarks"] = [
        {"partition": name, "watermark": -lag, "lag": lag, "idle": idle, "late": 0}
        for name, lag, idle in parts
    ]
    _, timed, *_ = of_page(looked_at(opened(line), shown=("boxes",))[0])
    assert "watermark of p1 70 s behind the clock · 1 of 3 partitions idle" in timed


def test_the_page_shows_the_rows_of_joins_and_tables(run: Run) -> None:
    def timed(*times: float) -> Flowable[Any]:
        events = from_iterable([{"key": at, "at": at} for at in times])
        return events.pipe(event_time("at", idle=None, max_ahead=None))

    async def shown(stage: Any) -> str:
        box = inbox(10)
        pipeline = box.pipe(event_time("at", idle=20, max_ahead=None), stage).to(for_each(bool))
        async with pipeline.start() as running:
            running.record()
            for at in (101, 150, 103):
                await box.put({"key": at, "at": at})
            await asyncio.sleep(1)
            lines = await lines_of(running, 0.5)
            running.cancel()
        (*_, shown, _) = of_page(looked_at(opened(lines[0]), shown=("boxes",))[0])
        return shown

    joined = run(shown(join(timed(100, 160), "key", 10, how="left")))
    assert "2 rows · 2 without a partner · 1 late" in joined
    found = run(shown(lookup(table(timed(100, 160), "key"), "key")))
    assert "2 rows · 1 event waits for a row · 1 without a row · 1 late" in found


def test_late_events_for_a_table_have_the_way_to_find_their_rows_in_the_report(run: Run) -> None:
    events = from_iterable([{"key": 1, "at": at} for at in (25, 3)]).pipe(event_time("at"))
    rows = from_iterable([{"key": 1, "at": 1}])
    found = events.pipe(lookup(table(rows, "key", time="at"), "key"))
    ended = run(found.to(for_each(bool)).run())
    assert (
        "late events: 1, in stage 5 'lookup': a longer keep= of its table has the rows of such"
        in str(ended)
    )


def test_late_events_have_a_line_in_the_report_with_the_way_to_keep_them(run: Run) -> None:
    def report(**options: Any) -> list[str]:
        events = [{"at": 25}, {"at": 3}]
        counts = window(tumbling(10), agg.count(), **options)
        source = from_iterable(events).pipe(event_time("at"), counts)
        ended = run(source.to(for_each(bool)).run())
        assert ended.exit_status == 3
        return str(ended).splitlines()[2:]

    said = "  late events: 1, in stage 3 'window': a greater lateness= waits for such events"
    kept = report(late=route(MemorySink()))
    assert kept == [said, "  stage 3 'window': 1 routed"]
    assert report() == [f"{said}, late=route(sink) keeps them", "  stage 3 'window': 1 skipped"]


def test_events_that_went_into_windows_are_not_called_dropped(run: Run) -> None:
    counts = window(tumbling(10), agg.count())
    source = from_iterable([{"at": 3}, {"at": 5}]).pipe(event_time("at"), counts)
    ended = run(source.to(for_each(bool)).run())
    assert "  events: 2 in, 0 finished, 2 in a state" in str(ended).splitlines()


@pytest.mark.parametrize("is_stored", [False, True], ids=["in memory", "in a store"])
def test_the_report_says_that_open_windows_have_ended_with_the_run(
    run: Run, is_stored: bool
) -> None:
    async def story() -> str:
        box = inbox(10)
        counts = window(tumbling(10), agg.count(), store=Store.memory() if is_stored else None)
        running = box.pipe(event_time("at", max_ahead=None), counts).to(for_each(bool)).start()
        await box.put({"at": 3})
        await asyncio.sleep(1)
        await running.drain(5)
        return str(running.report())

    said = "  open windows: 1, in stage 3 'window', have ended with the run: store= keeps them"
    assert (said in run(story())) is not is_stored


def test_the_report_says_that_counts_have_ended_before_their_last_rows(run: Run) -> None:
    async def story() -> str:
        box = inbox(10)
        counts = count_over_time("from", end="until")
        running = box.pipe(counts).to(for_each(bool)).start()
        await box.put({"from": 3, "until": 8})
        await asyncio.sleep(1)
        await running.drain(5)
        return str(running.report())

    said = (
        "  points at which counts would have changed: 2, in stage 3 'count_over_time', have ended"
    )
    assert f"{said} with the run: store= keeps them" in run(story())
