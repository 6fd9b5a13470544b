"""spread() over a plain stream of iterables: the job spreader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import chain, cycle, pairwise, zip_longest
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops

from penstock import (
    adaptive_flat_map,
    collect,
    distinct_within,
    from_async_iterable,
    from_iterable,
    rate_limit,
    read_jsonl,
    run,
    spread,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import (
    CountedSource,
    ManualPublisher,
    MemorySource,
    Probe,
    VirtualTimeLoop,
    run_virtual,
)
from tests.helpers.published import GROUPS, PUBLISHED, read

LISTS = st.lists(st.lists(st.integers(), max_size=4), max_size=6)


def rounds(groups: Iterable[list[Any]]) -> list[Any]:
    """One item of each group, then the next of each."""
    gap = object()
    return [item for item in chain(*zip_longest(*groups, fillvalue=gap)) if item is not gap]


@pytest.mark.parametrize("feeders", PUBLISHED)
def test_iterables_are_spread_in_the_published_orders(feeders: int) -> None:
    probe = read(from_iterable(GROUPS).pipe(spread(feeders)))
    assert probe.values == PUBLISHED[feeders].split()
    assert probe.completed


@pytest.mark.parametrize("feeders", PUBLISHED)
def test_the_published_order_does_not_depend_on_how_much_is_asked_for(feeders: int) -> None:
    probe = read(from_iterable(GROUPS).pipe(spread(feeders)), request=1)
    while not probe.ended:
        probe.request(1)
    assert probe.values == PUBLISHED[feeders].split()


@given(LISTS)
def test_without_a_number_of_feeders_every_iterable_gets_one_item_a_round(
    groups: list[list[int]],
) -> None:
    # A group that turns out to be empty leaves at once, and the order of the others stays.
    assert read(from_iterable(groups).pipe(spread())).values == rounds(groups)


@given(LISTS, st.integers(1, 5))
def test_each_iterables_items_stay_in_order_and_none_is_lost(
    groups: list[list[int]], feeders: int
) -> None:
    named = [[(g, item) for item in group] for g, group in enumerate(groups)]
    values = read(from_iterable(named).pipe(spread(feeders))).values
    assert [[one for one in values if one[0] == g] for g in range(len(groups))] == named


@given(LISTS)
def test_one_feeder_is_one_iterable_after_the_other(groups: list[list[int]]) -> None:
    assert read(from_iterable(groups).pipe(spread(1))).values == [*chain(*groups)]


@given(LISTS, st.integers(1, 4), st.integers(1, 12))
def test_no_group_and_no_job_is_pulled_before_it_is_needed(
    groups: list[list[int]], feeders: int, n: int
) -> None:
    pulled = 0

    def jobs(group: list[int]) -> Iterator[int]:
        nonlocal pulled
        for item in group:
            pulled += 1
            yield item

    source = CountedSource([jobs(group) for group in groups])
    probe = read(source.pipe(spread(feeders)), request=n)
    assert pulled == len(probe.values) == min(n, sum(map(len, groups)))
    # Groups that are still open, and those that were found empty on the way.
    spent = sum(1 for group in groups[: source.emitted] if not group)
    assert source.emitted <= min(n, len(groups)) + spent


def test_a_group_is_pulled_only_when_a_feeder_is_free() -> None:
    source = CountedSource([[1, 2], [3], [4]])
    probe = read(source.pipe(spread(1)), request=2)
    assert (probe.values, source.emitted) == ([1, 2], 1)
    probe.request(1)
    assert (probe.values, source.emitted) == ([1, 2, 3], 2)


def test_nothing_is_pulled_without_demand() -> None:
    source = CountedSource(GROUPS)
    source.pipe(spread(2)).connect(Probe[str]())
    assert source.emitted == 0


def test_an_iterable_without_an_end_takes_turns_with_the_others() -> None:
    def forever() -> Iterator[str]:
        while True:
            yield "f"

    probe = read(from_iterable([forever(), ["a", "b"]]).pipe(spread(2)), request=6)
    assert probe.values == ["f", "a", "f", "b", "f", "f"]
    probe.cancel()


def test_a_late_group_joins_the_rotation_without_holding_it_up() -> None:
    source = ManualPublisher[list[str]]()
    probe = read(source.pipe(spread(2)), request=2)
    source.send(["a1", "a2", "a3"])
    assert probe.values == ["a1", "a2"]
    source.send(["b1"])
    probe.request(3)
    source.complete()
    assert probe.values == ["a1", "a2", "b1", "a3"]
    assert probe.completed


def test_cancel_closes_open_iterators_and_gives_their_events_back() -> None:
    closed: list[str] = []

    def jobs(name: str) -> Iterator[str]:
        try:
            while True:
                yield name
        finally:
            closed.append(name)

    source = MemorySource([jobs("a"), jobs("b")])
    probe = read(source.pipe(spread(2)), request=2)
    probe.cancel()
    assert sorted(closed) == ["a", "b"]
    assert len(source.returned) == 2


def test_a_group_is_finished_when_all_its_jobs_are() -> None:
    source = MemorySource(["ab", "c"])
    stream = source.pipe(ops.map(list), spread(1))
    probe = read(stream, hold=True)
    assert source.acked == []
    probe.events[0].finish()
    assert source.acked == []
    probe.events[1].finish()
    assert source.acked == ["ab"]
    probe.events[2].finish()
    assert source.acked == ["ab", "c"]


def test_an_empty_group_is_acknowledged_as_dropped() -> None:
    source = MemorySource[Any]([[], [1]])
    assert read(source.pipe(spread(1))).values == [1]
    assert source.acked == [[], [1]]


@pytest.mark.parametrize(
    "value", [7, "text", b"bytes", bytearray(b"bytes"), None, {"id": 7}, MappingProxyType({"a": 1})]
)
def test_a_value_that_is_not_a_list_of_jobs_stops_the_pipeline_and_names_group_by(
    value: Any,
) -> None:
    source = MemorySource[Any]([[1], value])
    probe = read(source.pipe(spread(1)))
    assert probe.values == [1]
    assert isinstance(probe.error, TypeError)
    assert "group_by" in str(probe.error)
    assert source.failed == [value]
    assert source.unsettled == []


@pytest.mark.parametrize(
    "stages",
    [
        [],
        [distinct_within(10, by="id"), rate_limit(100)],
        [ops.filter(lambda event: "id" in event)],
    ],
    ids=len,
)
def test_a_source_of_mappings_is_refused_when_the_pipeline_is_built(stages: list[Any]) -> None:
    with pytest.raises(BuildError, match=r"single events of stage 1 'read_jsonl': put group_by"):
        read_jsonl().pipe(*stages, spread())


def test_what_a_source_of_mappings_is_mapped_to_may_be_spread(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"jobs": [1, 3]}\n{"jobs": [2]}\n')
    done: list[int] = []
    jobs = read_jsonl(tmp_path / "in.jsonl").pipe(ops.map(lambda event: event["jobs"]), spread())
    run_virtual(jobs.to(collect(done)).run())
    assert done == [1, 2, 3]


def test_an_iterable_that_raises_stops_the_pipeline_and_the_others_are_given_back() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken job")

    source = MemorySource[Any]([broken(), [2, 3]])
    probe = read(source.pipe(spread(2)))
    assert probe.values == [1, 2]
    assert str(probe.error) == "broken job"
    assert (len(source.failed), len(source.returned)) == (1, 1)
    assert source.unsettled == []


def test_spread_after_spread_takes_iterables_out_of_iterables() -> None:
    nested = from_iterable([[["a1", "a2"], ["b"]], [["c"]]])
    assert read(nested.pipe(spread(1), spread(1))).values == ["a1", "a2", "b", "c"]


# Time: a source yields to the loop every few milliseconds, in the middle of its groups.


def job_spreader(groups: Iterable[Iterable[Any]], feeders: int) -> list[Any]:
    """The published order, by feeders in a circle: each gives one job, then the next one does; a
    feeder without jobs first takes the next group, and leaves if there is none."""
    coming, done = iter(groups), list[Any]()
    circle: list[Iterator[Any]] = [iter(())] * feeders
    while circle:
        left: list[Iterator[Any]] = []
        for jobs in circle:
            group: Iterator[Any] | None = jobs
            while group is not None:
                try:
                    done.append(next(group))
                    left.append(group)
                    break
                except StopIteration:
                    following = next(coming, None)
                    group = None if following is None else iter(following)
        circle = left
    return done


def slowly(items: Iterable[Any], each: float = 0.001) -> Iterator[Any]:
    """The items, of which each keeps the processor for a while."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    for item in items:
        loop.advance(each)
        yield item


