from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import batch, from_iterable, group_by, in_processes, in_threads, retry, spread
from penstock.streams.base.errors import BatchContractError, BuildError
from penstock.streams.testing import (
    COMPLETED,
    CountedSource,
    ManualPublisher,
    MemorySink,
    MemorySource,
    Probe,
    VirtualClock,
    parse_marbles,
    run_virtual,
)
from penstock.streams.testing.plugin import Run


class Plant:
    """A handler of batches with a known cost, which records them."""

    def __init__(self, a: float = 1.0, b: float = 0.0) -> None:
        self.batches: list[list[Any]] = []
        self.starts: list[float] = []
        self.at_once = self.most_at_once = 0
        self._a, self._b = a, b

    async def __call__(self, values: list[Any]) -> list[Any]:
        self.batches.append(values)
        self.starts.append(asyncio.get_running_loop().time())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self._a + self._b * len(values))
        finally:
            self.at_once -= 1
        return [f"{value}!" for value in values]

    @property
    def sizes(self) -> list[int]:
        return [len(values) for values in self.batches]


# The story.


def test_the_diagram_of_the_documentation_plays(clock: VirtualClock) -> None:
    plant = Plant(5)
    seen = clock.play("(a,b,c,d,e,f,g,|)", batch(plant))
    drawn = parse_marbles("-----a----b----c----(d,e)(f,g,|)")
    assert [(at, str(value).rstrip("!")) for at, value in seen[:-1]] == [
        (signal.time, signal.value) for signal in drawn[:-1]
    ]
    assert seen[-1] == (drawn[-1].time, COMPLETED)
    assert plant.sizes == [1, 1, 1, 2, 2]


def test_one_event_is_a_call_of_one_at_once(clock: VirtualClock) -> None:
    plant = Plant(1)
    assert clock.play("a---b---c---|", batch(plant)) == [
        (1, "a!"),
        (5, "b!"),
        (9, "c!"),
        (12, COMPLETED),
    ]
    assert plant.sizes == [1, 1, 1]


def test_more_load_means_larger_batches_up_to_the_most_allowed(run: Run) -> None:
    plant, source, sink = Plant(1), MemorySource(range(500)), MemorySink()
    run(source.pipe(batch(plant, max_size=50)).to(sink).run())
    assert plant.sizes[0] == 1
    assert max(plant.sizes) == 50
    assert sink.values == [f"{n}!" for n in range(500)]
    assert source.acked == list(range(500))


def test_what_comes_during_a_call_is_the_next_one(run: Run) -> None:
    async def story() -> None:
        plant, source, probe = Plant(1), ManualPublisher[int](), Probe[Any](request=999)
        source.pipe(batch(plant)).connect(probe)
        number = 0
        for _ in range(40):
            for _ in range(min(3, source.demand)):
                source.send(number := number + 1)
            await asyncio.sleep(1)
        assert plant.sizes[-5:] == [3] * 5
        probe.cancel()

    run(story())


def test_when_the_load_falls_calls_are_of_one_again_and_at_once(run: Run) -> None:
    async def story() -> None:
        plant, source, probe = Plant(0.5), ManualPublisher[int](), Probe[Any](request=9999)
        source.pipe(batch(plant)).connect(probe)
        for _ in range(30):
            for _ in range(source.demand):
                source.send(1)
            await asyncio.sleep(0.5)
        assert max(plant.sizes) > 20
        await asyncio.sleep(100)
        before = len(plant.batches)
        for _ in range(20):
            now = asyncio.get_running_loop().time()
            source.send(1)
            await asyncio.sleep(2)
            assert probe.timed[-1][0] - now == pytest.approx(0.5)
        assert plant.sizes[before:] == [1] * 20
        probe.cancel()

    run(story())


def test_several_calls_run_at_once_where_that_is_asked_for(run: Run) -> None:
    plant, sink = Plant(1), MemorySink()
    run(from_iterable(range(300)).pipe(batch(plant, 10, parallel=3)).to(sink).run())
    assert plant.most_at_once == 3
    assert sorted(sink.values) == sorted(f"{n}!" for n in range(300))


# What a handler may be, and return.


def plain(values: list[int]) -> list[int]:
    return [-value for value in values]


async def asynchronous(values: list[int]) -> list[int]:
    return plain(values)


def later(values: list[int]) -> Any:
    return asynchronous(values)


def as_tuple(values: list[int]) -> tuple[int, ...]:
    return tuple(plain(values))


@pytest.mark.parametrize("handler", [plain, asynchronous, later, as_tuple])
def test_a_handler_may_be_plain_or_asynchronous(run: Run, handler: Any) -> None:
    sink = MemorySink()
    run(MemorySource(range(100)).pipe(batch(handler)).to(sink).run())
    assert sink.values == [-n for n in range(100)]


