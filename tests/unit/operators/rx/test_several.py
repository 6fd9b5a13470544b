"""What demand does to the operators over several streams, and how their events end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import (
    Flowable,
    Inbox,
    Running,
    adaptive_flat_map,
    collect,
    from_iterable,
    inbox,
)
from penstock import ops as _ops
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import (
    CountedSource,
    ManualPublisher,
    MemorySource,
    Probe,
    run_virtual,
)

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops


def read(stream: Any, request: int | None = None, **options: Any) -> Probe[Any]:
    probe = Probe[Any](request, **options)
    stream.connect(probe)
    return probe


def test_merge_takes_one_of_each_stream_in_rotation() -> None:
    probe = read(from_iterable("abc").pipe(ops.merge(from_iterable([1, 2]))), 10)
    assert probe.values == ["a", 1, "b", 2, "c"]


def _failing(*values: int) -> Any:
    def values_and_an_error() -> Any:
        yield from values
        raise ValueError("no")

    return from_iterable(values_and_an_error())


@pytest.mark.parametrize(
    ("combine", "expected"),
    [
        (ops.merge(_failing(8)), [0, 8, 1, 2]),
        (ops.zip(_failing(8, 9)), [(0, 8), (1, 9)]),
        (ops.combine_latest(_failing(8)), [(2, 8)]),
        (ops.amb(_failing()), [0, 1, 2]),
    ],
    ids=["merge", "zip", "combine_latest", "amb"],
)
def test_what_has_come_and_is_requested_goes_before_an_error(
    combine: Any, expected: list[Any]
) -> None:
    probe = read(from_iterable(range(3)).pipe(combine), 100)
    assert probe.values == expected
    assert (type(probe.error), probe.completed) == (
        (type(None), True) if expected == [0, 1, 2] else (ValueError, False)
    )


def test_an_error_does_not_wait_for_the_demand_of_what_has_come_before() -> None:
    probe = read(from_iterable(range(3)).pipe(ops.merge(_failing(8))), 2)
    assert (probe.values, type(probe.error)) == ([0, 8], ValueError)


def test_merge_asks_each_stream_for_no_more_than_its_prefetch() -> None:
    streams = [CountedSource(range(1000)), CountedSource(range(1000))]
    probe = read(streams[0].pipe(ops.merge(streams[1], prefetch=4)))
    assert [stream.emitted for stream in streams] == [0, 0]
    probe.request(6)
    assert len(probe.values) == 6
    assert all(stream.emitted <= 3 + 4 for stream in streams)


def test_a_cancel_of_merge_returns_what_waits_of_every_stream() -> None:
    streams = [MemorySource(range(9)), MemorySource("abcdefghi")]
    probe = read(streams[0].pipe(ops.merge(streams[1])), 3, hold=True)
    probe.cancel()
    for event in probe.events:
        event.finish()
    assert [stream.unsettled for stream in streams] == [[], []]
    assert sum(len(stream.acked) for stream in streams) == 3


def test_the_first_error_ends_merge_and_cancels_the_others() -> None:
    one, other = ManualPublisher[int](), ManualPublisher[int]()
    probe = read(one.pipe(ops.merge(other)), 2)
    error = ValueError("no")
    other.fail(error)
    assert (probe.error, one.cancels) == (error, 1)


def test_the_events_of_a_tuple_end_together() -> None:
    one, other = MemorySource([1, 2, 3]), MemorySource("ab")
    probe = read(one.pipe(ops.zip(other)), 9, hold=True)
    first, second = probe.events
    first.finish()
    second.fail(ValueError(), acknowledged=False)
    assert (one.acked, other.acked) == ([1], ["a"])
    assert (one.failed, other.failed) == ([2], ["b"])
    # The third has nobody to be paired with.
    assert one.returned == [3]


def test_a_newest_value_owes_the_tuples_that_are_made_of_it() -> None:
    one, other = ManualPublisher[Any](), ManualPublisher[Any]()
    probe = read(one.pipe(ops.combine_latest(other)), 9, hold=True)
    one.send(1)
    other.send("a")
    other.send("b")
    assert probe.values == [(1, "a"), (1, "b")]
    probe.events[0].finish()
    assert (one.unsettled, other.unsettled) == ([1], ["b"])
    probe.events[1].finish()
    assert (one.unsettled, other.unsettled) == ([1], ["b"])
    one.complete()
    other.complete()
    assert probe.completed
    assert (one.unsettled, other.unsettled) == ([], [])


def test_a_cancel_returns_the_newest_values() -> None:
    one, other = ManualPublisher[Any](), ManualPublisher[Any]()
    probe = read(one.pipe(ops.combine_latest(other)), 9)
    one.send(1)
    other.send("a")
    probe.cancel()
    assert (one.returned, other.returned) == ([1], ["a"])


def test_an_inner_stream_that_is_left_returns_its_event_and_its_source_is_dropped() -> None:
    outer, inner = ManualPublisher[int](), [ManualPublisher[str](), ManualPublisher[str]()]
    probe = read(outer.pipe(ops.switch_map(lambda n: inner[n])), 9)
    outer.send(0)
    outer.send(1)
    assert (inner[0].cancels, inner[1].demand) == (1, 1)
    assert outer.unsettled == [1]
    inner[1].send("x")
    inner[1].complete()
    outer.complete()
    assert (probe.values, probe.completed, outer.unsettled) == (["x"], True, [])


def test_exhaust_map_makes_no_stream_of_a_value_that_comes_while_one_is_read() -> None:
    made = list[int]()
    outer, inner = ManualPublisher[int](), [ManualPublisher[str]() for _ in range(3)]

    def project(n: int) -> Flowable[str]:
        made.append(n)
        return inner[n]

    probe = read(outer.pipe(ops.exhaust_map(project)), 9)
    for n in range(2):
        outer.send(n)
    assert (made, outer.unsettled) == ([0], [0])
    inner[0].send("x")
    inner[0].complete()
    outer.send(2)
    inner[2].send("y")
    outer.complete()
    assert (made, probe.values, probe.completed) == ([0, 2], ["x", "y"], False)
    inner[2].complete()
    assert (probe.completed, outer.unsettled) == (True, [])


def test_flat_map_opens_no_more_streams_than_it_may() -> None:
    inner = [ManualPublisher[str]() for _ in range(9)]
    source = CountedSource(range(9))
    probe = read(source.pipe(ops.flat_map(lambda n: inner[n], 3)), 9)
    assert source.emitted == 3
    inner[1].send("x")
    inner[1].complete()
    assert (source.emitted, probe.values) == (4, ["x"])


def test_the_slowest_reader_of_a_shared_stream_sets_the_demand() -> None:
    source = CountedSource(range(1000))
    shared = source.pipe(ops.share(prefetch=4))
    slow, fast = read(shared), read(shared, 100)
    assert fast.values == list(range(4))
    slow.request(3)
    assert (slow.values, fast.values) == (list(range(3)), list(range(7)))
    slow.cancel()
    assert fast.values == list(range(100))


def test_an_event_of_a_shared_stream_is_finished_when_all_readers_have() -> None:
    source = MemorySource([1])
    readers = source.pipe(ops.publish())
    one, other = read(readers, 1, hold=True), read(readers, 1, hold=True)
    readers.connect()
    one.events[0].finish()
    assert source.unsettled == [1]
    other.events[0].finish()
    assert source.acked == [1]


def test_a_shared_stream_begins_anew_when_all_readers_have_left() -> None:
    shared = from_iterable([1, 2]).pipe(ops.share())
    assert read(shared, 9).values == read(shared, 9).values == [1, 2]


def test_replay_gives_the_newest_values_which_acknowledge_nothing() -> None:
    source = MemorySource(range(5))
    replayed = source.pipe(ops.replay(2))
    replayed.connect()
    probe = read(replayed, 9)
    assert (probe.values, probe.completed) == ([3, 4], True)
    assert source.unsettled == []


def test_an_error_waits_behind_the_first_value_of_publish_value() -> None:
    source, error = ManualPublisher[int](), ValueError("no")
    probe = read(source.pipe(ops.publish_value(-1, lambda shared: shared)))
    source.fail(error)
    assert probe.error is None
    probe.request(1)
    assert (probe.values, probe.error) == ([-1], error)


def test_what_replay_keeps_must_be_bounded() -> None:
    with pytest.raises(BuildError, match="the number of values to keep"):
        ops.replay()


def test_the_sum_holds_in_a_diamond() -> None:
    async def story() -> dict[str, Any]:
        shared: Flowable[int] = from_iterable(range(100)).pipe(ops.share())
        both = shared.pipe(ops.map(str), ops.merge(shared))
        return (await both.to(collect(list[Any]())).run()).statistics

    numbers = asyncio.run(story())
    assert (numbers["in"], numbers["finished"], numbers["unfinished"]) == (100, 100, 0)


def test_a_shared_stream_that_begins_in_a_pause_goes_on_after_it() -> None:
    async def story() -> list[Any]:
        running: Running

        async def handler(value: int) -> int:
            running.pause()
            asyncio.get_running_loop().call_later(1, running.resume)
            return value

        # A working stage requests ahead, so that its handler begins before the rest is connected.
        ahead: Flowable[int] = from_iterable([1]).pipe(ops.adaptive_flat_map(handler))
        both = from_iterable(range(2, 5)).pipe(ops.publish(lambda s: s.pipe(ops.merge(s))))
        running = ahead.pipe(ops.concat(both)).to(collect(into := [])).start()
        await running.wait()
        return into

    assert sorted(run_virtual(story())) == [1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("by_signal", [False, True])
def test_a_drain_that_leaves_events_of_a_zip_without_partners_says_so(by_signal: bool) -> None:
    async def story() -> Any:
        entry: Inbox[int] = inbox(10)
        into = list[Any]()
        running: Running = entry.pipe(ops.zip(from_iterable(range(100)))).to(collect(into)).start()
        await asyncio.sleep(0)
        await entry.put(1)
        running.begin_drain(20, by_signal=by_signal)
        report = await running.wait()
        assert into == [(1, 0)]
        return report

    report = run_virtual(story())
    assert (report.outcome, report.exit_status) == ("incomplete", 5)
    assert report.statistics["returned"] > 0
    assert ": ended with events unfinished after" in str(report)


def test_events_without_partners_at_the_end_of_the_input_are_no_failure() -> None:
    async def story() -> Any:
        stream: Any = from_iterable([1]).pipe(ops.zip(from_iterable(range(100))))
        return await stream.to(collect(list[Any]())).run()

    report = run_virtual(story())
    assert (report.outcome, report.exit_status) == ("completed", 0)
    assert report.statistics["returned"] > 0


def test_what_a_switch_returns_inside_while_it_drains_is_not_left_by_the_drain() -> None:
    async def story() -> Any:
        entry: Inbox[int] = inbox(10)

        async def slowly(value: int) -> int:
            await asyncio.sleep(1)
            return value

        worked = ops.flat_map(lambda n: from_iterable([n]).pipe(adaptive_flat_map(slowly)))
        switched = ops.switch_map(lambda n: from_iterable([n]).pipe(adaptive_flat_map(slowly)))
        running: Running = entry.pipe(worked, switched).to(collect(list[Any]())).start()
        await asyncio.sleep(0)
        for n in range(3):
            await entry.put(n)
        return await running.drain(20)

    assert run_virtual(story()).exit_status == 0
