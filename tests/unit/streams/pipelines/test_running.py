from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from reactivex import Subject

from penstock import (
    Fixed,
    Flowable,
    Pipeline,
    Running,
    Shared,
    adaptive_flat_map,
    buffer,
    distinct_within,
    for_each,
    from_async_iterable,
    from_iterable,
    group_by,
    latency_histogram,
    ops,
    route,
    spread,
    using,
)
from penstock.streams.base.errors import BuildError, CannotOpen, DrainTimeout, NoLoop
from penstock.streams.failures.policy import DeadLetter
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run as StreamRun
from penstock.streams.stages.own import SinkStage
from penstock.streams.stages.sink_stage import Closed, Sink
from penstock.streams.testing import CountedSource, ManualPublisher, MemorySink, MemorySource
from penstock.streams.testing.plugin import Run


async def second(value: Any) -> Any:
    return await asyncio.sleep(1, value)


def sequential(source: Flowable[Any]) -> Flowable[Any]:
    return source.pipe(adaptive_flat_map(second, Fixed(1)))


# Statistics.


def test_statistics_are_plain_data(run: Run) -> None:
    flow = from_iterable([{"k": 1}, {"k": 2}, {"k": 1}]).pipe(
        distinct_within(10, by="k"), group_by("k"), spread(), adaptive_flat_map(second, Fixed(8))
    )
    report = run(flow.to(latency_histogram(None, report=None), MemorySink()).run())
    numbers = json.loads(json.dumps(report.statistics))
    assert (numbers["in"], numbers["finished"], numbers["dropped"]) == (3, 2, {"duplicate": 1})
    assert (numbers["seconds"], numbers["state"], numbers["limit"]) == (1, "closed", 8)
    assert numbers["latency"]["service"]["count"] == 2
    assert numbers["latency"]["service"]["median"] == pytest.approx(1, rel=0.001)
    names = [stage["name"] for stage in numbers["stages"]]
    assert names == [
        "from_iterable",
        "distinct_within",
        "group_by",
        "spread",
        "adaptive_flat_map",
        "latency_histogram",
        "memory",
    ]
    assert [stage["stage"] for stage in numbers["stages"]] == list(range(1, 8))


def test_statistics_show_what_is_going_on(run: Run) -> None:
    async def story() -> None:
        flow = from_iterable(range(100)).pipe(
            group_by(lambda n: n % 10, 20), spread(), adaptive_flat_map(second, Fixed(3))
        )
        async with flow.to(MemorySink()).start() as running:
            assert running.statistics()["in"] == 0
            await asyncio.sleep(0.5)
            numbers = running.statistics()
            assert numbers["state"] == "running"
            assert (numbers["in_flight"], numbers["limit"], numbers["groups"]) == (3, 3, 10)
            assert numbers["waiting"] == numbers["in"] - 3 > 0
            running.cancel()
        assert running.statistics()["unfinished"] == 0

    run(story())


def test_the_numbers_of_one_stage_are_those_among_all(run: Run) -> None:
    async def story() -> None:
        flow = sequential(from_iterable(range(9)))
        async with flow.to(MemorySink(), for_each(print)).start() as running:
            with pytest.raises(IndexError, match="no stage 2 is running"):
                running.stage_statistics(2)
            await asyncio.sleep(2.5)
            stages = running.statistics()["stages"]
            assert [running.stage_statistics(number) for number in range(1, 5)] == stages
            assert running.stage_statistics(2)["in_flight"] == 1
            for number in (0, 5):
                with pytest.raises(IndexError):
                    running.stage_statistics(number)

    run(story())


def test_before_the_end_a_report_says_what_is_going_on(run: Run) -> None:
    async def story() -> None:
        async with sequential(MemorySource(range(9))).to(MemorySink()).start() as running:
            seen = [running.report()]
            await asyncio.sleep(0.5)
            running.pause()
            seen.append(running.report())
            running.resume()
            seen.append(running.report())
            running.begin_drain(5, by_signal=True)
            seen.append(running.report())
        assert [report.outcome for report in seen] == ["running", "paused", "running", "draining"]
        assert {report.exit_status for report in seen} == {5}
        assert (running.report().outcome, running.report().exit_status) == ("drained", 4)

    run(story())


