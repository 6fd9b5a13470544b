from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
import reactivex
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Observable
from reactivex import operators as ops
from reactivex.scheduler.eventloop import AsyncIOThreadSafeScheduler
from reactivex.subject import BehaviorSubject, Subject
from reactivex.testing import TestScheduler

from penstock import (
    Backoff,
    Fixed,
    Flowable,
    adaptive_flat_map,
    buffer,
    collect,
    distinct_within,
    from_async_iterable,
    from_iterable,
    group_by,
    lift,
    read_jsonl,
    run,
    spread,
)
from penstock import ops as _ours
from penstock.streams.base.errors import BuildError, CannotOpen, HoldExceeded, NoLoop, PenstockError
from penstock.streams.protocol.event import Ending
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.loop_scheduler import LoopScheduler
from penstock.streams.rx.lift import HOLD
from penstock.streams.testing import (
    COMPLETED,
    CountedSource,
    ManualPublisher,
    MemorySink,
    MemorySource,
    Probe,
    VirtualClock,
    no_leaks,
    run_virtual,
)

# What reactivex says of its types does not fit a lambda.
ours: Any = _ours


def read(source: Any, *operators: Any, **options: Any) -> Probe[Any]:
    probe = Probe[Any](**{"request": 1000, **options})
    source.pipe(*operators).connect(probe)
    return probe


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (ops.skip_until(BehaviorSubject(True)), [0, 1, 2]),
        (ops.take_until(BehaviorSubject(True)), []),
        (ops.skip_until(reactivex.of(True)), [0, 1, 2]),
        (ops.take_until(reactivex.of(True)), []),
        (ops.zip_latest(reactivex.of("a", "b")), [(0, "b")]),
        (ops.buffer(reactivex.of("a", "b")), [[], [], []]),
    ],
    ids=["skip_until a subject", "take_until a subject", "skip_until of", "take_until of",
         "zip_latest", "buffer"],
)  # fmt: skip
def test_a_source_is_asked_when_all_that_the_operator_listens_to_is_subscribed(
    operator: Callable[[Any], Any], expected: list[Any], clock: VirtualClock
) -> None:
    seen = clock.play("(0,1,2,|)", lambda source: from_iterable(range(3)).pipe(operator))
    assert [value for _, value in seen] == [*expected, COMPLETED]


def test_a_sample_sees_nothing_of_what_comes_after_the_last_tick() -> None:
    ticks = BehaviorSubject("tick")
    source = ManualPublisher[int]()
    probe = read(source, ops.sample(ticks))
    source.send(1)
    assert probe.values == []
    ticks.on_next("tick")
    assert probe.values == [1]


def other(marbles: str) -> Observable[Any]:
    return reactivex.from_marbles(marbles, timespan=1.0)


@pytest.mark.parametrize("operator", [ops.sample, ops.skip_until, ops.take_until, ops.buffer])
@pytest.mark.parametrize(
    "marbles", ["---|", "---x|", "---x------|", "---x---x|", "---x---------x---|", "---#"]
)
def test_the_end_of_another_source_means_what_it_does_in_rx(
    operator: Callable[[Any], Any], marbles: str, clock: VirtualClock
) -> None:
    seen = clock.play("a-b-c-d-e-|", operator(other(marbles)))
    rx, plain = TestScheduler(), list[tuple[float, Any]]()
    source = reactivex.from_marbles("a-b-c-d-e-|", timespan=1.0)
    source.pipe(operator(other(marbles))).subscribe(
        lambda value: plain.append((rx.clock, value)),
        lambda error: plain.append((rx.clock, str(error))),
        lambda: plain.append((rx.clock, COMPLETED)),
        scheduler=rx,
    )
    rx.start()
    assert [(t, str(v) if isinstance(v, Exception) else v) for t, v in seen] == plain


def test_a_skip_until_with_default_if_empty_completes_for_an_empty_source(
    clock: VirtualClock,
) -> None:
    operator = ops.skip_until(other("---|").pipe(ops.default_if_empty()))
    assert clock.play("a-b-c-|", operator) == [(4.0, "c"), (6.0, COMPLETED)]


def test_a_sample_by_a_source_that_goes_on_completes(clock: VirtualClock) -> None:
    for_ever = ops.sample(other("---x|").pipe(ops.concat(reactivex.timer(0, 5))))
    seen = clock.play("a-b-c-|", for_ever, until=30)
    assert seen == [(3.0, "b"), (4.0, "c"), (9.0, COMPLETED)]


