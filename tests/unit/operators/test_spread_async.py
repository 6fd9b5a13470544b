"""spread() over a stream of async iterables: the job spreader, whose jobs come when they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import collect, from_iterable, spread
from penstock.streams.base.errors import HandlerCancelled
from penstock.streams.testing import (
    CountedSource,
    ManualPublisher,
    MemorySource,
    Probe,
    run_virtual,
)
from tests.helpers.published import GROUPS, PUBLISHED, read

LISTS = st.lists(st.lists(st.integers(), max_size=4), max_size=6)


async def at_once(items: Iterable[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


async def every(seconds: float, items: Iterable[Any]) -> AsyncIterator[Any]:
    for item in items:
        await asyncio.sleep(seconds)
        yield item


def played(story: Coroutine[Any, Any, None]) -> None:
    run_virtual(story)


def spread_of(groups: Iterable[Any], feeders: int | None = None) -> list[Any]:
    done: list[Any] = []
    run_virtual(from_iterable(groups).pipe(spread(feeders)).to(collect(done)).run())
    return done


async def soon() -> None:
    """All that waits for nothing has happened."""
    await asyncio.sleep(0.001)


@pytest.mark.parametrize("feeders", PUBLISHED)
def test_async_generators_that_wait_for_nothing_are_spread_in_the_published_orders(
    feeders: int,
) -> None:
    assert spread_of(map(at_once, GROUPS), feeders) == PUBLISHED[feeders].split()


@pytest.mark.parametrize("feeders", PUBLISHED)
def test_async_and_plain_groups_take_turns_with_each_other(feeders: int) -> None:
    mixed = [at_once(GROUPS[0]), GROUPS[1], at_once(GROUPS[2])]
    assert spread_of(mixed, feeders) == PUBLISHED[feeders].split()


@pytest.mark.parametrize("feeders", PUBLISHED)
def test_the_published_order_does_not_depend_on_how_much_is_asked_for(feeders: int) -> None:
    async def story() -> None:
        probe = read(from_iterable(map(at_once, GROUPS)).pipe(spread(feeders)), request=1)
        while not probe.ended:
            await soon()
            probe.request(1)
        assert probe.values == PUBLISHED[feeders].split()

    played(story())


@given(LISTS, st.integers(1, 5), st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=6, max_size=6))
def test_each_groups_items_stay_in_order_and_none_is_lost(
    groups: list[list[int]], feeders: int, seconds: list[float]
) -> None:
    named = [[(g, item) for item in group] for g, group in enumerate(groups)]
    values = spread_of(map(every, seconds, named), feeders)
    assert [[one for one in values if one[0] == g] for g in range(len(groups))] == named


@given(LISTS, st.sampled_from([0.0, 1.0]))
def test_one_feeder_is_one_group_after_the_other(groups: list[list[int]], each: float) -> None:
    assert spread_of([every(each, group) for group in groups], 1) == [*chain(*groups)]


def test_a_group_whose_item_has_not_come_does_not_hold_up_the_others() -> None:
    done: list[str] = []

    async def story() -> None:
        groups: list[Any] = [every(1, ["slow1", "slow2"]), ["a", "b", "c"], at_once("de")]
        running = from_iterable(groups).pipe(spread(3)).to(collect(done)).start()
        await soon()
        assert done == ["a", "d", "b", "e", "c"]
        await asyncio.sleep(1)
        assert done[5:] == ["slow1"]
        await running.wait()
        assert done[6:] == ["slow2"]

    played(story())


def test_groups_that_wait_do_so_together() -> None:
    done: list[str] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await (
            from_iterable([every(1, "abc"), every(1, "def"), every(1, "ghi")])
            .pipe(spread(3))
            .to(collect(done))
            .run()
        )
        assert loop.time() - began == pytest.approx(3)

    played(story())
    assert "".join(done) == "adgbehcfi"


def test_an_endless_plain_group_does_not_keep_an_async_one_from_its_turns() -> None:
    async def story() -> None:
        def forever() -> Iterable[str]:
            while True:
                yield "f"

        source = from_iterable([forever(), at_once("abc")])
        probe = read(source.pipe(spread(2)), request=6)
        await soon()
        assert probe.values == ["f", "a", "f", "b", "f", "c"]
        probe.cancel()

    played(story())


# Demand.


@given(LISTS, st.integers(1, 4), st.integers(1, 12))
def test_no_group_and_no_item_is_pulled_before_it_is_needed(
    groups: list[list[int]], feeders: int, n: int
) -> None:
    pulled = 0

    async def jobs(group: list[int]) -> AsyncIterator[int]:
        nonlocal pulled
        for item in group:
            pulled += 1
            yield item

    async def story() -> None:
        source = CountedSource([jobs(group) for group in groups])
        probe = read(source.pipe(spread(feeders)), request=n)
        await soon()
        assert pulled == len(probe.values) == min(n, sum(map(len, groups)))
        spent = sum(1 for group in groups[: source.emitted] if not group)
        assert source.emitted <= min(n, len(groups)) + spent
        probe.cancel()

    played(story())


@given(st.integers(1, 4), st.integers(1, 6))
def test_at_most_one_item_of_each_open_group_is_read_ahead(feeders: int, n: int) -> None:
    pulled = 0

    async def jobs(group: int) -> AsyncIterator[int]:
        nonlocal pulled
        while True:
            await asyncio.sleep(1 + group / 10)
            pulled += 1
            yield group

    async def story() -> None:
        probe = read(from_iterable([jobs(g) for g in range(6)]).pipe(spread(feeders)), request=n)
        await asyncio.sleep(60)
        assert len(probe.values) == n
        assert pulled <= n + feeders
        probe.cancel()

    played(story())


def test_nothing_is_pulled_without_demand() -> None:
    begun: list[str] = []

    async def jobs() -> AsyncIterator[str]:
        begun.append("begun")
        yield "a"

    async def story() -> None:
        source = CountedSource([jobs()])
        probe = Probe[str]()
        source.pipe(spread(2)).connect(probe)
        await soon()
        assert (begun, source.emitted) == ([], 0)
        probe.request(1)
        await soon()
        assert (begun, probe.values) == (["begun"], ["a"])
        probe.cancel()

    played(story())


# The end.


def test_a_late_group_joins_the_rotation_and_the_end_waits_for_what_is_open() -> None:
    async def story() -> None:
        source = ManualPublisher[Any]()
        probe = read(source.pipe(spread(2)))
        source.send(every(1, "ab"))
        await soon()
        source.send(["c"])
        source.complete()
        assert (probe.values, probe.completed) == (["c"], False)
        await asyncio.sleep(2)
        assert (probe.values, probe.completed) == (["c", "a", "b"], True)

    played(story())


def test_cancel_closes_open_generators_and_gives_their_events_back() -> None:
    closed: list[str] = []

    async def jobs(name: str) -> AsyncIterator[str]:
        try:
            while True:
                yield name
                await asyncio.sleep(1)
        finally:
            await asyncio.sleep(0.5)
            closed.append(name)

    async def story() -> None:
        source = MemorySource([jobs("a"), jobs("b")])
        done: list[str] = []
        running = source.pipe(spread(2)).to(collect(done)).start()
        await soon()
        running.cancel()
        await running.wait()
        # The run has waited for what they do at their end.
        assert sorted(closed) == ["a", "b"]
        assert (done, len(source.returned)) == (["a", "b"], 2)
        assert source.unsettled == []

    played(story())


def test_an_item_that_has_been_read_ahead_is_given_back_with_its_group() -> None:
    async def story() -> None:
        source = MemorySource[Any]([every(1, "ab"), every(2, "cd")])
        probe = read(source.pipe(spread(2)), request=1)
        await asyncio.sleep(3)
        assert probe.values == ["a"]
        probe.cancel()
        await soon()
        assert len(source.returned) == 2
        assert source.unsettled == []

    played(story())


def test_an_iterator_is_closed_at_its_own_end_too() -> None:
    class Closing:
        closed = 0
        left = 2

        def __aiter__(self) -> Closing:
            return self

        async def __anext__(self) -> int:
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return self.left

        async def aclose(self) -> None:
            self.closed += 1

    items = Closing()
    assert spread_of([items]) == [1, 0]
    assert items.closed == 1


def test_a_drain_takes_the_open_groups_to_their_ends() -> None:
    async def story() -> None:
        done: list[str] = []
        groups = from_iterable(lambda: iter([every(1, "abc"), every(1, "def"), every(1, "ghi")]))
        running = groups.pipe(spread(2)).to(collect(done)).start()
        await asyncio.sleep(1.5)
        report = await running.drain(deadline=10)
        assert "".join(done) == "adbecf"
        assert report.statistics["unfinished"] == 0

    played(story())


def test_a_group_is_finished_when_all_its_items_are_and_an_empty_one_is_dropped() -> None:
    async def story() -> None:
        source = MemorySource[Any]([at_once(""), at_once("ab")])
        probe = read(source.pipe(spread(1)), hold=True)
        await soon()
        assert len(source.acked) == 1
        for event in probe.events:
            event.finish()
        assert len(source.acked) == 2
        assert probe.completed

    played(story())


# Errors.


async def broken(seconds: float = 0) -> AsyncIterator[int]:
    yield 1
    await asyncio.sleep(seconds)
    raise ValueError("broken job")


@pytest.mark.parametrize("seconds", [0, 1])
def test_an_error_in_one_stops_the_pipeline_and_the_others_are_given_back(seconds: float) -> None:
    async def story() -> None:
        source = MemorySource[Any]([broken(seconds), every(0.4, [2, 3, 4, 5])])
        probe = read(source.pipe(spread(2)))
        await asyncio.sleep(5)
        assert str(probe.error) == "broken job"
        assert (len(source.failed), len(source.returned)) == (1, 1)
        assert source.unsettled == []
        assert probe.values == ([1] if not seconds else [1, 2, 3])

    played(story())


def test_the_error_of_a_run_names_the_stage() -> None:
    with pytest.raises(ValueError, match="broken job") as caught:
        spread_of([broken()])
    (note,) = caught.value.__notes__
    assert "stage 2 'spread'" in note


def test_a_generator_that_is_cancelled_from_inside_is_an_error_and_not_a_standstill() -> None:
    async def jobs() -> AsyncIterator[int]:
        yield 1
        raise asyncio.CancelledError

    with pytest.raises(HandlerCancelled, match="an async iterable of stage 2 'spread'"):
        spread_of([jobs()])


def test_an_async_iterable_that_makes_no_iterator_fails_its_event() -> None:
    class Bad:
        def __aiter__(self) -> Any:
            raise LookupError("no iterator")

    async def story() -> None:
        source = MemorySource[Any]([Bad()])
        probe = read(source.pipe(spread(1)))
        assert isinstance(probe.error, LookupError)
        assert len(source.failed) == 1

    played(story())


def test_an_error_while_a_generator_is_closed_is_logged_after_a_cancel(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def jobs() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.sleep(10)
        finally:
            raise OSError("in close")

    async def story() -> None:
        running = from_iterable([jobs()]).pipe(spread(1)).to(collect([])).start()
        await soon()
        running.cancel()
        await running.wait()

    played(story())
    (told,) = [record.getMessage() for record in caplog.records]
    assert "OSError: in close (in stage 2 'spread')" in told


def test_an_error_while_an_iterator_is_closed_at_its_end_ends_the_run() -> None:
    class Closing:
        def __aiter__(self) -> Closing:
            return self

        async def __anext__(self) -> int:
            raise StopAsyncIteration

        async def aclose(self) -> None:
            raise OSError("in close")

    with pytest.raises(OSError, match="in close"):
        spread_of([Closing()])


def test_a_generator_that_cannot_be_closed_does_not_hide_the_error_that_ended_the_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def closes_badly() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.sleep(10)
        finally:
            raise OSError("in close")

    with pytest.raises(ValueError, match="broken job"):
        spread_of([closes_badly(), broken(1)])
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("after the first error: OSError: in close")


def test_a_generator_that_cancels_its_own_stream_is_given_back() -> None:
    async def story() -> None:
        async def jobs() -> AsyncIterator[int]:
            yield 1
            probe.cancel()
            yield 2

        source = MemorySource[Any]([jobs()])
        probe = Probe[Any](request=5)
        source.pipe(spread(2)).connect(probe)
        await soon()
        assert probe.values == [1]
        assert len(source.returned) == 1
        assert source.unsettled == []

    played(story())


def test_a_stream_is_not_a_group() -> None:
    async def story() -> None:
        probe = read(from_iterable([from_iterable([1])]).pipe(spread()))
        assert isinstance(probe.error, TypeError)

    played(story())