@pytest.mark.parametrize("pool", [in_threads(2), in_processes(1)])
def test_a_handler_may_run_in_a_pool(pool: Any) -> None:
    sink = MemorySink()
    asyncio.run(MemorySource(range(50)).pipe(batch(pool(plain), parallel=2)).to(sink).run())
    assert sorted(sink.values) == sorted(-n for n in range(50))


def test_a_call_in_a_thread_is_not_on_the_loop() -> None:
    names: set[str] = set()

    def note(values: list[int]) -> None:
        names.add(threading.current_thread().name)

    asyncio.run(MemorySource([1]).pipe(batch(in_threads(1)(note))).to(MemorySink()).run())
    assert names
    assert threading.current_thread().name not in names


def nothing(values: list[int]) -> None: ...


def test_none_in_place_of_a_list_is_none_for_each(run: Run) -> None:
    source, sink = MemorySource([1, 2, 3]), MemorySink()
    run(source.pipe(batch(nothing)).to(sink).run())
    assert sink.values == [None, None, None]
    assert source.acked == [1, 2, 3]


async def iterates(values: list[int]) -> AsyncIterator[int]:
    yield 1


def returning(result: Any) -> Any:
    def handler(values: list[int]) -> Any:
        return result

    return handler


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (returning([]), "returned 0 results for 1 event:"),
        (returning([1, 2, 3]), "returned 3 results for 1 event:"),
        (returning("a"), "returned 'a' for 1 event:"),
        (returning(iter([1])), "returned <list_iterator"),
        (returning({1: 2}), "returned {1: 2}"),
        (iterates, "returned an async iterator or a stream for 1 event:"),
    ],
)
def test_anything_but_one_result_for_each_event_is_a_named_error(
    run: Run, handler: Any, said: str
) -> None:
    source = MemorySource([1, 2, 3])
    with pytest.raises(BatchContractError, match=said.replace("{", r"\{")) as raised:
        run(source.pipe(batch(handler)).to(MemorySink()).run())
    assert "in stage 2 'batch', on the event 1" in raised.value.__notes__
    assert source.failed == [1]
    assert source.acked == []


# Life.


def test_nothing_begins_without_room_for_its_results(run: Run) -> None:
    async def story() -> None:
        plant, source, probe = Plant(1), CountedSource(range(1000)), Probe[Any]()
        source.pipe(batch(plant, 10)).connect(probe)
        await asyncio.sleep(1000)
        # 10 results and those of one call, and 10 events read ahead.
        assert source.emitted <= 30
        probe.request(5)
        await asyncio.sleep(1000)
        assert len(probe.values) == 5
        assert source.emitted <= 35
        probe.cancel()

    run(story())


def test_cancel_gives_back_what_is_in_a_call_and_what_waits(run: Run) -> None:
    async def story() -> None:
        source, plant = MemorySource(range(100)), Plant(10)
        running = source.pipe(batch(plant, 10)).to(MemorySink()).start()
        await asyncio.sleep(45)
        running.cancel()
        await running.wait()
        assert running.statistics()["unfinished"] == 0
        assert sorted(source.acked + source.returned) == list(range(len(source.ledger.endings)))
        assert len(source.returned) >= 2

    run(story())


def test_drain_finishes_what_is_in(run: Run) -> None:
    async def story() -> None:
        source, plant, sink = MemorySource(range(10_000)), Plant(1), MemorySink()
        async with source.pipe(batch(plant)).to(sink).start() as running:
            await asyncio.sleep(20.5)
            await running.drain(10)
        assert source.returned == []
        assert len(sink.values) == len(source.acked) < 10_000

    run(story())


def test_the_last_events_do_not_wait_for_company(run: Run) -> None:
    async def story() -> None:
        plant, source, probe = Plant(1), ManualPublisher[int](), Probe[Any](request=99)
        source.pipe(batch(plant, max_wait=1000)).connect(probe)
        for _ in range(50):
            source.send(*range(min(1, source.demand)))
            await asyncio.sleep(0.5)
        await asyncio.sleep(10)
        now = asyncio.get_running_loop().time()
        source.send(1)
        source.complete()
        await asyncio.sleep(10)
        assert probe.timed[-1][0] - now == pytest.approx(1)

    run(story())


def test_pause_and_resume_lose_nothing(run: Run) -> None:
    async def story() -> None:
        source, sink = MemorySource(range(200)), MemorySink()
        async with source.pipe(batch(Plant(0.1))).to(sink).start() as running:
            running.pause()
            await asyncio.sleep(5)
            running.resume()
        assert len(sink.values) == 200

    run(story())


