from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Fixed, adaptive_flat_map, from_iterable, group_by, route, spread
from penstock.streams.base.errors import HandlerCancelled
from penstock.streams.limits import Outcome
from penstock.streams.testing import ManualPublisher, MemorySink, MemorySource, Probe
from penstock.streams.testing.plugin import Run
from tests.helpers.failing import BOTH, fails, fails_inline


@BOTH
def test_stop_raises_the_users_error_and_names_the_stage_and_the_event(run: Run, make: Any) -> None:
    pipeline = MemorySource(range(9)).pipe(adaptive_flat_map(make({4}), Fixed(2))).to(MemorySink())
    with pytest.raises(ValueError, match="4") as raised:
        run(pipeline.run())
    assert raised.value.__notes__ == ["in stage 2 'adaptive_flat_map', on the event 4"]


def test_stop_begins_nothing_new_and_lets_what_is_in_flight_finish(run: Run) -> None:
    started: list[int] = []

    async def handler(value: int) -> int:
        started.append(value)
        await asyncio.sleep(1 if value == 0 else 5)
        if value == 0:
            raise ValueError(value)
        return value

    source, sink = MemorySource(range(100)), MemorySink()
    with pytest.raises(ValueError, match="0"):
        run(source.pipe(adaptive_flat_map(handler, Fixed(4))).to(sink).run())
    assert started == [0, 1, 2, 3]
    assert sink.accepted == [(5, 1), (5, 2), (5, 3)]
    assert source.failed == [0]
    assert source.acked == [1, 2, 3]
    assert source.unsettled == []


def test_stop_gives_back_what_waits(run: Run) -> None:
    source, sink = MemorySource([0, 0, 0, 1, 1, 2]), MemorySink()
    flow = source.pipe(
        group_by(lambda n: n), spread(), adaptive_flat_map(fails({1}, seconds=1), Fixed(2))
    )
    with pytest.raises(ValueError, match="1"):
        run(flow.to(sink).run())
    # The first 0 had ended right before the failure, in the same loop iteration: nothing began.
    assert (source.acked, source.failed) == ([0], [1])
    assert sorted(source.returned) == [0, 0, 1, 2]


def test_what_is_in_flight_at_a_stop_has_the_drain_deadline(run: Run) -> None:
    async def handler(value: int) -> None:
        await asyncio.sleep(1 if value == 0 else 1000)
        raise ValueError(value)

    async def story() -> float:
        source = MemorySource(range(3))
        flow = source.pipe(adaptive_flat_map(handler, Fixed(3))).to(MemorySink())
        with pytest.raises(ValueError, match="0"):
            await flow.run(drain_deadline=7)
        assert sorted(source.returned) == [1, 2]
        return asyncio.get_running_loop().time()

    assert run(story()) == 8


