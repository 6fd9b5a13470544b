from __future__ import annotations

import asyncio
import statistics
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.command.kata import FIRST_CLIENT, Event, Load, Work


def event(uuid: str) -> Event:
    return Event(uuid=uuid, client_id=1000, created=0.0, sequence=0)


def test_the_times_of_a_load_are_distributed_as_asked() -> None:
    times = [Work().seconds(event) for _, event in Load(duplicates=0)]
    assert statistics.mean(times) == pytest.approx(0.010, abs=0.0001)
    assert statistics.stdev(times) == pytest.approx(0.001, rel=0.05)


@given(st.uuids(version=4), st.floats(0, 1), st.floats(0, 1))
def test_no_work_takes_less_than_no_time(uuid: object, mean: float, sigma: float) -> None:
    assert Work(mean, sigma).seconds(event(str(uuid))) >= 0


@given(st.uuids(version=4))
def test_work_without_sigma_takes_its_mean(uuid: object) -> None:
    assert Work(0.010, 0).seconds(event(str(uuid))) == 0.010


def test_the_time_depends_on_nothing_but_the_uuid() -> None:
    one = Event(uuid="0" * 8, client_id=1000, created=0.0, sequence=0)
    again = Event(uuid="0" * 8, client_id=1099, created=9.0, sequence=7)
    assert Work().seconds(one) == Work().seconds(again) < Work().seconds(event("f" * 8))


def test_both_ways_to_work_sleep_for_the_time_of_the_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    work, some = Work(), event("12345678")
    work.block(some)
    asyncio.run(work.pause(some))
    assert slept == [work.seconds(some)] * 2


def test_the_events_of_the_slow_client_take_so_many_times_as_long() -> None:
    first = event("12345678")
    second = Event(uuid="12345678", client_id=FIRST_CLIENT + 1, created=0.0, sequence=0)
    work, slow = Work(), Work(slow=5)
    assert slow.seconds(first) == pytest.approx(5 * work.seconds(first))
    assert slow.seconds(second) == work.seconds(second)


@pytest.mark.parametrize("slow", [0, 0.5, float("nan"), float("inf")])
def test_a_slow_client_is_not_faster_than_the_others(slow: float) -> None:
    with pytest.raises(ValueError, match="slow-client"):
        Work(slow=slow)


@pytest.mark.parametrize(("mean", "sigma"), [(-0.001, 0), (0, -0.001)])
def test_negative_times_are_refused(mean: float, sigma: float) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        Work(mean, sigma)
