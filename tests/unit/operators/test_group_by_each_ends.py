"""The end of a group's state: when it was idle, beyond max_groups, and with the stream."""

from __future__ import annotations

import asyncio
import gc
from typing import Any
from weakref import WeakSet

import pytest
from reactivex import operators as ops

from penstock import (
    Fixed,
    Flowable,
    Group,
    adaptive_flat_map,
    collect,
    for_each,
    from_iterable,
    group_by,
    spread,
)
from penstock.streams.protocol.event import Ending
from penstock.streams.runtime.context import Run
from penstock.streams.testing import ManualPublisher, MemorySink, MemorySource, Probe, run_virtual
from penstock.streams.testing.plugin import Run as RunVirtual
from tests.helpers.in_groups import at_times, each, read


def play_out(items: list[tuple[float, Any]], operator: Any, until: float) -> list[Any]:
    """(time, value) of the output of a stream that goes on until the given time."""

    async def story() -> list[Any]:
        stream = Flowable.from_async_iterable(lambda: at_times([*items, (until, None)]))
        probe = read(stream.pipe(ops.take_while(lambda item: item is not None)), operator)
        await asyncio.sleep(until - 0.001)
        seen = list(probe.timed)
        await asyncio.sleep(1)
        assert probe.completed
        return seen

    return run_virtual(story())


def test_a_state_ends_when_its_group_was_empty_for_idle_seconds() -> None:
    items = [(0, "a1"), (5, "a2"), (14.9, "a3"), (25, "a4"), (26, "a5")]
    seen = play_out(items, each(ops.pairwise(), idle=10), until=30)
    # a3 came within ten seconds, a4 exactly at the end of the state: it starts a new one.
    assert seen == [(5, ("a1", "a2")), (14.9, ("a2", "a3")), (26, ("a4", "a5"))]


def test_a_state_that_ends_gives_what_it_holds() -> None:
    items = [(0, "a1"), (1, "b1"), (2, "a2"), (3, "a3")]
    seen = play_out(items, each(ops.buffer_with_count(2), idle=10), until=30)
    assert seen == [(2, ["a1", "a2"]), (11, ["b1"]), (13, ["a3"])]


def test_a_group_whose_turn_is_held_is_not_empty() -> None:
    async def story() -> list[Any]:
        source = ManualPublisher[str]()
        probe = read(
            source, each(ops.scan(lambda seen, value: seen + value, ""), idle=5), hold=True
        )
        source.send("a")
        await asyncio.sleep(100)
        source.send("a")
        probe.events[0].finish()
        await asyncio.sleep(4)
        probe.events[1].finish()
        await asyncio.sleep(6)
        source.send("a")
        probe.events[2].finish()
        probe.cancel()
        return probe.values

    assert run_virtual(story()) == ["a", "aa", "a"]


def test_operators_that_end_early_ignore_their_group_until_it_ends() -> None:
    source = MemorySource(["a1", "b1", "a2", "a3", "b2"])
    probe = read(source, each(ops.take(1)))
    assert probe.values == ["a1", "b1"]
    assert source.unsettled == []
    assert len(source.acked) == 5
    items = [(0, "a1"), (1, "a2"), (10, "a3")]
    assert play_out(items, each(ops.take(1), idle=5), until=12) == [(0, "a1"), (10, "a3")]


def test_beyond_max_groups_the_least_recently_used_empty_state_ends() -> None:
    count = ops.scan(lambda n, key: (key, n[1] + 1), ("", 0))
    items = [(n, key) for n, key in enumerate("abacab")]
    seen = play_out(items, each(count, max_groups=2), until=10)
    # c ends b, the longest unused; b then ends a.
    assert [value for _, value in seen] == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
        ("c", 1),
        ("a", 3),
        ("b", 1),
    ]


def test_max_groups_ends_no_state_of_a_group_at_work() -> None:
    async def story() -> list[Any]:
        source = ManualPublisher[str]()
        count = ops.scan(lambda n, key: (key, n[1] + 1), ("", 0))
        probe = read(source, each(count, max_groups=1), hold=True)
        source.send("a", "b", "c")
        probe.events[1].finish()
        source.send("a", "b")
        for event in probe.events[:1] + probe.events[2:]:
            event.finish()
        for event in probe.events:
            event.finish()
        probe.cancel()
        return probe.values

    assert run_virtual(story()) == [("a", 1), ("b", 1), ("c", 1), ("b", 1), ("a", 2)]


def test_max_groups_ends_no_state_whose_result_has_just_come() -> None:
    count = ops.scan(lambda n, key: (key, n[1] + 1), ("", 0))
    probe = read(MemorySource([*"abcdefgh"] * 2), each(count, max_groups=1), hold=True)
    for event in probe.events:
        event.finish()
    assert sorted(probe.values) == [(key, n) for key in "abcdefgh" for n in (1, 2)]


