"""Periodic jobs: each time is enqueued once, however many readers there are."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Periodic, collect, read_table
from penstock.streams.base.errors import BuildError, MissingExtra
from penstock.streams.sql_queue import Store, open_store
from penstock.streams.sql_queue.analytics.statistics import measure
from penstock.streams.sql_queue.store import Enqueued, PeriodicJob
from tests.helpers.until import until

EVERY = 0.2


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[Store, None]:
    store = open_store(url)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


async def times_of(store: Store) -> list[float]:
    """The times of the rows that were enqueued."""
    found = await store.read("SELECT {seconds}t.{run_at}) FROM {table} AS t ORDER BY t.{id}")
    return [round(float(time), 3) for (time,) in found]


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_of_several_readers_one_enqueues_the_row_of_each_time(database: str) -> None:
    async def work() -> None:
        job = Periodic({"job": "sweep"}, every=EVERY, missed="all")
        done: list[dict[str, Any]] = []
        readers = [
            read_table(database, periodic={"sweep": job}, poll=0.05).to(collect(done)).start()
            for _ in range(4)
        ]
        await until(lambda: len(done) >= 8)
        for reader in readers:
            reader.cancel()
            await reader.wait()
        assert {tuple(one.items()) for one in done} == {(("job", "sweep"),)}
        counts = [one.statistics()["stages"][0]["scheduled"] for one in readers]
        async with opened(database) as store:
            times = await times_of(store)
        assert sum(counts) == len(times) >= 8
        steps = [round(time / EVERY) for time in times]
        assert steps == list(range(steps[0], steps[0] + len(steps)))

    run(work())


@pytest.mark.parametrize(("missed", "count"), [("all", 3), ("last", 1), ("none", 0)])
def test_times_at_which_no_reader_ran_are_made_up_for_as_the_job_says(
    database: str, missed: Any, count: int
) -> None:
    hour = 3600.0

    async def work() -> None:
        job = Periodic({}, every=hour, missed=missed, priority=7)
        async with opened(database) as store:
            now = await store.now()
            first = (now // hour - 2) * hour
            if now % hour < 61 or now % hour > 3590:
                pytest.skip("the last time is not missed")
            await store.plan("job", job.text, first)
            reader = read_table(database, periodic={"job": job}, only={"none": "none"})
            async with reader.to(collect([])).start() as running:
                await until_planned(store, (now // hour + 1) * hour)
                await running.drain()
            expected = [first, first + hour, first + 2 * hour][3 - count :]
            assert await times_of(store) == expected
            found = await store.read("SELECT DISTINCT t.{priority} FROM {table} AS t")
            assert found == [(7,)] * bool(count)
            (found_job,) = (await measure(store, 60.0)).periodic
            next_one, last = (now // hour + 1) * hour, first + 2 * hour if count else None
            assert found_job == PeriodicJob("job", job.text, next_one, last, 3)
            (shown,) = running.statistics()["stages"][0]["periodic"]
            assert shown == asdict(found_job)

    run(work())


async def until_planned(store: Store, time: float) -> None:
    for _ in range(1_000):
        if (await store.planned())["job"].next == time:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"the next time is not {time}")


def test_a_row_is_enqueued_only_by_who_moves_the_time(database: str) -> None:
    async def work() -> None:
        async with opened(database) as one, opened(database) as other:
            await one.plan("job", "every 1", 10.0)
            await other.plan("job", "every 1", 99.0)
            assert await one.planned() == {"job": PeriodicJob("job", "every 1", 10.0)}
            row = [Enqueued("{}", 10.0)]
            assert await one.move("job", 10.0, 11.0, row, 3)
            assert not await other.move("job", 10.0, 11.0, row)
            assert await times_of(one) == [10.0]
            # Another schedule begins anew.
            await other.plan("job", "every 2", 20.0)
            assert await one.planned() == {"job": PeriodicJob("job", "every 2", 20.0, 10.0, 3)}

    run(work())


def test_cron_expressions_are_read_in_their_zone() -> None:
    daily = Periodic({}, cron="30 2 * * *", tz=ZoneInfo("Europe/Athens"))
    times = daily.times(at("2030-01-31T00:00:00Z"))
    assert next(times) == at("2030-01-31T02:30:00+02:00")
    assert next(times) == at("2030-02-01T02:30:00+02:00")
    assert daily.latest(at("2030-01-31T00:30:00Z")) == at("2030-01-31T02:30:00+02:00")
    assert daily.latest(at("2030-01-31T00:29:59Z")) == at("2030-01-30T02:30:00+02:00")
    in_utc = Periodic({}, cron="*/15 3 * * 1")
    assert datetime.fromtimestamp(next(in_utc.times(0.0)), UTC).isoformat() == (
        "1970-01-05T03:00:00+00:00"
    )


@given(st.floats(0.1, 1e6), st.floats(0, 2e9), st.integers(0, 20), st.sampled_from(["all", "last"]))
def test_the_next_time_is_after_now_and_each_time_is_due_once(
    every: float, start: float, steps: int, missed: Any
) -> None:
    job = Periodic({}, every=every, missed=missed)
    planned = next(job.times(start))
    assert start < planned <= start + 1.01 * every + 1e-6
    assert job.latest(planned) == planned
    assert job.due(planned, start) == ([], planned)
    now = planned + steps * every * 0.99
    due, after = job.due(planned, now)
    assert after > now
    assert due[-1] <= now
    assert due[-1] == job.latest(now)
    assert due == sorted(set(due))
    if missed == "all":
        assert due[0] == planned
    else:
        assert len(due) == 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"every": 1, "cron": "* * * * *"},
        {"every": 0},
        {"every": float("inf")},
        {"cron": "* * *"},
        {"cron": "0 0 31 2 *"},
        {"every": 1, "missed": "some"},
    ],
)
def test_a_wrong_schedule_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BuildError, match="Periodic"):
        Periodic({}, **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"every": "5m"},
            r"every='5m'\): seconds, or a timedelta, .* at least 0.1",
        ),
        ({"cron": "0 2 * * *", "tz": "UTC"}, r"tz='UTC'\): a zone is needed, such as ZoneInfo\("),
    ],
)
def test_a_wrong_schedule_is_told_what_it_needs(options: dict[str, Any], told: str) -> None:
    with pytest.raises(BuildError, match=told):
        Periodic({}, **options)


def test_the_same_time_as_a_timedelta_is_the_same_schedule() -> None:
    job, same = Periodic({}, every=timedelta(minutes=5)), Periodic({}, every=300.0)
    assert job.text == same.text == "every 300.0"
    assert next(job.times(0.0)) == 300.0
    assert job.latest(700.0) == 600.0


def test_a_payload_that_is_no_object_and_jobs_that_are_none_are_refused() -> None:
    with pytest.raises(BuildError, match="JSON objects"):
        Periodic([1], every=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    several: list[Any] = [[], {"a": 1}, {1: Periodic({}, every=1)}]
    for wrong in several:
        with pytest.raises(BuildError, match="names to Periodic jobs"):
            read_table("sqlite:///x.db", periodic=wrong)


def test_cron_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(MissingExtra, match=r"cronsim .*\[cron\]"):
        Periodic({}, cron="* * * * *")
    assert next(Periodic({}, every=5).times(7)) == 10
