from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]
from hdrh.log import HistogramLogReader  # type: ignore[import-untyped]

from penstock import Fixed, adaptive_flat_map, from_iterable, group_by, latency_histogram, spread
from penstock.streams.base.errors import BuildError, CannotOpen, HandlerCancelled
from penstock.streams.diagnostics.histogram import Summary
from penstock.streams.testing import CountedSource, ManualPublisher, MemorySink, MemorySource
from penstock.streams.testing.plugin import Run

Reports = list[dict[str, Summary]]


async def second(value: int) -> int:
    return await asyncio.sleep(1, value)


def test_waiting_service_and_total_are_recorded_separately(run: Run) -> None:
    reports: Reports = []
    flow = from_iterable([1, 2, 3]).pipe(
        group_by(lambda _: 0), spread(), adaptive_flat_map(second, Fixed(3))
    )
    run(flow.to(latency_histogram(None, report=reports.append)).run())
    (report,) = reports
    # Created together, and worked on one after the other.
    close = {"rel": 0.001, "abs": 1e-6}
    assert report["waiting"].max == pytest.approx(2, **close)
    assert report["waiting"].min == pytest.approx(0, **close)
    assert (report["service"].min, report["service"].max) == pytest.approx((1, 1), **close)
    assert (report["total"].min, report["total"].max) == pytest.approx((1, 3), **close)
    assert {summary.count for summary in report.values()} == {3}


def test_without_a_working_stage_an_event_starts_when_it_arrives(run: Run) -> None:
    reports: Reports = []
    run(from_iterable([1, 2, 3]).to(latency_histogram(None, report=reports.append)).run())
    assert reports[0]["service"].max <= 1e-6
    assert reports[0]["total"].count == 3


def test_a_report_comes_each_interval_in_which_there_was_something(run: Run) -> None:
    async def story() -> list[tuple[float, int]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[float, int]] = []
        source = ManualPublisher[int]()
        sink = latency_histogram(
            2, report=lambda now: seen.append((loop.time(), now["total"].count))
        )
        running = source.to(sink).start()
        await asyncio.sleep(1)
        source.send(1, 2)
        await asyncio.sleep(10)
        source.send(3)
        await asyncio.sleep(1)
        source.complete()
        await running.wait()
        return seen

    # The last one is about all.
    assert run(story()) == [(3, 2), (12, 3)]


def test_events_of_one_loop_iteration_are_accepted_together_and_soon(run: Run) -> None:
    async def story() -> None:
        source = MemorySource(range(100))
        flow = source.pipe(adaptive_flat_map(second, Fixed(100)))
        async with flow.to(latency_histogram(None, report=None)).start() as running:
            await asyncio.sleep(1.5)
            assert running.statistics()["finished"] == 100

    run(story())


def test_it_accepts_at_once_whatever_the_others_do(run: Run) -> None:
    async def story() -> None:
        slow = MemorySink(hold=True)
        async with (
            CountedSource(range(9)).to(latency_histogram(report=None), slow).start() as running
        ):
            await asyncio.sleep(1)
            slow.accept(9)
        assert running.statistics()["latency"]["total"]["count"] == 9

    run(story())


def test_statistics_have_the_summaries_so_far(run: Run) -> None:
    async def story() -> None:
        flow = from_iterable(range(10)).pipe(adaptive_flat_map(second, Fixed(1)))
        async with flow.to(latency_histogram(1, report=None)).start() as running:
            await asyncio.sleep(4.5)
            latency = running.statistics()["latency"]
            assert list(latency) == ["waiting", "service", "total"]
            assert type(latency["service"]) is dict
            assert latency["service"]["count"] == 4
            assert latency["service"]["p99"] == pytest.approx(1, rel=0.001)

    run(story())


def test_values_beyond_the_range_are_counted_and_not_lost(run: Run) -> None:
    reports: Reports = []
    flow = from_iterable([1]).pipe(adaptive_flat_map(lambda n: asyncio.sleep(2 * 3600, n)))
    run(flow.to(latency_histogram(None, report=reports.append)).run())
    assert (reports[0]["service"].count, reports[0]["service"].beyond) == (1, 1)