def test_only_as_many_states_are_ended_as_there_are_too_many() -> None:
    """A state whose last results are still on their way counts as ended."""

    async def story() -> list[Any]:
        source = ManualPublisher[str]()
        unpack = (ops.buffer_with_count(9), ops.flat_map(lambda values: values))
        probe = read(source, each(*unpack, max_groups=2), hold=True)
        source.send("a1", "a2", "b1", "b2", "c1")
        assert probe.values == ["a1"]
        probe.events[0].finish()
        assert probe.values == ["a1", "a2"]
        probe.events[1].finish()
        probe.cancel()
        return source.returned

    assert run_virtual(story()) == ["b1", "b2", "c1"]


def test_an_event_that_comes_during_the_last_results_opens_the_next_state() -> None:
    async def story() -> list[Any]:
        source = ManualPublisher[str]()
        unpack = (
            ops.buffer_with_count(3),
            ops.flat_map(lambda values: [(n, value) for n, value in enumerate(values)]),
        )
        probe = read(source, each(*unpack, idle=1), hold=True)
        source.send("a1", "a2")
        await asyncio.sleep(2)
        assert probe.values == [(0, "a1")]
        source.send("a3", "a4", "a5")
        n = 0
        while n < len(probe.events):
            probe.events[n].finish()
            n += 1
        source.complete()
        assert probe.completed
        assert source.unsettled == []
        return probe.values

    assert run_virtual(story()) == [(0, "a1"), (1, "a2"), (0, "a3"), (1, "a4"), (2, "a5")]


def test_the_stream_completes_after_the_last_results_of_every_group() -> None:
    probe = read(from_iterable(["a1", "b1", "a2"]), each(ops.to_list()), hold=True)
    assert sorted(probe.values) == [["a1", "a2"], ["b1"]]
    for event in probe.events:
        event.finish()
    assert probe.completed


def test_cancel_gives_back_what_is_held_inside_the_groups() -> None:
    source = MemorySource(["a1", "b1", "a2", "b2", "b3"])
    probe = read(source, each(ops.buffer_with_count(3)), request=1, hold=True)
    probe.cancel()
    assert probe.values == [["b1", "b2", "b3"]]
    assert source.returned == ["a1", "a2"]
    for event in probe.events:
        event.finish()
    assert source.unsettled == []


def test_nothing_is_left_when_a_stream_is_cancelled_with_states_alive() -> None:
    async def story() -> None:
        source = ManualPublisher[str]()
        probe = read(source, each(ops.delay(5), idle=50), hold=True)
        source.send("a1", "b1", "a2")
        await asyncio.sleep(1)
        probe.cancel()
        await asyncio.sleep(100)
        assert probe.values == []
        assert sorted(source.returned) == ["a1", "a2", "b1"]

    run_virtual(story())


def test_without_a_loop_a_state_ends_when_the_next_event_comes_after_its_time() -> None:
    source, probe, run = ManualPublisher[str](), Probe[Any](request=9), Run()
    time = 0.0
    run.now = lambda: time
    count = ops.scan(lambda n, key: (key, n[1] + 1), ("", 0))
    source.pipe(each(count, idle=10)).attach(probe, run)
    source.send("a")
    time = 9.9
    source.send("a")
    time = 19.9
    source.send("a")
    assert probe.values == [("a", 1), ("a", 2), ("a", 1)]


def test_an_event_that_comes_when_its_group_has_just_ended_is_not_lost_with_it() -> None:
    source, probe, run = ManualPublisher[str](), Probe[Any](request=9), Run()
    time = 0.0
    run.now = lambda: time
    source.pipe(each(ops.buffer_with_count(2), idle=10)).attach(probe, run)
    source.send("a1")
    time = 10.0
    source.send("a2")
    source.send("b1")
    source.complete()
    assert probe.values == [["a1"], ["a2"], ["b1"]]
    assert probe.completed


def test_no_timer_is_left_by_a_group_that_begins_again_after_the_end_of_its_source(
    run: RunVirtual,
) -> None:
    sink = MemorySink()
    for buffer in range(1, 5):
        flow = MemorySource(["a1", "a2", "a3", "a4", "a5"]).pipe(
            each(ops.delay(5), buffer=buffer, idle=50)
        )
        run(flow.to(sink).run())
    assert sink.values == 4 * ["a1", "a2", "a3", "a4", "a5"]


