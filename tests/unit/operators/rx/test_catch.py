from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as stock
from reactivex.subject import Subject

from penstock import (
    Fixed,
    Flowable,
    adaptive_flat_map,
    collect,
    from_async_iterable,
    from_iterable,
    ops,
)
from penstock.streams.base.errors import BufferFull, PenstockError, WrongType
from penstock.streams.testing import (
    COMPLETED,
    CountedSource,
    ManualPublisher,
    MemorySink,
    MemorySource,
    Probe,
    play,
    run_virtual,
)
from penstock.streams.testing.plugin import Run
from tests.helpers.like_stock import assert_like_stock, messages

ERROR = ValueError("no")


def test_the_other_stream_begins_when_the_source_fails() -> None:
    other = from_iterable("ab")
    assert play("-1-2-#", ops.catch(other), error=ERROR) == [
        (1.0, 1),
        (3.0, 2),
        (5.0, "a"),
        (5.0, "b"),
        (5.0, COMPLETED),
    ]


@given(messages(), messages())
def test_it_is_like_stock_with_another_source(source: Any, other: Any) -> None:
    assert_like_stock(lambda make: stock.catch(make()), source, other)


@given(messages(), messages())
def test_it_is_like_stock_with_a_function(source: Any, other: Any) -> None:
    assert_like_stock(lambda make: stock.catch(lambda error, source: make()), source, other)


def test_a_function_gets_the_error_and_the_source() -> None:
    seen = list[Any]()

    def choose(error: Exception, source: Flowable[int]) -> Flowable[int]:
        seen.append(error)
        return source

    assert play("1#", lambda source: source.pipe(ops.catch(choose), ops.take(1)), error=ERROR) == [
        (0.0, 1),
        (0.0, COMPLETED),
    ]
    failing = from_iterable([1]).pipe(ops.map(lambda value: 1 // (value - 1)), ops.catch(choose))
    with pytest.raises(ZeroDivisionError):
        run_virtual(failing.to_list())
    # The second error is that of the source which the function has returned.
    assert [type(error) for error in seen] == [ZeroDivisionError]


@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 12))
def test_no_more_is_requested_of_either_stream_than_of_it(first: int, other: int, n: int) -> None:
    publisher, fallback = ManualPublisher[int](), CountedSource(range(other))
    probe = Probe[int](request=n)
    publisher.pipe(ops.catch(fallback)).connect(probe)
    sent = min(first, n)
    publisher.send(*range(sent))
    assert sum(publisher.requests) == n
    publisher.fail(ERROR)
    assert probe.values == [*range(sent), *range(min(other, n - sent))]
    assert fallback.emitted == min(other, n - sent)
    assert fallback.ledger.unsettled == publisher.unsettled == []


def test_events_in_flight_are_returned_and_the_other_stream_goes_on() -> None:
    async def work(value: int) -> int:
        await asyncio.sleep(1)
        if value == 1:
            raise ERROR
        return value

    source, sink = MemorySource([1, 2, 3]), MemorySink()
    stream = source.pipe(adaptive_flat_map(work, Fixed(2)), ops.catch(from_iterable([8, 9])))
    report = run_virtual(stream.to(sink).run())
    # What was in flight with the one that failed has ended first.
    assert sink.values == [2, 8, 9]
    assert (report.outcome, report.statistics["unfinished"]) == ("completed", 0)
    assert source.failed == [1]
    assert (source.returned, source.unsettled) == ([], [])