def test_a_pipeline_that_an_error_stops_is_draining_until_its_end(run: Run) -> None:
    async def fails(value: int) -> None:
        await asyncio.sleep(value)
        raise ValueError(value)

    async def story() -> None:
        flow = MemorySource([1, 9]).pipe(adaptive_flat_map(fails, Fixed(2)))
        running = flow.to(MemorySink()).start()
        await asyncio.sleep(2)
        report = running.report()
        assert (report.outcome, str(report.error)) == ("draining", "1")
        assert running.statistics()["state"] == "draining"
        with pytest.raises(ValueError, match="1"):
            await running.drain(60)
        assert (running.report().outcome, running.report().exit_status) == ("stopped", 1)

    run(story())


# Pause and resume.


def test_a_paused_pipeline_takes_nothing_and_finishes_what_is_in(run: Run) -> None:
    async def story() -> None:
        source, sink = CountedSource(range(100)), MemorySink()
        async with sequential(source).to(sink).start() as running:
            await asyncio.sleep(2.5)
            running.pause()
            assert running.statistics()["state"] == "paused"
            await asyncio.sleep(100)
            assert sink.values == [0, 1, 2]
            assert source.emitted == 3
            running.resume()
            await asyncio.sleep(2)
            assert sink.values == [0, 1, 2, 3]
            running.cancel()

    run(story())


def test_a_pipeline_may_be_paused_before_it_has_begun(run: Run) -> None:
    async def story() -> None:
        source = CountedSource(range(3))
        async with source.to(MemorySink()).start() as running:
            running.pause()
            await asyncio.sleep(10)
            assert source.emitted == 0
            running.resume()
        assert source.emitted == 3

    run(story())


def test_pausing_twice_needs_one_resume(run: Run) -> None:
    async def story() -> None:
        async with sequential(CountedSource(range(3))).to(MemorySink()).start() as running:
            running.pause()
            running.pause()
            running.resume()
            running.resume()
        assert running.statistics()["finished"] == 3

    run(story())


# Drain.


def test_a_drain_finishes_what_is_in_and_reads_no_more(run: Run) -> None:
    async def story() -> None:
        source, sink = CountedSource(range(100)), MemorySink(seconds=3)
        flow = source.pipe(adaptive_flat_map(second, Fixed(4)))
        async with flow.to(sink).start() as running:
            await asyncio.sleep(0.5)
            report = await running.drain(60)
            assert report.outcome == "completed"
            assert report.exit_status == 0
            assert sink.accepted == [(4, 0), (7, 1), (10, 2), (13, 3)]
            assert source.emitted == 4

    run(story())


Made = Callable[[], Flowable[int]]


def pulled() -> Flowable[int]:
    async def endless() -> AsyncIterator[int]:
        n = 0
        while True:
            yield n
            n += 1

    return from_async_iterable(endless)


@pytest.mark.parametrize("make", [lambda: CountedSource(range(10**6)), pulled])
def test_a_paused_pipeline_can_be_drained(run: Run, make: Made) -> None:
    async def story() -> None:
        sink = MemorySink()
        async with sequential(make()).to(sink).start() as running:
            await asyncio.sleep(1.5)
            running.pause()
            await asyncio.sleep(10)
            report = await running.drain(5)
            assert report.statistics["in"] == report.statistics["finished"] == len(sink.values)

    run(story())


@pytest.mark.parametrize("values", [0, 3])
def test_a_paused_pipeline_of_an_observable_can_be_drained(run: Run, values: int) -> None:
    async def story() -> None:
        subject: Subject[int] = Subject()
        sink = MemorySink()
        async with sequential(Flowable.of(subject, buffer(8))).to(sink).start() as running:
            await asyncio.sleep(1)
            running.pause()
            for n in range(values):
                subject.on_next(n)
            await asyncio.sleep(1)
            await running.drain(10)
            # What had arrived is still delivered.
            assert sink.values == list(range(values))

    run(story())


def test_a_paused_pipeline_whose_observable_ends_ends_when_it_goes_on(run: Run) -> None:
    async def story() -> None:
        subject: Subject[int] = Subject()
        async with Flowable.of(subject, buffer(8)).to(MemorySink()).start() as running:
            await asyncio.sleep(1)
            running.pause()
            subject.on_completed()
            await asyncio.sleep(1)
            running.resume()

    run(story())