def test_a_spread_further_down_keeps_nothing_of_groups_that_have_ended(run: RunVirtual) -> None:
    class Twice:
        def __call__(self, value: str) -> list[str]:
            return [value, value]

    alive, most = WeakSet[Twice](), list[int]()

    def operators(group: Any) -> Any:
        twice = Twice()
        alive.add(twice)
        return group.pipe(ops.flat_map(twice))

    def look(value: str) -> list[str]:
        gc.collect()
        most.append(len(alive))
        return [value]

    keys = [(float(second), str(second)) for second in range(20)]
    grouped = group_by(str, each=operators, idle=1.5), spread(), adaptive_flat_map(look)
    source = Flowable.from_async_iterable(lambda: at_times(keys))
    sink = MemorySink()
    run(source.pipe(*grouped, spread()).to(sink).run())
    assert len(sink.values) == 40
    assert max(most) < 5


def test_at_the_end_of_the_stream_groups_end_no_faster_than_what_comes_of_them_is_taken() -> None:
    ended: list[int] = []

    def look(count: int) -> int:
        ended.append(count)
        return count

    source = MemorySource(list(range(2_000)))
    grouped = group_by(str, 9_999, each=lambda g: g.pipe(ops.count(), ops.map(look)), idle=60)
    probe = Probe[int](request=1)
    source.pipe(grouped, spread()).connect(probe)
    assert (len(probe.values), len(ended) < 1_000) == (1, True)
    probe.request(9_999)
    assert (len(probe.values), len(ended), probe.completed) == (2_000, 2_000, True)
    assert source.unsettled == []


def test_what_groups_hold_is_returned_when_the_operators_of_another_fail_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def operators(group: Group[str, str]) -> Flowable[Any]:
        counted = group.pipe(ops.count())
        return counted.pipe(ops.map(lambda n: n // 0)) if group.key == "c" else counted

    source = MemorySource(["a1", "b1", "c1", "a2"])
    grouped = group_by(lambda event: event[0], each=operators, idle=60)
    done: list[Any] = []
    with pytest.raises(ZeroDivisionError):
        run_virtual(source.pipe(grouped, spread()).to(collect(done)).run())
    # No other error came after it.
    assert (done, caplog.messages) == ([], [])
    assert (source.failed, source.returned) == (["c1"], ["a1", "a2", "b1"])
    assert source.unsettled == []


@pytest.mark.parametrize("is_only_counted", [False, True])
def test_the_first_event_of_a_group_is_returned_when_ending_another_cancels_the_stream(
    is_only_counted: bool,
) -> None:
    source, probe = MemorySource(["a1", "b1"]), Probe[Any](request=9)

    def stop(n: int) -> int:
        probe.cancel()
        return n

    def operators(group: Group[str, str]) -> Flowable[int]:
        counted = group.pipe(ops.count())
        return counted if is_only_counted and group.key == "b" else counted.pipe(ops.map(stop))

    grouped = group_by(lambda event: event[0], each=operators, idle=60, max_groups=1)
    source.pipe(grouped, spread()).connect(probe)
    assert sorted(source.returned) == ["a1", "b1"]
    assert source.unsettled == []


@pytest.mark.parametrize("at", [5, 8, 12])
def test_an_error_of_an_operator_in_a_group_drops_no_event(at: int) -> None:
    source = MemorySource(range(40))
    calls = 0

    def key(value: int) -> int:
        nonlocal calls
        calls += 1
        if calls == at:
            raise ValueError("no key")
        return value % 2

    def inside(group: Any) -> Any:
        return group.pipe(ops.delay(0.1), group_by(key), spread())

    async def work(value: int) -> int:
        await asyncio.sleep(0.1)
        return value

    async def story() -> None:
        groups = group_by(lambda value: 0, 4, each=inside, idle=60.0)
        await (
            source.pipe(groups, spread(), adaptive_flat_map(work, Fixed(3))).to(MemorySink()).run()
        )

    with pytest.raises(ValueError, match="no key"):
        run_virtual(story())
    assert source.unsettled == []
    # What it has acknowledged are results, and not what comes to a group that has failed.
    assert all(ending is not Ending.DROPPED for _, ending in source.ledger.endings)


def test_a_group_whose_operators_want_no_more_keeps_no_other_group_waiting() -> None:
    def inside(group: Any) -> Any:
        return group.pipe(ops.take(1), ops.delay(50.0)) if group.key == "a" else group

    source = MemorySource([f"{key}{n}" for n in range(20) for key in "ab"])
    came: list[tuple[float, str]] = []

    async def story() -> None:
        now = asyncio.get_running_loop().time
        began = now()
        groups = group_by(lambda value: value[0], 4, each=inside, idle=600.0)
        sink = for_each(lambda value: came.append((now() - began, value)))
        await source.pipe(groups, spread()).to(sink).run()

    run_virtual(story())
    assert came == [*((0.0, f"b{n}") for n in range(20)), (50.0, "a0")]
    assert source.unsettled == []
