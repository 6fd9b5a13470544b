"""The watermark of several sources: which of them count, and which of them wait for others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Running,
    Store,
    agg,
    collect,
    event_time,
    from_async_iterable,
    from_iterable,
    inbox,
    ops,
    tumbling,
    window,
)
from penstock.streams.event_time import line
from penstock.streams.event_time.lines import TimeLines
from penstock.streams.testing import VirtualTimeLoop, run_virtual

LEAD = 20


@pytest.fixture
def short_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "_LEAD", LEAD)


def counted(into: list[Any], *sources: Any, idle: float | None = 30) -> Running:
    """Windows of ten seconds, whose keys are as many as are open."""
    first, *others = [one.pipe(event_time("at", idle=idle, max_ahead=None)) for one in sources]
    windows = window(tumbling(10), agg.count(), by=lambda event: event["at"] // 10)
    return first.pipe(ops.merge(*others), windows).to(collect(into)).start()


async def each(seconds: float, times: range) -> AsyncIterator[dict[str, int]]:
    for at in times:
        await asyncio.sleep(seconds)
        yield {"at": at}


async def most_open(running: Running) -> int:
    """The most windows that were open at one time, until the end."""
    most = 0
    while running.state != "closed":
        await asyncio.sleep(0.05)
        most = max(most, running.statistics()["stages"][-2]["keys"])
    return most


def test_a_source_that_has_ended_closes_nothing_while_another_is_silent() -> None:
    found: list[Any] = []

    async def main() -> None:
        box = inbox(10)
        running = counted(found, box, from_iterable([{"at": 101}]))
        await box.put({"at": 101})
        await asyncio.sleep(31)
        assert [(one.start, one.value) for one in found] == [(100, 2)]
        await box.put({"at": 150})
        await box.put({"at": 165})
        await asyncio.sleep(1)
        assert [one.start for one in found] == [100, 150]
        running.cancel()

    run_virtual(main())


def test_a_silent_source_that_is_ahead_is_looked_at_no_more_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rings = 0
    ring = TimeLines._ring

    def counting(lines: TimeLines) -> None:
        nonlocal rings
        rings += 1
        assert rings < 10
        ring(lines)

    monkeypatch.setattr(TimeLines, "_ring", counting)
    found: list[Any] = []

    async def main() -> None:
        one, other = inbox(10), inbox(10)
        running = counted(found, one, other)
        await one.put({"at": 1000})
        await asyncio.sleep(25)
        await other.put({"at": 101})
        await asyncio.sleep(20)
        assert found == []
        await asyncio.sleep(20)
        assert [one.start for one in found] == [100, 1000]
        running.cancel()

    run_virtual(main())


def test_the_last_silence_that_begins_while_the_alarm_is_set_closes_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time goes on between a look at the watermark and the alarm."""
    ring_at = TimeLines.ring_at

    def later(lines: TimeLines, due: float | None) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        # When both sources are nearly silent.
        if loop.time() > 4:
            loop.advance(0.001)
        ring_at(lines, due)

    monkeypatch.setattr(TimeLines, "ring_at", later)
    found: list[Any] = []

    async def main() -> None:
        one, other = inbox(10), inbox(10)
        first, second = (
            box.pipe(event_time("at", lateness=5, idle=5, max_ahead=None)) for box in (one, other)
        )
        windows = window(tumbling(10), agg.count(), by=lambda event: event["at"] // 10)
        running = first.pipe(ops.merge(second), windows).to(collect(found)).start()
        await one.put({"at": 99})
        await one.put({"at": 100})
        await asyncio.sleep(0.0005)
        await other.put({"at": 100})
        await asyncio.sleep(60)
        assert [(one.start, one.value) for one in found] == [(90, 1), (100, 2)]
        running.cancel()

    run_virtual(main())


def test_a_source_that_is_silent_before_its_first_event_is_looked_at_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring_at = TimeLines.ring_at
    looks = 0

    def counted(lines: TimeLines, due: float | None) -> None:
        nonlocal looks
        looks += 1
        if looks < 100:
            ring_at(lines, due)

    monkeypatch.setattr(TimeLines, "ring_at", counted)

    async def main() -> None:
        times = event_time("at", lateness=5, idle=5)
        windows = window(tumbling(10), agg.count(), store=Store(tmp_path / "states"))
        running = inbox(10).pipe(times, windows).to(collect([])).start()
        await asyncio.sleep(60)
        running.cancel()
        assert looks < 10

    run_virtual(main())


@pytest.mark.usefixtures("short_lead")
def test_a_source_that_is_ahead_waits_for_the_others() -> None:
    found: list[Any] = []

    async def main() -> None:
        quick = from_iterable([{"at": at} for at in range(1000)])
        slow = from_async_iterable(each(0.01, range(1000)))
        # Each time what it may be ahead, and what was requested before.
        most = 2 * (LEAD + 64)
        assert await most_open(counted(found, quick, slow, idle=None)) <= most / 10 + 2

    run_virtual(main())
    assert [one.value for one in found] == [20] * 100


@pytest.mark.parametrize("ends", [False, True], ids=["silent", "ended"])
@pytest.mark.usefixtures("short_lead")
def test_no_source_waits_for_one_that_is_silent_or_has_ended(ends: bool) -> None:
    found: list[Any] = []

    async def until_woken(woken: asyncio.Event) -> AsyncIterator[dict[str, int]]:
        yield {"at": 5}
        await woken.wait()

    async def main() -> None:
        woken = asyncio.Event()
        quick = from_iterable([{"at": at} for at in range(1000)])
        running = counted(found, quick, from_async_iterable(until_woken(woken)))
        await asyncio.sleep(1)
        assert len(found) == 0
        assert running.statistics()["stages"][0]["in"] <= 2 * LEAD + 64
        if ends:
            woken.set()
        await asyncio.sleep(1 if ends else 35)
        assert sum(one.value for one in found) > 980
        woken.set()
        await running.wait()

    run_virtual(main())
    assert sum(one.value for one in found) == 1001


@pytest.mark.usefixtures("short_lead")
def test_a_source_waits_no_longer_for_a_silent_one_where_no_window_is_open() -> None:
    async def main() -> None:
        timed = event_time("at", max_ahead=None)
        quick = from_iterable([{"at": at} for at in range(1000)]).pipe(timed)
        filtered = quick.filter(lambda _: False)
        box = inbox(10)
        windows = window(tumbling(10), agg.count())
        running = filtered.merge(box.pipe(timed)).pipe(windows).to(collect([])).start()
        await asyncio.sleep(1)
        assert running.statistics()["stages"][0]["in"] < 200
        await asyncio.sleep(35)
        assert running.statistics()["stages"][0]["in"] == 1000
        running.cancel()

    run_virtual(main())


@pytest.mark.usefixtures("short_lead")
def test_sources_that_are_paired_do_not_wait_for_each_other() -> None:
    found: list[Any] = []

    async def main() -> None:
        timed = event_time("at", idle=None, max_ahead=None)
        ahead = from_iterable([{"at": 100 * at} for at in range(1000)]).pipe(timed)
        behind = from_iterable([{"at": at} for at in range(1000)]).pipe(timed)
        windows = window(tumbling(10), agg.count())
        await ahead.pipe(ops.zip(behind), windows).to(collect(found)).run()

    run_virtual(main())
    assert sum(one.value for one in found) == 1000