def named(sizes: Iterable[int]) -> list[list[str]]:
    return [[f"{g}.{job}" for job in range(size)] for g, size in enumerate(sizes)]


@pytest.mark.parametrize("feeders", PUBLISHED)
def test_the_reference_gives_the_published_orders(feeders: int) -> None:
    assert job_spreader(GROUPS, feeders) == PUBLISHED[feeders].split()


@pytest.mark.parametrize(("count", "feeders"), [(20_000, 5), (1_000, 3), (1_000, 999)])
def test_the_published_order_does_not_depend_on_the_time_that_a_group_takes(
    count: int, feeders: int
) -> None:
    groups = named(g * 7919 % 5 for g in range(count))
    done: list[str] = []

    async def story() -> None:
        stream = from_iterable(lambda: slowly(groups)).pipe(spread(feeders))
        await stream.to(collect(done)).run()

    run_virtual(story())
    assert done == job_spreader(groups, feeders)


STEPS: dict[str, tuple[Any, ...]] = {
    "a step that leaves groups out": (
        ops.filter(lambda group: int(group[0].split(".")[0]) % 51 == 0),
    ),
    "a step that makes groups": (
        ops.flat_map(lambda group: slowly([[f"{item} of {n}" for item in group] for n in "abc"])),
    ),
    "a spread": (ops.map(lambda group: [group, group]), spread(2)),
    "a step that joins groups": (
        ops.buffer_with_count(3),
        ops.map(lambda lists: [item for one in lists for item in one]),
    ),
}


