"""A key over its share whose further events stay at their source, and the others beside it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops

from penstock import (
    Fixed,
    adaptive_flat_map,
    batch,
    collect,
    distinct_within,
    group_by,
    route,
    spread,
)
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.event import Ending, Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.own import SourceStage
from penstock.streams.testing import run_virtual
from penstock.streams.testing.ledger import Ledger
from tests.helpers.local_workers import LocalCrew

HOT = "hot"


class Shelf(Flowable[Any]):
    """A source that can leave keys: the items wait on it, as rows do in a table.

    It takes `claim` of them at once, which are then on their way, whatever is left after that.
    """

    def __init__(self, items: Iterable[tuple[str, int]], claim: int = 1) -> None:
        super().__init__(self._start, StageInfo("shelf", delivery=Delivery(acknowledges=True)))
        self.waiting = list(items)
        self.claim = claim
        self.left: Counter[str] = Counter()
        self.ledger = Ledger()
        self.stage: _Reading | None = None

    def _start(self, downstream: Subscriber[Any], run: Run) -> None:
        self.stage = _Reading(downstream, run, self.info, self)
        self.stage.start()


class _Reading(SourceStage[Any]):
    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, shelf: Shelf
    ) -> None:
        super().__init__(downstream, run, info)
        self._shelf = shelf
        self._taken: list[tuple[str, int]] = []
        self.is_held = True

    @property
    def gives_again(self) -> bool:
        return True

    def holds(self, token: Any, /) -> bool:
        return self.is_held

    def leave(self, token: Any, key: Any, /) -> Callable[[], None] | None:
        left = self._shelf.left
        left[key] += 1

        def end() -> None:
            left[key] -= 1
            self.wake_soon()

        return end

    def produce(self) -> None:
        shelf = self._shelf
        while self.demand and not self.state:
            if not self._taken:
                free = [item for item in shelf.waiting if not shelf.left[item[0]]]
                self._taken = free[: shelf.claim]
                shelf.waiting = [item for item in shelf.waiting if item not in self._taken]
            if not self._taken:
                if not shelf.waiting:
                    self.complete()
                return
            item = self._taken.pop(0)
            self.send_all([shelf.ledger.enter(Event(item, self.run.now(), self, item))])

    def release(self) -> None:
        self._shelf.waiting = self._taken + self._shelf.waiting

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        self._shelf.ledger.end(events, ending)
        super().settle(events, ending, why)


def of_group_by(running: Any) -> dict[str, Any]:
    (numbers,) = (one for one in running.statistics()["stages"] if one["name"] == "group_by")
    return dict(numbers)


def hot_and_others(burst: int) -> list[tuple[str, int]]:
    """A burst of one key, and 100 events of others behind it."""
    return [(HOT, n) for n in range(burst)] + [(f"c{n % 10}", n) for n in range(100)]


def worked_on(shelf: Shelf, *before: Any, **options: Any) -> tuple[list[Any], dict[str, Any], int]:
    """What has been worked on when the others are done, the statistics then, and how many events
    were waiting at the source."""

    async def story() -> tuple[list[Any], dict[str, Any], int]:
        done: list[Any] = []

        async def work(event: tuple[str, int]) -> None:
            await asyncio.sleep(1 if event[0] == HOT else 0.001)
            done.append(event)

        source: Any = shelf
        stream = source.pipe(
            *before, group_by(0, **options), spread(), adaptive_flat_map(work, Fixed(20))
        )
        async with stream.to(collect([])).start() as running:
            while sum(key != HOT for key, _ in done) < 100:
                await asyncio.sleep(0.01)
                assert asyncio.get_running_loop().time() < 100
            numbers = of_group_by(running)
            waiting = len(shelf.waiting)
            running.cancel()
        return done, numbers, waiting

    return run_virtual(story())


def test_what_is_over_the_share_stays_at_the_source_and_the_other_keys_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shelf = Shelf(hot_and_others(1000), claim=20)
    _, numbers, waiting = worked_on(shelf, buffer=200, share=50)
    assert waiting > 1000 - 50
    assert numbers["on_disk"] == numbers["spilled"] == 0
    assert numbers["keys_left"] == 1
    assert numbers["waiting"] <= 50
    (warning,) = (one for one in caplog.messages if "group_by" in one)
    assert "of the key 'hot' wait" in warning
    assert "stay where stage 1 'shelf' reads them" in warning
    # The cancel has ended it.
    assert not +shelf.left


def test_what_was_on_its_way_is_spilled() -> None:
    shelf = Shelf(hot_and_others(1000), claim=100)
    _, numbers, waiting = worked_on(shelf, buffer=200, share=50)
    assert waiting == 900
    assert numbers["keys_left"] == 1
    assert 0 < numbers["on_disk"] <= 100


@pytest.mark.parametrize("overflow", ["wait", "route"])
def test_with_another_choice_the_source_leaves_nothing(overflow: Any) -> None:
    shelf = Shelf(hot_and_others(60), claim=20)
    if overflow == "route":
        overflow = route(collect([]))
    _, numbers, waiting = worked_on(shelf, buffer=200, share=20, overflow=overflow)
    assert waiting == 0
    assert numbers["keys_left"] == 0


def test_the_source_is_found_behind_stages_that_learn_how_events_end() -> None:
    shelf = Shelf(hot_and_others(1000))
    before = ops.map(tuple), distinct_within(60, by=lambda event: event)
    _, numbers, waiting = worked_on(shelf, *before, buffer=200, share=50)
    assert waiting > 900
    assert numbers["keys_left"] == 1


def test_two_sources_of_a_key_both_leave_it() -> None:
    """The second is asked when its events come."""

    one, other = (Shelf([(HOT, n) for n in range(500)]) for _ in range(2))

    async def story() -> tuple[int, int]:
        async def work(event: Any) -> None:
            await asyncio.sleep(1)

        stream: Any = one.pipe(
            ops.merge(other),
            group_by(0, buffer=200, share=50),
            spread(),
            adaptive_flat_map(work, Fixed(20)),
        )
        async with stream.to(collect([])).start() as running:
            await asyncio.sleep(0.5)
            waiting = len(one.waiting), len(other.waiting)
            running.cancel()
        return waiting

    assert min(run_virtual(story())) > 300
    assert not +one.left
    assert not +other.left


def test_a_drain_leaves_it_there() -> None:
    shelf = Shelf([(HOT, n) for n in range(100)])

    async def story() -> list[Any]:
        done: list[Any] = []

        async def work(event: Any) -> None:
            await asyncio.sleep(1)
            done.append(event)

        stream: Any = shelf.pipe(
            group_by(0, buffer=40, share=10), spread(), adaptive_flat_map(work, Fixed(20))
        )
        running = stream.to(collect([])).start()
        await asyncio.sleep(3.5)
        await running.drain(100)
        return done

    done = run_virtual(story())
    assert 4 <= len(done) <= 13
    assert done + shelf.waiting == [(HOT, n) for n in range(100)]
    assert shelf.ledger.unsettled == []


@pytest.mark.parametrize("workers", [None, 2])
def test_what_goes_back_to_its_source_makes_room_for_the_rest_of_its_key(
    workers: int | None,
) -> None:
    """As when the leases of all rows that wait have run out."""
    shelf = Shelf([(HOT, n) for n in range(100)])

    async def story() -> list[Any]:
        done: list[Any] = []

        async def work(event: Any) -> None:
            await asyncio.sleep(1)
            done.append(event[1])

        stream: Any = shelf.pipe(
            group_by(0, buffer=40, share=10), spread(), adaptive_flat_map(work, Fixed(20), window=2)
        )
        crew = None if workers is None else LocalCrew(workers)
        async with stream.to(collect([])).start(workers=crew) as running:
            await asyncio.sleep(3.5)
            assert shelf.stage is not None
            shelf.stage.run.withdraw()
            await asyncio.sleep(100)
            assert running.statistics()["state"] == "closed"
        return done

    done = run_virtual(story())
    returned = shelf.ledger.ended(Ending.RETURNED)
    assert 2 <= len(returned) <= 10
    assert done == [n for n in range(100) if (HOT, n) not in returned]


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("overflow", ["wait", "spill"])
def test_of_a_partition_that_goes_elsewhere_no_event_begins_any_more(
    workers: int | None, overflow: Any
) -> None:
    shelf = Shelf([(HOT, n) for n in range(100)], claim=100)

    async def story() -> list[Any]:
        begun: list[Any] = []

        async def work(event: Any) -> None:
            begun.append(event[1])
            await asyncio.sleep(1)

        stream: Any = shelf.pipe(
            group_by(0, buffer=400, share=10, overflow=overflow),
            spread(),
            adaptive_flat_map(work, Fixed(20), window=20),
        )
        crew = None if workers is None else LocalCrew(workers)
        async with stream.to(collect([])).start(workers=crew) as running:
            await asyncio.sleep(3.5)
            stage = shelf.stage
            assert stage is not None
            stage.is_held = False
            stage.run.lessors.append(stage)
            stage.run.withdraw()
            await running.wait()
        return begun

    assert run_virtual(story()) == [0, 1, 2, 3]
    assert sorted(shelf.ledger.ended(Ending.FINISHED)) == [(HOT, n) for n in range(4)]
    assert sorted(shelf.ledger.ended(Ending.RETURNED)) == [(HOT, n) for n in range(4, 100)]


@given(
    keys=st.lists(st.sampled_from("aaaabbc"), max_size=60),
    buffer=st.integers(1, 12),
    share=st.integers(1, 12),
    claim=st.integers(1, 12),
    spill_events=st.integers(1, 40),
    limit=st.integers(1, 4),
    cut=st.none() | st.tuples(st.floats(0, 5), st.booleans()),
    batches=st.booleans(),
    gone=st.none() | st.floats(0, 3),
    workers=st.none() | st.integers(1, 3),
    seed=st.integers(0, 2**16),
)
def test_whatever_is_left_nothing_is_lost_doubled_or_overtaken(
    keys: list[str],
    buffer: int,
    share: int,
    claim: int,
    spill_events: int,
    limit: int,
    cut: tuple[float, bool] | None,
    batches: bool,
    gone: float | None,
    workers: int | None,
    seed: int,
) -> None:
    events = [(key, n) for n, key in enumerate(keys)]
    shelf = Shelf(events, claim)
    rng = random.Random(seed)
    started: list[Any] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()

        async def work(event: Any) -> Any:
            started.append(event)
            await asyncio.sleep(rng.choice([0, 0.1, rng.random()]))
            return event

        async def work_on_list(events: list[Any]) -> list[Any]:
            started.extend(events)
            await asyncio.sleep(rng.random() / 10)
            return events

        stage: Any = batch(work_on_list, 5) if batches else adaptive_flat_map(work, Fixed(limit))
        stream: Any = shelf.pipe(
            group_by(0, buffer=buffer, share=min(share, buffer), spill_events=spill_events),
            spread(),
            stage,
        )
        crew = None if workers is None else LocalCrew(workers)
        running = stream.to(collect([])).start(workers=crew)
        withdrawn = False
        for _ in range(1500):
            await asyncio.sleep(0.01)
            numbers = of_group_by(running)
            if workers is None:
                assert numbers["waiting"] <= numbers["peak"] <= buffer
                # Nothing is left for a key of which nothing waits.
                assert numbers["keys_left"] <= numbers["groups"]
            assert numbers["keys_left"] == len(+shelf.left)
            if running.statistics()["state"] == "closed":
                break
            if gone is not None and not withdrawn and loop.time() > gone:
                # As when the leases of all that waits of a key have run out.
                withdrawn = True
                assert shelf.stage is not None
                for withdraw in shelf.stage.run.withdrawals:
                    withdraw(lambda event: event.token[0] == "a")
            if cut is not None and loop.time() > cut[0]:
                if cut[1]:
                    running.cancel()
                else:
                    await running.drain(100)
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
    assert shelf.ledger.unsettled == []
    assert not +shelf.left
    ended = shelf.ledger.ended(Ending.FINISHED, Ending.RETURNED)
    assert sorted(ended + shelf.waiting) == sorted(events)
    if cut is None:
        assert shelf.waiting == []
    if cut is None and gone is None:
        assert sorted(shelf.ledger.ended(Ending.FINISHED)) == sorted(events)
