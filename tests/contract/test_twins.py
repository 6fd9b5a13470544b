from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Pipeline, adaptive_flat_map
from penstock.streams.testing import (
    CountedSource,
    MemorySink,
    MemorySource,
    Probe,
    no_leaks,
    run_virtual,
)
from penstock.streams.testing.plugin import Run


@given(st.lists(st.integers()), st.integers(0, 9))
def test_a_counted_source_emits_what_is_asked_for(items: list[int], n: int) -> None:
    source, probe = CountedSource(items), Probe[int]()
    source.connect(probe)
    if n:
        probe.request(n)
    assert (source.emitted, probe.values) == (min(n, len(items)), items[:n])


def test_a_memory_source_knows_the_fate_of_each_item() -> None:
    source, probe = MemorySource("abcd"), Probe[str](request=4, hold=True)
    source.connect(probe)
    a, b, c, d = probe.events
    a.finish()
    b.fail(ValueError())
    c.give_back()
    assert (source.acked, source.failed, source.returned) == (["a"], ["b"], ["c"])
    assert source.unsettled == ["d"]
    d.fail(ValueError(), acknowledged=True)
    assert source.acked == ["a", "d"]


def test_what_was_not_acknowledged_is_offered_again_ahead_of_the_rest() -> None:
    source, probe = MemorySource([1, 2, 3, 4]), Probe[int](request=3, hold=True)
    source.connect(probe)
    for event in probe.events:
        event.give_back()
    assert source.redeliver() == 3
    again = Probe[int](request=9)
    source.connect(again)
    assert (again.values, source.acked) == ([1, 2, 3, 4], [1, 2, 3, 4])


def test_a_memory_sink_accepts_at_once() -> None:
    async def story() -> None:
        sink = MemorySink()
        source = MemorySource([1, 2])
        async with no_leaks():
            await source.to(sink).run()
        assert (sink.accepted, source.acked, sink.closed) == ([(0.0, 1), (0.0, 2)], [1, 2], 1)

    run_virtual(story())


def test_a_slow_memory_sink_asks_for_one_at_a_time() -> None:
    async def story() -> None:
        sink = MemorySink(seconds=2)
        source = CountedSource(itertools.count())
        async with no_leaks(), source.to(sink).start() as running:
            await asyncio.sleep(5)
            assert (source.emitted, sink.waiting) == (3, [2])
            await running.drain()
        assert sink.accepted == [(2.0, 0), (4.0, 1), (6.0, 2)]

    run_virtual(story())


def test_a_holding_memory_sink_accepts_when_the_test_says_so() -> None:
    async def story() -> None:
        sink, source = MemorySink(hold=True), MemorySource([1, 2, 3])
        async with no_leaks(), source.to(sink).start() as running:
            await asyncio.sleep(1)
            assert (sink.values, sink.waiting) == ([], [1])
            sink.accept()
            sink.accept()
            assert (sink.values, sink.waiting) == ([1, 2], [3])
            running.cancel()
        assert (source.acked, source.returned) == ([1, 2], [3])

    run_virtual(story())


def test_a_memory_sink_breaks_off_on_demand() -> None:
    async def double(value: int) -> int:
        return 2 * value

    async def story() -> None:
        sink, source = MemorySink(), MemorySource([1, 2, 3])
        sink.fail(OSError("disk full"))
        pipeline: Pipeline = source.pipe(adaptive_flat_map(double)).to(sink)
        async with no_leaks():
            with pytest.raises(OSError, match="disk full"):
                await pipeline.run()
        assert (sink.values, source.failed, source.acked) == ([], [1], [])
        assert source.redeliver() == len(source.failed) + len(source.returned)
        async with no_leaks():
            await pipeline.run()
        assert (sorted(sink.values), sink.closed) == ([2, 4, 6], 2)

    run_virtual(story())


def test_the_clock_or_the_test_accepts_but_not_both() -> None:
    with pytest.raises(ValueError, match="either"):
        MemorySink(seconds=1, hold=True)


def test_a_slow_sink_takes_nothing_once_it_is_closed(run: Run) -> None:
    sink = MemorySink(seconds=1)

    async def story() -> None:
        # Its result comes when the sink is closed already.
        source = MemorySource([1])
        running = source.pipe(adaptive_flat_map(lambda _: running.cancel())).to(sink).start()
        await running.wait()
        assert source.returned == [1]

    run(story())
    assert sink.values == []
