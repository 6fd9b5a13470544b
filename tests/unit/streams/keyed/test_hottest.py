"""The hottest keys of a `group_by` with operators inside its groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from penstock import Fixed, adaptive_flat_map, for_each, from_async_iterable, group_by, ops, spread
from penstock.streams.testing.plugin import Run

EVENTS = [("cold", 0), ("cool", 0), *(("hot", n) for n in range(60))]


@pytest.mark.parametrize(
    ("each", "others"),
    [
        # The others are in flight.
        pytest.param(lambda group: group.pipe(ops.map(lambda event: event)), [], id="map"),
        # Holds events that cannot be seen from outside.
        pytest.param(
            lambda group: group.pipe(ops.buffer_with_count(3)),
            [{"waiting": 1, "age": None}, {"waiting": 1, "age": None}],
            id="buffer_with_count",
        ),
        # Holds all events until the group is closed.
        pytest.param(
            lambda group: group.pipe(ops.to_list()),
            [{"waiting": 1, "age": 1.0}, {"waiting": 1, "age": 1.0}],
            id="to_list",
        ),
    ],
)
def test_all_events_of_a_group_count(
    run: Run, each: Callable[[Any], Any], others: list[dict[str, Any]]
) -> None:
    async def story() -> dict[str, Any]:
        stopped = asyncio.Event()

        async def events() -> AsyncIterator[tuple[str, int]]:
            for event in EVENTS:
                yield event
            # At the end all groups would be closed.
            await stopped.wait()

        async def work(value: Any) -> None:
            await stopped.wait()

        grouping = group_by(lambda event: event[0], each=each, idle=3_000)
        stream = from_async_iterable(events).pipe(
            grouping, spread(), adaptive_flat_map(work, Fixed(3))
        )
        async with stream.to(for_each(bool)).start() as running:
            await asyncio.sleep(1)
            numbers: dict[str, Any] = running.statistics()["stages"][1]
            stopped.set()
            running.cancel()
        return numbers

    numbers = run(story())
    first, *rest = numbers["hottest_keys"]
    assert first == {"key": "hot", "waiting": numbers["waiting"] - len(others), "age": 1.0}
    assert first["waiting"] > 40
    assert [{"waiting": key["waiting"], "age": key["age"]} for key in rest] == others
    assert (numbers["hottest"], numbers["hottest_waiting"]) == ("hot", first["waiting"])


@pytest.mark.parametrize("count", [[ops.count()], [ops.count(), ops.map(lambda n: n)]])
def test_the_events_of_a_count_that_waits_are_those_of_its_group(
    run: Run, count: list[Any]
) -> None:
    async def story() -> list[tuple[int, int]]:
        stopped = asyncio.Event()

        async def events() -> AsyncIterator[str]:
            for event in "abbbccd":
                yield event
            await asyncio.sleep(9)
            # They begin the groups of their keys anew, whose counts have not left.
            for event in "bc":
                yield event
            await stopped.wait()

        async def work(value: Any) -> None:
            await stopped.wait()

        grouping = group_by(str, each=lambda group: group.pipe(*count), idle=5)
        stream = from_async_iterable(events).pipe(
            grouping, spread(), adaptive_flat_map(work, Fixed(1))
        )
        async with stream.to(for_each(bool)).start() as running:
            await asyncio.sleep(8)
            before: dict[str, Any] = running.statistics()["stages"][1]
            await asyncio.sleep(2)
            after: dict[str, Any] = running.statistics()["stages"][1]
            await asyncio.sleep(7)
            last: dict[str, Any] = running.statistics()["stages"][1]
            stopped.set()
            running.cancel()
        first, second, third = (
            [(key["key"], key["waiting"], key["age"]) for key in numbers["hottest_keys"]]
            for numbers in (before, after, last)
        )
        assert first == [("b", 3, 8.0), ("c", 2, 8.0), ("d", 1, 8.0)]
        # The count that waits and the new group are of the same key.
        assert second == [("b", 4, 10.0), ("c", 3, 10.0), ("d", 1, 10.0)]
        # Two counts of each wait.
        assert third == [("b", 4, 17.0), ("c", 3, 17.0), ("d", 1, 17.0)]
        return [(numbers["groups"], numbers["waiting"]) for numbers in (before, after)]

    # The count of "a" has left, and its group is there until the turn ends.
    assert run(story()) == [(4, 6), (4, 8)]
