"""Windows of reactivex, read by an operator that follows them in the same pipe."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import reactivex
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops

from penstock import adaptive_flat_map, collect, from_iterable, spread
from penstock import ops as _ops
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import CountedSource, MemorySource, Probe, play, run_virtual
from tests.helpers.like_stock import assert_like_stock, messages

# What reactivex says of its types does not fit a lambda.
ours: Any = _ops


def test_each_value_of_a_window_leaves_at_its_time_with_the_number_of_the_window() -> None:
    seen = play(
        "1-2-3-4|",
        lambda source: source.pipe(
            ops.window_with_time(3),
            ops.map_indexed(lambda window, i: window.pipe(ops.map(lambda value: (i, value)))),
            ops.merge_all(),
        ),
    )
    assert [one for _, one in seen[:-1]] == [(0, 1), (0, 2), (1, 3), (1, 4)]
    assert [time for time, _ in seen[:-1]] == [0.0, 2.0, 4.0, 6.0]


def numbered(window: Any, i: int) -> Any:
    return window.pipe(ops.map(lambda value: (i, value)))


@given(messages(), messages(later=0.37), st.sampled_from([ops.merge_all, ops.switch_latest]))
def test_windows_by_boundaries_are_like_stock(source: Any, other: Any, read: Any) -> None:
    assert_like_stock(
        lambda make: reactivex.compose(ops.window(make()), ops.map_indexed(numbered), read()),
        source,
        other,
    )


@given(messages(), st.integers(1, 4), st.integers(1, 4))
def test_windows_by_count_are_like_stock(source: Any, count: int, skip: int) -> None:
    assert_like_stock(
        lambda: reactivex.compose(
            ops.window_with_count(count, skip), ops.map_indexed(numbered), ops.merge_all()
        ),
        source,
    )


@given(messages(), st.integers(1, 30), st.integers(1, 4))
def test_windows_by_time_or_count_are_like_stock(source: Any, wait: int, count: int) -> None:
    assert_like_stock(
        lambda: reactivex.compose(
            ops.window_with_time_or_count(wait, count),
            ops.flat_map(lambda w: w.pipe(ops.to_list())),
        ),
        source,
    )


@given(messages(), messages(20, later=0.37))
def test_windows_that_close_themselves_are_like_stock(source: Any, closing: Any) -> None:
    assert_like_stock(
        lambda make: reactivex.compose(
            ops.window_when(make), ops.map_indexed(numbered), ops.merge_all()
        ),
        source,
        closing,
    )


def test_the_members_of_a_window_are_finished_with_what_came_of_it() -> None:
    source, probe = MemorySource([1, 2, 3, 4, 5]), Probe[int](request=1, hold=True)
    sums = (ops.window_with_count(2), ops.flat_map(lambda window: window.pipe(ops.sum())))
    source.pipe(*sums).connect(probe)
    assert (probe.values, source.acked) == ([3], [])
    probe.events[0].finish()
    assert source.acked == [1, 2]
    probe.cancel()
    assert source.unsettled == []


@given(st.integers(1, 5), st.integers(1, 20))
def test_a_window_is_read_as_far_as_is_requested(count: int, n: int) -> None:
    source, probe = CountedSource(itertools.count()), Probe[int](request=n)
    source.pipe(ops.window_with_count(count), ops.merge_all()).connect(probe)
    assert probe.values == list(range(n))
    assert source.emitted == n


def test_behind_a_slow_reader_no_more_is_held_than_the_bound() -> None:
    async def story() -> int:
        source, peak = CountedSource(itertools.count()), 0
        stream = source.pipe(
            ops.window_with_time(0.1),
            ops.flat_map(lambda window: window.pipe(ops.count())),
            ops.take(20),
        )
        async for _ in stream:
            peak = max(peak, len(source.ledger.unsettled))
        return peak

    # The lifted chain holds 1,024 at most, and one that may be answered.
    assert run_virtual(story()) <= 1026


@pytest.mark.parametrize(
    "follow",
    [
        [],
        [ops.map(lambda window: window)],
        [ops.map(lambda window: window), ops.buffer_with_count(2), ops.merge_all()],
        [ops.window_with_count(2), ops.merge_all()],
        [lambda source: source],
    ],
    ids=["nothing", "only map", "one that holds", "windows of windows", "one that is unknown"],
)
def test_windows_that_nothing_reads_at_once_are_refused(follow: list[Any]) -> None:
    with pytest.raises(BuildError, match="window_with_count emits streams that lose"):
        from_iterable([1]).pipe(ops.window_with_count(2), *follow).to(collect([]))


def test_the_sum_holds_at_the_end() -> None:
    stream = from_iterable(range(10)).pipe(
        ops.window_with_count(4, 5), ops.merge_all(), ops.filter(lambda value: value % 2)
    )
    into: list[int] = []
    numbers = run_virtual(stream.to(collect(into)).run()).statistics
    assert into == [1, 3, 5, 7]
    assert numbers["in"] == numbers["finished"] + sum(numbers["dropped"].values()) == 10


async def fetch(value: int) -> int:
    return value


READERS: dict[str, Any] = {
    "merge_all": ours.merge_all(),
    "merge": ours.merge(max_concurrent=2),
    "concat_all": ours.concat_all(),
    "switch_latest": ours.switch_latest(),
    "exclusive": ours.exclusive(),
    "exhaust_map": ours.exhaust_map(lambda window: window),
    "flat_map": ours.flat_map(lambda window: window),
    "flat_map of 2": ours.flat_map(lambda window: window, 2),
    "concat_map": ours.concat_map(lambda window: window),
    "switch_map": ours.switch_map(lambda window: window),
    "flat_map_latest": ours.flat_map_latest(lambda window: window),
}


@pytest.mark.parametrize("name", READERS)
def test_windows_are_read_by_each_operator_that_reads_streams(name: str) -> None:
    async def story() -> list[list[int]]:
        windows: Any = from_iterable(range(8)).pipe(ours.window_with_count(3))
        one = windows.pipe(READERS[name])
        same = from_iterable(range(8)).pipe(ours.window_with_count(3), READERS[name])
        fluent: Any = from_iterable(range(8)).window_with_count(3).pipe(READERS[name])
        return [await stream.to_list() for stream in (one, same, fluent)]

    assert run_virtual(story()) == [list(range(8))] * 3


def test_operators_with_the_names_of_rx_do_in_a_window_what_those_of_reactivex_do() -> None:
    tails: list[Any] = [
        ours.zip(reactivex.of("a", "b")),
        ours.merge(reactivex.of("a")),
        ours.concat(reactivex.of("a")),
        ours.take_until(reactivex.never()),
        ours.start_with("a"),
        ours.buffer_with_count(2),
        ours.map(str),
    ]
    expected = [
        [(0, "a"), (1, "b"), (2, "a"), (3, "b")],
        ["a", 0, 1, "a", 2, 3],
        [0, 1, "a", 2, 3, "a"],
        [0, 1, 2, 3],
        ["a", 0, 1, "a", 2, 3],
        [[0, 1], [2, 3]],
        ["0", "1", "2", "3"],
    ]

    async def story(tail: Any) -> list[Any]:
        stream: Any = from_iterable(range(4)).pipe(
            ours.window_with_count(2), ours.take(2), ours.flat_map(lambda window: window.pipe(tail))
        )
        return await stream.to_list()

    assert [run_virtual(story(tail)) for tail in tails] == expected


@pytest.mark.parametrize(
    ("operator", "advice"),
    [
        (adaptive_flat_map(fetch), "put it behind what reads the windows"),
        (spread(), "put it behind what reads the windows"),
        (ours.retry(2), "or use reactivex.operators.retry"),
        (ours.share(), "or use reactivex.operators.share"),
    ],
)
@pytest.mark.parametrize("before", [[], [ours.map(abs)]], ids=["at once", "after a pipe"])
def test_an_operator_that_needs_demand_is_refused_in_a_window(
    operator: Any, advice: str, before: list[Any]
) -> None:
    stream: Any = from_iterable([1, 2, 3]).pipe(
        ours.window_with_count(2),
        ours.flat_map(lambda window: window.pipe(*before).pipe(operator)),
    )
    probe = Probe[Any](9)
    stream.connect(probe)
    assert isinstance(probe.error, BuildError)
    assert advice in str(probe.error)


def test_windows_without_results_for_too_many_events_are_an_error_that_says_what_to_do() -> None:
    rare = ours.flat_map(lambda window: window.pipe(ops.filter(lambda n: n == 3_000)))
    probe = Probe[Any](9)
    from_iterable(range(5_000)).pipe(ours.window_with_count(3), rare).connect(probe)
    assert str(probe.error).startswith(
        "1,025 inputs of stage 2 'window_with_count > flat_map' wait for an output that does not "
        "come (hold 1,024). Their windows gave no result: let what reads a window emit at its end"
    )