@pytest.mark.parametrize("steps", STEPS)
def test_the_published_order_does_not_depend_on_the_time_that_a_step_before_it_takes(
    steps: str,
) -> None:
    groups = named(1 + g * 7919 % 4 for g in range(500))
    spreads: list[Any] = []
    whole: list[Any] = []

    async def story() -> None:
        source = from_iterable(lambda: slowly(groups)).pipe(*STEPS[steps])
        await source.to(collect(whole)).run()
        await source.pipe(spread(3)).to(collect(spreads)).run()

    run_virtual(story())
    assert len(whole) > 5
    assert spreads == job_spreader(whole, 3)


@pytest.mark.parametrize("handled", [False, True], ids=["source", "source and plain handler"])
@given(
    st.lists(st.integers(0, 4), max_size=40),
    st.integers(1, 6),
    st.lists(st.sampled_from([0.0, 0.001, 0.004, 0.02]), min_size=1, max_size=30),
)
def test_the_published_order_holds_whatever_takes_how_long(
    handled: bool, sizes: list[int], feeders: int, takes: list[float]
) -> None:
    groups = named(sizes)
    taken = cycle(takes)
    done: list[str] = []

    def jobs(group: list[str]) -> Iterator[str]:
        for job in group:
            yield from slowly([job], next(taken))

    def dispatched() -> Iterator[Iterator[str]]:
        for group in groups:
            yield from slowly([jobs(group)], next(taken))

    def handler(group: Iterator[str]) -> Iterator[str]:
        # A generator would be refused as unfinished work.
        return map(str, next(slowly([group], next(taken))))

    async def story() -> None:
        source = from_iterable(dispatched)
        if handled:
            source = source.pipe(adaptive_flat_map(handler))
        await source.pipe(spread(feeders)).to(collect(done)).run()

    run_virtual(story())
    assert done == job_spreader(groups, feeders)


