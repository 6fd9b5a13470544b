"""Keys that were idle for too long, or for longest when there are too many, end."""

from __future__ import annotations

import asyncio
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.groups.expiry import Idle
from penstock.streams.runtime.context import Run
from penstock.streams.testing import no_leaks, run_virtual


def at_a_standstill() -> tuple[list[str], Run, list[float]]:
    """What ended, and a run without a loop whose time is set by hand."""
    run, time = Run(), [0.0]
    run.now = lambda: time[0]
    return [], run, time


def test_an_item_ends_when_it_was_not_used_for_so_many_seconds() -> None:
    async def story() -> list[tuple[float, str]]:
        loop = asyncio.get_running_loop()
        start, ended = loop.time(), list[tuple[float, str]]()
        async with no_leaks():
            idle = Idle[str](10, Run(), lambda item: ended.append((loop.time() - start, item)))
            idle.used(["a"])
            await asyncio.sleep(1)
            idle.used(["b"])
            await asyncio.sleep(3)
            idle.used(["a"])
            await asyncio.sleep(50)
        return ended

    assert run_virtual(story()) == [(11, "b"), (14, "a")]


def test_the_least_recently_used_item_is_the_first_to_go() -> None:
    ended, run, _ = at_a_standstill()
    idle = Idle[str](10, run, ended.append)
    for item in "abcab":
        idle.used([item])
    while idle.end_oldest():
        pass
    assert ended == ["c", "a", "b"]


def test_without_a_loop_what_is_due_ends_with_the_next_use() -> None:
    ended, run, time = at_a_standstill()
    idle = Idle[str](10, run, ended.append)
    idle.used(["a"])
    time[0] = 9.9
    idle.end_expired()
    assert ended == []
    time[0] = 10
    idle.end_expired()
    assert ended == ["a"]
    idle.used(["b"])
    time[0] = 20
    idle.used(["c"])
    assert ended == ["a", "b"]


def test_an_item_that_is_removed_never_ends() -> None:
    ended, run, time = at_a_standstill()
    idle = Idle[str](10, run, ended.append)
    idle.used(["a", "b"])
    idle.remove("a")
    assert list(idle) == ["b"]
    time[0] = 10
    idle.end_expired()
    assert ended == ["b"]


def test_what_is_cleared_never_ends_and_leaves_no_timer() -> None:
    async def story() -> list[str]:
        ended: list[str] = []
        async with no_leaks():
            idle = Idle[str](10, Run(), ended.append)
            idle.used(["a"])
            idle.clear()
            assert not idle.end_oldest()
            await asyncio.sleep(50)
        return ended

    assert run_virtual(story()) == []


def test_an_item_that_is_used_as_another_ends_is_kept() -> None:
    ended, run, time = at_a_standstill()

    def end(item: str) -> None:
        ended.append(item)
        if item == "a":
            idle.used(["b"])

    idle = Idle[str](10, run, end)
    idle.used(["a"])
    time[0] = 15
    idle.used(["c"])
    time[0] = 24
    assert idle.end_oldest()
    assert idle.end_oldest()
    assert ended == ["a", "b", "c"]


# Uses at even seconds and ends at odd ones never meet.
USES = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([0, 2, 4, 6])), max_size=30)


@given(USES)
def test_every_item_ends_once_after_each_use_that_none_follows_in_time(
    uses: list[tuple[str, int]],
) -> None:
    async def story() -> list[tuple[int, str]]:
        loop = asyncio.get_running_loop()
        start, ended = loop.time(), list[tuple[int, str]]()
        idle = Idle[str](5, Run(), lambda item: ended.append((round(loop.time() - start), item)))
        for item, pause in uses:
            idle.used([item])
            await asyncio.sleep(pause)
        await asyncio.sleep(9)
        return ended

    wanted: list[tuple[int, str]] = []
    times = accumulate((pause for _, pause in uses), initial=0)
    starts = [(at, item) for at, (item, _) in zip(times, uses, strict=False)]
    for n, (at, item) in enumerate(starts):
        if all(later > at + 5 for later, other in starts[n + 1 :] if other == item):
            wanted.append((at + 5, item))
    assert run_virtual(story()) == wanted
