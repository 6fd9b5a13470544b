from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as rx

from penstock import (
    Backoff,
    Fixed,
    Flowable,
    Group,
    adaptive_flat_map,
    batch,
    from_iterable,
    group_by,
    retry,
    route,
    spread,
)
from penstock.streams.testing import ManualPublisher, MemorySink, MemorySource, Probe, run_virtual
from penstock.streams.testing.plugin import Run


def key(value: int) -> int:
    return value // 100


def absolute(group: Group[Any, int]) -> Flowable[int]:
    return group.pipe(rx.map(abs))


class Watching:
    """A handler of batches that records when calls with events of one key overlap."""

    def __init__(self, seconds: float = 1.0, slower: float = 0.0) -> None:
        self.calls: list[list[int]] = []
        self.order: defaultdict[int, list[int]] = defaultdict(list)
        self.overlaps = 0
        self._at_work: set[int] = set()
        self._seconds, self._slower = seconds, slower

    async def __call__(self, values: list[int]) -> list[int]:
        self.calls.append(values)
        keys = {key(value) for value in values}
        self.overlaps += bool(keys & self._at_work)
        self._at_work |= keys
        for value in values:
            self.order[key(value)].append(value)
        await asyncio.sleep(self._seconds + self._slower * (sum(values) % 7))
        self._at_work -= keys
        return values