def test_a_pipeline_that_is_drained_before_it_began_has_done_nothing(run: Run) -> None:
    async def story() -> None:
        source, sink = CountedSource(range(3)), MemorySink()
        running = source.to(sink).start()
        report = await running.drain()
        assert (report.outcome, report.exit_status) == ("completed", 0)
        assert (source.emitted, sink.closed) == (0, 0)

    run(story())


def test_past_the_deadline_of_a_drain_the_rest_is_given_back(run: Run) -> None:
    async def story() -> None:
        source = MemorySource(range(100))
        flow = source.pipe(adaptive_flat_map(lambda n: asyncio.sleep(n * 2, n), Fixed(4)))
        running = flow.to(MemorySink()).start()
        await asyncio.sleep(0.5)
        with pytest.raises(DrainTimeout, match="passed with 3 events unfinished"):
            await running.drain(3)
        assert running.report().outcome == "overrun"
        assert running.report().exit_status == 5
        assert asyncio.get_running_loop().time() == 3.5
        assert source.acked == [0, 1]
        assert sorted(source.returned) == [2, 3, 4]

    run(story())


def test_past_the_deadline_of_a_drain_nothing_is_said_to_be_given_back_of_what_has_ended(
    run: Run,
) -> None:
    async def story() -> None:
        running = MemorySource([0]).to(MemorySink()).start()
        running._run.on_close(lambda: asyncio.sleep(10))
        with pytest.raises(DrainTimeout, match="passed when all events had ended, and a source"):
            await running.drain(3)
        assert running.report().outcome == "overrun"

    run(story())


def test_of_several_deadlines_the_earliest_counts(run: Run) -> None:
    async def story() -> None:
        source = MemorySource([0])
        running = (
            source.pipe(adaptive_flat_map(lambda n: asyncio.sleep(100))).to(MemorySink()).start()
        )
        await asyncio.sleep(1)
        running.begin_drain(50)
        running.begin_drain()
        running.begin_drain(5)
        running.begin_drain(20)
        with pytest.raises(DrainTimeout):
            await running.wait()
        assert asyncio.get_running_loop().time() == 6

    run(story())


def test_a_drain_error_that_was_caught_is_not_raised_again(run: Run) -> None:
    async def story() -> None:
        flow = MemorySource([0]).pipe(adaptive_flat_map(lambda n: asyncio.sleep(100)))
        async with flow.to(MemorySink()).start() as running:
            await asyncio.sleep(1)
            with pytest.raises(DrainTimeout):
                await running.drain(5)
        assert running.report().outcome == "overrun"

    run(story())


def test_the_end_of_the_input_has_no_deadline(run: Run) -> None:
    flow = MemorySource([1]).pipe(adaptive_flat_map(lambda n: asyncio.sleep(10_000, n)))
    report = run(flow.to(MemorySink()).run(drain_deadline=1))
    assert report.statistics["seconds"] == 10_000


def test_a_drain_waits_for_dead_letters_and_its_deadline_ends_that(run: Run) -> None:
    def fails(value: int) -> None:
        raise ValueError(value)

    async def story() -> None:
        source, dead = MemorySource(range(3)), MemorySink(seconds=10)
        flow = source.pipe(adaptive_flat_map(fails, on_error=route(dead)))
        running = flow.to(MemorySink()).start()
        await asyncio.sleep(1)
        with pytest.raises(DrainTimeout, match="2 events unfinished"):
            await running.drain(14)
        # A short time is left for letters that are on their way.
        assert asyncio.get_running_loop().time() == 20
        assert [letter.value for letter in dead.values] == [0, 1]
        assert sorted(source.acked) == [0, 1]
        assert source.failed == [2]

    run(story())


