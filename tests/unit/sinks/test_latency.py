from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]
from hdrh.log import HistogramLogReader  # type: ignore[import-untyped]

from penstock import (
    Fixed,
    adaptive_flat_map,
    from_iterable,
    group_by,
    latency_histogram,
    ops,
    spread,
)
from penstock.streams.base.errors import BuildError, CannotOpen, HandlerCancelled
from penstock.streams.diagnostics.histogram import Summary
from penstock.streams.testing import CountedSource, ManualPublisher, MemorySink, MemorySource
from penstock.streams.testing.loop import run_virtual
from penstock.streams.testing.plugin import Run
from tests.helpers.local_workers import LocalCrew

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


async def by_value(value: int) -> int:
    return await asyncio.sleep(value, value)


def of_keys(stage: dict[str, Any]) -> dict[Any, tuple[int, float]]:
    return {
        one["key"]: (one["count"], round(one["service"]["max"] * 50) / 50)
        for one in [*stage["by_key"], {"key": "others", **stage["other_keys"]}]
    }


def test_the_hottest_keys_are_measured_by_themselves_and_all_others_together(run: Run) -> None:
    flow = from_iterable([1, 2, 1, 3, 2, 1, 4]).pipe(adaptive_flat_map(by_value, Fixed(7)))
    sink = latency_histogram(None, report=None, by=lambda n: n, keys=2)
    numbers = run(flow.to(sink).run()).statistics["stages"][-1]
    assert of_keys(numbers) == {
        1: (3, pytest.approx(1, rel=0.03)),
        2: (2, pytest.approx(2, rel=0.03)),
        "others": (2, pytest.approx(4, rel=0.03)),
    }


def test_the_report_names_the_hottest_keys(run: Run) -> None:
    flow = from_iterable([{"c": n % 7} for n in range(70)])
    five, all_of_them = (
        latency_histogram(None, report=None, by="c", keys=keys) for keys in (5, 20)
    )
    lines = str(run(flow.to(five, all_of_them).run())).splitlines()
    heading = lines.index("  total by c (ms):")
    assert lines[heading + 1] == "    0, 10 events: p50 0.0, p99 0.0, max 0.0"
    assert lines[heading + 6] == "    all others, 20 events: p50 0.0, p99 0.0, max 0.0"
    assert lines[-1] == "    all others, 20 events (--report json has 7 keys)"


def test_each_stage_may_have_a_sink_of_its_own(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = from_iterable([1, 2]).pipe(
        adaptive_flat_map(by_value, Fixed(2)), adaptive_flat_map(second, Fixed(2))
    )
    sinks = latency_histogram(None, stage=2), latency_histogram(None, report=None)
    report = run(flow.to(*sinks).run())
    of_stage, of_all = (stage["latency"] for stage in report.statistics["stages"][-2:])
    close = {"rel": 0.001, "abs": 1e-6}
    assert (of_stage["service"]["min"], of_stage["service"]["max"]) == pytest.approx(
        (1, 2), **close
    )
    assert of_all["service"]["max"] == pytest.approx(1, **close)
    assert of_all["waiting"]["max"] == pytest.approx(2, **close)
    assert report.statistics["latency"] == of_all
    assert "stage 2, service (ms)\n" in capsys.readouterr().err
    assert "  stage 2, service (ms): p50 1,0" in str(report)


@pytest.mark.parametrize("behind", [False, True])
def test_a_stage_in_worker_processes_is_measured_when_its_results_are_back(behind: bool) -> None:
    async def story() -> Any:
        flow = from_iterable([1, 2]).pipe(adaptive_flat_map(by_value, Fixed(2)))
        flow = flow.pipe(ops.map(abs)) if behind else flow
        sink = latency_histogram(None, report=None, stage=2, by=lambda n: n)
        return await flow.to(sink).start(workers=LocalCrew(1)).wait()

    numbers = run_virtual(story()).statistics["stages"][-1]
    assert of_keys(numbers) == {
        1: (1, pytest.approx(1, rel=0.03)),
        2: (1, pytest.approx(2, rel=0.03)),
        "others": (0, 0),
    }


def _broken(value: int) -> object:
    return 1 / value


def _unhashable(value: int) -> Any:
    return value or []


@pytest.mark.parametrize("by", [_broken, _unhashable])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("stage", [None, 2])
def test_an_event_whose_key_cannot_be_read_stops_the_pipeline(
    run: Run, by: Any, beside: bool, stage: int | None
) -> None:
    flow = from_iterable([2, 1, 0, 3]).pipe(adaptive_flat_map(by_value, Fixed(1)))
    measures = latency_histogram(1, report=None, by=by, stage=stage)
    sinks = [MemorySink(), measures] if beside else [measures]

    async def story() -> Any:
        running = flow.to(*sinks).start()
        with pytest.raises((ZeroDivisionError, TypeError)) as raised:
            await running.wait()
        return raised.value, running.statistics()

    error, numbers = run(story())
    assert "'latency_histogram', on the event 0" in error.__notes__[0]
    assert numbers["unfinished"] == 0
    assert numbers["in"] == numbers["finished"] + numbers["failed"] + numbers["returned"]
    assert numbers["stages"][-1]["latency"]["total"]["count"] >= 2


def test_an_error_in_a_key_says_what_the_event_lacks(run: Run) -> None:
    events = from_iterable([{"user": {"id": 7}}])
    with pytest.raises(KeyError) as raised:
        run(events.to(latency_histogram(report=None, by="user.id")).run())
    *_, lack = raised.value.__notes__
    assert lack.startswith("the event has no field 'user.id'; a name has no path in it: give")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": 1.5}, "by=1.5 is not a valid key"),
        ({"by": "c", "keys": 0}, r"latency_histogram\(keys=0\): must be a whole number"),
        ({"stage": 0}, r"latency_histogram\(stage=0\): give the number of a stage"),
        ({"stage": "2"}, r"latency_histogram\(stage='2'\)"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BuildError, match=words):
        latency_histogram(**options)


def test_a_stage_without_a_handler_is_refused_with_those_that_have_one() -> None:
    flow = from_iterable([1]).pipe(ops.map(str), adaptive_flat_map(str))
    with pytest.raises(BuildError, match=r"stage=2.*: stage 3 'adaptive_flat_map'"):
        flow.to(latency_histogram(stage=2))
