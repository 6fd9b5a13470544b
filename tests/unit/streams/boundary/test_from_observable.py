from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any

import pytest
import reactivex
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops
from reactivex.subject import Subject

import penstock
from penstock import (
    Fixed,
    Flowable,
    adaptive_flat_map,
    collect,
    from_iterable,
    in_threads,
    spread,
)
from penstock.ops import merge
from penstock.streams.base.errors import BufferFull, BuildError, NoLoop
from penstock.streams.boundary.strict_subscriber import connect
from penstock.streams.runtime.context import Run
from penstock.streams.testing import CountedSource, MemorySource, Probe, no_leaks, run_virtual

# Flowable.of.


def entered(overflow: Any, request: int | None = None) -> tuple[Subject[int], Probe[int]]:
    subject, probe = Subject[int](), Probe[int](request=request)
    Flowable.of(subject, overflow).connect(probe)
    return subject, probe


def send(subject: Subject[int], *values: int) -> None:
    for value in values:
        subject.on_next(value)


@pytest.mark.parametrize(
    ("overflow", "kept"),
    [
        (penstock.buffer(3), [1, 2, 3, 4]),
        (penstock.drop_oldest(3), [1, 4, 5, 6]),
        (penstock.drop_newest(3), [1, 2, 3, 4]),
        (penstock.latest(), [1, 6]),
        (penstock.error(), [1]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_each_strategy_keeps_what_its_name_says(overflow: Any, kept: list[int]) -> None:
    subject, probe = entered(overflow, request=1)
    send(subject, 1, 2, 3, 4, 5, 6)
    probe.request(10)
    assert probe.values == kept
    overflows = overflow.when_full == "error"
    assert isinstance(probe.error, BufferFull) == overflows
    if overflows:
        assert subject.observers == []
    else:
        send(subject, 7)
        assert probe.values == [*kept, 7]
        probe.cancel()


@pytest.mark.parametrize(
    ("overflow", "said"),
    [
        (
            penstock.buffer(3),
            "A value came that was not requested, with 3 waiting already (Flowable.of, "
            "on_overflow=buffer(3)). Slow the source, raise buffer(n), or enter with "
            "drop_oldest(n).",
        ),
        (
            penstock.error(),
            "A value came that was not requested (Flowable.of, on_overflow=error()). Slow the "
            "source, or enter with buffer(n) or drop_oldest(n).",
        ),
    ],
    ids=["buffer", "error"],
)
def test_a_value_too_many_is_reported_with_what_the_strategy_can_do_about_it(
    overflow: Any, said: str
) -> None:
    subject, probe = entered(overflow, request=1)
    send(subject, 1, 2, 3, 4, 5)
    probe.request(10)
    assert str(probe.error) == said


@pytest.mark.parametrize(
    "overflow", ["buffer(8)", "drop_oldest(8)", "drop_newest(8)", "latest()", "error()"]
)
def test_the_stage_shows_its_strategy_as_it_is_written(overflow: str) -> None:
    strategy = eval(overflow, vars(penstock))
    assert Flowable.of(Subject[int](), strategy).info.detail == overflow


@given(
    st.lists(st.integers(1, 3) | st.none(), max_size=30),
    st.integers(1, 4),
    st.sampled_from(["drop_oldest", "drop_newest"]),
)
def test_no_more_than_n_values_ever_wait_and_each_one_dropped_is_counted(
    steps: list[int | None], n: int, name: str
) -> None:
    """A step is a value that comes, or a number of values that are requested."""
    subject, run = Subject[int](), Run()
    probe = Probe[int](request=1)
    connect(Flowable.of(subject, getattr(penstock, name)(n)), probe, run)
    waiting: list[int] = []
    expected: list[int] = []
    demand, sent, dropped = 1, 0, 0
    for step in steps:
        if step is None:
            sent += 1
            subject.on_next(sent)
            waiting.append(sent)
        else:
            demand += step
            probe.request(step)
        while demand and waiting:
            expected.append(waiting.pop(0))
            demand -= 1
        if len(waiting) > n:
            del waiting[0 if name == "drop_oldest" else -1]
            dropped += 1
        numbers = run.nesting.sources[0].statistics()
        assert numbers["buffered"] == len(waiting) <= n
        assert numbers["dropped"] == ({"overflow": dropped} if dropped else {})
    assert probe.values == expected
    probe.cancel()
    assert run.nesting.sources[0].statistics()["in"] == sent


def test_an_observable_is_subscribed_to_at_the_first_request_and_left_at_cancel() -> None:
    subject, probe = entered(penstock.buffer(9))
    assert subject.observers == []
    probe.request(1)
    assert len(subject.observers) == 1
    probe.cancel()
    assert subject.observers == []


def test_the_end_comes_after_what_waits() -> None:
    for error in (None, ValueError("from Rx")):
        subject, probe = entered(penstock.buffer(9), request=1)
        send(subject, 1, 2, 3)
        subject.on_completed() if error is None else subject.on_error(error)
        assert not probe.ended
        probe.request(2)
        assert probe.values == [1, 2, 3]
        assert (probe.completed, probe.error) == (error is None, error)


def test_an_observable_that_ends_at_once_is_read_to_its_end() -> None:
    probe = Probe[int](request=9)
    Flowable.of(reactivex.of(1, 2, 3), penstock.buffer(9)).connect(probe)
    assert (probe.values, probe.completed) == ([1, 2, 3], True)


def test_an_observable_is_given_the_loops_time() -> None:
    async def story() -> list[Any]:
        probe = Probe[int](request=3)
        Flowable.of(reactivex.interval(2.0), penstock.latest()).connect(probe)
        await asyncio.sleep(7)
        probe.cancel()
        return probe.timed

    assert run_virtual(story()) == [(2, 0), (4, 1), (6, 2)]


def test_a_paused_pipeline_takes_in_what_the_strategy_allows_and_ends_when_resumed() -> None:
    async def story() -> list[int]:
        subject, done = Subject[int](), list[int]()
        pipeline = Flowable.of(subject, penstock.drop_oldest(2)).to(collect(done))
        async with pipeline.start() as running:
            await asyncio.sleep(1)
            send(subject, 1)
            running.pause()
            send(subject, 2, 3, 4)
            subject.on_completed()
            await asyncio.sleep(1)
            assert done == [1]
            running.resume()
        return done

    assert run_virtual(story()) == [1, 3, 4]


def test_a_drain_delivers_what_has_arrived() -> None:
    async def story() -> list[int]:
        subject, done = Subject[int](), list[int]()

        async def work(value: int) -> int:
            await asyncio.sleep(1)
            return value

        stream = Flowable.of(subject, penstock.buffer(9)).pipe(adaptive_flat_map(work, Fixed(1)))
        async with stream.to(collect(done)).start() as running:
            await asyncio.sleep(1)
            send(subject, 1, 2, 3)
            await running.drain()
            assert subject.observers == []
        return done

    assert run_virtual(story()) == [1, 2, 3]


def test_a_flowable_is_one_already() -> None:
    source = from_iterable([1])
    assert Flowable.of(source, penstock.latest()) is source


@pytest.mark.parametrize("n", [0, -1, True])
def test_a_buffer_below_one_is_refused(n: int) -> None:
    for strategy in (penstock.buffer, penstock.drop_newest, penstock.drop_oldest):
        with pytest.raises(BuildError, match="at least 1"):
            strategy(n)


def test_anything_but_an_observable_or_a_strategy_is_refused() -> None:
    nonsense: Any = [1, 2]
    with pytest.raises(BuildError, match="takes an Observable"):
        Flowable.of(nonsense, penstock.latest())
    with pytest.raises(BuildError, match="use buffer"):
        Flowable.of(Subject[int](), nonsense)


# Values from other threads.


def pushed(subject: Subject[int], numbers: Iterable[int]) -> threading.Thread:
    def push() -> None:
        for number in numbers:
            subject.on_next(number)

    thread = threading.Thread(target=push)
    thread.start()
    return thread


def test_what_another_thread_pushes_goes_through_the_pipeline_on_its_loop() -> None:
    async def story() -> None:
        subject, seen = Subject[int](), list[int]()
        threads = set[int]()

        def work(number: int) -> int:
            threads.add(threading.get_ident())
            return number

        stream = Flowable.of(subject, penstock.buffer(10_000))
        running = asyncio.create_task(stream.pipe(adaptive_flat_map(work)).to(collect(seen)).run())
        await asyncio.sleep(0.01)
        # The loop goes on meanwhile, and so do some of the pushes while it works.
        await asyncio.to_thread(pushed(subject, range(10_000)).join)
        subject.on_completed()
        await running
        assert seen == list(range(10_000))
        assert threads == {threading.get_ident()}

    asyncio.run(story(), debug=True)


def alternately(one: Subject[int], other: Subject[int], count: int) -> None:
    """Push numbers from a thread, in turn into two subjects, while the loop does not run."""

    def push() -> None:
        for number in range(count):
            (one, other)[number % 2].on_next(number)
        other.on_completed()
        one.on_completed()

    thread = threading.Thread(target=push)
    thread.start()
    thread.join()


def test_what_one_thread_pushes_into_several_subjects_arrives_in_its_order() -> None:
    async def story() -> list[int]:
        one, other = Subject[int](), Subject[int]()
        seen: list[int] = []
        flow = Flowable.of(one, penstock.buffer(100)).pipe(
            ops.merge(Flowable.of(other, penstock.buffer(100)))
        )
        async with flow.to(collect(seen)).start() as running:
            await asyncio.sleep(0)
            alternately(one, other, 9)
            await running.wait()
        return seen

    assert asyncio.run(story()) == list(range(9))


def test_the_latest_value_of_a_subject_is_what_its_thread_had_pushed_before() -> None:
    async def story() -> list[tuple[int, int]]:
        one, other = Subject[int](), Subject[int]()
        seen: list[tuple[int, int]] = []
        latest = ops.with_latest_from(Flowable.of(one, penstock.buffer(100)))
        flow = Flowable.of(other, penstock.buffer(100)).pipe(latest)
        async with flow.to(collect(seen)).start() as running:
            await asyncio.sleep(0)
            alternately(one, other, 6)
            await running.wait()
        return seen

    assert asyncio.run(story()) == [(1, 0), (3, 2), (5, 4)]


def test_values_that_are_dropped_before_the_loop_runs_take_no_room() -> None:
    async def story() -> None:
        one, other = Subject[int](), Subject[int]()
        newest = merge(Flowable.of(other, penstock.latest()), prefetch=1)
        seen: list[int] = []
        flow = Flowable.of(one, penstock.latest()).pipe(newest)
        async with flow.to(collect(seen)).start() as running:
            await asyncio.sleep(0)
            tracemalloc.start()
            try:
                alternately(one, other, 20_000)
                taken, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert taken < 100_000
            await running.wait()
        # One requested, and one that waits, of each.
        assert sorted(seen) == [19_996, 19_997, 19_998, 19_999]

    asyncio.run(story())


@pytest.mark.parametrize("ends_on", ["its thread", "the loop"])
@pytest.mark.parametrize("error", [None, ValueError("the subject failed")])
def test_the_end_comes_after_what_another_thread_pushed_before_it(
    ends_on: str, error: Exception | None
) -> None:
    async def story() -> None:
        subject, probe = Subject[int](), Probe[int](request=10)
        Flowable.of(subject, penstock.buffer(5)).connect(probe)

        def end() -> None:
            subject.on_completed() if error is None else subject.on_error(error)

        def push() -> None:
            send(subject, 1, 2, 3)
            if ends_on == "its thread":
                end()

        thread = threading.Thread(target=push)
        thread.start()
        thread.join()
        assert probe.values == []
        if ends_on == "the loop":
            end()
        await asyncio.sleep(0)
        assert probe.values == [1, 2, 3]
        assert (probe.error, probe.completed) == (error, error is None)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("overflow", "kept"),
    [
        (penstock.buffer(3), [1, 2, 3, 4]),
        (penstock.drop_oldest(3), [4, 5, 6, 7]),
        (penstock.drop_newest(3), [1, 2, 3, 4]),
        (penstock.latest(), [6, 7]),
        (penstock.error(), [1]),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_another_thread_pushes_is_kept_as_the_strategy_says(
    overflow: Any, kept: list[int]
) -> None:
    async def story() -> None:
        subject, probe = Subject[int](), Probe[int](request=1)
        run = Run()
        connect(Flowable.of(subject, overflow), probe, run)
        # The loop is busy all that time, and one value is requested.
        pushed(subject, range(1, 8)).join()
        (numbers,) = [numbers() for _, numbers in run.nesting.stages]
        assert numbers["buffered"] <= len(kept)
        await asyncio.sleep(0)
        probe.request(10)
        assert probe.values == kept
        assert isinstance(probe.error, BufferFull) is (overflow.when_full == "error")
        await run.close()

    asyncio.run(story())


@pytest.mark.parametrize("overflow", [penstock.drop_oldest(100), penstock.drop_newest(100)])
def test_each_value_that_threads_push_is_delivered_or_counted_as_dropped(overflow: Any) -> None:
    async def story() -> None:
        subject, seen = Subject[int](), list[int]()
        running = Flowable.of(subject, overflow).to(collect(seen)).start()
        async with running:
            await asyncio.sleep(0.01)
            threads = [pushed(subject, range(start, 10_000, 2)) for start in (0, 1)]
            for thread in threads:
                await asyncio.to_thread(thread.join)
            subject.on_completed()
        numbers = running.statistics()
        dropped = numbers["dropped"].get("overflow", 0)
        assert (numbers["in"], numbers["finished"]) == (10_000, 10_000 - dropped)
        assert len(seen) == len(set(seen)) == numbers["finished"]
        for parity in (0, 1):
            ours = [number for number in seen if number % 2 == parity]
            assert ours == sorted(ours)

    asyncio.run(story())


def test_without_a_loop_a_value_from_another_thread_is_refused() -> None:
    subject, probe = entered(penstock.buffer(10), request=10)
    send(subject, 1)
    pushed(subject, [2]).join()
    assert probe.values == [1]
    assert isinstance(probe.error, NoLoop)


def test_what_another_thread_pushes_after_the_loop_has_gone_is_nobodys() -> None:
    async def story() -> Subject[int]:
        subject, probe = Subject[int](), Probe[int](request=10)
        Flowable.of(subject, penstock.buffer(5)).connect(probe)
        return subject

    subject = asyncio.run(story())
    pushed(subject, range(100)).join()


# subscribe.


def test_subscribe_is_the_ordinary_door_of_rx() -> None:
    source, seen = MemorySource([1, 2, 3]), list[Any]()
    source.subscribe(seen.append, seen.append, lambda: seen.append("completed"))
    assert seen == [1, 2, 3, "completed"]
    assert source.acked == [1, 2, 3]


def test_a_subscriber_gets_the_error() -> None:
    error, seen = ValueError("handler"), list[Any]()

    def fail(_: int) -> int:
        raise error

    from_iterable([1]).pipe(ops.map(fail)).subscribe(on_error=seen.append)
    assert seen == [error]


@pytest.mark.parametrize(
    "source",
    [
        from_iterable([1, 2]),
        from_iterable([1, 2]).pipe(ops.map(abs)),
        from_iterable([1, 2]).pipe(ops.scan(max)),
        from_iterable([1, 2]).pipe(ops.flat_map(lambda n: [n])),
        from_iterable([1, 2]).pipe(ops.buffer_with_count(2)),
        from_iterable([[1], [2]]).pipe(spread()),
        Flowable.of(reactivex.of(1, 2), penstock.buffer(2)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("signal", ["on_next", "on_completed"])
def test_without_a_loop_what_an_observer_raises_is_raised_by_subscribe(
    source: Flowable[Any], signal: str
) -> None:
    error = ZeroDivisionError("the observer is broken")

    def fail(*_: object) -> None:
        raise error

    with pytest.raises(ZeroDivisionError) as raised:
        source.subscribe(**{signal: fail})
    assert raised.value is error


def test_without_a_loop_an_error_that_no_observer_takes_is_raised_by_subscribe() -> None:
    with pytest.raises(ZeroDivisionError):
        from_iterable([1]).pipe(ops.map(lambda n: n // 0)).subscribe(print)


def test_without_a_loop_what_an_observer_raises_is_raised_to_the_caller_that_pushes() -> None:
    subject = Subject[int]()
    stream = Flowable.of(subject, penstock.buffer(2)).pipe(ops.map(abs), ops.scan(max))
    stream.subscribe(lambda n: n // 0)
    with pytest.raises(ZeroDivisionError):
        subject.on_next(1)
    assert subject.observers == []


def test_without_a_loop_what_a_subscriber_raises_is_raised_by_the_call_that_led_to_it() -> None:
    def fail(probe: Probe[int], event: Any) -> None:
        raise ZeroDivisionError

    probe, source = Probe[int](on_event=fail), MemorySource([1, 2])
    source.connect(probe)
    with pytest.raises(ZeroDivisionError):
        probe.request(1)
    probe.request(1)
    assert (probe.values, source.unsettled) == ([1], [])


def test_disposing_of_a_subscription_stops_the_stream_and_gives_back_what_is_in_it() -> None:
    async def story() -> None:
        source, seen = MemorySource(range(100)), list[int]()

        async def work(value: int) -> int:
            await asyncio.sleep(1)
            return value

        async with no_leaks():
            stream = source.pipe(adaptive_flat_map(work, Fixed(2)))
            subscription = stream.subscribe(seen.append)
            await asyncio.sleep(2.5)
            subscription.dispose()
        assert seen == [0, 1, 2, 3]
        assert sorted(source.returned) == [4, 5]
        assert source.unsettled == []

    run_virtual(story())


def test_what_a_subscribed_stream_opened_is_closed_at_its_end() -> None:
    async def story() -> list[int]:
        seen: list[int] = []
        async with no_leaks():
            stream = from_iterable([-1, -2]).pipe(adaptive_flat_map(in_threads(1)(abs), Fixed(1)))
            ended = asyncio.Event()
            stream.subscribe(seen.append, on_completed=ended.set)
            await ended.wait()
            await asyncio.sleep(1)
        return seen

    assert run_virtual(story()) == [1, 2]


def test_a_flowable_can_be_used_wherever_rx_takes_an_observable() -> None:
    seen: list[Any] = []
    reactivex.zip(from_iterable("ab"), from_iterable([1, 2])).subscribe(seen.append)
    assert seen == [("a", 1), ("b", 2)]


# async for.


def test_a_loop_asks_for_the_next_value_when_its_body_is_done() -> None:
    async def story() -> None:
        source = CountedSource(range(5))
        async for value in source:
            assert source.emitted == value + 1
            assert source.ledger.unsettled == [value]
            await asyncio.sleep(1)
        assert source.ledger.unsettled == []

    run_virtual(story())


def test_leaving_a_loop_gives_back_the_current_event_and_all_in_flight() -> None:
    async def story() -> None:
        source = MemorySource(range(10))

        async def work(value: int) -> int:
            await asyncio.sleep(value)
            return value

        stream: Any = source.pipe(adaptive_flat_map(work, Fixed(3)))
        async with no_leaks(), aclosing(aiter(stream)) as values:
            async for value in values:
                if value == 1:
                    break
        assert source.acked == [0]
        assert source.returned[0] == 1
        assert source.unsettled == []

    run_virtual(story())


def test_an_error_in_the_stream_is_raised_in_the_loop() -> None:
    async def story() -> list[int]:
        seen: list[int] = []

        async def read() -> None:
            async for value in from_iterable([1, 0]).pipe(ops.map(lambda n: 1 // n)):
                seen.append(value)

        with pytest.raises(ZeroDivisionError):
            await read()
        return seen

    assert run_virtual(story()) == [1]


def test_an_error_in_the_body_gives_back_the_current_event() -> None:
    async def story() -> None:
        source: Any = MemorySource([1, 2])

        async def read() -> None:
            async with aclosing(aiter(source)) as values:
                async for _ in values:
                    raise LookupError

        with pytest.raises(LookupError):
            await read()
        assert source.returned == [1]

    run_virtual(story())


def test_cancelling_a_task_that_waits_in_a_loop_leaves_nothing_behind() -> None:
    async def forever() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(10_000)

    async def story() -> None:
        seen: list[int] = []

        async def read() -> None:
            async for value in Flowable.from_async_iterable(forever):
                seen.append(value)

        async with no_leaks():
            task = asyncio.create_task(read())
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert seen == [1]

    run_virtual(story())


@given(st.lists(st.none() | st.integers()))
def test_a_loop_sees_every_value_in_order(items: list[int | None]) -> None:
    async def story() -> list[int | None]:
        return [value async for value in from_iterable(items)]

    assert run_virtual(story()) == items


@pytest.mark.parametrize(("given", "named"), [((), "None"), ((penstock.latest,), "latest")])
def test_an_observable_without_a_strategy_is_an_error_that_says_which_there_are(
    given: tuple[Any, ...], named: str
) -> None:
    with pytest.raises(BuildError, match=rf"on_overflow={named}\): .* use buffer\(n\)"):
        Flowable.of(reactivex.of(1), *given)