# Other threads.


def in_a_thread(push: Callable[[], None]) -> None:
    thread = threading.Thread(target=push)
    thread.start()
    thread.join()


class OnThreads(Probe[Any]):
    """A probe that records the threads on which it is called."""

    def __init__(self) -> None:
        super().__init__(10, on_event=lambda _, __: self._called())
        self.threads = set[int]()

    def _called(self) -> None:
        self.threads.add(threading.get_ident())

    def on_error(self, error: BaseException, /) -> None:
        self._called()
        super().on_error(error)

    def on_completed(self) -> None:
        self._called()
        super().on_completed()


def lists_of_its_own(other: Observable[Any], hold: int = HOLD) -> Any:
    """An operator of the user's, which subscribes to another source by itself."""
    return lift(lambda source: ops.buffer(other)(source), hold=hold)


@pytest.mark.parametrize("says", ["a value", "an error", "the end"])
def test_a_second_source_that_makes_an_operator_emit_on_another_thread_is_refused(
    says: str,
) -> None:
    async def story() -> None:
        other, source, probe = Subject[int](), ManualPublisher[int](), OnThreads()
        source.pipe(lists_of_its_own(other)).connect(probe)
        source.send(1)
        answered = list(probe.values)
        in_a_thread(
            {
                "a value": lambda: other.on_next(0),
                "an error": lambda: other.on_error(ValueError()),
                "the end": other.on_completed,
            }[says]
        )
        assert probe.values == answered
        await asyncio.sleep(0)
        assert isinstance(probe.error, PenstockError)
        assert "another thread" in str(probe.error)
        assert probe.threads == {threading.get_ident()}
        assert probe.values == answered
        assert source.returned == [1]

    asyncio.run(story())


def test_a_second_source_on_another_thread_is_refused_where_there_is_no_loop() -> None:
    other, source = Subject[int](), ManualPublisher[int]()
    probe = read(source, lists_of_its_own(other))
    source.send(1)
    in_a_thread(lambda: other.on_next(0))
    assert probe.values == []
    assert isinstance(probe.error, PenstockError)


def test_a_second_source_that_is_brought_onto_the_loop_may_be_pushed_from_any_thread() -> None:
    async def story() -> None:
        scheduler = AsyncIOThreadSafeScheduler(asyncio.get_running_loop())
        other, source, probe = Subject[int](), ManualPublisher[int](), OnThreads()
        by_thread = other.pipe(ops.observe_on(scheduler))
        source.pipe(lists_of_its_own(by_thread)).connect(probe)
        source.send(1)
        in_a_thread(lambda: other.on_next(0))
        await asyncio.sleep(0.01)
        assert probe.values == [[1]]
        assert probe.threads == {threading.get_ident()}

    asyncio.run(story())


# An operator that answers at once.

AT_ONCE: dict[str, tuple[Callable[[Any], Any], Callable[[list[int]], list[Any]]]] = {
    "map": (ops.map(lambda n: n + 1), lambda ns: [n + 1 for n in ns]),
    "filter": (ops.filter(lambda n: n % 2 == 0), lambda ns: [n for n in ns if n % 2 == 0]),
    "flat_map": (
        ops.flat_map(lambda n: [n] * (n % 3)),
        lambda ns: [n for n in ns for _ in range(n % 3)],
    ),
    "scan": (ops.scan(lambda total, n: total + n, 0), lambda ns: list(accumulate(ns))),
    "pairwise": (ops.pairwise(), lambda ns: list(pairwise(ns))),
    "start_with": (ops.start_with(7), lambda ns: [7, *ns]),
    "skip": (ops.skip(2), lambda ns: ns[2:]),
    "take": (ops.take(3), lambda ns: ns[:3]),
    "first": (ops.first_or_default(None, -1), lambda ns: ns[:1] or [-1]),
}


@pytest.mark.parametrize("name", AT_ONCE)
@given(st.lists(st.integers(0, 9), max_size=12))
def test_a_lifted_operator_gives_what_it_gives_without_demand(name: str, items: list[int]) -> None:
    operator, expected = AT_ONCE[name]
    source = MemorySource(items)
    probe = read(source, operator)
    assert probe.values == expected(items)
    assert probe.completed
    assert source.unsettled == []