def test_later_errors_are_not_lost(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(value: int) -> None:
        await asyncio.sleep(value)
        raise ValueError(f"number {value}")

    source = MemorySource([1, 2, 3])
    with pytest.raises(ValueError, match="number 1"):
        run(source.pipe(adaptive_flat_map(handler, Fixed(3))).to(MemorySink()).run())
    assert [record.getMessage() for record in caplog.records] == [
        "after the first error: ValueError: number 2 "
        "(in stage 2 'adaptive_flat_map', on the event 2)",
        "after the first error: ValueError: number 3 "
        "(in stage 2 'adaptive_flat_map', on the event 3)",
    ]
    assert source.failed == [1, 2, 3]


def test_errors_of_two_stages_are_both_reported(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def first(value: int) -> int:
        await asyncio.sleep(value)
        if value == 2:
            raise KeyError("first stage")
        return value

    async def second(value: int) -> int:
        await asyncio.sleep(5)
        raise ValueError("second stage")

    flow = MemorySource([1, 2, 3]).pipe(
        adaptive_flat_map(first, Fixed(3)), adaptive_flat_map(second, Fixed(3))
    )
    with pytest.raises(KeyError):
        run(flow.to(MemorySink()).run())
    assert ["second stage" in record.getMessage() for record in caplog.records] == [True]


@BOTH
def test_skip_counts_and_goes_on(run: Run, make: Any) -> None:
    source, sink = MemorySource(range(600)), MemorySink()
    operator = adaptive_flat_map(make({3, 4, 300}), Fixed(7), on_error="skip")
    report = run(source.pipe(operator).to(sink).run())
    assert sink.values == [n for n in range(600) if n not in (3, 4, 300)]
    assert sorted(source.acked) == list(range(600))
    assert report.statistics["failed"] == 3
    assert report.statistics["stages"][1]["skipped"] == 3
    assert report.exit_status == 3


@BOTH
def test_route_acknowledges_when_the_letter_is_written(run: Run, make: Any) -> None:
    async def story() -> None:
        source, sink, dead = MemorySource(range(6)), MemorySink(), MemorySink(seconds=10)
        operator = adaptive_flat_map(make({3, 4}), Fixed(6), on_error=route(dead))
        async with source.pipe(operator).to(sink).start() as running:
            await asyncio.sleep(5)
            assert sorted(source.acked) == [0, 1, 2, 5]
            assert running.statistics()["unfinished"] == 2
        assert sorted(source.acked) == [0, 1, 2, 3, 4, 5]
        letters = dead.values
        assert [(letter.value, type(letter.error), letter.attempts) for letter in letters] == [
            (3, ValueError, 1),
            (4, ValueError, 1),
        ]
        assert {letter.stage for letter in letters} == {"stage 2 'adaptive_flat_map'"}
        assert running.statistics()["failed"] == 2
        assert running.report().exit_status == 3

    run(story())


def test_a_dead_letter_sink_that_fails_stops_the_pipeline(run: Run) -> None:
    source, dead = MemorySource(range(6)), MemorySink()
    dead.fail(OSError("disk full"))
    operator = adaptive_flat_map(fails({1}), Fixed(2), on_error=route(dead))
    with pytest.raises(OSError, match="disk full"):
        run(source.pipe(operator).to(MemorySink()).run())
    assert source.failed == [1]
    assert source.unsettled == []


def test_failures_leave_no_gap_and_keep_their_slots_busy(run: Run) -> None:
    sink = MemorySink()
    operator = adaptive_flat_map(fails({1, 2}), Fixed(2), ordered=True, on_error="skip")
    run(MemorySource(range(6)).pipe(operator).to(sink).run())
    assert sink.accepted == [(1, 0), (2, 3), (3, 4), (3, 5)]


def test_overload_decides_what_an_error_means_for_the_limiter(run: Run) -> None:
    told: list[Outcome] = []

    class Recorder(Fixed):
        pass

    class Listening:
        limit = 1

        def on_complete(self, now: float, started: float, in_flight: int, outcome: Outcome) -> None:
            told.append(outcome)

    async def handler(value: int) -> None:
        raise [ValueError, ConnectionRefusedError, TimeoutError][value]

    operator = adaptive_flat_map(
        handler,
        Listening(),
        on_error="skip",
        overload=lambda error: isinstance(error, ConnectionError),
    )
    run(MemorySource(range(3)).pipe(operator).to(MemorySink()).run())
    assert told == [Outcome.IGNORED, Outcome.DROPPED, Outcome.DROPPED]


def test_an_overload_function_that_raises_stops_the_pipeline(run: Run) -> None:
    class Listening:
        limit = 1

        def on_complete(self, *_: Any) -> None: ...

    def broken(error: Exception) -> bool:
        raise ZeroDivisionError

    source = MemorySource(range(3))
    operator = adaptive_flat_map(fails({0}), Listening(), on_error="skip", overload=broken)
    with pytest.raises(ZeroDivisionError) as raised:
        run(source.pipe(operator).to(MemorySink()).run())
    assert raised.value.__notes__ == [
        "in the function given as overload= of stage 2 'adaptive_flat_map'"
    ]
    assert source.acked == [0]


def test_an_error_above_lets_what_is_in_flight_finish(run: Run) -> None:
    async def story() -> None:
        source, sink = ManualPublisher[int](), MemorySink()
        running = source.pipe(adaptive_flat_map(fails(set()), Fixed(9))).to(sink).start()
        await asyncio.sleep(0)
        source.send(1, 2)
        await asyncio.sleep(0.5)
        source.fail(OSError("source"))
        with pytest.raises(OSError, match="source"):
            await running.wait()
        assert sink.accepted == [(1, 1), (1, 2)]

    run(story())


def test_a_plain_handler_needs_no_loop_and_its_error_reaches_the_reader() -> None:
    probe = Probe[int](request=9)
    from_iterable([1, 2, 3]).pipe(adaptive_flat_map(fails_inline({3}))).connect(probe)
    assert probe.values == [1, 2]
    assert isinstance(probe.error, ValueError)


def test_in_a_stride_of_plain_calls_an_error_gives_back_the_rest(run: Run) -> None:
    source, sink = MemorySource(range(1000)), MemorySink()
    flow = source.pipe(group_by(lambda n: n), spread(), adaptive_flat_map(fails_inline({400})))
    with pytest.raises(ValueError, match="400"):
        run(flow.to(sink).run())
    assert sink.values == source.acked == list(range(400))
    assert source.failed == [400]
    assert source.unsettled == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("plain", [True, False])
def test_what_ends_the_program_says_where_it_was_raised(
    kind: type[BaseException], plain: bool
) -> None:
    async def later(value: int) -> None:
        leave(value)

    def leave(value: int) -> None:
        if value == 2:
            raise kind("enough")

    source = MemorySource(range(5))
    handler: Any = leave if plain else later
    with pytest.raises(kind) as raised, asyncio.Runner() as runner:
        runner.run(source.pipe(adaptive_flat_map(handler, Fixed(1))).to(MemorySink()).run())
    assert raised.value.__notes__ == ["in stage 2 'adaptive_flat_map', on the event 2"]
    assert 2 in source.returned


def test_a_handler_that_cancels_its_own_task_is_named_with_its_event(run: Run) -> None:
    async def leave(value: int) -> None:
        if value == 2:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    source = MemorySource(range(5))
    with pytest.raises(HandlerCancelled) as raised:
        run(source.pipe(adaptive_flat_map(leave, Fixed(1))).to(MemorySink()).run())
    assert raised.value.__notes__ == ["in stage 2 'adaptive_flat_map', on the event 2"]
    assert 2 in source.returned


def test_what_is_reverted_to_a_source_that_cannot_give_it_again_has_failed(run: Run) -> None:
    def fail(number: int) -> int:
        if number == 1:
            raise ValueError(number)
        return number

    stream = from_iterable(range(3)).pipe(adaptive_flat_map(fail, on_error="revert"))
    report = run(stream.to(MemorySink()).run())
    numbers = report.statistics
    assert (numbers["finished"], numbers["failed"], numbers["returned"]) == (2, 1, 0)
    stage = numbers["stages"][1]
    assert (stage["reverted"], stage["skipped"]) == (1, 0)
    assert report.exit_status == 3
