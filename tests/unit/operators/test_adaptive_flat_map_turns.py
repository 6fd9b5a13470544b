from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as rx

from penstock import Fixed, adaptive_flat_map, from_iterable, group_by, retry, spread
from penstock.streams.testing import MemorySink, MemorySource, run_virtual
from penstock.streams.testing.plugin import Run


def key(value: int) -> int:
    return value // 100


class Watching:
    """A handler that records when calls of the same key overlap."""

    def __init__(self, seconds: dict[int, float] | None = None) -> None:
        self.at_work: defaultdict[int, int] = defaultdict(int)
        self.order: defaultdict[int, list[int]] = defaultdict(list)
        self._seconds = seconds or {}

    async def __call__(self, value: int) -> int:
        self.at_work[key(value)] += 1
        assert self.at_work[key(value)] == 1
        self.order[key(value)].append(value)
        await asyncio.sleep(self._seconds.get(value, 0.01))
        self.at_work[key(value)] -= 1
        return value


@given(
    st.lists(st.integers(0, 3), max_size=40),
    st.data(),
    st.integers(1, 5),
    st.sampled_from([1, 2, 3, 1024]),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_events_of_a_key_are_worked_on_one_at_a_time_and_in_order(
    keys: list[int], data: Any, limit: int, buffer: int, ordered: bool, feeders: int | None
) -> None:
    values = [100 * k + i for i, k in enumerate(keys)]
    seconds = {value: data.draw(st.sampled_from([0, 0.5, 1])) for value in values}
    watching, source, sink = Watching(seconds), MemorySource(values), MemorySink()
    flow = source.pipe(
        group_by(key, buffer),
        spread(feeders),
        adaptive_flat_map(watching, Fixed(limit), ordered=ordered),
    )
    run_virtual(flow.to(sink).run())
    assert sorted(source.acked) == sorted(values)
    for k, worked_on in watching.order.items():
        assert worked_on == [value for value in values if key(value) == k]
        assert [value for value in sink.values if key(value) == k] == worked_on


@pytest.mark.parametrize("buffer", [1, 2, 5, 1024])
@pytest.mark.parametrize("count", [1, 4, 5, 8])
@pytest.mark.parametrize("kind", ["async", "plain", "later"])
def test_the_last_event_is_worked_on_when_the_source_ends_as_it_is_taken(
    run: Run, buffer: int, count: int, kind: str
) -> None:
    async def handler(value: int) -> int:
        return value

    chosen: Any = {"async": handler, "plain": lambda n: n, "later": lambda n: handler(n)}[kind]
    sink = MemorySink()
    # The end of a list is known as soon as its last item is out.
    flow = from_iterable(list(range(count))).pipe(
        group_by(lambda _: 0, buffer), spread(), adaptive_flat_map(chosen, Fixed(2))
    )
    report = run(flow.to(sink).run())
    assert sink.values == list(range(count))
    assert report.statistics["returned"] == 0


@pytest.mark.parametrize("kind", ["async", "plain", "later", "timeout"])
def test_children_that_share_a_turn_run_one_after_another(run: Run, kind: str) -> None:
    watching = Watching()
    chosen: Any = {"plain": lambda n: n, "later": lambda n: watching(n)}.get(kind, watching)
    timeout = 5 if kind == "timeout" else None
    source, sink = MemorySource([1, 2, 101, 3]), MemorySink()
    flow = source.pipe(
        group_by(key),
        spread(),
        rx.flat_map(lambda n: from_iterable([n, n + 10, n + 20])),
        adaptive_flat_map(chosen, Fixed(4), timeout=timeout),
    )
    run(flow.to(sink).run())
    assert [n for n in sink.values if n < 100] == [1, 11, 21, 2, 12, 22, 3, 13, 23]
    assert [n for n in sink.values if n >= 100] == [101, 111, 121]
    assert sorted(source.acked) == [1, 2, 3, 101]


@pytest.mark.parametrize("policy", ["skip", retry(2, then="skip")])
def test_a_failed_child_lets_the_next_one_begin(run: Run, policy: Any) -> None:
    async def handler(value: int) -> int:
        if value == 1:
            raise ValueError
        return value

    source, sink = MemorySource([0, 5]), MemorySink()
    flow = source.pipe(
        group_by(lambda _: 0),
        spread(),
        rx.flat_map(lambda n: from_iterable([n, n + 1, n + 2])),
        adaptive_flat_map(handler, Fixed(4), on_error=policy),
    )
    report = run(flow.to(sink).run())
    assert sink.values == [0, 2, 5, 6, 7]
    assert report.statistics["failed"] == 1


def test_a_second_stage_is_not_bound_by_the_turn(run: Run) -> None:
    open_at_once = 0
    peak = 0

    async def second(value: int) -> int:
        nonlocal open_at_once, peak
        open_at_once += 1
        peak = max(peak, open_at_once)
        await asyncio.sleep(1)
        open_at_once -= 1
        return value

    flow = MemorySource(range(9)).pipe(
        group_by(lambda _: 0),
        spread(),
        adaptive_flat_map(Watching(), Fixed(4)),
        adaptive_flat_map(second, Fixed(4)),
    )
    run(flow.to(MemorySink()).run())
    assert peak == 4


def test_the_turn_of_an_iterator_ends_with_its_call_not_with_its_results(run: Run) -> None:
    async def two(value: int) -> Any:
        for n in range(2):
            yield (value, n)

    async def story() -> None:
        sink = MemorySink(hold=True)
        flow = MemorySource([1, 2, 3]).pipe(
            group_by(lambda _: 0), spread(), adaptive_flat_map(two, Fixed(4))
        )
        async with flow.to(sink).start() as running:
            await asyncio.sleep(1)
            assert running.statistics()["stages"][-2]["undelivered"] == 5
            sink.accept(6)
        assert sink.values == [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]

    run(story())


@pytest.mark.parametrize("ordered", [False, True])
def test_results_of_events_that_waited_for_their_turn_wait_within_the_window(
    run: Run, ordered: bool
) -> None:
    async def story() -> None:
        sink = MemorySink(hold=True)
        flow = MemorySource(range(20)).pipe(
            group_by(lambda n: n),
            spread(),
            rx.flat_map(lambda n: from_iterable([n] * 8)),
            adaptive_flat_map(lambda n: asyncio.sleep(1, n), Fixed(4), ordered=ordered, window=3),
        )
        async with flow.to(sink).start() as running:
            await asyncio.sleep(100)
            assert running.statistics()["stages"][-2]["undelivered"] <= 3 + 4
            sink.accept(20 * 8)
        assert sorted(sink.values) == sorted([*range(20)] * 8)

    run(story())


def test_a_cancelled_stage_holds_no_turn(run: Run) -> None:
    async def story() -> None:
        source = MemorySource([1, 2, 3, 101, 102, 201])
        flow = source.pipe(
            group_by(key), spread(), adaptive_flat_map(lambda n: asyncio.sleep(9), Fixed(2))
        )
        running = flow.to(MemorySink()).start()
        await asyncio.sleep(1)
        running.cancel()
        await running.wait()
        assert sorted(source.returned) == [1, 2, 3, 101, 102, 201]
        assert running.statistics()["groups"] == 0

    run(story())
