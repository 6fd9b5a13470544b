from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.command.kata import Event, Load, Observer, feed, live


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        # Away from the exact moment, as a real sleep; and always forward.
        self.now += seconds + 1e-6


def test_each_event_is_delivered_when_it_is_due() -> None:
    time = Time()
    late: list[float] = []
    feed(
        Load(seconds=1),
        lambda event: late.append(time() - event["created"]),
        Observer(time),
        sleep=time.sleep,
    )
    assert len(late) == 1000
    # A second event may become due within the microsecond of the sleep.
    assert all(0 <= seconds <= 2e-6 for seconds in late)


def test_a_blocking_consumer_does_not_slow_the_arrivals_down() -> None:
    time = Time()
    observer = Observer(time)
    waiting: list[int] = []

    def consume(event: Event) -> None:
        observer.started(event)
        time.sleep(0.010)
        observer.finished(event)
        waiting.append(observer.waiting)

    feed(Load(seconds=1), consume, observer, grace=0, sleep=time.sleep)
    measured = observer.measured("x")
    assert measured.arrived == 1000
    assert measured.finished == pytest.approx(100, abs=1)
    assert measured.unfinished == measured.arrived - measured.finished
    assert waiting == sorted(waiting)
    assert measured.latency.max == pytest.approx(0.9, abs=0.02)


@given(st.integers(1, 300), st.floats(0, 0.01), st.floats(0, 2))
def test_every_event_is_consumed_in_order_or_counted_as_waiting(
    rate: int, service: float, grace: float
) -> None:
    time = Time()
    observer = Observer(time)
    load = Load(rate=rate, seconds=1)
    consumed: list[Event] = []

    def consume(event: Event) -> None:
        observer.started(event)
        consumed.append(event)
        time.sleep(service)
        observer.finished(event)

    feed(load, consume, observer, grace=grace, sleep=time.sleep)
    sent = [event for _, event in load.schedule(observer.start)]
    assert consumed == sent[: len(consumed)]
    assert len(consumed) + observer.waiting == len(load)


def test_the_feed_ends_with_the_grace() -> None:
    time = Time()
    feed(
        Load(seconds=1),
        lambda event: time.sleep(0.5),
        Observer(time),
        grace=2,
        sleep=time.sleep,
    )
    assert 53.0 <= time() < 53.6


def test_an_error_of_the_consumer_goes_to_the_caller() -> None:
    time = Time()
    with pytest.raises(ZeroDivisionError):
        feed(Load(), lambda event: 1 / 0, Observer(time), sleep=time.sleep)


def test_the_live_stream_yields_every_event_when_it_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = Time()

    async def sleep(seconds: float) -> None:
        time.sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    observer = Observer(time)
    load = Load(seconds=1)

    async def collect() -> list[tuple[float, Event]]:
        return [(time(), event) async for event in live(load, observer)]

    got = asyncio.run(collect())
    assert [event for _, event in got] == [event for _, event in load.schedule(observer.start)]
    assert all(0 <= moment - event["created"] <= 2e-6 for moment, event in got)


def test_what_nobody_asks_of_the_live_stream_waits_and_is_counted() -> None:
    time = Time()
    observer = Observer(time)

    async def take_one_and_another_much_later() -> list[int]:
        stream = live(Load(seconds=1), observer)
        time.now += 0.5
        await anext(stream)
        first = observer.waiting
        time.now += 1
        await anext(stream)
        return [first, observer.waiting]

    due_by_half_time = sum(due <= 0.5 for due, _ in Load(seconds=1))
    # Nobody reports a start here, so all that arrived counts as waiting.
    assert asyncio.run(take_one_and_another_much_later()) == [due_by_half_time, 1000]