def test_dead_letters_that_hang_at_the_end_are_given_up_after_the_drain_deadline(run: Run) -> None:
    def fails(value: int) -> None:
        raise ValueError(value)

    async def story() -> None:
        source, dead = MemorySource(range(3)), MemorySink(hold=True)
        flow = source.pipe(adaptive_flat_map(fails, on_error=route(dead)))
        running = flow.to(MemorySink()).start(drain_deadline=7)
        await asyncio.sleep(1)
        dead.accept()
        with pytest.raises(DrainTimeout, match="memory has taken no dead letter for 7 s"):
            await running.wait()
        assert asyncio.get_running_loop().time() == 14
        assert (source.acked, sorted(source.failed)) == ([0], [1, 2])
        assert running.statistics()["unfinished"] == 0
        assert running.report().exit_status == 1

    run(story())


def test_dead_letters_may_be_written_by_an_async_function(run: Run) -> None:
    def fails(value: int) -> None:
        raise ValueError(value)

    async def post(letter: DeadLetter) -> None:
        await asyncio.sleep(2)
        posted.append(letter.value)

    posted: list[int] = []
    source = MemorySource(range(3))
    flow = source.pipe(adaptive_flat_map(fails, on_error=route(for_each(post))))
    report = run(flow.to(MemorySink()).run())
    assert posted == source.acked == [0, 1, 2]
    assert report.statistics["failed"] == 3


def test_a_sink_of_dead_letters_that_never_closes_does_not_keep_the_pipeline(run: Run) -> None:
    class Deaf(SinkStage[Any]):
        def accept(self, event: Any) -> None: ...

        def close(self, error: BaseException | None = None) -> None: ...

    class Hanging(Sink[Any]):
        info = StageInfo("hanging")

        def open(self, run: StreamRun, closed: Closed) -> SinkStage[Any]:
            return Deaf(closed)

    def fails(value: int) -> None:
        raise ValueError(value)

    async def story() -> None:
        flow = MemorySource([1]).pipe(adaptive_flat_map(fails, on_error=route(Hanging())))
        with pytest.raises(DrainTimeout, match="hanging"):
            await flow.to(MemorySink()).run(drain_deadline=7)
        assert asyncio.get_running_loop().time() <= 20

    run(story())


# Cancel.


def test_a_cancel_gives_back_everything_at_once(run: Run) -> None:
    async def story() -> None:
        source, sink = MemorySource(range(100)), MemorySink(seconds=10)
        running = (
            source.pipe(
                group_by(lambda n: n % 7, 20), spread(), adaptive_flat_map(second, Fixed(3))
            )
            .to(sink)
            .start()
        )
        await asyncio.sleep(1.5)
        running.cancel()
        running.cancel()
        report = await running.wait()
        running.cancel()
        assert asyncio.get_running_loop().time() == 1.5
        assert (report.outcome, report.exit_status) == ("cancelled", 5)
        assert source.acked == []
        assert len(source.returned) == report.statistics["in"] > 20
        assert running.statistics()["state"] == "closed"

    run(story())


def test_a_cancel_before_the_begin_opens_nothing(run: Run) -> None:
    async def story() -> None:
        source, sink = CountedSource(range(3)), MemorySink()
        running = source.to(sink).start()
        running.cancel()
        assert (await running.wait()).outcome == "cancelled"
        assert (source.emitted, sink.closed) == (0, 0)

    run(story())


def test_a_drain_may_be_cut_short_by_a_cancel(run: Run) -> None:
    async def story() -> None:
        source = MemorySource(range(9))
        running = sequential(source).to(MemorySink(seconds=100)).start()
        await asyncio.sleep(1.5)
        running.begin_drain()
        await asyncio.sleep(1)
        running.cancel()
        assert (await running.wait()).outcome == "cancelled"
        assert source.unsettled == []

    run(story())