@pytest.mark.parametrize("name", AT_ONCE)
@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 4))
def test_a_lifted_operator_reads_only_what_its_outputs_need(
    name: str, items: list[int], n: int
) -> None:
    operator, expected = AT_ONCE[name]
    source = CountedSource(items)
    probe = read(source, operator, request=n)
    assert probe.values == expected(items)[:n]
    # The fewest inputs for this many outputs.
    needed = next(
        (i for i in range(len(items) + 1) if len(expected(items[:i])) >= n and name != "first"),
        1 if name == "first" else len(items),
    )
    assert source.emitted <= max(needed, n)


def test_an_input_without_output_is_dropped_for_the_operator_that_dropped_it() -> None:
    source = MemorySource([1, 1, 2])

    async def story() -> dict[str, Any]:
        stream = source.pipe(ops.distinct_until_changed())
        return (await stream.to(collect([])).run()).statistics

    assert run_virtual(story())["dropped"] == {"distinct_until_changed": 1}


@pytest.mark.parametrize(
    "source",
    [from_iterable([1, 2, 3]), Flowable.of(reactivex.of(1, 2, 3), buffer(10))],
    ids=["from_iterable", "of"],
)
@pytest.mark.parametrize(
    "inner",
    [
        lambda n: reactivex.of(n, n),
        lambda n: reactivex.range(n, n + 2).pipe(ops.map(lambda _: n)),
        lambda n: reactivex.concat(reactivex.just(n), reactivex.just(n)),
        lambda n: reactivex.repeat_value(n, 2),
    ],
    ids=["of", "range", "concat", "repeat"],
)
def test_flat_map_reads_observables_that_end_at_once_wherever_it_is_called(
    source: Flowable[int], inner: Callable[[int], Observable[int]]
) -> None:
    # `subscribe` runs everything on reactivex's trampoline.
    seen: list[int] = []
    source.pipe(ops.flat_map(inner)).subscribe(seen.append)
    assert seen == [1, 1, 2, 2, 3, 3]


def test_outputs_of_one_input_leave_before_the_next_is_taken() -> None:
    """Even where the stage above sends the next one inside the request."""

    async def story() -> list[str]:
        source = ManualPublisher[str]()
        probe = Probe[str](request=1, on_event=lambda probe, _: probe.request(1))

        async def work(value: str) -> str:
            await asyncio.sleep(1)
            return value

        twice = lift(ops.flat_map(lambda value: [value + "1", value + "2"]), holds=False)
        source.pipe(adaptive_flat_map(work, Fixed(9)), twice).connect(probe)
        source.send("a", "b", "c")
        await asyncio.sleep(5)
        probe.cancel()
        return probe.values

    assert run_virtual(story()) == ["a1", "a2", "b1", "b2", "c1", "c2"]


def test_an_event_is_finished_when_all_its_outputs_are() -> None:
    source = MemorySource(["ab"])
    probe = read(source, lift(ops.flat_map(list), holds=False), hold=True)
    probe.events[0].finish()
    assert source.unsettled == ["ab"]
    probe.events[1].finish()
    assert source.acked == ["ab"]


def test_outputs_keep_their_event_where_the_reader_came_by_subscribe() -> None:
    """Reactivex runs a subscription on a trampoline, on which what is due at once waits."""
    source, seen = MemorySource(["ab", "c"]), list[tuple[str, list[str]]]()
    stream = source.pipe(lift(ops.flat_map(list), holds=False))
    stream.subscribe(lambda value: seen.append((value, source.unsettled)))
    assert seen == [("a", ["ab"]), ("b", ["ab"]), ("c", ["c"])]
    assert source.acked == ["ab", "c"]
    assert source.ledger.ended(Ending.DROPPED) == []


def test_an_early_end_gives_the_rest_back() -> None:
    source = MemorySource(range(5))
    probe = read(source, ops.take_while(lambda n: n < 2))
    assert probe.values == [0, 1]
    assert source.unsettled == []


