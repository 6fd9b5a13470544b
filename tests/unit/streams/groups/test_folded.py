"""Groups of which only the number or the list of the values is made: what is kept of their events,
and how these end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any
from weakref import WeakSet

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    Fixed,
    Running,
    adaptive_flat_map,
    collect,
    from_async_iterable,
    from_iterable,
    group_by,
    inbox,
    ops,
    rate_limit,
    spread,
)
from penstock.streams.base.errors import HoldExceeded
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.acknowledgement import roots
from penstock.streams.protocol.event import Ending, end_all
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.stages.own import SourceStage
from penstock.streams.testing import MemorySource, run_virtual
from penstock.streams.testing.plugin import Run
from tests.helpers.in_groups import each, read


class Value:
    """A value that can be seen as long as it is kept."""

    def __init__(self, key: int) -> None:
        self.key = key


def test_a_count_keeps_neither_events_nor_values_of_a_source_that_only_counts_them(
    run: Run,
) -> None:
    kept: list[int] = []

    def values() -> Iterator[Value]:
        alive = WeakSet[Value]()
        for n in range(3_000):
            value = Value(n % 3)
            alive.add(value)
            yield value
            kept.append(len(alive))

    counted = group_by("key", each=lambda group: group.pipe(ops.count()), idle=9, buffer=4_000)
    done: list[int] = []
    report = run(from_iterable(values).pipe(counted, spread()).to(collect(done)).run())
    # Those that the source gives at a time, twice, and the first of each group.
    assert max(kept) <= 2 * 256 + 3
    assert (done, report.statistics["finished"]) == ([1_000] * 3, 3_000)


@pytest.mark.parametrize("count", [[ops.count()], [ops.count(), ops.map(lambda n: n)]])
def test_a_count_of_a_group_holds_any_number_of_events_that_their_source_only_counts(
    count: list[Any],
) -> None:
    probe = read(from_iterable(["a"] * 3_000), each(*count, buffer=4_000))
    assert (probe.values, probe.error) == ([3_000], None)


def test_a_list_of_a_group_holds_no_more_values_than_any_operator() -> None:
    for n in (1_024, 1_025):
        probe = read(from_iterable(["a"] * n), each(ops.to_list(), buffer=4_000))
        assert isinstance(probe.error, HoldExceeded) == (n == 1_025)


def unfinished_sum(numbers: dict[str, Any]) -> int:
    ended = numbers["finished"] + numbers["failed"] + numbers["returned"]
    return int(numbers["in"] - ended - sum(numbers["dropped"].values()) - numbers["unfinished"])


@pytest.mark.parametrize("operator", [ops.count(), ops.to_list()])
@pytest.mark.parametrize(
    ("work", "ended"),
    [
        ("pass", {"finished": 6, "failed": 0, "dropped": {}}),
        ("filter", {"finished": 0, "failed": 0, "dropped": {"filter": 6}}),
        ("fail", {"finished": 0, "failed": 6, "dropped": {}}),
    ],
)
def test_events_that_are_not_kept_end_as_what_is_made_of_them(
    run: Run, operator: Any, work: str, ended: dict[str, Any]
) -> None:
    def handler(value: Any) -> Any:
        if work == "fail":
            raise ValueError("work")
        return value

    async def events() -> AsyncIterator[str]:
        for event in "abaaba":
            yield event
        await asyncio.sleep(2)

    async def story() -> None:
        grouped = group_by(str, each=lambda group: group.pipe(operator), idle=9)
        stage = adaptive_flat_map(handler, Fixed(1), on_error="skip")
        passed = ops.filter(lambda _: work != "filter")
        stream = from_async_iterable(events).pipe(grouped, spread(), passed, stage)
        async with stream.to(collect([])).start() as running:
            await asyncio.sleep(1)
            before = running.statistics()
            assert (before["in"], before["unfinished"], before["waiting"]) == (6, 6, 6)
            await running.wait()
        numbers = running.statistics()
        assert {name: numbers[name] for name in ended} == ended
        assert unfinished_sum(before) == unfinished_sum(numbers) == 0

    run(story())


class Numbered(SourceStage[str]):
    """The letters of `abaaba` with the tokens 1 to 6, from a source that does not end."""

    def produce(self) -> None:
        for token, letter in enumerate("abaaba", 1):
            self.emit(letter, self.run.now(), token)
        self.demand = 0


def numbered() -> Flowable[str]:
    info = StageInfo("numbered", number=1, is_source=True)
    return Flowable(lambda downstream, run: Numbered(downstream, run, info).start(), info)


@pytest.mark.parametrize("ending", Ending)
def test_events_that_are_only_counted_share_the_outcome_of_what_was_made_of_them(
    ending: Ending,
) -> None:
    merged = numbered().pipe(ops.merge(MemorySource(["a7"])), ops.take(7))
    probe = read(merged, each(ops.count()), hold=True)
    event = next(event for event in probe.events if event.value == 5)
    (counter, *_), tokens = zip(*roots(event), strict=True)
    assert isinstance(counter, Numbered)
    assert tokens == (1, 3, 4, 6, None)
    end_all([event], ending, {Ending.DROPPED: "test", Ending.FAILED: ValueError()}.get(ending))
    numbers = counter.statistics()
    failed = ending in (Ending.FORGIVEN, Ending.FAILED)
    assert numbers["dropped"] == ({"test": 4} if ending is Ending.DROPPED else {})
    assert numbers["finished"] == 4 * (ending is Ending.FINISHED)
    assert numbers["failed"] == 4 * failed
    assert numbers["returned"] == 4 * (ending is Ending.RETURNED)
    assert numbers["returned_tokens"] == ([1, 3, 4, 6] if ending is Ending.RETURNED else [])


@pytest.mark.parametrize("operator", [ops.count(), ops.to_list()])
@pytest.mark.parametrize("idle", [9, 1])
def test_events_that_are_not_kept_are_returned_on_cancel_with_their_tokens(
    run: Run, operator: Any, idle: int
) -> None:
    """In their groups, and when what is made of them is in a call."""

    async def work(value: Any) -> None:
        await asyncio.Event().wait()

    async def story() -> dict[str, Any]:
        grouped = group_by(str, each=lambda group: group.pipe(operator), idle=idle)
        stream = numbered().pipe(grouped, spread(), adaptive_flat_map(work, Fixed(2)))
        async with stream.to(collect([])).start() as running:
            await asyncio.sleep(3)
            assert running.statistics()["unfinished"] == 6
            running.cancel()
        return running.statistics()

    numbers = run(story())
    assert (numbers["returned"], numbers["unfinished"]) == (6, 0)
    assert sorted(numbers["stages"][0]["returned_tokens"]) == [1, 2, 3, 4, 5, 6]


def test_a_source_that_needs_its_events_as_they_end_gets_them_back(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        orders = inbox(9)
        grouped = group_by(0, each=lambda group: group.pipe(ops.count()), idle=9)
        async with orders.pipe(grouped, spread()).to(collect([])).start() as running:
            for order in ("a1", "b1", "a2"):
                await orders.put(order)
            await asyncio.sleep(1)
            running.cancel()

    run(story())
    assert "3 of the events in the inbox: 'a1', 'a2', 'b1'" in caplog.text


@pytest.mark.parametrize("is_first", [True, False])
def test_a_count_of_events_of_several_sources_acknowledges_each_to_its_own(is_first: bool) -> None:
    kept, counted = MemorySource(["a1", "b1", "a2"]), from_iterable(["a3", "a4", "b2"])
    merged = kept.pipe(ops.merge(counted)) if is_first else counted.pipe(ops.merge(kept))
    probe = read(merged, each(ops.count()), hold=True)
    assert sorted(probe.values) == [2, 4]
    assert kept.acked == []
    probe.events[0].fail(ValueError())
    probe.events[1].finish()
    assert sorted(kept.failed + kept.acked) == ["a1", "a2", "b1"]
    assert kept.unsettled == []


@given(
    letters=st.text("abcd", max_size=40),
    whole=st.sampled_from([ops.count, ops.to_list]),
    buffer=st.integers(1, 40),
    max_groups=st.none() | st.integers(1, 4),
    results=st.integers(1, 50),
)
def test_every_event_that_is_not_kept_ends_once_as_if_it_were(
    letters: str, whole: Any, buffer: int, max_groups: int | None, results: int
) -> None:
    async def outcome(source: Any) -> list[Any]:
        done: list[Any] = []
        options: dict[str, Any] = {"buffer": buffer, "max_groups": max_groups}
        stream = source.pipe(each(whole(), **options), adaptive_flat_map(lambda n: n, Fixed(1)))
        report = await stream.pipe(ops.take(results)).to(collect(done)).run()
        numbers = report.statistics
        assert (unfinished_sum(numbers), numbers["unfinished"]) == (0, 0)
        return done

    run_virtual(outcome(from_iterable(letters)))
    # One item at a time, as a MemorySource emits them.
    slow = from_iterable(letters).pipe(rate_limit(1e9, burst=1))
    assert run_virtual(outcome(slow)) == run_virtual(outcome(MemorySource(letters)))


def test_events_that_hold_turns_are_kept_until_the_turn_of_their_count_ends() -> None:
    """The third event is of the first one's group outside, and waits for the count of both others.

    Both are in the group of the key 1 inside.
    """

    async def events() -> AsyncIterator[tuple[str, int]]:
        for event in [("a", 1), ("b", 1), ("a", 2)]:
            yield event

    counted = group_by(1, each=lambda group: group.pipe(ops.count()), idle=1)
    done: list[tuple[int, float]] = []

    async def work(count: int) -> None:
        done.append((count, asyncio.get_running_loop().time()))

    stages = group_by(0), spread(), counted, spread(), adaptive_flat_map(work, Fixed(2))
    report = run_virtual(from_async_iterable(events).pipe(*stages).to(collect([])).run())
    assert done == [(2, 1.0), (1, 1.0)]
    assert report.statistics["finished"] == 3


class Halt(BaseException):
    """An exit of the user's own."""


@pytest.mark.parametrize("operator", [ops.count(), ops.to_list()])
def test_events_that_are_not_kept_are_returned_once_when_an_exit_passes(operator: Any) -> None:
    runs: list[Running] = []

    def key(letter: str) -> str:
        if letter == "x":
            # The events before it are in their groups.
            raise Halt
        return letter

    async def story() -> None:
        grouped = group_by(key, each=lambda group: group.pipe(operator), idle=9)
        letters = "abaabaxb"
        runs.append(from_iterable(letters).pipe(grouped, spread()).to(collect([])).start())
        await runs[0].wait()

    with pytest.raises(Halt):
        run_virtual(story())
    numbers = runs[0].statistics()
    assert numbers["in"] >= 6
    assert (numbers["returned"], numbers["unfinished"]) == (numbers["in"], 0)
