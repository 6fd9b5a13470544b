from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import adaptive_flat_map, chunk, from_iterable, group_by, spread
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import (
    COMPLETED,
    CountedSource,
    ManualPublisher,
    MemorySink,
    MemorySource,
    Probe,
    VirtualClock,
    run_virtual,
)
from penstock.streams.testing.plugin import Run

# The story.


def test_the_diagram_of_the_documentation_plays(clock: VirtualClock) -> None:
    assert clock.play("--a-b-c-d----------e|", chunk(3, 6)) == [
        (6, ["a", "b", "c"]),
        (14, ["d"]),
        (20, ["e"]),
        (20, COMPLETED),
    ]


def test_lists_of_the_size_and_the_rest_at_the_end(run: Run) -> None:
    source, sink = MemorySource(range(7)), MemorySink()
    run(source.pipe(chunk(3)).to(sink).run())
    assert sink.values == [[0, 1, 2], [3, 4, 5], [6]]
    assert source.acked == list(range(7))


def test_without_a_wait_a_list_waits_until_it_is_full(clock: VirtualClock) -> None:
    assert clock.play("a----------b-|", chunk(2)) == [(11, ["a", "b"]), (13, COMPLETED)]


def test_the_wait_counts_from_the_first_of_each_list(clock: VirtualClock) -> None:
    assert clock.play("a-b-----c---------|", chunk(9, 4)) == [
        (4, ["a", "b"]),
        (12, ["c"]),
        (18, COMPLETED),
    ]


def test_of_nothing_there_is_no_list(clock: VirtualClock) -> None:
    assert clock.play("---|", chunk(3, 1)) == [(3, COMPLETED)]


def test_an_error_passes_at_once_and_the_events_of_the_list_are_given_back(run: Run) -> None:
    async def story() -> None:
        source, probe = ManualPublisher[int](), Probe[list[int]](request=9)
        source.pipe(chunk(3, 5)).connect(probe)
        source.send(1, 2)
        source.fail(ValueError("from above"))
        assert (probe.values, str(probe.error)) == ([], "from above")
        assert source.returned == [1, 2]

    run(story())


def test_cancel_gives_the_events_of_the_list_back_and_leaves_no_timer(run: Run) -> None:
    async def story() -> None:
        source, probe = MemorySource(range(5)), Probe[list[int]](request=1)
        source.pipe(chunk(9, 5)).connect(probe)
        probe.request(1)
        probe.cancel()
        await asyncio.sleep(10)
        assert (probe.values, source.returned) == ([[0, 1, 2, 3, 4]], [])

    run(story())


def test_the_events_of_a_list_share_its_fate(run: Run) -> None:
    async def save(values: list[int]) -> None:
        if 4 in values:
            raise ValueError(values)

    source = MemorySource(range(9))
    flow = source.pipe(chunk(3), adaptive_flat_map(save, on_error="skip"))
    report = run(flow.to(MemorySink()).run())
    assert report.statistics["failed"] == 3
    assert report.statistics["finished"] == 6
    assert sorted(source.acked) == list(range(9))


def test_a_list_that_is_given_back_gives_back_all_of_its_events(run: Run) -> None:
    async def story() -> None:
        source = MemorySource(range(6))
        running = source.pipe(chunk(3)).to(MemorySink(hold=True)).start()
        await asyncio.sleep(1)
        running.cancel()
        await running.wait()
        assert source.acked == []
        assert running.statistics()["unfinished"] == 0

    run(story())


# Demand.


def test_nothing_is_read_without_demand(run: Run) -> None:
    async def story() -> None:
        source, probe = CountedSource(range(99)), Probe[list[int]]()
        source.pipe(chunk(3, 1)).connect(probe)
        await asyncio.sleep(10)
        assert source.emitted == 0
        probe.request(2)
        await asyncio.sleep(10)
        assert (probe.values, source.emitted) == ([[0, 1, 2], [3, 4, 5]], 6)
        probe.cancel()

    run(story())


def test_a_list_that_is_due_and_not_wanted_goes_when_it_is(run: Run) -> None:
    async def story() -> None:
        source, probe = ManualPublisher[int](), Probe[list[int]](request=1)
        source.pipe(chunk(3, 1)).connect(probe)
        source.send(1)
        await asyncio.sleep(2)
        assert probe.values == [[1]]
        source.send(2)
        await asyncio.sleep(2)
        source.send(3)
        assert probe.values == [[1]]
        probe.request(1)
        assert probe.values == [[1], [2, 3]]
        probe.cancel()

    run(story())


@given(
    st.lists(st.floats(0, 3), max_size=40),
    st.integers(1, 5),
    st.sampled_from([None, 0.5, 2.0]),
    st.booleans(),
)
def test_no_event_is_lost_doubled_or_kept_too_long(
    gaps: list[float], size: int, wait: float | None, hungry: bool
) -> None:
    async def story() -> None:
        source, probe = ManualPublisher[float](), Probe[list[float]](request=99 if hungry else 1)
        source.pipe(chunk(size, wait)).connect(probe)
        sent: list[float] = []
        loop = asyncio.get_running_loop()
        for gap in gaps:
            await asyncio.sleep(gap)
            while not source.demand:
                probe.request(1)
            sent.append(loop.time())
            source.send(loop.time())
        source.complete()
        probe.request(99)
        await asyncio.sleep(10)
        assert probe.completed
        assert [value for values in probe.values for value in values] == sent
        assert all(1 <= len(values) <= size for values in probe.values)
        if hungry and wait is not None:
            assert all(at - values[0] <= wait + 1e-6 for at, values in probe.timed)
        assert source.unsettled == []

    run_virtual(story())


@pytest.mark.parametrize("arguments", [(0,), (-1,), (True,), (1, 0), (1, -1), (1, float("nan"))])
def test_nonsense_is_refused_when_the_operator_is_built(arguments: Any) -> None:
    with pytest.raises(BuildError, match="chunk"):
        chunk(*arguments)


def test_it_cannot_hold_turns() -> None:
    with pytest.raises(BuildError, match=r"use batch\(handler\)"):
        from_iterable([1]).pipe(group_by(abs), spread(), chunk(3))
