"""One key with more events than its share of the buffer, and the others beside it."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    Fixed,
    adaptive_flat_map,
    batch,
    collect,
    for_each,
    from_async_iterable,
    from_iterable,
    group_by,
    inbox,
    route,
    spread,
)
from penstock.streams.base.errors import BuildError, KeyOverShare, SpillBroken
from penstock.streams.pictures.pipeline import total_text
from penstock.streams.protocol.event import Ending
from penstock.streams.testing import MemorySource, run_virtual

HOT = "hot"


def of_group_by(running: Any) -> dict[str, Any]:
    (numbers,) = (one for one in running.statistics()["stages"] if one["name"] == "group_by")
    return dict(numbers)


class Load:
    """100 clients, 1,000 events per second together, and a burst of one more client's."""

    def __init__(self, burst: int, **options: Any) -> None:
        self.latencies: list[float] = []
        self.hot: list[int] = []
        self.letters: list[Any] = []
        self.peak = 0
        self.peak_on_disk = 0
        self._burst = burst
        self._options = options

    async def _events(self) -> AsyncIterator[dict[str, Any]]:
        began = asyncio.get_running_loop().time()
        for n in range(3000):
            await asyncio.sleep(0.001)
            # When it would come from a source that does not wait.
            yield {"client": n % 100, "at": began + (n + 1) * 0.001}
            if n == 500:
                for place in range(self._burst):
                    yield {"client": HOT, "place": place}

    async def work(self, event: Any) -> None:
        if event["client"] == HOT:
            self.hot.append(event["place"])
        else:
            self.latencies.append(asyncio.get_running_loop().time() - event["at"])
        await asyncio.sleep(0.01)

    async def run(self) -> dict[str, Any]:
        pipeline = (
            from_async_iterable(self._events)
            .pipe(group_by("client", **self._options), spread(), adaptive_flat_map(self.work))
            .to(collect([]))
        )
        (stage,) = (one for one in pipeline.describe() if one.name == "group_by")
        async with pipeline.start() as running:
            while running.statistics()["state"] != "closed":
                await asyncio.sleep(0.05)
                numbers = of_group_by(running)
                self.peak = max(self.peak, numbers["waiting"])
                self.peak_on_disk = max(self.peak_on_disk, numbers["on_disk"])
            assert self.peak <= numbers["peak"] <= (stage.bound or 0)
            assert self.peak_on_disk <= numbers["peak_on_disk"] <= stage.on_disk
            return running.statistics()

    def p99(self) -> float:
        return sorted(self.latencies)[len(self.latencies) * 99 // 100]


@pytest.mark.parametrize("burst", [3_000, 10_000])
def test_a_burst_of_one_key_holds_up_no_other(burst: int) -> None:
    load = Load(burst)
    statistics = run_virtual(load.run())
    assert load.p99() < 0.05
    assert load.hot == list(range(burst))
    assert statistics["finished"] == 3_000 + burst
    assert load.peak_on_disk > burst // 2


def test_with_wait_the_source_waits_for_the_key_which_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    load = Load(10_000, overflow="wait")
    statistics = run_virtual(load.run())
    assert load.p99() > 10
    assert statistics["finished"] == 13_000
    assert load.peak_on_disk == 0
    (warning,) = (one for one in caplog.messages if "group_by" in one)
    assert "of the key 'hot' wait" in warning
    assert "the source waits" in warning
    assert 'overflow="spill"' in warning


def test_with_route_what_is_over_the_share_goes_to_the_sink() -> None:
    letters: list[Any] = []
    load = Load(10_000, overflow=route(for_each(letters.append)))
    statistics = run_virtual(load.run())
    assert load.p99() < 0.05
    # At least what the stage itself may hold of a key, and what was done meanwhile.
    assert 1024 <= len(load.hot) <= 2000
    assert load.hot == sorted(load.hot)
    routed = [letter.value["place"] for letter in letters]
    assert sorted(routed + load.hot) == list(range(10_000))
    assert isinstance(letters[0].error, KeyOverShare)
    assert "'hot'" in str(letters[0].error)
    assert statistics["failed"] == len(letters)


def test_many_slow_keys_hold_up_no_other() -> None:
    """Each of them has less than a share, and together they would fill the buffer."""

    async def story() -> list[float]:
        loop = asyncio.get_running_loop()
        latencies: list[float] = []

        async def events() -> AsyncIterator[tuple[int, float]]:
            for n in range(2000):
                await asyncio.sleep(0.001)
                yield n % 50, loop.time()
                if n == 100:
                    for slow in range(1000):
                        yield 100 + slow % 20, 0.0

        async def work(event: tuple[int, float]) -> None:
            if event[0] < 100:
                latencies.append(loop.time() - event[1])
            await asyncio.sleep(0.01 if event[0] < 100 else 1)

        stream = from_async_iterable(events).pipe(
            group_by(0, buffer=256, share=128), spread(), adaptive_flat_map(work, Fixed(100))
        )
        await stream.to(collect([])).run()
        return latencies

    latencies = sorted(run_virtual(story()))
    assert len(latencies) == 2000
    assert latencies[1980] < 0.05


def stopped_by(
    how: str, spill_events: int = 1000, make: Callable[[int], Any] = lambda n: (HOT, n)
) -> tuple[list[Any], dict[str, Any], MemorySource[Any]]:
    """100 events of one key, of which the first takes until the end comes."""
    done: list[Any] = []

    async def story() -> tuple[dict[str, Any], MemorySource[Any]]:
        source: MemorySource[Any] = MemorySource([make(n) for n in range(100)])
        released = asyncio.Event()

        async def work(event: Any) -> None:
            await released.wait()
            done.append(event[1])

        stream: Any = source.pipe(
            group_by(0, buffer=16, share=4, spill_events=spill_events),
            spread(),
            adaptive_flat_map(work, Fixed(4)),
        )
        running = stream.to(collect([])).start()
        await asyncio.sleep(1)
        numbers = of_group_by(running)
        if how == "cancel":
            running.cancel()
            await running.wait()
        else:
            draining = asyncio.create_task(running.drain(100))
            await asyncio.sleep(1)
            released.set()
            await draining
        return numbers, source

    numbers, source = run_virtual(story())
    return done, numbers, source


class Backlogged:
    """A run that begins with many events of ten slow keys, of each fewer than its share; then come
    those of others, quick ones."""

    def __init__(self, **options: Any) -> None:
        self.others = 0
        self._options = options

    async def _events(self) -> AsyncIterator[str]:
        for _ in range(1_000):
            for key in range(10):
                yield f"slow {key}"
        for n in range(2_000):
            await asyncio.sleep(0.01)
            yield f"other {n % 50}"

    async def work(self, key: str) -> None:
        await asyncio.sleep(10 if key.startswith("slow") else 0.005)
        self.others += key.startswith("other")

    async def run(self, meanwhile: Callable[[Any], Any] = lambda running: None) -> dict[str, Any]:
        pipeline = (
            from_async_iterable(self._events)
            .pipe(
                group_by(lambda key: key, **self._options),
                spread(),
                adaptive_flat_map(self.work, Fixed(64)),
            )
            .to(collect([]))
        )
        async with pipeline.start() as running:
            await asyncio.sleep(15)
            meanwhile(running)
            await asyncio.sleep(15)
            running.cancel()
            return of_group_by(running)


def test_slow_keys_that_come_first_and_fill_the_buffer_together_hold_up_no_other() -> None:
    load = Backlogged()
    numbers = run_virtual(load.run())
    assert load.others > 1_900
    assert numbers["peak_on_disk"] > 0


def test_with_wait_that_the_source_waits_for_such_keys_is_said_until_they_may_be_spilled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    load = Backlogged(overflow="wait")
    before = list[int]()

    def change(running: Any) -> None:
        before.append(load.others)
        running.set_share(None, "spill")

    run_virtual(load.run(change))
    assert before == [0]
    assert load.others > 500
    assert "the buffer is full, and the source waits, although handlers are free" in caplog.text


def test_a_drain_finishes_what_is_on_the_disk() -> None:
    done, numbers, source = stopped_by("drain")
    assert numbers["on_disk"] == 95
    assert done == list(range(100))
    assert source.ledger.unsettled == []


def test_a_cancel_returns_what_is_on_the_disk_in_order() -> None:
    done, numbers, source = stopped_by("cancel")
    assert numbers["on_disk"] > 80
    assert done == []
    # The first was being worked on.
    assert [value[1] for value in source.ledger.ended(Ending.RETURNED)] == [*range(1, 100), 0]


def test_when_the_file_is_full_the_source_waits_and_the_key_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done, numbers, _ = stopped_by("drain", spill_events=20)
    assert numbers["on_disk"] == 20
    assert numbers["waiting"] <= 16
    assert numbers["not_spilled"]["full"] > 0
    # Those that were read are finished; the source was not asked for the others.
    assert done == list(range(len(done)))
    assert 30 < len(done) < 100
    assert [one for one in caplog.messages if "Raise spill_events=" in one and "'hot'" in one]


def test_values_that_cannot_be_pickled_wait_in_the_buffer_which_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done, numbers, _ = stopped_by("drain", make=lambda n: (HOT, n, lambda: n))
    assert numbers["on_disk"] == 0
    assert numbers["waiting"] <= 16
    assert done == list(range(len(done)))
    assert len([one for one in caplog.messages if "cannot be pickled" in one]) == 1


def test_values_that_cannot_be_read_back_fail_the_stage_and_return_their_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source: MemorySource[Any] = MemorySource([(HOT, n) for n in range(100)])

    def broken(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    async def story() -> Any:
        async def work(event: Any) -> None:
            monkeypatch.setattr("pickle.loads", broken)

        stream: Any = source.pipe(
            group_by(0, buffer=16, share=4), spread(), adaptive_flat_map(work, Fixed(1))
        )
        with pytest.raises(SpillBroken, match="Input/output error"):
            await stream.to(collect([])).run()

    run_virtual(story())
    endings = Counter(ending for _, ending in source.ledger.endings)
    assert source.ledger.unsettled == []
    assert set(endings) == {Ending.FINISHED, Ending.RETURNED}


def test_a_caller_learns_how_its_event_ended_that_has_waited_on_the_disk() -> None:
    async def story() -> list[Any]:
        async def work(event: tuple[str, int]) -> None:
            await asyncio.sleep(1)

        requests = inbox(100)
        stream: Any = requests.pipe(
            group_by(0, buffer=16, share=2), spread(), adaptive_flat_map(work, Fixed(4))
        )
        async with stream.to(collect([])).start() as running:
            puts = [requests.put((HOT, n), wait=True) for n in range(50)]
            await asyncio.gather(*puts)
            assert of_group_by(running)["spilled"] > 30
            await running.drain(10)
        return []

    run_virtual(story())


def test_the_share_and_what_becomes_of_more_can_be_changed_while_it_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    letters: list[Any] = []

    async def story() -> list[dict[str, Any]]:
        released = asyncio.Event()

        async def work(event: Any) -> None:
            await released.wait()

        requests = inbox(1000)
        stream: Any = requests.pipe(
            group_by(0, buffer=100), spread(), adaptive_flat_map(work, Fixed(4))
        )
        numbers: list[dict[str, Any]] = []
        async with stream.to(collect([])).start() as running:

            async def put(key: str, n: int) -> None:
                for one in range(n):
                    await requests.put((key, one))
                await asyncio.sleep(1)
                numbers.append(of_group_by(running))

            # One of each is in the handler.
            await put("a", 21)
            running.set_share(10)
            await put("b", 21)
            running.set_share(overflow=route(for_each(letters.append)))
            await put("c", 21)
            running.set_share(overflow="wait")
            await put("d", 21)
            for wrong in ({"share": 101}, {"overflow": "drop"}, {"stage": 3}):
                with pytest.raises(BuildError, match=r"set_share\("):
                    running.set_share(**wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            released.set()
            await running.drain(10)
        return numbers

    first, second, third, last = run_virtual(story())
    assert (first["waiting"], first["on_disk"]) == (20, 0)
    assert second["on_disk"] == 10
    # They come together, before one of them is taken.
    assert third["over_share"] == len(letters) == 11
    assert (last["share"], last["on_disk"], last["over_share"]) == (10, 10, 11)
    assert last["waiting"] == 20 + 10 + 9 + 20


def test_a_letter_that_is_accepted_after_another_share_was_set_is_counted() -> None:
    letters: list[Any] = []

    async def accept(letter: Any) -> None:
        await asyncio.sleep(5)
        letters.append(letter)

    async def story() -> int:
        async def work(event: Any) -> None:
            await asyncio.sleep(20)

        requests = inbox(100)
        stream: Any = requests.pipe(
            group_by(0, buffer=20, share=3, overflow=route(for_each(accept))),
            spread(),
            adaptive_flat_map(work, Fixed(4)),
        )
        async with stream.to(collect([])).start() as running:
            for one in range(10):
                await requests.put((HOT, one))
            await asyncio.sleep(1)
            assert letters == []
            running.set_share(2)
            await running.drain(200)
        return int(of_group_by(running)["over_share"])

    assert run_virtual(story()) == len(letters) > 5


@given(
    keys=st.lists(st.sampled_from("aaaabbc"), max_size=60),
    buffer=st.integers(1, 12),
    share=st.integers(1, 12),
    spill_events=st.integers(1, 40),
    limit=st.integers(1, 4),
    cut=st.none() | st.floats(0, 5),
    batches=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_whatever_is_spilled_nothing_is_lost_doubled_or_overtaken(
    keys: list[str],
    buffer: int,
    share: int,
    spill_events: int,
    limit: int,
    cut: float | None,
    batches: bool,
    seed: int,
) -> None:
    events = [(key, n) for n, key in enumerate(keys)]
    source: MemorySource[Any] = MemorySource(events)
    rng = random.Random(seed)
    started: list[Any] = []
    peak = 0

    async def story() -> None:
        async def work(event: Any) -> Any:
            started.append(event)
            await asyncio.sleep(rng.choice([0, 0.1, rng.random()]))
            return event

        async def work_on_list(events: list[Any]) -> list[Any]:
            started.extend(events)
            await asyncio.sleep(rng.random() / 10)
            return events

        stage: Any = batch(work_on_list, 5) if batches else adaptive_flat_map(work, Fixed(limit))
        stream: Any = source.pipe(
            group_by(0, buffer=buffer, share=min(share, buffer), spill_events=spill_events),
            spread(),
            stage,
        )
        running = stream.to(collect([])).start()
        for _ in range(1000):
            await asyncio.sleep(0.01)
            nonlocal peak
            numbers = of_group_by(running)
            assert numbers["waiting"] <= numbers["peak"] <= buffer
            assert numbers["on_disk"] <= spill_events
            if running.statistics()["state"] == "closed":
                break
            if cut is not None and asyncio.get_running_loop().time() > cut:
                running.cancel()
                break
        await running.wait()

    logging.getLogger("penstock").disabled = True
    try:
        run_virtual(story())
    finally:
        logging.getLogger("penstock").disabled = False
    of_key: dict[str, list[int]] = defaultdict(list)
    for key, n in started:
        of_key[key].append(n)
    assert all(numbers == sorted(set(numbers)) for numbers in of_key.values())
    assert source.ledger.unsettled == []
    if cut is None:
        assert sorted(source.ledger.ended(Ending.FINISHED)) == sorted(events)


@pytest.mark.parametrize("seed", range(20))
def test_the_events_of_each_key_are_counted_whenever_what_becomes_of_more_is_changed(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(seed)
    spill_events = rng.choice([1, 8, 40, 400])
    letters: list[Any] = []
    finished: list[Any] = []

    async def story() -> None:
        async def work(event: Any) -> Any:
            await asyncio.sleep(rng.choice([0, 0.1, rng.random()]))
            return event

        requests = inbox(1000)
        stream: Any = requests.pipe(
            group_by(0, buffer=60, share=12, spill_events=spill_events),
            spread(),
            adaptive_flat_map(work, Fixed(2)),
        )
        policies: list[Any] = ["spill", "spill", "wait", route(collect(letters))]
        async with stream.to(collect(finished)).start() as running:
            await asyncio.sleep(0)
            for n in range(400):
                requests.put_nowait((rng.choice("aaab"), n))
                if not n % 20:
                    running.set_share(rng.choice([4, 12, 30]), rng.choice(policies))
                if not n % 7:
                    await asyncio.sleep(rng.random())
                numbers = of_group_by(running)
                counted = sum(one["waiting"] for one in numbers["hottest_keys"])
                assert counted == numbers["waiting"] + numbers["on_disk"]

    run_virtual(story())
    assert len(finished) + len(letters) == 400


def test_an_event_beyond_the_share_costs_as_much_behind_a_long_tail_as_behind_a_short_one() -> None:
    calls: dict[int, int] = {}

    async def story(behind: int) -> None:
        async def work(event: Any) -> None:
            await asyncio.sleep(1e6)

        requests = inbox(100_000)
        stream: Any = requests.pipe(
            group_by(0, buffer=100, share=10), spread(), adaptive_flat_map(work, Fixed(1))
        )
        running = stream.to(collect([])).start()
        await asyncio.sleep(0)
        for n in range(behind):
            requests.put_nowait(("a", n))
        await asyncio.sleep(1)
        running.set_share(overflow=route(collect([])))
        called = 0

        def count(*_: Any) -> None:
            nonlocal called
            called += 1

        await asyncio.sleep(1)
        sys.setprofile(count)
        for n in range(20):
            requests.put_nowait(("a", n))
        await asyncio.sleep(1)
        sys.setprofile(None)
        calls[behind] = called
        assert of_group_by(running)["over_share"] == 20
        running.cancel()
        await running.wait()

    for behind in (200, 5_000):
        run_virtual(story(behind))
    assert calls[5_000] < 1.2 * calls[200]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"share": 0}, "share"),
        ({"share": 5, "buffer": 4}, "share=5"),
        ({"overflow": "drop"}, '"spill", "wait" or route'),
        ({"overflow": for_each(print)}, "overflow=route"),
        ({"spill_events": 0}, "spill_events"),
        ({"spill_bytes": -1}, "spill_bytes"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, Any], what: str) -> None:
    with pytest.raises(BuildError, match=what):
        group_by(0, **options)


def test_draw_shows_what_may_be_in_memory_and_what_on_the_disk() -> None:
    stream: Any = from_iterable([]).pipe(
        group_by(0, buffer=100, spill_events=7_000), spread(), adaptive_flat_map(print, Fixed(1))
    )
    stages = stream.to(for_each(print)).describe()
    assert stages[1].note == "25 of a key, 7,000 more on disk"
    assert " in memory and 7,000 on disk at once." in total_text(stages)