def test_what_was_read_of_both_streams_is_in_the_sum() -> None:
    broken = from_iterable([1, 2, 0]).pipe(ops.map(lambda value: 1 // value))
    into: list[int] = []
    report = run_virtual(broken.pipe(ops.catch(from_iterable("ab"))).to(collect(into)).run())
    numbers = report.statistics
    assert into == [1, 0, "a", "b"]
    assert (numbers["in"], numbers["finished"], numbers["failed"]) == (5, 4, 1)


def test_a_plain_observable_may_not_run_ahead_without_bound() -> None:
    subject = Subject[int]()
    publisher, probe = ManualPublisher[int](), Probe[int](request=1)
    publisher.pipe(ops.catch(subject)).connect(probe)
    publisher.fail(ERROR)
    for value in range(1026):
        subject.on_next(value)
    assert (probe.values, probe.error) == ([0], None)
    probe.request(2000)
    assert isinstance(probe.error, BufferFull)
    assert probe.values == list(range(1025))


def test_what_the_function_raises_or_returns_wrongly_ends_the_stream() -> None:
    def broken(error: Exception, source: Any) -> Any:
        raise KeyError("x")

    assert isinstance(play("#", ops.catch(broken))[0][1], KeyError)
    assert isinstance(play("#", ops.catch(lambda error, source: 5))[0][1], WrongType)
    with pytest.raises(WrongType, match="catch takes a stream or a function, not 5"):
        ops.catch(5)


def test_cancelling_releases_the_stream_that_is_read() -> None:
    publisher, other = ManualPublisher[int](), ManualPublisher[int]()
    probe = Probe[int](request=4, hold=True)
    publisher.pipe(ops.catch(other)).connect(probe)
    publisher.fail(ERROR)
    other.send(1)
    probe.cancel()
    assert (other.cancels, publisher.cancels) == (1, 0)
    probe.events[0].give_back()
    assert other.returned == [1]


def test_every_stock_spelling_leads_to_it() -> None:
    other = from_iterable([2])
    source = from_iterable([0]).pipe(ops.map(lambda value: 1 // value))
    for stream in (source.pipe(stock.catch(other)), source.catch(other), ops.catch(other)(source)):
        assert stream.info.name == "catch"
        assert run_virtual(stream.to_list()) == [2]


def test_the_error_of_the_other_stream_passes() -> None:
    failing = from_iterable([0]).pipe(ops.map(lambda value: 1 // value))
    seen = play("-#", ops.catch(failing))
    assert [type(value) for _, value in seen] == [ZeroDivisionError]
    assert not isinstance(seen[0][1], PenstockError)


def test_an_error_of_the_other_stream_gives_its_calls_no_more_than_the_drains_deadline() -> None:
    async def story() -> float:
        async def handler(value: int) -> None:
            if value:
                raise ERROR
            await asyncio.sleep(100)

        other = from_iterable([0, 1]).pipe(adaptive_flat_map(handler, Fixed(2)))
        failing = from_iterable([0]).pipe(ops.map(lambda value: 1 // value))
        running = failing.pipe(ops.catch(other)).to(MemorySink()).start(drain_deadline=2)
        with pytest.raises(ValueError, match="no"):
            await running.wait()
        return asyncio.get_running_loop().time()

    # Without it the run would last as long as the other call.
    assert run_virtual(story()) == 2


async def odd_fails(value: int) -> int:
    if value % 2:
        raise ERROR
    return value


def recovered(name: str, stream: Any) -> Any:
    other = from_iterable([8])
    return {
        "catch": lambda: stream.pipe(ops.catch(other)),
        "on_error_resume_next": lambda: stream.pipe(ops.on_error_resume_next(other)),
        "retry": lambda: stream.pipe(ops.retry(2), ops.catch(other)),
        "catch below share": lambda: stream.pipe(ops.share(), ops.catch(other)),
    }[name]()


@pytest.mark.parametrize("name", ["catch", "on_error_resume_next", "retry", "catch below share"])
def test_a_failure_after_which_the_stream_goes_on_is_reported_and_makes_no_exit_status_of_3(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> Any:
        failing = from_iterable([2, 1]).pipe(adaptive_flat_map(odd_fails, limit=Fixed(1)))
        return await recovered(name, failing).to(collect(list[Any]())).run()

    report = run_virtual(story())
    failures = 2 if name == "retry" else 1
    assert (report.exit_status, report.statistics["failed"]) == (0, failures)
    assert report.statistics["recovered"] == failures
    assert sum(stage.get("recoveries", 0) for stage in report.statistics["stages"]) == failures
    assert "1 recovery" in str(report)
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == failures
    assert "goes on after an error: ValueError: no (in stage 2 'adaptive_flat_map'" in warned[-1]


@pytest.mark.parametrize("name", ["catch", "on_error_resume_next", "retry"])
def test_failures_after_which_streams_inside_a_stream_go_on_are_counted_and_the_first_reported(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> Any:
        def inside(_: int) -> Any:
            failing = from_iterable([1]).pipe(adaptive_flat_map(odd_fails))
            return recovered(name, failing)

        stream: Any = from_iterable(range(50)).pipe(ops.flat_map(inside))
        return await stream.to(collect(list[Any]())).run()

    report = run_virtual(story())
    failures = 100 if name == "retry" else 50
    assert report.exit_status == 0
    assert report.statistics["recoveries"] == failures
    assert f"in streams that stages have read: {failures} recoveries" in str(report)
    warned = [record.getMessage() for record in caplog.records]
    # Of each stage, and that there are more.
    assert len(warned) == 11 * failures // 50


def test_an_event_that_is_skipped_above_a_catch_still_makes_the_exit_status_3() -> None:
    async def story() -> Any:
        skipping = adaptive_flat_map(odd_fails, limit=Fixed(1), on_error="skip")

        def broken() -> Any:
            yield 1
            raise OSError("gone")

        stream: Any = from_iterable(broken).pipe(skipping, ops.catch(from_iterable([8])))
        return await stream.to(collect(list[Any]())).run()

    report = run_virtual(story())
    assert (report.statistics["failed"], report.statistics["recovered"]) == (1, 0)
    assert report.exit_status == 3


def test_an_event_that_fails_below_a_catch_has_not_recovered() -> None:
    async def story() -> Any:
        stream: Any = from_iterable([2, 1]).pipe(ops.catch(from_iterable([8])))
        failing = stream.pipe(adaptive_flat_map(odd_fails, limit=Fixed(1)))
        running = failing.to(collect(list[Any]())).start()
        with pytest.raises(ValueError, match="no"):
            await running.wait()
        return running.statistics()

    numbers = run_virtual(story())
    assert (numbers["failed"], numbers["recovered"]) == (1, 0)


def test_an_event_that_fails_between_two_catches_has_recovered_by_the_second() -> None:
    async def story() -> Any:
        once = from_iterable([1]).pipe(adaptive_flat_map(odd_fails))
        caught: Any = once.pipe(ops.catch(from_iterable([8, 3])))
        stream: Any = caught.pipe(ops.map(divided), ops.catch(from_iterable([4])))
        return await stream.to(collect(list[Any]())).run()

    def divided(value: int) -> int:
        if value == 3:
            raise ERROR
        return value

    report = run_virtual(story())
    assert (report.statistics["failed"], report.statistics["recovered"]) == (2, 2)


def test_an_error_that_nothing_follows_stops_the_pipeline_as_ever() -> None:
    async def story() -> Any:
        failing = from_iterable([1]).pipe(adaptive_flat_map(odd_fails), ops.retry(1))
        running = failing.to(collect(list[Any]())).start()
        with pytest.raises(ValueError, match="no"):
            await running.wait()
        return running.report()

    assert run_virtual(story()).exit_status == 1


@pytest.mark.parametrize("is_below", [False, True])
def test_only_the_failure_that_ended_the_source_is_recovered_from(run: Run, is_below: bool) -> None:
    async def rows() -> AsyncIterator[int]:
        for n in range(4):
            yield n
            await asyncio.sleep(1)

    def refuse(n: int) -> int:
        if n == 1:
            raise ValueError(n)
        return n

    def end(n: int) -> int:
        if n == 3:
            raise OSError(n)
        return n

    # What is reverted is given up by a source that cannot give it again, and its stage goes on.
    reverts: Any = adaptive_flat_map(refuse, on_error="revert")
    ends, catch = ops.map(end), ops.catch(from_iterable([9]))
    stages = (ends, catch, reverts) if is_below else (reverts, ends, catch)
    sink = MemorySink()
    report = run(from_async_iterable(rows).pipe(*stages).to(sink).run())
    assert sink.values == [0, 2, 9]
    assert (report.statistics["failed"], report.statistics["recovered"]) == (2, 1)
    assert report.exit_status == 3