def test_cancelling_the_waiting_task_cancels_the_pipeline_and_waits_for_its_end(run: Run) -> None:
    async def slow_to_end(value: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(2)

    async def story() -> None:
        source = MemorySource(range(3))
        task = asyncio.ensure_future(
            source.pipe(adaptive_flat_map(slow_to_end, Fixed(1))).to(MemorySink()).run()
        )
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.get_running_loop().time() == 3
        assert source.returned == [0]

    run(story())


def test_a_run_ends_although_all_tasks_are_cancelled_before_its_closing_has_begun(
    run: Run,
) -> None:
    # As `asyncio.run` does after a SystemExit, which leaves the loop at once.
    async def main() -> None:
        closed: list[str] = []

        @asynccontextmanager
        async def opened() -> AsyncGenerator[None]:
            try:
                yield
            finally:
                closed.append("handler")

        async def handler(value: int, resource: None) -> int:
            return await asyncio.sleep(1, value)

        stage = adaptive_flat_map(using(opened)(handler), Fixed(1))
        running = MemorySource(range(9)).pipe(stage).to(MemorySink()).start()
        waiting = asyncio.ensure_future(running.wait())
        await asyncio.sleep(0.5)
        running.cancel()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait([waiting])
        assert (waiting.cancelled(), running.state, closed) == (True, "closed", ["handler"])

    run(main())


def test_leaving_the_block_by_an_exception_cancels(run: Run) -> None:
    async def story() -> None:
        source = MemorySource(range(3))
        running = sequential(source).to(MemorySink()).start()

        async def block() -> None:
            async with running:
                await asyncio.sleep(0.5)
                raise KeyError

        with pytest.raises(KeyError):
            await block()
        assert running.report().outcome == "cancelled"
        assert source.returned == [0]

    run(story())


def test_an_exception_in_the_block_does_not_hide_the_pipelines(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(value: int) -> None:
        raise ValueError("in the pipeline")

    async def story() -> None:
        flow = MemorySource(range(3)).pipe(adaptive_flat_map(fails))
        async with flow.to(MemorySink()).start():
            await asyncio.sleep(1)
            raise KeyError("in the block")

    with pytest.raises(KeyError):
        run(story())
    assert "ValueError: in the pipeline" in caplog.text


# Errors.


def test_leaving_the_block_raises_the_pipelines_error(run: Run) -> None:
    async def fails(value: int) -> None:
        raise ValueError("in the pipeline")

    async def story() -> None:
        flow = MemorySource(range(3)).pipe(adaptive_flat_map(fails))
        running = flow.to(MemorySink()).start()
        with pytest.raises(ValueError, match="in the pipeline") as raised:
            async with running:
                pass
        assert running.report().error is raised.value
        assert (running.report().outcome, running.report().exit_status) == ("stopped", 1)

    run(story())


def test_an_error_in_a_sink_stops_the_pipeline(run: Run) -> None:
    source, sink = MemorySource(range(9)), MemorySink(seconds=1)

    async def story() -> None:
        running = sequential(source).to(sink).start()
        await asyncio.sleep(2.5)
        sink.fail(OSError("disk full"))
        with pytest.raises(OSError, match="disk full"):
            await running.wait()
        assert source.acked == [0]
        assert source.failed == [1]
        assert source.unsettled == []

    run(story())


class Unopenable(Sink[Any]):
    info = StageInfo("unopenable")

    def open(self, run: StreamRun, closed: Closed) -> SinkStage[Any]:
        raise CannotOpen("Cannot write there.")


@pytest.mark.parametrize("first", [True, False])
def test_a_sink_that_cannot_be_opened_leaves_the_others_closed(run: Run, first: bool) -> None:
    async def story() -> None:
        source, other = CountedSource(range(3)), MemorySink()
        sinks = (Unopenable(), other) if first else (other, Unopenable())
        running = source.to(*sinks).start()
        with pytest.raises(CannotOpen):
            await running.wait()
        assert running.report().exit_status == 2
        assert source.emitted == 0
        assert other.closed == (0 if first else 1)

    run(story())


def test_a_stream_that_cannot_begin_fails_the_running(run: Run) -> None:
    def attach(subscriber: Any, run: Any) -> None:
        raise RuntimeError("cannot begin")

    sink = MemorySink()
    with pytest.raises(RuntimeError, match="cannot begin"):
        run(Flowable[int](attach, StageInfo("broken")).to(sink).run())
    assert sink.closed == 1


def test_an_error_while_closing_is_raised(run: Run) -> None:
    class Leaving(Sink[Any]):
        info = StageInfo("leaving")

        def open(self, run: StreamRun, closed: Closed) -> SinkStage[Any]:
            async def close() -> None:
                raise OSError("closing")

            run.on_close(close)
            return MemorySink().open(run, closed)

    with pytest.raises(OSError, match="closing"):
        run(CountedSource(range(3)).to(Leaving()).run())
    with pytest.raises(ExceptionGroup, match="closing failed") as raised:
        run(CountedSource(range(3)).to(Leaving(), Leaving()).run())
    assert len(raised.value.exceptions) == 2


def test_errors_of_two_sinks_are_both_reported(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        def fails(value: int) -> None:
            raise ValueError("first")

        late = MemorySink(seconds=1)
        late.fail(OSError("second"))
        with pytest.raises(ValueError, match="first"):
            await MemorySource(range(3)).to(late, for_each(fails)).run()

    run(story())
    assert "OSError: second" in caplog.text


# Retuning.


def test_retune_names_the_stages_there_are(run: Run) -> None:
    async def story() -> None:
        flow = CountedSource(range(3)).pipe(
            adaptive_flat_map(second, Fixed(1)), adaptive_flat_map(second, Fixed(1))
        )
        async with flow.to(MemorySink()).start() as running:
            await asyncio.sleep(0)
            with pytest.raises(BuildError, match="the stages with a limit are: "):
                running.retune(Fixed(2))
            with pytest.raises(BuildError, match="stage=7"):
                running.retune(Fixed(2), 7)
            with pytest.raises(BuildError, match="limit=0"):
                running.retune(0, 2)
            running.retune(Fixed(2), 3)
            limits = [stage.get("limit") for stage in running.statistics()["stages"]]
            assert limits == [None, 1, 2, None]

    run(story())


def test_a_number_is_a_limit_wherever_a_limit_is_accepted(run: Run) -> None:
    async def story() -> None:
        shared = Shared(2)
        flow = CountedSource(range(9)).pipe(
            adaptive_flat_map(second, 3), adaptive_flat_map(second, shared)
        )
        pipeline = flow.to(MemorySink())
        assert [stage.note for stage in pipeline.describe(limit=4)][1:3] == [
            "4 at once, 256 results",
            "4 at once, 256 results",
        ]
        async with pipeline.start() as running:
            await asyncio.sleep(0)
            limits = [stage.get("limit") for stage in running.statistics()["stages"]]
            assert limits == [None, 3, 2, None]
        async with pipeline.start(limit=4) as running:
            await asyncio.sleep(0)
            limits = [stage.get("limit") for stage in running.statistics()["stages"]]
            assert limits == [None, 4, 4, None]

    run(story())


def test_a_limit_may_be_replaced_before_the_pipeline_has_begun(run: Run) -> None:
    async def story() -> None:
        flow = CountedSource(range(9)).pipe(
            adaptive_flat_map(second, Fixed(1)), adaptive_flat_map(second, Fixed(2))
        )
        async with flow.to(MemorySink()).start() as running:
            with pytest.raises(BuildError, match="the stages with a limit are: 2, 3"):
                running.retune(Fixed(5))
            with pytest.raises(BuildError, match="stage=4"):
                running.retune(Fixed(5), 4)
            with pytest.raises(BuildError, match="limit=0"):
                running.retune(0, 2)
            running.retune(5, 2)
            await running.wait()
            peaks = [stage.get("peak_in_flight") for stage in running.statistics()["stages"]]
            assert peaks == [None, 5, 2, None]

    run(story())


def test_retune_changes_the_stage_of_its_number_in_whichever_stream_that_is(run: Run) -> None:
    def working(count: int, limit: int) -> Flowable[int]:
        return CountedSource(range(count)).pipe(adaptive_flat_map(second, Fixed(limit)))

    async def story() -> None:
        async with working(3, 1).pipe(ops.merge(working(3, 2))).to(MemorySink()).start() as running:
            await asyncio.sleep(0)
            running.retune(Fixed(7), 2)
            stages = [stage for stage in running.statistics()["stages"] if "limit" in stage]
            assert {stage["stage"]: stage["limit"] for stage in stages} == {2: 7, 4: 2}

    run(story())


def of_two_readings(name: str, limit: int) -> list[Any]:
    """Two stages in a row, the second in a stream that begins when the first has ended."""
    stage: list[Any] = (
        [adaptive_flat_map(second, Fixed(limit))]
        if name == "retune"
        else [group_by(lambda value: value, buffer=8, share=limit), spread()]
    )
    first = CountedSource(range(9)).pipe(*stage)
    return [first, ops.concat(CountedSource(range(9)).pipe(*stage))]


@pytest.mark.parametrize(
    ("change", "wrong", "kind", "number"),
    [
        ("retune", [(3,), (Fixed(2), 9), (Fixed(2), 1)], "a limit", "limit"),
        (
            "set_share",
            [(9, None, 2), (0, None, 2), (2, "drop", 2), (2, None, 9), (2, None, 1)],
            "a share",
            "share",
        ),
    ],
)
@pytest.mark.parametrize("ticks", [0, 1, 2])
def test_a_stage_is_chosen_in_one_way_before_and_after_the_beginning(
    run: Run, change: str, wrong: list[Any], kind: str, number: str, ticks: int
) -> None:
    async def story() -> None:
        first, rest = of_two_readings(change, 1)
        running = first.pipe(rest).to(MemorySink()).start()
        for _ in range(ticks):
            await asyncio.sleep(0)
        call = getattr(running, change)
        new: Any = Fixed(3) if change == "retune" else 3
        numbers = "2, 4" if change == "retune" else "2, 5"
        with pytest.raises(BuildError, match=f"{change}.*the stages with {kind}.* are: {numbers}"):
            call(new)
        for arguments in wrong:
            with pytest.raises(BuildError):
                call(*arguments)
        later = int(numbers[-1])
        for at, stage in ((new, 2), (new, later)):
            call(at, stage) if change == "retune" else call(at, None, stage)
        if change == "set_share":
            call(None, "wait", later)
        await asyncio.sleep(0.5)
        found = {one["stage"]: one.get(number) for one in running.statistics()["stages"]}
        assert found[2] == 3
        report = await running.wait()
        assert report.outcome == "completed"
        found = {one["stage"]: one.get(number) for one in report.statistics["stages"]}
        assert found[later] == 3

    run(story())


# Neighbours.


def test_pipelines_in_one_loop_do_not_disturb_each_other(run: Run) -> None:
    async def fails(value: int) -> None:
        await asyncio.sleep(value)
        raise ValueError

    async def story() -> None:
        good, sink = MemorySource(range(5)), MemorySink()
        failing = MemorySource(range(3)).pipe(adaptive_flat_map(fails, Fixed(3)))
        cancelled = sequential(MemorySource(range(9))).to(MemorySink()).start()
        waiting = asyncio.gather(
            sequential(good).to(sink).run(),
            failing.to(MemorySink()).run(),
            cancelled.wait(),
            return_exceptions=True,
        )
        await asyncio.sleep(2)
        cancelled.cancel()
        first, second, third = await waiting
        assert first.statistics["finished"] == 5  # type: ignore[union-attr]
        assert isinstance(second, ValueError)
        assert third.outcome == "cancelled"  # type: ignore[union-attr]
        assert sink.accepted == [(n + 1, n) for n in range(5)]

    run(story())


def test_signals_and_logging_of_the_embedding_program_are_left_alone(run: Run) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    loggers = [logging.getLogger(name) for name in ("", "penstock", "asyncio")]
    before = [(list(log.handlers), log.level, log.propagate, log.disabled) for log in loggers]

    async def story() -> None:
        loop = asyncio.get_running_loop()
        handler = loop.get_exception_handler()
        async with sequential(CountedSource(range(2))).to(MemorySink()).start():
            await asyncio.sleep(0.5)
            assert handlers == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
            assert loop.get_exception_handler() is handler

    run(story())
    after = [(list(log.handlers), log.level, log.propagate, log.disabled) for log in loggers]
    assert after == before


def test_in_debug_mode_nothing_is_noticed(
    virtual_loop: asyncio.AbstractEventLoop, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    virtual_loop.set_debug(True)
    run(sequential(CountedSource(range(5))).to(MemorySink()).run())
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_without_a_loop_there_is_no_running() -> None:
    with pytest.raises(NoLoop, match=r"^start\(\) needs a running event loop.*`run\(pipeline\)`"):
        CountedSource([1]).to(MemorySink()).start()


def test_a_running_that_is_never_awaited_still_ends(run: Run) -> None:
    async def story() -> None:
        source, sink = ManualPublisher[int](), MemorySink()
        running = source.to(sink).start()
        await asyncio.sleep(0)
        source.send(1)
        source.complete()
        await asyncio.sleep(0.1)
        assert running.statistics()["state"] == "closed"
        assert sink.values == [1]

    run(story())


def test_an_error_that_nobody_waits_for_is_logged_once_with_its_stage(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        def fails(value: int) -> None:
            raise ValueError(f"no {value}\nat all")

        running = from_iterable([1, 2]).pipe(adaptive_flat_map(fails)).to(MemorySink()).start()
        await asyncio.sleep(1)
        with pytest.raises(ValueError, match="no 1"):
            await running.wait()

    run(story())
    assert [(record.name, record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "penstock",
            "ERROR",
            "a pipeline has ended with ValueError: no 1 at all "
            "(in stage 2 'adaptive_flat_map', on the event 1)",
        )
    ]


async def leave_the_block(pipeline: Pipeline) -> None:
    async with pipeline.start():
        pass


@pytest.mark.parametrize(
    "wait",
    [
        lambda pipeline: pipeline.start().wait(),
        lambda pipeline: pipeline.run(),
        leave_the_block,
    ],
    ids=["wait", "run", "block"],
)
def test_an_error_that_somebody_waits_for_is_not_logged(
    run: Run, wait: Callable[[Pipeline], Any], caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = from_iterable([0]).pipe(adaptive_flat_map(lambda n: 1 / n)).to(MemorySink())

    async def story() -> None:
        with suppress(ZeroDivisionError):
            await wait(pipeline)

    run(story())
    assert caplog.records == []


def test_a_cancel_that_nobody_waits_for_is_not_an_error(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        running = sequential(from_iterable(range(9))).to(MemorySink()).start()
        await asyncio.sleep(2.5)
        running.cancel()
        await asyncio.sleep(1)
        assert running.report().outcome == "cancelled"

    run(story())
    assert caplog.records == []


@pytest.mark.parametrize("wait", [Running.wait, Running.drain])
def test_a_call_that_waits_for_the_end_of_its_own_pipeline_fails_instead_of_waiting_for_itself(
    run: Run, wait: Callable[[Running], Coroutine[Any, Any, Any]]
) -> None:
    async def handle(number: int) -> int:
        if number == 1:
            await wait(running)
        return number

    inner = from_iterable([0, 1, 2]).pipe(adaptive_flat_map(handle, on_error="skip"))
    sink = MemorySink()
    outer = from_iterable([0]).pipe(ops.flat_map(lambda _: inner))

    async def story() -> None:
        nonlocal running
        for stream in inner, outer:
            running = stream.to(sink).start()
            report = await running.wait()
            assert report.outcome == "completed"
            assert report.statistics["errors"] == {"BuildError": 1}

    running: Any = None
    run(story())
    assert sink.values == [0, 2, 0, 2]


def test_a_call_may_begin_to_drain_its_own_pipeline(run: Run) -> None:
    async def handle(number: int) -> int:
        if number == 1:
            running.begin_drain()
        return number

    sink = MemorySink()

    async def story() -> None:
        nonlocal running
        stages = adaptive_flat_map(handle, Fixed(1))
        running = from_iterable(range(1000)).pipe(stages).to(sink).start()
        await running.wait()

    running: Any = None
    run(story())
    assert sink.values == [0, 1]


@pytest.mark.parametrize("name", ["map", "scan", "catch", "merge"])
def test_a_pipeline_with_too_many_stages_says_how_to_run_it(run: Run, name: str) -> None:
    operators: dict[str, Any] = {
        "map": ops.map(lambda value: value),
        "scan": ops.scan(lambda _, value: value),
        "catch": ops.catch(from_iterable([9])),
        "merge": ops.merge(from_iterable([9])),
    }
    stream: Flowable[Any] = from_iterable([1, 2])
    for _ in range(400):
        stream = stream.pipe(operators[name])
    sink = MemorySink()
    with pytest.raises(RecursionError) as raised:
        run(stream.to(sink).run())
    (note,) = [note for note in raised.value.__notes__ if "setrecursionlimit" in note]
    limit = int(note.split("setrecursionlimit(")[1].split(")")[0])
    before = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(limit)
        assert run(stream.to(sink).run()).outcome == "completed"
    finally:
        sys.setrecursionlimit(before)