def test_an_error_of_a_user_function_names_the_stage_and_the_event() -> None:
    source = MemorySource([1, 0, 2])
    for operator in (ops.map(lambda n: 1 // n), ops.map_indexed(lambda n, i: 1 // n)):
        probe = read(source, operator)
        assert probe.values == [1]
        assert isinstance(probe.error, ZeroDivisionError)
        assert "stage 2" in probe.error.__notes__[0]
        assert "the event 0" in probe.error.__notes__[0]
        assert source.unsettled == []
        source = MemorySource([1, 0, 2])


def test_an_operator_of_ones_own_that_raises_stops_the_pipeline() -> None:
    def explode(source: Observable[int]) -> Observable[int]:
        def subscribe(observer: Any, scheduler: Any = None) -> Any:
            def on_next(n: int) -> None:
                raise ValueError(n)

            return source.subscribe(on_next, observer.on_error, observer.on_completed)

        return Observable(subscribe)

    for holds in (True, False):
        source = MemorySource([1, 2])
        probe = read(source, lift(explode, holds=holds))
        assert isinstance(probe.error, ValueError)
        assert source.unsettled == []


# Map and filter, done without Rx.


@given(st.lists(st.integers()), st.integers(1, 5))
def test_chunks_go_through_map_and_filter(items: list[int], modulus: int) -> None:
    source = MemorySource(items)
    done: list[int] = []

    async def story() -> dict[str, Any]:
        stream = source.pipe(
            ops.filter(lambda n: n % modulus == 0),
            ops.map(lambda n: -n),
            distinct_within(10, by=lambda n: n),
            ops.filter(lambda n: n % 2 == 0),
        )
        return (await stream.to(collect(done)).run()).statistics

    statistics = run_virtual(story())
    passed = [-n for n in items if n % modulus == 0]
    assert done == [n for n in dict.fromkeys(passed) if n % 2 == 0]
    assert statistics["unfinished"] == 0
    assert len(source.acked) == len(items)


@pytest.mark.parametrize("operator", ["map", "filter"])
def test_an_error_in_the_middle_of_a_chunk_is_reported_after_what_came_before(
    operator: str,
) -> None:
    done: list[int] = []

    def check(n: int) -> int:
        if n == 300:
            raise ValueError(n)
        return n + 1

    async def story() -> None:
        stream = from_iterable(range(1000)).pipe(getattr(ops, operator)(check))
        await stream.to(collect(done)).run()

    with pytest.raises(ValueError, match="300"):
        run_virtual(story())
    assert len(done) == 300


def test_events_that_a_filter_dropped_before_an_error_count_as_dropped() -> None:
    def check(n: int) -> bool:
        if n == 300:
            raise ValueError(n)
        return n % 2 == 0

    async def story() -> dict[str, Any]:
        pipeline = from_iterable(range(1000)).pipe(ops.filter(check)).to(collect([]))
        async with pipeline.start() as running:
            with pytest.raises(ValueError, match="300"):
                await running.wait()
            return running.statistics()

    numbers = run_virtual(story())
    assert (numbers["dropped"], numbers["finished"]) == ({"filter": 150}, 150)
    assert numbers["unfinished"] == 0


# An operator that holds.


def test_delay_moves_each_event_and_keeps_its_time_and_its_acknowledgement() -> None:
    async def story() -> None:
        source = MemorySource(["a", "b", "c"])
        probe = Probe[str](request=9, hold=True)
        source.pipe(ops.delay(2.0)).connect(probe)
        await asyncio.sleep(10)
        assert [value for _, value in probe.timed] == ["a", "b", "c"]
        assert source.acked == []
        probe.events[1].finish()
        assert source.acked == ["b"]
        probe.events[0].fail(ValueError("a"))
        assert source.failed == ["a"]
        probe.events[2].finish()
        assert source.ledger.endings == [
            ("b", Ending.FINISHED),
            ("a", Ending.FAILED),
            ("c", Ending.FINISHED),
        ]

    run_virtual(story())


def test_delay_plays_as_in_rx(clock: VirtualClock) -> None:
    assert clock.play("-a-b-|", ops.delay(3))[:2] == [(4, "a"), (6, "b")]


def test_inputs_of_a_list_are_finished_with_it() -> None:
    source = MemorySource(range(5))
    probe = read(source, ops.buffer_with_count(2), hold=True)
    assert probe.values == [[0, 1], [2, 3], [4]]
    assert source.acked == []
    probe.events[1].finish()
    assert source.acked == [2, 3]
    probe.events[0].give_back()
    assert source.returned == [0, 1]
    probe.events[2].finish()


def test_a_newer_input_that_replaces_an_older_one_takes_it_along() -> None:
    async def story() -> None:
        source, probe = ManualPublisher[str](), Probe[str](request=9, hold=True)
        source.pipe(ops.debounce(1.0)).connect(probe)
        source.send("a")
        await asyncio.sleep(0.5)
        source.send("b")
        await asyncio.sleep(5)
        assert probe.timed == [(1.5, "b")]
        assert source.unsettled == ["a", "b"]
        probe.events[0].finish()
        assert source.unsettled == []
        probe.cancel()

    run_virtual(story())


def test_what_an_operator_never_answered_is_dropped_when_the_stream_ends() -> None:
    source = MemorySource(range(4))
    assert read(source, ops.skip_last(4)).values == []
    assert source.ledger.ended(Ending.DROPPED) == [0, 1, 2, 3]


def test_holding_more_than_allowed_is_an_error_that_says_what_to_do() -> None:
    source = MemorySource(range(100))
    probe = read(source, lift(ops.to_list(), hold=10))
    assert isinstance(probe.error, HoldExceeded)
    assert "hold=..." in str(probe.error)
    assert len(source.returned) == 11
    assert source.unsettled == []


def test_holding_as_much_as_allowed_is_not_an_error() -> None:
    assert read(MemorySource(range(10)), lift(ops.to_list(), hold=10)).values == [list(range(10))]


# More inputs than an operator may hold.

MANY = range(5000)

FOLDS = {
    "count": (ops.count(), 5000),
    "count of some": (ops.count(lambda n: n % 2 == 0), 2500),
    "sum": (ops.sum(), sum(MANY)),
    "average": (ops.average(), 2499.5),
    "min": (ops.min(), 0),
    "max": (ops.max(), 4999),
    "reduce": (ops.reduce(max), 4999),
    "last of some": (ops.last(lambda n: n < 10), 9),
}

LATEST = {
    "last": (ops.last(), [4999]),
    "last_or_default": (ops.last_or_default(None), [4999]),
    "take_last": (ops.take_last(3), [4997, 4998, 4999]),
    "take_last_buffer": (ops.take_last_buffer(2), [[4998, 4999]]),
    "take_last of none": (ops.take_last(0), []),
    "debounce": (ops.debounce(1), [4999]),
    "fork_join": (ops.fork_join(reactivex.of(7, 8)), [(4999, 8)]),
}


@pytest.mark.parametrize("name", FOLDS)
def test_an_operator_that_keeps_one_value_of_its_inputs_reads_any_number_of_them(
    name: str,
) -> None:
    operator, value = FOLDS[name]

    async def story() -> None:
        results: list[Any] = []
        pipeline = from_iterable(MANY).pipe(operator).to(collect(results))
        async with pipeline.start() as running:
            await running.wait()
            numbers = running.statistics()
        assert results == [value]
        assert (numbers["finished"], numbers["unfinished"]) == (5000, 0)

    run_virtual(story())


def test_a_source_that_gives_events_again_forgets_none_before_their_result_is_written() -> None:
    source = MemorySource(MANY)
    probe = read(source, ops.count())
    assert isinstance(probe.error, HoldExceeded)
    assert "must not forget them before the result" in str(probe.error)
    assert source.acked == []
    source = MemorySource(MANY)
    probe = read(source, lift(ops.count(), hold=5000), hold=True)
    assert probe.values == [5000]
    assert source.acked == []
    probe.events[0].finish()
    assert source.acked == list(MANY)


@pytest.mark.parametrize("name", LATEST)
def test_of_inputs_that_newer_ones_replace_only_the_latest_are_kept(name: str) -> None:
    operator, values = LATEST[name]

    async def story() -> None:
        source = MemorySource(MANY)
        probe = read(source, operator, hold=True)
        assert probe.values == values
        # Those that were dropped to make room; the others wait with the output.
        assert len(source.ledger.ended(Ending.DROPPED)) >= 5000 - HOLD
        for event in probe.events:
            event.finish()
        assert source.unsettled == []

    run_virtual(story())


def test_debounce_waits_for_the_end_of_a_burst_however_long_that_is() -> None:
    async def story() -> None:
        source, probe = ManualPublisher[int](), Probe[int](request=9)
        source.pipe(ops.debounce(1.0)).connect(probe)
        for n in range(3000):
            source.send(n)
            await asyncio.sleep(0.01)
        await asyncio.sleep(5)
        assert probe.values == [2999]
        probe.cancel()

    run_virtual(story())


def test_sample_does_not_hold_up_a_source_that_is_faster() -> None:
    async def story() -> None:
        source, probe = ManualPublisher[int](), Probe[int](request=9)
        source.pipe(ops.sample(100.0)).connect(probe)
        for n in range(4000):
            source.send(n)
        await asyncio.sleep(100.5)
        assert probe.values == [3999]
        probe.cancel()

    run_virtual(story())


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        (ops.buffer_with_count(3000), [list(range(3000)), list(range(3000, 5000))]),
        (ops.buffer_with_count(2, 3000), [[0, 1], [3000, 3001]]),
        (ops.skip_last(3000), list(range(2000))),
        (ops.take_last(3000), list(range(2000, 5000))),
    ],
)
def test_an_operator_holds_as_many_as_its_own_arguments_say(
    operator: Any, values: list[Any]
) -> None:
    probe = read(MemorySource(MANY), operator, request=5000)
    assert probe.error is None
    assert probe.values == values


