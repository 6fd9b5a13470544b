"""What passes between a parent and its workers: how much at once, and how much is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock import (
    Fixed,
    Flowable,
    adaptive_flat_map,
    collect,
    from_async_iterable,
    from_iterable,
    ops,
)
from penstock.streams.limits import Outcome
from penstock.streams.pipelines.running import Report, Running
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.own import SourceStage
from penstock.streams.testing.loop import VirtualTimeLoop, run_virtual
from penstock.streams.workers.messages import Ended, Events, Over, Room
from penstock.streams.workers.placement import section_of
from tests.helpers.local_workers import LocalCrew


def run_with(crew: LocalCrew, stream: Flowable[Any], beside: Any = None) -> Report:
    async def main() -> Report:
        async with stream.to(collect([])).start(workers=crew) as running:
            if beside is not None:
                await beside(running)
            return await running.wait()

    return run_virtual(main())


def of_kind(messages: list[Any], kind: type) -> list[Any]:
    return [message for message in messages if isinstance(message, kind)]


def test_events_that_a_stage_drops_one_by_one_are_settled_by_few_messages() -> None:
    crew = LocalCrew(1)
    stream = from_iterable(range(500)).pipe(
        adaptive_flat_map(lambda value: value), ops.flat_map(lambda value: [])
    )
    report = run_with(crew, stream)
    assert report.statistics["dropped"] == {"flat_map": 500}
    _, up = crew.messages(0)
    assert 1 <= len(of_kind(up, Over)) <= len(of_kind(crew.messages(0)[0], Events)) + 1


def test_room_for_more_results_comes_with_the_next_events() -> None:
    crew = LocalCrew(1)
    run_with(crew, from_iterable(range(5_000)).pipe(adaptive_flat_map(lambda value: value)))
    down, up = crew.messages(0)
    results = sum(len(message.numbers) for message in of_kind(up, Ended))
    with_events = sum(message.room for message in of_kind(down, Events))
    alone = sum(message.n for message in of_kind(down, Room))
    assert results == 5_000
    # The last results make room that nothing needs.
    assert with_events + alone >= results - 2 * 256
    assert with_events >= 1_000
    assert len(of_kind(down, Room)) < len(of_kind(up, Ended))


def test_a_worker_sends_results_while_it_has_room_for_more() -> None:
    def handler(value: int) -> int:
        # So long that 250 of them are a slice of the worker's loop.
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.advance(0.00002)
        return value

    crew = LocalCrew(1)
    run_with(crew, from_iterable(range(2_000)).pipe(adaptive_flat_map(handler, window=128)))
    most = max(len(message.numbers) for message in of_kind(crew.messages(0)[1], Ended))
    # Half of the room, which is two windows, and those that ended in the same millisecond.
    assert 128 <= most <= 128 + 50


class Slow(SourceStage[int]):
    """Emits one event in a millisecond, however many are requested."""

    most = 0

    def produce(self) -> None:
        unsettled = self.received - self._finished
        Slow.most = max(Slow.most, self.demand + unsettled)
        self.run.call_later(0.001, self.info, self._one)

    def _one(self) -> None:
        self.emit(self.received, self.run.now())
        if self.received == 300:
            self.complete()
        else:
            self.wake()


async def often() -> AsyncIterator[int]:
    for value in range(250):
        yield value
        await asyncio.sleep(0.0001)


def test_events_for_a_worker_without_a_free_slot_are_sent_together() -> None:
    async def handler(value: int) -> int:
        await asyncio.sleep(1)
        return value

    async def look(_: Running) -> None:
        # The last event came after 25 ms, and none waits for more than one.
        await asyncio.sleep(0.0261)
        sent.extend(crew.values(0))

    crew, sent = LocalCrew(1), list[int]()
    stream = from_async_iterable(often).pipe(adaptive_flat_map(handler, limit=Fixed(2)))
    run_with(crew, stream, look)
    assert sent == list(range(250))
    # The first two can begin.
    messages = of_kind(crew.messages(0)[0], Events)
    assert [len(message.values) for message in messages[:2]] == [1, 1]
    assert len(messages) <= 28


def test_an_event_that_a_worker_can_begin_does_not_wait_for_others() -> None:
    async def handler(value: int) -> int:
        begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1)
        return value

    async def noted() -> AsyncIterator[int]:
        async for value in often():
            came.append(asyncio.get_running_loop().time())
            yield value

    begun, came = list[float](), list[float]()
    stream = from_async_iterable(noted).pipe(adaptive_flat_map(handler, limit=Fixed(250)))
    run_with(LocalCrew(1), stream)
    assert begun == came


def test_a_worker_that_has_results_gets_its_next_events_at_once() -> None:
    async def handler(value: int) -> int:
        await asyncio.sleep(0.0001)
        return value

    stream = from_iterable(range(500)).pipe(adaptive_flat_map(handler, limit=Fixed(1), window=7))
    report = run_with(LocalCrew(1, lambda: 0.0002), stream)
    # It is never without an event. The crew takes 50 ms to close.
    assert report.statistics["seconds"] < 500 * 0.0001 + 0.05 + 0.005


def test_what_was_requested_and_has_not_come_counts_against_the_bound() -> None:
    def attach(downstream: Subscriber[int], run: Run) -> None:
        Slow(downstream, run, slow.info).start()

    slow: Flowable[int] = Flowable(attach, StageInfo("slow"))
    stream = slow.pipe(adaptive_flat_map(lambda value: value, window=8))
    Slow.most = 0
    report = run_with(LocalCrew(2), stream)
    assert report.statistics["finished"] == 300
    bound = section_of(stream.chain()).bound()
    assert bound is not None
    assert 0 < Slow.most <= bound


def test_a_worker_gets_many_events_at_once_again_when_those_of_a_dead_one_have_ended() -> None:
    crew = LocalCrew(1)

    async def two_waves() -> AsyncIterator[int]:
        for value in range(10):
            yield value
        await asyncio.sleep(10)
        for value in range(10, 60):
            yield value

    async def handler(value: int) -> int:
        await asyncio.sleep(0.1)
        return value

    async def kill(_: Running) -> None:
        await asyncio.sleep(0.05)
        crew.kill(0)

    stream = from_async_iterable(two_waves).pipe(adaptive_flat_map(handler, limit=Fixed(50)))
    report = run_with(crew, stream, kill)
    assert report.statistics["finished"] == 60
    down, _ = crew.messages(0)
    again, later = [], []
    for message in of_kind(down, Events):
        (again if message.values[0] < 10 else later).append(len(message.values))
    assert again == [1] * 10
    # It did not wait for the end of each before it got the next.
    assert report.statistics["seconds"] < 10 + 10 * 0.1 + 2
    assert sum(later) == 50


def test_a_worker_gets_many_events_at_once_again_when_those_of_a_dead_one_are_withdrawn() -> None:
    crew = LocalCrew(1)

    async def two_waves() -> AsyncIterator[int]:
        for value in range(10):
            yield value
        await asyncio.sleep(10)
        for value in range(10, 60):
            yield value

    async def handler(value: int) -> int:
        await asyncio.sleep(0.1)
        return value

    async def meddle(running: Running) -> None:
        await asyncio.sleep(0.05)
        crew.kill(0)
        await asyncio.sleep(0.25)
        # As when another process has their partition.
        running._run.withdraw(lambda event: event.value > 5)

    stream = from_async_iterable(two_waves).pipe(adaptive_flat_map(handler, limit=Fixed(50)))
    report = run_with(crew, stream, meddle)
    assert report.statistics["returned"] == 4
    down, _ = crew.messages(0)
    later = [len(message.values) for message in of_kind(down, Events) if message.values[0] >= 10]
    assert sum(later) == 50
    assert max(later) > 1


def test_a_worker_in_place_of_a_dead_one_gets_events_again_after_a_limit_without_it() -> None:
    crew = LocalCrew(2)

    async def two_waves() -> AsyncIterator[int]:
        for value in range(20):
            yield value
        await asyncio.sleep(10)
        for value in range(20, 120):
            yield value

    async def handler(value: int) -> int:
        await asyncio.sleep(0.1)
        return value

    async def meddle(running: Running) -> None:
        await asyncio.sleep(0.05)
        crew.kill(1)
        await asyncio.sleep(0.05)
        # What the dead worker had goes to the other one.
        running.retune(Fixed(1))
        await asyncio.sleep(5)
        running.retune(Fixed(2))

    stream = from_async_iterable(two_waves).pipe(adaptive_flat_map(handler, limit=Fixed(2)))
    report = run_with(crew, stream, meddle)
    assert report.statistics["finished"] == 120
    later = [sum(value >= 20 for value in crew.values(worker)) for worker in (0, 1)]
    assert later == [50, 50]


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_report_their_calls_to_a_limiter_that_learns_after_a_fixed_one(
    workers: int,
) -> None:
    class Four:
        limit = 4
        reason = "a test"

        def on_complete(self, now: float, started: float, level: int, outcome: Outcome) -> None:
            levels.append(level)

    async def handler(value: int) -> int:
        await asyncio.sleep(0.01)
        return value

    async def retune(running: Running) -> None:
        await asyncio.sleep(0.1)
        # As many slots as before: nothing but what is reported changes.
        running.retune(Four())

    levels: list[int] = []
    stream = from_iterable(range(400)).pipe(adaptive_flat_map(handler, limit=Fixed(4)))
    report = run_with(LocalCrew(workers), stream, retune)
    assert report.statistics["finished"] == 400
    assert len(levels) > 300
