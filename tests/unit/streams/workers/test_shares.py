"""What a slow key, or a worker that says nothing, leaves to the others: on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import (
    Fixed,
    Flowable,
    adaptive_flat_map,
    collect,
    for_each,
    from_async_iterable,
    from_iterable,
    group_by,
    ops,
    route,
    spread,
)
from penstock.streams.base.errors import BuildError, DrainTimeout, KeyOverShare, SpillBroken
from penstock.streams.keyed.spill import Spill
from penstock.streams.pipelines.running import Report, Running
from penstock.streams.testing import MemorySink
from penstock.streams.testing.loop import run_virtual
from tests.helpers.local_workers import LocalCrew, random_delay

Event = tuple[int, int]
Ended = TypeVar("Ended")

SLOW = 999


def key_of(event: Event) -> int:
    return event[0]


def in_time(story: Coroutine[Any, Any, Ended]) -> Ended:
    """What it returns; on virtual time, looking for silent workers would never end."""
    return run_virtual(asyncio.wait_for(story, 200))


def is_in_order(events: list[Event]) -> bool:
    """Whether the numbers of each key rise."""
    last: dict[int, int] = {}
    for key, n in events:
        if n <= last.get(key, -1):
            return False
        last[key] = n
    return True


async def ticks(n: int, seconds: float) -> AsyncIterator[tuple[int, float]]:
    """Numbers at fixed times, and these times; one that is late comes as soon as it can."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(n):
        at = began + (number + 1) * seconds
        await asyncio.sleep(max(0, at - loop.time()))
        yield number, at


def digit(n: int) -> int:
    return n % 10


def one_key(n: int) -> int:
    return 0


def with_another(n: int) -> list[int]:
    return [n, n + 100]


async def work(n: int) -> int:
    await asyncio.sleep(1)
    return n


def test_an_event_goes_on_whose_turn_another_had_that_is_over_the_share_of_its_key() -> None:
    letters, into = MemorySink(), list[int]()
    stream = from_iterable(range(30)).pipe(
        group_by(digit),
        spread(),
        ops.flat_map(with_another),
        group_by(one_key, buffer=100, share=2, overflow=route(letters)),
        spread(),
        adaptive_flat_map(work, limit=Fixed(2)),
    )

    async def main() -> None:
        async with stream.to(collect(into)).start(workers=LocalCrew(2)) as running:
            await running.wait()

    in_time(main())
    found = [*into, *(letter.value for letter in letters.values)]
    assert sorted(found) == [*range(30), *range(100, 130)]
    assert into
    assert letters.values


class Steady:
    """200 events per second of 30 keys. After 0.5 s all of these have some at once, and one of
    three workers is frozen."""

    def __init__(self, **options: Any) -> None:
        self.crew = LocalCrew(3)
        self.into: list[Event] = []
        self.sent: list[Event] = []
        self.latencies: list[float] = []
        self.most_in_memory = self.most_on_disk = self.bound = 0
        self._options = {"buffer": 60, **options}
        self._at: dict[Event, float] = {}

    async def _events(self) -> AsyncIterator[Event]:
        async for n, at in ticks(1800, 0.005):
            for each in range(90 if n == 100 else 1):
                event = each % 30 if n == 100 else n % 30, len(self.sent)
                self.sent.append(event)
                self._at[event] = at
                yield event
            if n == 101:
                self.crew.freeze(1)

    def start(self) -> Running:
        async def work(event: Event) -> Event:
            await asyncio.sleep(0.02)
            return event

        loop_time = asyncio.get_running_loop().time

        def done(event: Event) -> None:
            self.into.append(event)
            self.latencies.append(loop_time() - self._at[event])

        stream = from_async_iterable(self._events).pipe(
            group_by(key_of, **self._options),
            spread(),
            adaptive_flat_map(work, limit=Fixed(45), window=15),
        )
        pipeline = stream.to(for_each(done))
        self.bound = sum(stage.bound or 0 for stage in pipeline.describe())
        return pipeline.start(workers=self.crew)

    async def until(self, running: Running, seconds: float) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end and running.report().outcome == "running":
            await asyncio.sleep(0.05)
            on_disk = running.stage_statistics(2)["on_disk"]
            unfinished = running.statistics()["unfinished"]
            self.most_in_memory = max(self.most_in_memory, unfinished - on_disk)
            self.most_on_disk = max(self.most_on_disk, on_disk)