def test_a_timer_for_which_reading_waits_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        results: list[Any] = []
        await from_iterable(MANY).pipe(ops.buffer_with_time(1.0)).to(collect(results)).run()
        assert [len(each) for each in results] == [1024, 1024, 1024, 1024, 904]
        (warning,) = [record.getMessage() for record in caplog.records]
        assert "holds 1,024 events" in warning
        assert "lift(operator, hold=...)" in warning

    run_virtual(story())


def test_a_slow_reader_of_an_operator_that_another_source_makes_emit_is_bounded_too() -> None:
    ticks = Subject[str]()
    probe = read(ManualPublisher[int](), lists_of_its_own(ticks, hold=5), request=1)
    for _ in range(6):
        ticks.on_next("tick")
    assert probe.error is None
    ticks.on_next("tick")
    assert isinstance(probe.error, HoldExceeded)


def test_the_clock_of_an_operator_stands_still_while_nothing_is_requested() -> None:
    async def story() -> None:
        source, probe = ManualPublisher[int](), Probe[Any](request=1)
        source.pipe(ops.buffer_with_time(1.0)).connect(probe)
        await asyncio.sleep(3.5)
        # The first list meets the demand: the second second does not pass.
        assert probe.values == [[]]
        source.send(7)
        await asyncio.sleep(100)
        probe.request(10)
        assert probe.values == [[]]
        await asyncio.sleep(0.5)
        source.send(8)
        assert probe.values == [[]]
        await asyncio.sleep(0.5)
        assert probe.values == [[], [7, 8]]
        await asyncio.sleep(1.5)
        assert probe.values == [[], [7, 8], []]

    run_virtual(story())