def test_the_numbers_show_the_size_the_calls_and_what_waits(run: Run) -> None:
    async def story() -> None:
        source = MemorySource(range(1000))
        running = source.pipe(batch(Plant(1), 8, parallel=2)).to(MemorySink()).start()
        await asyncio.sleep(40.5)
        numbers = running.statistics()["stages"][1]
        assert 4 <= numbers["size"] <= 8
        assert numbers["calls"] == 2
        assert 8 <= numbers["in_flight"] <= 16
        assert 4 <= numbers["waiting"] <= 8
        assert numbers["size_reason"]
        running.cancel()
        await running.wait()

    run(story())


# Linger.


def test_an_event_waits_for_those_that_are_expected_soon(run: Run) -> None:
    async def story() -> list[int]:
        plant, source, probe = Plant(1), ManualPublisher[int](), Probe[Any](request=10**6)
        source.pipe(batch(plant, max_wait=0.5)).connect(probe)
        for _ in range(400):
            source.send(*[1] * min(1, source.demand))
            await asyncio.sleep(0.05)
        await asyncio.sleep(3)
        before = len(plant.batches)
        for _ in range(9):
            source.send(1)
            await asyncio.sleep(0.05)
        await asyncio.sleep(10)
        probe.cancel()
        return plant.sizes[before:]

    # No call is in flight, and yet the first is not sent alone.
    assert run(story()) == [6, 3]


def test_at_the_end_of_the_stream_nothing_waits_for_more(run: Run) -> None:
    async def story() -> None:
        plant, source, probe = Plant(1), ManualPublisher[int](), Probe[Any](request=10**6)
        source.pipe(batch(plant, max_wait=0.5)).connect(probe)
        for _ in range(400):
            source.send(*[1] * min(1, source.demand))
            await asyncio.sleep(0.05)
        await asyncio.sleep(3)
        source.send(1)
        await asyncio.sleep(0.1)
        now, before = asyncio.get_running_loop().time(), len(plant.batches)
        source.complete()
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        assert plant.starts[before:] == [now]
        await asyncio.sleep(10)

    run(story())


@given(st.lists(st.floats(0, 3), max_size=60), st.just(0) | st.floats(0.01, 2), st.integers(1, 3))
def test_no_event_waits_longer_than_max_wait_beside_a_free_call(
    gaps: list[float], max_wait: float, parallel: int
) -> None:
    async def story() -> None:
        plant, source, probe = Plant(1), ManualPublisher[float](), Probe[Any](request=999)
        loop = asyncio.get_running_loop()
        source.pipe(batch(plant, 50, max_wait, parallel=parallel)).connect(probe)
        for gap in gaps:
            await asyncio.sleep(gap)
            if source.demand:
                source.send(loop.time())
        source.complete()
        await asyncio.sleep(100)
        ends = sorted(start + 1 for start in plant.starts)
        for values, start in zip(plant.batches, plant.starts, strict=True):
            free = [end for end in ends if end <= start][-1:]
            since = max([values[0], *free])
            assert start - since <= max_wait + 1e-6
        assert source.unsettled == []

    run_virtual(story())


# Building.


def test_its_bound_counts_what_waits_the_results_and_what_is_tried_again() -> None:
    source = from_iterable([1])
    # 10 read ahead, 10 results not taken yet, and those of two calls.
    assert source.pipe(batch(asynchronous, 10, parallel=2)).info.bound == 40
    retrying = batch(asynchronous, 10, parallel=2, on_error=retry(3))
    assert source.pipe(retrying).info.bound == 60


def test_the_place_where_order_ends_is_marked() -> None:
    flow = from_iterable([1]).pipe(group_by(abs), spread(), batch(asynchronous))
    assert flow.info.note == "1 to 1,000 per call; order of a group ends here"
    assert not flow.turns


def anything(values: list[Any]) -> list[Any]:
    return values


@pytest.mark.parametrize(
    "options",
    [
        {"max_size": 0},
        {"max_size": -1},
        {"max_size": True},
        {"max_wait": -1.0},
        {"max_wait": float("nan")},
        {"latency": 0},
        {"timeout": 0},
        {"timeout": 1.0, "handler": plain},
        {"parallel": 0},
        {"on_error": "ignore"},
        {"handler": 3},
    ],
    ids=", ".join,
)
def test_nonsense_is_refused_when_the_operator_is_built(options: Any) -> None:
    handler = options.pop("handler", asynchronous)
    with pytest.raises(BuildError, match="batch"):
        batch(handler, **options)


def test_straight_after_group_by_it_says_what_to_insert() -> None:
    with pytest.raises(BuildError, match="spread"):
        from_iterable([1]).pipe(group_by(lambda n: n), batch(anything))