def test_a_dispatcher_that_waits_for_something_does_not_hold_up_the_open_groups() -> None:
    async def dispatched() -> AsyncIterator[list[str]]:
        for group in GROUPS:
            yield group
            await asyncio.sleep(1)

    done: list[str] = []
    run_virtual(from_async_iterable(dispatched).pipe(spread(3)).to(collect(done)).run())
    assert done == ["a1", "a2", "a3", "b1", "c1", "c2", "c3"]


def test_a_source_beside_it_that_never_waits_does_not_hold_up_the_open_groups() -> None:
    done: list[str] = []

    async def story() -> None:
        groups = ManualPublisher[list[str]]()
        others = from_iterable(lambda: slowly(range(10_000)))
        both = groups.pipe(spread(2), ops.with_latest_from(others), ops.map(itemgetter(0)))
        running = both.to(collect(done)).start()
        await asyncio.sleep(0.05)
        groups.send(GROUPS[0])
        await asyncio.sleep(1)
        assert done == GROUPS[0]
        running.cancel()

    run_virtual(story())


# Iterators that do not let themselves be closed.


def closes_badly() -> Iterator[int]:
    try:
        while True:
            yield 1
    finally:
        raise OSError("in close")


def boom() -> Iterator[int]:
    yield 2
    raise ValueError("boom")


def test_an_iterator_that_cannot_be_closed_does_not_hide_the_error_that_ended_the_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    out: list[int] = []
    with pytest.raises(ValueError, match="boom"):
        run(
            from_iterable([closes_badly(), boom(), closes_badly()]).pipe(spread(3)).to(collect(out))
        )
    assert out == [1, 2, 1, 1]
    told = [record.getMessage() for record in caplog.records]
    assert told == ["after the first error: OSError: in close"] * 2


def test_an_iterator_that_cannot_be_closed_does_not_keep_the_others_open() -> None:
    closed: list[str] = []

    def jobs() -> Iterator[int]:
        try:
            yield from [1, 2, 3]
        finally:
            closed.append("jobs")

    source = MemorySource[Any]([closes_badly(), jobs()])
    probe = read(source.pipe(spread(2)), request=2)
    with pytest.raises(OSError, match="in close"):
        probe.cancel()
    assert closed == ["jobs"]
    assert len(source.returned) == 2


def test_an_iterator_that_cancels_its_own_stream_is_given_back() -> None:
    def jobs() -> Iterator[int]:
        yield 1
        probe.cancel()
        yield 2

    source = MemorySource[Any]([jobs()])
    probe = Probe[Any](request=5)
    source.pipe(spread(2)).connect(probe)
    assert probe.values == [1]
    assert len(source.returned) == 1
    assert source.unsettled == []


# Statistics.


def test_with_full_feeders_neighbours_are_as_far_apart_as_there_are_feeders() -> None:
    # The article: "each group's jobs occur every 3 jobs in the final output" with 3 feeders.
    out: list[int] = []
    groups = [[group] * 10 for group in range(30)]
    run_virtual(from_iterable(groups).pipe(spread(3)).to(collect(out)).run())
    places = [[at for at, one in enumerate(out) if one == group] for group in range(30)]
    apart = [later - earlier for each in places for earlier, later in pairwise(each)]
    assert apart == [3] * 30 * 9


def test_iterables_whose_item_has_not_come_are_awaited() -> None:
    async def jobs() -> AsyncIterator[int]:
        await asyncio.sleep(1)
        yield 1

    async def story() -> None:
        running = from_iterable([jobs(), jobs(), iter([1])]).pipe(spread()).to(collect([])).start()
        await asyncio.sleep(0.5)
        stage = running.statistics()["stages"][1]
        assert (stage["open"], stage["waiting"], stage["awaited"]) == (2, 2, 2)
        await running.wait()
        stage = running.statistics()["stages"][1]
        assert (stage["open"], stage["awaited"]) == (0, 0)

    run_virtual(story())