def test_no_list_comes_for_the_time_in_which_nothing_was_requested_but_at_the_end() -> None:
    async def story() -> list[Any]:
        source, probe = ManualPublisher[int](), Probe[Any](request=1)
        source.pipe(ops.buffer_with_time(1.0)).connect(probe)
        await asyncio.sleep(3.5)
        source.complete()
        probe.request(10)
        assert probe.completed
        return probe.values

    # That of the first second, and that of the end.
    assert run_virtual(story()) == [[], []]


def test_a_slow_reader_gets_lists_of_all_that_came_while_it_requested() -> None:
    async def numbers() -> AsyncIterator[int]:
        for n in range(30):
            await asyncio.sleep(0.005)
            yield n

    async def story(operator: Any) -> list[Any]:
        into = list[Any]()
        stream: Any = from_async_iterable(numbers).pipe(operator)
        async for value in stream:
            into.append(value)
            await asyncio.sleep(0.12)
        return into

    tens = [list(range(n, n + 10)) for n in (0, 10, 20)]
    assert run_virtual(story(ops.buffer_with_time(0.05))) == tens
    assert run_virtual(story(ops.sample(0.05))) == [9, 19, 29]


def test_what_a_newer_value_replaces_does_not_pass_debounce_because_the_reader_was_slow() -> None:
    async def story() -> list[str]:
        typed = Subject[str]()

        async def type_words() -> None:
            for word in "abc":
                for n in range(4):
                    typed.on_next(f"{word}{n}")
                    await asyncio.sleep(0.004)
                await asyncio.sleep(0.1)
            typed.on_completed()

        task = asyncio.create_task(type_words())
        into = list[str]()
        stream: Any = Flowable.of(typed, on_overflow=buffer(100)).pipe(ops.debounce(0.02))
        async for value in stream:
            into.append(value)
            await asyncio.sleep(0.15)
        await task
        return into

    assert run_virtual(story()) == ["a3", "b3", "c3"]


@pytest.mark.parametrize(
    "operator", [ops.buffer_with_time(0.1), ops.buffer_with_time_or_count(0.1, 5)]
)
def test_lists_of_nothing_that_a_slow_reader_takes_do_not_keep_inputs_from_being_read(
    operator: Callable[[Any], Any],
) -> None:
    async def slowly() -> AsyncIterator[int]:
        for number in range(10):
            await asyncio.sleep(0.3)
            yield number

    async def story() -> list[int]:
        seen: list[int] = []
        async for numbers in from_async_iterable(slowly).pipe(operator):
            seen += numbers
            await asyncio.sleep(0.25)
        assert asyncio.get_running_loop().time() < 15
        return seen

    assert run_virtual(story()) == list(range(10))


