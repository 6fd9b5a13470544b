"""The sink of an objective: which events it judges, by which of their times."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import (
    Fixed,
    adaptive_flat_map,
    collect,
    from_iterable,
    group_by,
    objective,
    ops,
    spread,
)
from penstock.streams.base.errors import BuildError, NotAllFinished
from penstock.streams.testing import CountedSource, MemorySink
from penstock.streams.testing.loop import run_virtual
from penstock.streams.testing.plugin import Run
from tests.helpers.local_workers import LocalCrew


async def second(value: int) -> int:
    return await asyncio.sleep(1, value)


async def by_value(value: int) -> int:
    return await asyncio.sleep(value, value)


def numbers_of(report: Any) -> list[tuple[int, int]]:
    return [
        (stage["good"], stage["bad"])
        for stage in report.statistics["stages"]
        if "objective" in stage
    ]


def test_each_part_of_the_latency_is_judged_by_itself(run: Run) -> None:
    # Created together and worked on one after the other: they wait 0, 1, 2 seconds.
    flow = from_iterable([0, 1, 2]).pipe(
        group_by(lambda _: 0), spread(), adaptive_flat_map(second, Fixed(1))
    )
    sinks = [objective(f"{part} < 1500ms", share=0.5) for part in ("waiting", "service", "total")]
    assert numbers_of(run(flow.to(*sinks).run())) == [(2, 1), (3, 0), (1, 2)]


def test_a_time_that_is_as_long_as_the_bound_is_not_below_it(run: Run) -> None:
    flow = from_iterable([1]).pipe(adaptive_flat_map(second, Fixed(1)))
    sinks = objective("service < 1s", share=0.5), objective("service < 1001ms", share=0.5)
    assert numbers_of(run(flow.to(*sinks).run())) == [(0, 1), (1, 0)]


def test_events_without_a_handler_have_waited_until_they_came(run: Run) -> None:
    sinks = [objective(f"{part} < 1ms", share=0.5) for part in ("waiting", "service", "total")]

    flow = from_iterable([1, 2]).pipe(ops.delay(1))
    assert numbers_of(run(flow.to(*sinks).run())) == [(0, 2), (2, 0), (0, 2)]


def test_where_chooses_the_events_of_a_kind(run: Run) -> None:
    flow = from_iterable([1, 2, 3, 4]).pipe(adaptive_flat_map(by_value, Fixed(4)))
    even = objective("service < 2500ms", share=0.5, where=lambda n: n % 2 == 0)
    assert numbers_of(run(flow.to(collect([]), even).run())) == [(1, 1)]


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("stage", [None, 2])
def test_an_error_of_where_fails_its_event_and_stops_the_pipeline(
    run: Run, beside: bool, stage: int | None
) -> None:
    flow = from_iterable([2, 1, 0, 3]).pipe(adaptive_flat_map(by_value, Fixed(1)))
    asked = objective("total < 1s", share=0.5, where=lambda n: 1 / n, stage=stage)
    sinks = [MemorySink(), asked] if beside else [asked]

    async def story() -> Any:
        running = flow.to(*sinks).start()
        with pytest.raises(ZeroDivisionError) as raised:
            await running.wait()
        return raised.value, running.report()

    error, report = run(story())
    assert "'objective', on the event 0" in error.__notes__[0]
    numbers = report.statistics
    assert report.exit_status == 1
    assert numbers["unfinished"] == 0
    assert numbers["in"] == numbers["finished"] + numbers["failed"] + numbers["returned"]


def test_a_stage_is_judged_by_its_own_calls(run: Run) -> None:
    flow = from_iterable([1, 2]).pipe(
        adaptive_flat_map(by_value, Fixed(2)), adaptive_flat_map(second, Fixed(2))
    )
    sinks = [
        objective("service < 1500ms", share=0.5, stage=2, name="first"),
        objective("service < 1500ms", share=0.5, stage=3, name="second"),
        objective("total < 2500ms", share=0.5),
    ]
    assert numbers_of(run(flow.to(*sinks).run())) == [(1, 1), (2, 0), (1, 1)]


@pytest.mark.parametrize("behind", [False, True])
def test_a_stage_in_worker_processes_is_judged_when_its_results_are_back(behind: bool) -> None:
    async def story() -> Any:
        flow = from_iterable([1, 2]).pipe(adaptive_flat_map(by_value, Fixed(2)))
        # With it the stage is not the last one in the workers.
        flow = flow.pipe(ops.map(abs)) if behind else flow
        asked = objective("service < 1500ms", share=0.5, stage=2, where=lambda n: n > 0)
        return await flow.to(asked).start(workers=LocalCrew(1)).wait()

    assert numbers_of(run_virtual(story())) == [(1, 1)]


def test_a_stage_that_calls_no_handler_is_refused_with_those_that_do() -> None:
    flow = from_iterable([1]).pipe(ops.map(str), adaptive_flat_map(str))
    with pytest.raises(BuildError, match=r"stage=2.*: stage 3 'adaptive_flat_map'"):
        flow.to(objective("p99 < 1s", share=0.9, stage=2))
    with pytest.raises(BuildError, match="none here"):
        from_iterable([1]).to(objective("p99 < 1s", share=0.9, stage=2))


def test_two_of_one_name_are_refused_and_a_name_of_its_own_tells_them_apart() -> None:
    flow = from_iterable([1])
    asked = objective("p99 < 1s", share=0.9), objective("p99 <  1s", share=0.99)
    with pytest.raises(BuildError, match=r"'p99 < 1s': give one of them another name="):
        flow.to(*asked)
    flow.to(asked[0], objective("p99 < 1s", share=0.99, name="strict"))


@pytest.mark.parametrize("where", [second, "kind", lambda: True])
def test_where_is_a_plain_function_of_the_value(where: Any) -> None:
    with pytest.raises(BuildError, match="where="):
        objective("p99 < 1s", share=0.9, where=where)


def test_it_accepts_at_once_whatever_the_others_do(run: Run) -> None:
    async def story() -> None:
        slow = MemorySink(hold=True)
        asked = objective("total < 1s", share=0.5)
        async with CountedSource(range(9)).to(asked, slow).start() as running:
            await asyncio.sleep(1)
            slow.accept(9)
        assert numbers_of(running.report()) == [(9, 0)]

    run(story())


@pytest.mark.parametrize(
    ("bound", "required", "status"), [("2s", True, 0), ("1s", True, 6), ("1s", False, 0)]
)
def test_a_required_objective_that_is_missed_has_an_exit_status(
    run: Run, bound: str, required: bool, status: int
) -> None:
    flow = from_iterable([1]).pipe(adaptive_flat_map(second, Fixed(1)))
    report = run(flow.to(objective(f"p99 < {bound}", share=0.9, required=required)).run())
    assert report.exit_status == status
    if status:
        with pytest.raises(NotAllFinished, match=r"(?s)exit status 6.*MISSED"):
            report.raise_for_status()


def test_events_that_failed_are_worse_than_a_missed_objective(run: Run) -> None:
    async def work(n: int) -> float:
        await asyncio.sleep(1)
        return 1 / n

    flow = from_iterable([0, 1]).pipe(adaptive_flat_map(work, Fixed(2), on_error="skip"))
    report = run(flow.to(objective("p99 < 1s", share=0.9, required=True)).run())
    assert report.exit_status == 3


def test_the_report_has_a_line_for_each(run: Run) -> None:
    flow = from_iterable([1, 2, 3]).pipe(adaptive_flat_map(by_value, Fixed(3)))
    report = run(
        flow.to(
            objective("service < 2500ms", share=0.6),
            objective("p99 < 2s", share=0.99, name="all"),
            objective("total < 1s", share=0.5, where=lambda n: n > 3, name="none"),
        ).run()
    )
    assert str(report).splitlines()[-3:] == [
        "  objective service < 2500ms: kept, 66.666 % of 3 events were good, 60 % are asked for",
        "  objective all: MISSED, 0 % of 1 slice of 10 s was good, 99 % are asked for",
        "  objective none: no events",
    ]


def test_its_windows_stand_still_when_the_run_has_ended(run: Run) -> None:
    async def story() -> tuple[Any, Any]:
        running = from_iterable([1]).to(objective("total < 1s", share=0.5)).start()
        await running.wait()
        before = running.statistics()["stages"][-1]
        await asyncio.sleep(100_000)
        return before, running.statistics()["stages"][-1]

    before, after = run(story())
    assert before == after
    assert before["windows"]["5m"]["good"] == 1