@pytest.mark.parametrize("end", ["thaw", "kill"])
def test_a_worker_that_stands_still_holds_up_its_own_keys_only(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    load = Steady()

    async def main() -> tuple[list[float], Report]:
        async with load.start() as running:
            await load.until(running, 8)
            meanwhile = sorted(load.latencies)
            getattr(load.crew, end)(1)
            await load.until(running, 60)
            return meanwhile, await running.wait()

    meanwhile, report = in_time(main())
    # A third of the keys are in it, and the others have lost no time.
    assert 950 < len(meanwhile) < 1_400
    assert meanwhile[len(meanwhile) * 98 // 100] < 0.1
    assert sorted(load.into) == sorted(load.sent)
    assert is_in_order(load.into)
    assert report.statistics["finished"] == len(load.sent)
    assert load.most_on_disk > 200
    assert load.most_in_memory <= load.bound
    assert sum("temporary file" in text for text in caplog.messages) == 1


def test_with_wait_the_source_waits_for_a_worker_that_stands_still(
    caplog: pytest.LogCaptureFixture,
) -> None:
    load = Steady(overflow="wait")

    async def main() -> int:
        async with load.start() as running:
            await load.until(running, 8)
            meanwhile = len(load.into)
            load.crew.thaw(1)
            await running.wait()
            return meanwhile

    assert in_time(main()) < 800
    assert sorted(load.into) == sorted(load.sent)
    assert load.most_on_disk == 0
    assert sum("has said nothing for 4 s" in text for text in caplog.messages) == 1
    assert sum("the source waits" in text for text in caplog.messages) == 1


@pytest.mark.parametrize("how", ["drain", "cancel"])
def test_what_waits_on_disk_for_a_worker_that_stands_still_is_returned_at_the_end(how: str) -> None:
    load = Steady()

    async def main() -> dict[str, Any]:
        running = load.start()
        await load.until(running, 7)
        if how == "drain":
            running.begin_drain(3, by_signal=True)
            await asyncio.sleep(5)
        else:
            running.cancel()
        load.crew.thaw(1)
        try:
            await running.wait()
        except DrainTimeout:
            assert how == "drain"
        return dict(running.report().statistics)

    numbers = in_time(main())
    assert load.most_on_disk > 200
    assert is_in_order(load.into)
    assert len(load.into) == len(set(load.into)) == numbers["finished"]
    assert numbers["returned"] == numbers["in"] - numbers["finished"] > 200
    assert numbers["unfinished"] == 0


def test_a_drain_without_a_deadline_finishes_what_is_on_disk() -> None:
    load = Steady()

    async def main() -> dict[str, Any]:
        running = load.start()
        await load.until(running, 7)
        running.begin_drain()
        await asyncio.sleep(1)
        load.crew.thaw(1)
        return dict((await running.wait()).statistics)

    numbers = in_time(main())
    assert load.most_on_disk > 200
    assert is_in_order(load.into)
    assert len(load.into) == numbers["in"] == numbers["finished"] < len(load.sent) + 1


def test_a_value_that_cannot_be_read_back_stops_the_run_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = Steady()

    def broken(self: Spill, block: Any) -> Any:
        raise SpillBroken("the disk is broken")

    async def main() -> dict[str, Any]:
        running = load.start()
        await load.until(running, 7)
        monkeypatch.setattr(Spill, "read", broken)
        load.crew.thaw(1)
        with pytest.raises(SpillBroken):
            await running.wait()
        return dict(running.report().statistics)

    numbers = in_time(main())
    assert is_in_order(load.into)
    assert numbers["finished"] == len(load.into)
    assert numbers["returned"] == numbers["in"] - numbers["finished"] > 200
    assert numbers["unfinished"] == 0


def test_a_worker_without_keys_that_stands_still_leaves_room_to_the_others() -> None:
    crew = LocalCrew(3)
    into: list[int] = []

    async def work(n: int) -> int:
        await asyncio.sleep(0.05)
        return n

    async def main() -> int:
        stream = from_iterable(range(3_000)).pipe(
            adaptive_flat_map(work, limit=Fixed(30), window=30)
        )
        async with stream.to(collect(into)).start(workers=crew) as running:
            await asyncio.sleep(0.1)
            crew.freeze(1)
            before = len(into)
            await asyncio.sleep(5)
            after = len(into)
            crew.thaw(1)
            await running.wait()
            return after - before

    # 20 calls of 50 ms are at most 400 events per second.
    assert in_time(main()) > 1_900
    assert sorted(into) == list(range(3_000))


class Burst:
    """200 events per second of 20 keys and, after half a second, 1,500 of another key; each takes
    10 ms."""

    def __init__(self, crew: LocalCrew, *, ordered: bool = False, **options: Any) -> None:
        self.crew = crew
        self.ordered = ordered
        self.options = options
        self.slow: list[int] = []
        self.latencies: list[float] = []
        self.running: Running | None = None

    async def _events(self) -> AsyncIterator[tuple[int, float]]:
        async for n, at in ticks(600, 0.005):
            yield n % 20, at
            if n == 100:
                for place in range(1500):
                    yield SLOW, float(place)

    def start(self) -> Running:
        async def work(event: tuple[int, float]) -> tuple[int, float]:
            await asyncio.sleep(0.01)
            return event

        loop_time = asyncio.get_running_loop().time

        def done(event: tuple[int, float]) -> None:
            if event[0] == SLOW:
                self.slow.append(int(event[1]))
            else:
                self.latencies.append(loop_time() - event[1])

        stream = from_async_iterable(self._events).pipe(
            group_by(lambda event: event[0], buffer=200, **self.options),
            spread(),
            adaptive_flat_map(work, limit=Fixed(40), window=40, ordered=self.ordered),
        )
        return stream.to(for_each(done)).start(workers=self.crew)


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_a_burst_of_one_key_holds_up_no_other_key(workers: int) -> None:
    load = Burst(LocalCrew(workers))
    hottest: dict[str, Any] = {}

    async def main() -> Report:
        async with load.start() as running:
            await asyncio.sleep(2)
            hottest.update(running.stage_statistics(2)["hottest_keys"][0])
            return await running.wait()

    numbers = in_time(main()).statistics
    assert sorted(load.latencies)[len(load.latencies) * 99 // 100] < 0.1
    assert load.slow == list(range(1500))
    assert hottest["key"] == SLOW
    assert hottest["waiting"] > 1_000
    assert numbers["finished"] == 2_100


@pytest.mark.parametrize("ordered", [False, True])
def test_what_is_routed_is_a_dead_letter_and_leaves_no_gap(ordered: bool) -> None:
    letters: list[Any] = []
    load = Burst(LocalCrew(2), ordered=ordered, overflow=route(for_each(letters.append)))

    async def main() -> tuple[Report, int]:
        async with load.start() as running:
            report = await running.wait()
            return report, running.stage_statistics(2)["routed"]

    report, routed = in_time(main())
    numbers = report.statistics
    assert load.slow == sorted(load.slow)
    values = [int(letter.value[1]) for letter in letters]
    assert sorted([*load.slow, *values]) == list(range(1500))
    assert len(values) == routed == numbers["failed"] > 500
    assert all(isinstance(letter.error, KeyOverShare) for letter in letters)
    assert len(load.latencies) == 600
    assert numbers["unfinished"] == 0


def test_many_slow_keys_hold_up_no_other() -> None:
    """Each of them has less than a share, and together they would fill the bound."""
    latencies: list[float] = []

    async def events() -> AsyncIterator[tuple[int, float]]:
        async for n, at in ticks(1000, 0.002):
            yield n % 25, at
            if n == 100:
                for slow in range(500):
                    yield 100 + slow % 20, 0.0

    async def work(event: tuple[int, float]) -> tuple[int, float]:
        await asyncio.sleep(0.5 if event[0] >= 100 else 0.001)
        return event

    async def main() -> None:
        loop_time = asyncio.get_running_loop().time

        def done(event: tuple[int, float]) -> None:
            if event[0] < 100:
                latencies.append(loop_time() - event[1])

        stream = from_async_iterable(events).pipe(
            group_by(lambda event: event[0], buffer=200),
            spread(),
            adaptive_flat_map(work, limit=Fixed(60), window=60),
        )
        async with stream.to(for_each(done)).start(workers=LocalCrew(2)) as running:
            await running.wait()

    in_time(main())
    assert len(latencies) == 1000
    assert sorted(latencies)[990] < 0.1


def test_the_share_and_what_becomes_of_more_can_be_changed_while_it_runs() -> None:
    load = Burst(LocalCrew(2), overflow="wait")

    async def main() -> tuple[dict[str, Any], dict[str, Any]]:
        async with load.start() as running:
            await asyncio.sleep(1)
            before = running.stage_statistics(2)
            with pytest.raises(BuildError, match="buffer=200"):
                running.set_share(201)
            running.set_share(7, "spill")
            await asyncio.sleep(1)
            after = running.stage_statistics(2)
            await running.wait()
            return before, after

    before, after = in_time(main())
    assert (before["share"], before["on_disk"]) == (50, 0)
    assert after["share"] == 7
    assert after["on_disk"] > 500
    assert load.slow == list(range(1500))


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    workers=st.integers(1, 3),
    buffer=st.sampled_from([4, 20, 100]),
    share=st.sampled_from([1, 4]),
    keys=st.sampled_from([1, 3, 30]),
    skew=st.booleans(),
)
def test_nothing_is_lost_doubled_or_overtaken_and_memory_is_bounded(
    seed: int, workers: int, buffer: int, share: int, keys: int, skew: bool
) -> None:
    draw = random.Random(seed)
    crew = LocalCrew(workers, random_delay(seed, draw.choice([0, 0.005])))
    sent = [(0 if skew and draw.random() < 0.7 else n % keys, n) for n in range(200)]
    into: list[Event] = []
    most = [0]

    async def work(event: Event) -> Event:
        await asyncio.sleep(0.02 if event[0] == 0 else 0.001)
        return event

    stream: Flowable[Event] = from_iterable(sent).pipe(
        group_by(key_of, buffer=buffer, share=share),
        spread(),
        adaptive_flat_map(work, limit=Fixed(5), window=5),
    )
    pipeline = stream.to(collect(into))
    bound = sum(stage.bound or 0 for stage in pipeline.describe())

    async def main() -> Report:
        async with pipeline.start(workers=crew) as running:
            await asyncio.sleep(0.01)
            for _ in range(draw.randrange(5)):
                worker = draw.choice(crew.alive)
                crew.freeze(worker)
                for _ in range(draw.choice([2, 20, 60])):
                    await asyncio.sleep(0.1)
                    on_disk = running.stage_statistics(2)["on_disk"]
                    most.append(running.statistics()["unfinished"] - on_disk)
                crew.thaw(worker)
                await asyncio.sleep(draw.uniform(0, 0.2))
            return await running.wait()

    report = in_time(main())
    assert max(most) <= bound
    assert Counter(into) == Counter(sent)
    assert is_in_order(into)
    assert report.statistics["finished"] == len(sent)
    assert report.statistics["stages"][1]["on_disk"] == 0