def test_what_waits_for_demand_leaves_one_after_the_other_however_much_there_is() -> None:
    kept: list[int] = []

    async def handler(value: int) -> int:
        await asyncio.sleep(1)
        return value

    stream = from_iterable(range(1000)).pipe(ops.delay(1), ops.filter(lambda n: n % 999 == 0))
    pipeline = stream.pipe(adaptive_flat_map(handler, Fixed(1))).to(collect(kept))
    run_virtual(pipeline.run(), stall=0.1)
    assert kept == [0, 999]


def test_cancel_gives_back_what_an_operator_holds() -> None:
    source = ManualPublisher[int]()
    probe = read(source, ops.buffer_with_count(100))
    source.send(1)
    source.send(2)
    probe.cancel()
    assert source.returned == [1, 2]


@given(st.lists(st.integers()), st.integers(1, 5), st.integers(1, 3))
def test_lists_leave_one_for_each_unit_of_demand(items: list[int], size: int, n: int) -> None:
    source = CountedSource(items)
    probe = read(source, ops.buffer_with_count(size), request=n)
    expected = [items[i : i + size] for i in range(0, len(items), size)]
    assert probe.values == expected[:n]
    assert source.emitted <= n * size


def test_an_unknown_operator_is_taken_for_one_that_holds() -> None:
    def mine(source: Observable[int]) -> Observable[int]:
        return source.pipe(ops.map(lambda n: n * 2))

    source = MemorySource([1, 2])
    probe = read(source, mine, hold=True)
    assert probe.values == [2, 4]
    probe.events[0].finish()
    assert source.acked == [1]
    probe.events[1].finish()


# Refusals.


@pytest.mark.parametrize(
    ("operator", "instead"),
    [
        (ops.expand(reactivex.of), "adaptive_flat_map"),
        (ops.distinct(), "distinct_within"),
        (ops.group_by(lambda n: n), "penstock.group_by"),
        (ops.replay(), "the number of values to keep"),
        (ops.observe_on(Any), "in_threads"),
        (ops.join(reactivex.never(), reactivex.of, reactivex.of), "with_latest_from"),
        (ops.window_with_count(2), "flat_map"),
    ],
)
def test_an_operator_that_cannot_be_bounded_is_refused_and_another_named(
    operator: Any, instead: str
) -> None:
    with pytest.raises(BuildError) as refused:
        from_iterable([1]).pipe(operator).to(collect([]))
    assert instead in str(refused.value)


def test_windows_are_read_by_the_flat_map_that_follows() -> None:
    totals = ops.flat_map(lambda window: window.pipe(ops.sum()))
    source = MemorySource([1, 2, 3, 4])
    assert read(source, ops.window_with_count(2), totals).values[:2] == [3, 7]
    assert source.unsettled == []


def test_a_function_that_does_not_return_a_stream_is_not_an_operator() -> None:
    with pytest.raises(BuildError, match="returned int"):
        from_iterable([1]).pipe(lambda source: 7)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("hold", [0, -1, True])
def test_a_hold_below_one_is_refused(hold: int) -> None:
    with pytest.raises(BuildError, match="hold"):
        lift(ops.to_list(), hold=hold)


def test_turns_pass_through_operators_that_answer_at_once() -> None:
    async def story() -> list[Any]:
        done: list[Any] = []

        async def work(value: Any) -> Any:
            await asyncio.sleep(1)
            return value

        stream = from_iterable(["a1", "a2", "b1"]).pipe(
            group_by(0), spread(), ops.scan(lambda n, v: v, ""), adaptive_flat_map(work, Fixed(3))
        )
        await stream.to(collect(done)).run()
        return done

    assert run_virtual(story()) == ["a1", "b1", "a2"]


PAGE = Path(__file__).parents[4] / "docs" / "operators.md"

# Arguments with which they have a timer.
TIMED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        [
            *("buffer_with_time", "debounce", "delay", "delay_subscription", "sample"),
            *("skip_until_with_time", "skip_with_time", "take_until_with_time", "take_with_time"),
            *("throttle_with_timeout", "timeout", "window_with_time"),
        ],
        (1,),
    ),
    **dict.fromkeys(["buffer_with_time_or_count", "window_with_time_or_count"], (1, 2)),
    "delay_with_mapper": (lambda _: reactivex.timer(1),),
}
SPELLED = {"throttle_with_timeout": "debounce"}