@pytest.mark.parametrize("given", [True, False])
def test_reports_are_printed(run: Run, capsys: pytest.CaptureFixture[str], given: bool) -> None:
    stream = io.StringIO()
    sink = latency_histogram(None, report=stream) if given else latency_histogram(None)
    run(from_iterable([1]).to(sink).run())
    captured = capsys.readouterr()
    assert captured.out == ""
    text = stream.getvalue() if given else captured.err
    for word in ("waiting (ms)", "service (ms)", "total (ms)", "median", "p999", "count"):
        assert word in text


@pytest.mark.parametrize("broken", ["missing", "closed"])
def test_a_standard_error_that_is_gone_does_not_stop_the_work(
    run: Run, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    gone = io.StringIO()
    gone.close()
    monkeypatch.setattr(sys, "stderr", None if broken == "missing" else gone)
    report = run(from_iterable([1]).to(latency_histogram(None)).run())
    assert report.statistics["finished"] == 1


def test_the_log_can_be_read_by_the_usual_tools(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "latency.hlog"
    flow = from_iterable(range(5)).pipe(adaptive_flat_map(second, Fixed(1)))
    run(flow.to(latency_histogram(2, log=path, report=None)).run())
    # One interval after the other, three histograms each.
    reader = HistogramLogReader(str(path), HdrHistogram(1, 3_600_000_000, 3))
    counts = 0
    while (histogram := reader.get_next_interval_histogram()) is not None:
        counts += histogram.get_total_count()
    reader.close()
    assert counts == 3 * 5


def test_a_log_that_cannot_be_written_cannot_be_opened(run: Run, tmp_path: Path) -> None:
    pipeline = from_iterable([1]).to(latency_histogram(log=tmp_path / "no" / "such.hlog"))
    with pytest.raises(CannotOpen, match=r"such\.hlog: No such file"):
        run(pipeline.run())


@pytest.mark.parametrize("when", ["in between", "at the end"])
def test_a_report_that_raises_ends_the_pipeline(run: Run, when: str) -> None:
    def broken(summaries: Any) -> None:
        raise ZeroDivisionError("report")

    source = MemorySource(range(5))
    flow = source.pipe(adaptive_flat_map(second, Fixed(1)))
    every = 1.5 if when == "in between" else None
    with pytest.raises(ZeroDivisionError) as raised:
        run(flow.to(latency_histogram(every, report=broken)).run())
    if every is not None:
        assert raised.value.__notes__ == ["in the report of stage 3 'latency_histogram'"]
        assert source.acked == [0, 1]
    assert source.unsettled == []


@pytest.mark.parametrize("every", [1.5, None])
def test_a_report_that_is_cancelled_from_inside_ends_the_pipeline(
    run: Run, every: float | None
) -> None:
    def cancelled(summaries: Any) -> None:
        raise asyncio.CancelledError

    source = MemorySource(range(5))
    flow = source.pipe(adaptive_flat_map(second, Fixed(1)))
    with pytest.raises(HandlerCancelled, match="latency_histogram' was cancelled from inside"):
        run(flow.to(latency_histogram(every, report=cancelled), MemorySink()).run())
    assert source.unsettled == []


def test_no_timer_is_left_when_another_sink_breaks(run: Run) -> None:
    broken = MemorySink()
    broken.fail(ValueError("sink"))
    with pytest.raises(ValueError, match="sink"):
        run(CountedSource(range(9)).to(latency_histogram(1, report=None), broken).run())
    broken.fail(ValueError("sink"))
    with pytest.raises(ValueError, match="sink"):
        run(CountedSource(range(9)).to(broken, latency_histogram(1, report=None)).run())


@pytest.mark.parametrize("every", ["some.hgrm", 0, -1.0, True, float("nan"), object()])
def test_invalid_seconds_are_refused_and_a_path_in_their_place_is_recognised(every: Any) -> None:
    with pytest.raises(BuildError, match=r"latency_histogram\(every=.*positive.*\(log=\.\.\.\)"):
        latency_histogram(every)
