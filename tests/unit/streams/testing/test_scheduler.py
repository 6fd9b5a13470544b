from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Observable
from reactivex import operators as ops
from reactivex.scheduler import VirtualTimeScheduler
from reactivex.testing import ReactiveTest, TestScheduler

from penstock import Fixed, Flowable, adaptive_flat_map, buffer, chunk, from_iterable
from penstock.streams.base.clock import running_loop
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import ManualPublisher, SchedulerLoop, on_scheduler

on_next, on_completed, on_error = (
    ReactiveTest.on_next,
    ReactiveTest.on_completed,
    ReactiveTest.on_error,
)


def hot(scheduler: TestScheduler, *messages: Any) -> Flowable[Any]:
    return Flowable.of(scheduler.create_hot_observable(*messages), buffer(1000))


def test_a_stream_has_the_virtual_time_of_the_scheduler() -> None:
    scheduler = TestScheduler()
    source = hot(scheduler, on_next(210, "a"), on_next(215, "b"), on_completed(300))
    stream = source.pipe(chunk(10, wait=20))
    result = scheduler.start(lambda: on_scheduler(stream))
    assert result.messages == [on_next(230, ["a", "b"]), on_completed(300)]


@given(st.lists(st.integers(1, 40), max_size=12), st.integers(1, 30))
def test_a_lifted_operator_emits_at_the_ticks_of_the_stock_one(gaps: list[int], wait: int) -> None:
    times = [200 + sum(gaps[: n + 1]) for n in range(len(gaps))]
    messages = [*(on_next(time, time) for time in times), on_completed(900)]

    def messages_of(is_lifted: bool) -> list[Any]:
        scheduler = TestScheduler()
        source = scheduler.create_hot_observable(*messages)

        def create() -> Observable[Any]:
            if not is_lifted:
                return source.pipe(ops.debounce(wait))
            return on_scheduler(Flowable.of(source, buffer(1000)).pipe(ops.debounce(wait)))

        return scheduler.start(create).messages

    assert messages_of(True) == messages_of(False)


def test_async_handlers_run_on_the_scheduler() -> None:
    async def work(value: str) -> str:
        await asyncio.sleep(25)
        return value.upper()

    scheduler = TestScheduler()
    source = hot(scheduler, on_next(210, "a"), on_next(220, "b"), on_completed(230))
    stream = source.pipe(adaptive_flat_map(work, limit=Fixed(1)))
    result = scheduler.start(lambda: on_scheduler(stream))
    assert result.messages == [on_next(235, "A"), on_next(260, "B"), on_completed(260)]


def test_a_scheduler_may_be_given_before_the_subscription() -> None:
    scheduler, seen = VirtualTimeScheduler(), list[tuple[float, int]]()
    stream = from_iterable([1, 2]).pipe(ops.delay(5))
    observable = on_scheduler(stream, scheduler)
    observable.subscribe(lambda value: seen.append((scheduler.to_seconds(scheduler.now), value)))
    scheduler.start()
    assert seen == [(5.0, 1), (5.0, 2)]


def test_without_a_scheduler_the_stream_is_subscribed_as_it_is() -> None:
    seen = list[int]()
    on_scheduler(from_iterable([1, 2])).subscribe(seen.append)
    assert seen == [1, 2]


@given(st.integers(1, 5), st.integers(0, 5))
def test_one_value_is_requested_after_each_beyond_the_first_request(n: int, sent: int) -> None:
    publisher, seen = ManualPublisher[int](), list[int]()
    on_scheduler(publisher, TestScheduler(), request=n).subscribe(seen.append)
    for value in range(sent):
        publisher.send(value)
    assert seen == list(range(sent))
    assert publisher.requests == [n] + [1] * sent
    assert publisher.unsettled == []


def test_a_request_below_one_is_refused() -> None:
    with pytest.raises(BuildError, match="request=0"):
        on_scheduler(from_iterable([1]), request=0)


def test_an_exception_of_the_observer_is_raised_by_the_scheduler() -> None:
    scheduler = TestScheduler()

    def fail(value: str) -> None:
        raise KeyError(value)

    source = hot(scheduler, on_next(210, "a"), on_next(220, "b"))
    on_scheduler(source, scheduler).subscribe(fail)
    with pytest.raises(KeyError, match="a"):
        scheduler.start()


def test_an_error_of_the_stream_arrives_at_its_time() -> None:
    scheduler, error = TestScheduler(), ValueError("no")
    source = hot(scheduler, on_next(210, "a"), on_error(220, error))
    result = scheduler.start(lambda: on_scheduler(source))
    assert result.messages == [on_next(210, "a"), on_error(220, error)]


def test_disposing_cancels_the_stream_and_its_timers() -> None:
    scheduler, seen = TestScheduler(), list[int]()
    stream = from_iterable([1]).pipe(ops.delay(50))
    subscription = on_scheduler(stream, scheduler).subscribe(seen.append)
    scheduler.advance_to(20)
    subscription.dispose()
    scheduler.advance_to(100)
    assert seen == []


def test_the_loop_runs_inside_its_callbacks_and_nowhere_else() -> None:
    scheduler, seen = TestScheduler(), list[Any]()
    loop = SchedulerLoop.of(scheduler)
    loop.call_later(5, lambda: seen.append((running_loop(), loop.time())))
    cancelled = loop.call_at(3, seen.append, "cancelled")
    cancelled.cancel()
    loop.call_soon(seen.append, "soon")
    scheduler.start()
    assert seen == ["soon", (loop, 5.0)]
    assert running_loop() is None


def test_a_stream_that_is_subscribed_inside_shares_the_loop() -> None:
    scheduler, loops = TestScheduler(), list[Any]()

    def noted(value: int) -> int:
        loops.append(running_loop())
        return value

    inner = from_iterable([2]).pipe(ops.map(noted))
    outer = from_iterable([1]).pipe(ops.delay(5), ops.map(noted))
    observable = on_scheduler(outer, scheduler).pipe(
        ops.flat_map(lambda _: on_scheduler(inner, scheduler))
    )
    result = scheduler.start(lambda: observable)
    assert [message.time for message in result.messages] == [205.0, 205.0]
    assert loops[0] is loops[1]
    assert isinstance(loops[0], SchedulerLoop)


def test_a_future_and_a_task_work_on_it() -> None:
    scheduler = TestScheduler()
    loop = SchedulerLoop.of(scheduler)
    future = loop.create_future()
    loop.call_later(7, future.set_result, "done")

    async def wait() -> tuple[str, float]:
        return await future, loop.time()

    task = loop.create_task(wait())
    scheduler.start()
    assert task.result() == ("done", 7.0)


def test_it_has_no_threads() -> None:
    with pytest.raises(NotImplementedError):
        SchedulerLoop.of(TestScheduler()).run_in_executor(None, print)