@pytest.mark.parametrize("name", TIMED)
def test_an_operator_with_a_timer_is_refused_by_name_where_there_is_no_loop(name: str) -> None:
    errors = list[Exception]()
    stream: Any = from_iterable([1]).pipe(getattr(ops, name)(*TIMED[name]))
    if name.startswith("window"):
        stream = stream.merge_all()
    stream.subscribe(on_error=errors.append)
    (error,) = errors
    assert isinstance(error, NoLoop)
    assert str(error).startswith(SPELLED.get(name, name))
    assert "has a timer" in str(error)


def failing() -> Iterator[int]:
    raise OSError("gone")
    yield 1


@pytest.mark.parametrize("name", ["retry", "to_future"])
def test_one_that_needs_a_loop_for_something_else_is_refused_by_name_too(name: str) -> None:
    errors = list[Exception]()
    try:
        if name == "retry":
            retried: Any = from_iterable(failing).pipe(ours.retry(2, Backoff(1)))
            retried.subscribe(on_error=errors.append)
        else:
            from_iterable([1]).pipe(ours.to_future())
    except NoLoop as error:
        errors.append(error)
    (error,) = errors
    assert isinstance(error, NoLoop)
    assert str(error).startswith(f"{name} needs a running event loop")
    assert "run the pipeline" in str(error)


def test_the_page_names_the_operators_that_have_a_timer() -> None:
    text = PAGE.read_text("utf-8")
    _, _, rest = text.partition("what has a\ntimer (")
    assert sorted(re.findall(r"`(\w+)`", rest.partition(")")[0])) == sorted(TIMED)


def _fails_at_four(value: int) -> int:
    if value == 4:
        raise ValueError("four")
    return value


@pytest.mark.parametrize(
    ("operators", "finished"),
    [
        ([ops.reduce(lambda a, b: a + _fails_at_four(b))], []),
        ([ops.max_by(_fails_at_four)], []),
        (
            [ops.window_with_count(3), ops.flat_map(lambda w: w.pipe(ops.map(_fails_at_four)))],
            [0, 1, 2, 3],
        ),
    ],
    ids=["reduce", "max_by", "inside windows"],
)
def test_an_error_names_the_event_that_an_operator_which_holds_events_fails_at(
    operators: Any, finished: list[int]
) -> None:
    source = MemorySource(range(8))
    probe = read(source, *operators)
    assert isinstance(probe.error, ValueError)
    assert probe.error.__notes__[-1].endswith(", on the event 4")
    held = [n for n in range(4) if n not in finished]
    assert (source.acked, source.returned, source.unsettled) == (finished, held, [])
    assert source.failed == [4]


def test_a_timer_that_runs_is_not_set_again_when_the_others_are_postponed() -> None:
    async def story() -> None:
        async with no_leaks():
            scheduler = LoopScheduler(Run(), StageInfo("timed"))
            scheduler.schedule_relative(1, lambda *_: scheduler.postpone(5))
            await asyncio.sleep(1)

    run_virtual(story())


def test_an_operator_that_was_cancelled_holds_nothing() -> None:
    async def story() -> list[int]:
        delayed = from_iterable(range(9)).pipe(ops.delay(1))
        running = delayed.to(MemorySink(hold=True)).start()
        await asyncio.sleep(2)
        running.cancel()
        report = await running.wait()
        return [stage.get("waiting", 0) for stage in report.statistics["stages"]]

    assert run_virtual(story()) == [0, 0, 0]


@pytest.mark.parametrize("operator", [ops.take(1), ops.pairwise(), ops.to_list()])
def test_an_error_of_the_source_is_not_said_to_be_of_an_operator(
    operator: Any, tmp_path: Path
) -> None:
    missing = read_jsonl(tmp_path / "missing.jsonl")
    with pytest.raises(CannotOpen) as told:
        run(missing.pipe(operator).to(collect([])))
    assert not hasattr(told.value, "__notes__")


def test_an_error_of_an_operator_about_no_event_names_its_stage() -> None:
    with pytest.raises(Exception, match="no elements") as told:
        run(from_iterable(list[int]()).pipe(ours.first()).to(collect([])))
    assert told.value.__notes__ == ["in stage 2 'first'"]