@given(
    st.lists(st.integers(0, 3), max_size=80),
    st.integers(1, 4),
    st.sampled_from([1, 2, 5, 100]),
    st.sampled_from([1, 3, 1024]),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_events_of_a_key_are_in_order_and_never_in_two_calls_at_once(
    keys: list[int],
    parallel: int,
    max_size: int,
    buffer: int,
    feeders: int | None,
    each: bool,
) -> None:
    values = [100 * k + i for i, k in enumerate(keys)]
    watching, source, sink = Watching(0.5, 0.3), MemorySource(values), MemorySink()
    options: Any = {"each": absolute, "idle": 5} if each else {}
    flow = source.pipe(
        group_by(key, buffer, **options),
        spread(feeders),
        batch(watching, max_size, parallel=parallel),
    )
    run_virtual(flow.to(sink).run())
    assert watching.overlaps == 0
    assert sorted(source.acked) == sorted(values)
    for k, worked_on in watching.order.items():
        assert worked_on == [value for value in values if key(value) == k]
        assert [value for value in sink.values if key(value) == k] == worked_on


def test_one_call_takes_several_events_of_one_group(run: Run) -> None:
    watching, sink = Watching(), MemorySink()
    flow = MemorySource(range(100)).pipe(group_by(lambda _: 0), spread(), batch(watching))
    run(flow.to(sink).run())
    assert max(map(len, watching.calls)) >= 8
    assert sink.values == list(range(100))


def test_every_other_group_comes_before_a_second_event_of_one(run: Run) -> None:
    watching = Watching()
    values = [*range(40), *range(100, 140), *range(200, 240), *range(300, 340)]
    flow = MemorySource(values).pipe(group_by(key), spread(), batch(watching, 8))
    run(flow.to(MemorySink()).run())
    seen: Counter[int] = Counter()
    for value in (value for values in watching.calls for value in values):
        seen[key(value)] += 1
        # A batch that had to be made smaller leaves some of its events to the next.
        assert max(seen.values()) - min(seen[k] for k in range(4)) <= 3
    # Whatever the size is, all of them are in every larger call.
    assert all({0, 1, 2, 3} == set(map(key, call)) for call in watching.calls if len(call) == 8)


def test_a_group_may_join_the_open_batch_and_waits_once_it_is_closed(run: Run) -> None:
    async def story() -> None:
        watching, source, probe = Watching(10), ManualPublisher[int](), Probe[Any](request=99)
        flow = source.pipe(group_by(key), spread(), batch(watching, 4, parallel=2))
        flow.connect(probe)
        # Let the size grow to four first.
        for n in range(40):
            source.send(n)
        await asyncio.sleep(1000)
        begun = len(watching.calls)
        source.send(100)
        await asyncio.sleep(1)
        # The group 1 is in a call: these wait, although another call is free.
        source.send(101, 102)
        await asyncio.sleep(1)
        assert watching.calls[begun:] == [[100]]
        source.send(200)
        await asyncio.sleep(1)
        assert watching.calls[begun:] == [[100], [200]]
        await asyncio.sleep(10)
        assert watching.calls[begun:] == [[100], [200], [101, 102]]
        source.complete()
        await asyncio.sleep(100)
        assert watching.overlaps == 0
        assert source.unsettled == []

    run(story())


@pytest.mark.parametrize("parallel", [1, 3])
def test_children_that_share_a_turn_are_never_in_two_calls_at_once(run: Run, parallel: int) -> None:
    watching, source, sink = Watching(1, 0.3), MemorySource([1, 2, 101, 3, 4, 5, 102]), MemorySink()
    flow = source.pipe(
        group_by(key),
        spread(),
        rx.flat_map(lambda n: from_iterable([n, n + 10, n + 20])),
        batch(watching, parallel=parallel),
    )
    run(flow.to(sink).run())
    assert watching.overlaps == 0
    assert [n for n in sink.values if n < 100] == [
        n + more for n in range(1, 6) for more in (0, 10, 20)
    ]
    assert sorted(source.acked) == [1, 2, 3, 4, 5, 101, 102]


@pytest.mark.parametrize("as_result", [True, False])
@pytest.mark.parametrize("parallel", [1, 2])
def test_later_events_of_a_group_wait_while_one_is_tried_again(
    run: Run, as_result: bool, parallel: int
) -> None:
    calls: list[list[int]] = []
    left = {30: 2}

    async def handler(values: list[int]) -> list[Any]:
        calls.append(values)
        await asyncio.sleep(0.1)
        results: list[Any] = list(values)
        for at, value in enumerate(values):
            if left.get(value):
                if as_result or len(values) == 1:
                    left[value] -= 1
                if not as_result:
                    raise ValueError(value)
                results[at] = ValueError(value)
        return results

    values = [*range(60), *range(100, 160)]
    source, sink = MemorySource(values), MemorySink()
    policy = retry(3, Backoff(5, jitter=0))
    work = batch(handler, parallel=parallel, on_error=policy)
    run(source.pipe(group_by(key), spread(), work).to(sink).run())
    assert sorted(source.acked) == values
    first = [value for value in sink.values if value < 100]
    if as_result:
        # The call that it failed in had worked on others after it; what was not begun waited.
        (failed,) = (values for values in calls if 30 in values and len(values) > 1)
        after = [value for value in failed if 30 < value < 100]
        assert [n for n in first if n != 30 and n not in after] == [
            n for n in range(60) if n != 30 and n not in after
        ]
        assert first.index(30) == 30 + len(after)
    else:
        assert first == list(range(60))
    assert [n for n in sink.values if n >= 100] == list(range(100, 160))


def test_several_of_a_group_that_failed_in_one_call_are_tried_again_in_order(run: Run) -> None:
    tried: set[int] = set()
    done: list[int] = []

    async def handler(values: list[int]) -> list[Any]:
        await asyncio.sleep(0.1)
        results: list[Any] = []
        for value in values:
            if value >= 30 and value not in tried:
                tried.add(value)
                results.append(ValueError(value))
            else:
                done.append(value)
                results.append(value)
        return results

    source = MemorySource(range(60))
    work = batch(handler, on_error=retry(3, Backoff(1)))
    run(source.pipe(group_by(lambda _: 0), spread(), work).to(MemorySink()).run())
    assert done == list(range(60))


def test_turns_that_nest_all_end(run: Run) -> None:
    source, sink = MemorySource(range(200)), MemorySink()
    flow = source.pipe(
        group_by(lambda n: n % 5),
        spread(),
        group_by(lambda n: n % 2),
        spread(),
        batch(Watching(0.1)),
        adaptive_flat_map(lambda n: asyncio.sleep(0.01, n), Fixed(3)),
    )
    report = run(flow.to(sink).run())
    assert sorted(sink.values) == list(range(200))
    assert report.statistics["groups"] == 0


def test_a_cancelled_stage_holds_no_turn(run: Run) -> None:
    async def story() -> None:
        source = MemorySource([*range(20), *range(100, 120)])
        flow = source.pipe(group_by(key), spread(), batch(Watching(9), 4))
        running = flow.to(MemorySink()).start()
        await asyncio.sleep(50)
        running.cancel()
        await running.wait()
        assert len(source.acked) + len(source.returned) == 40
        assert running.statistics()["groups"] == 0

    run(story())


def failing_once(bad: set[int], done: list[int]) -> Any:
    """A handler of which one call with each of these alone fails, and every call with others."""
    failed: set[int] = set()

    async def handler(values: list[int]) -> list[int]:
        await asyncio.sleep(0.1)
        for value in bad - failed:
            if value in values:
                if len(values) == 1:
                    failed.add(value)
                raise ValueError(value)
        done.extend(values)
        return values

    return handler


def test_a_child_that_is_put_off_comes_before_the_later_ones_of_its_turn(run: Run) -> None:
    done: list[int] = []
    source = MemorySource([0])
    work = batch(failing_once({3, 8, 16, 30}, done), 8, on_error=retry(2, Backoff(1)))
    children = rx.flat_map(lambda n: from_iterable(range(40)))
    flow = source.pipe(group_by(lambda _: 0), spread(), children, work)
    run(flow.to(MemorySink()).run())
    assert done == list(range(40))


@pytest.mark.parametrize("wait", [0.0, 0.15, 5.0])
def test_later_events_of_a_group_wait_until_one_has_been_tried_again(run: Run, wait: float) -> None:
    """Also if its wait is over before those that came with it in one call have begun."""
    done: list[int] = []
    source = MemorySource(range(40))
    work = batch(failing_once({8, 9, 20}, done), 8, on_error=retry(2, Backoff(wait, jitter=0)))
    run(source.pipe(group_by(lambda n: n % 2), spread(), work).to(MemorySink()).run())
    for parity in (0, 1):
        assert [n for n in done if n % 2 == parity] == list(range(parity, 40, 2))


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=40),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 3, 20]),
    st.sampled_from([0.0, 0.15, 5.0]),
    st.booleans(),
    st.booleans(),
)
def test_no_event_of_a_group_is_tried_more_often_than_retry_says(
    keyed: list[tuple[int, int]],
    times: int,
    max_size: int,
    wait: float,
    plain: bool,
    fan_out: bool,
) -> None:
    """Each event has a key, and fails so often, by itself: others of its call succeed."""
    calls: Counter[int] = Counter()
    at_work: Counter[int] = Counter()
    overlaps = 0

    def called(numbers: list[int]) -> list[Any]:
        calls.update(numbers)
        return [
            ValueError(number) if calls[number] <= keyed[number][1] else number
            for number in numbers
        ]

    async def handler(numbers: list[int]) -> list[Any]:
        nonlocal overlaps
        keys = {keyed[number][0] for number in numbers}
        overlaps += any(at_work[k] for k in keys)
        at_work.update(keys)
        await asyncio.sleep(0.1)
        at_work.subtract(keys)
        return called(numbers)

    letters, sink = MemorySink(), MemorySink()
    policy = retry(times, Backoff(wait, jitter=0), then=route(letters))
    work = batch(called if plain else handler, max_size, parallel=2, on_error=policy)
    numbers = MemorySource(range(len(keyed)))
    if fan_out:
        # All are children of one event, and share its turn.
        children = rx.flat_map(lambda _: from_iterable(range(len(keyed))))
        flow = MemorySource([0]).pipe(group_by(lambda _: 0), spread(), children, work)
    else:
        flow = numbers.pipe(group_by(lambda number: keyed[number][0]), spread(), work)
    report = run_virtual(flow.to(sink).run())
    assert calls == {n: min(times, fails + 1) for n, (_, fails) in enumerate(keyed)}
    assert {letter.value: letter.attempts for _, letter in letters.accepted} == {
        n: times for n, (_, fails) in enumerate(keyed) if fails >= times
    }
    assert sorted(sink.values) == [n for n, (_, fails) in enumerate(keyed) if fails < times]
    assert report.statistics["stages"][-2]["retries"] == calls.total() - len(keyed)
    assert overlaps == 0
    assert report.statistics["unfinished"] == report.statistics["groups"] == 0
