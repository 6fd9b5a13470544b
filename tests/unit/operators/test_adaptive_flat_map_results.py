from __future__ import annotations

import asyncio
from typing import Any

import pytest
from reactivex import operators as rx

from penstock import Fixed, Flowable, adaptive_flat_map, from_iterable, group_by, spread
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.stages.own import Stage
from penstock.streams.testing import CountedSource, MemorySink, MemorySource, Probe
from penstock.streams.testing.plugin import Run


async def nothing(_: int) -> None:
    return None


def at_once(_: int) -> None:
    return None


async def none_later(_: int) -> None:
    await asyncio.sleep(1)


@pytest.mark.parametrize("handler", [nothing, at_once, none_later, lambda n: nothing(n)])
@pytest.mark.parametrize("ordered", [False, True])
def test_none_is_a_result_like_any_other(run: Run, handler: Any, ordered: bool) -> None:
    source, sink = MemorySource(range(3)), MemorySink()
    run(source.pipe(adaptive_flat_map(handler, Fixed(2), ordered=ordered)).to(sink).run())
    assert sink.values == [None, None, None]
    assert source.acked == [0, 1, 2]


# Delivery.


def test_many_waiting_results_do_not_nest_when_a_reader_asks_one_by_one(run: Run) -> None:
    async def story() -> None:
        probe = Probe[int](on_event=lambda probe, _: probe.request(1))
        source = CountedSource(range(5000))
        # The filter requests one more inside each value that it drops.
        source.pipe(
            adaptive_flat_map(nothing_but, Fixed(900), window=5000), rx.filter(lambda n: n > 4990)
        ).connect(probe)
        await asyncio.sleep(1)
        probe.request(1)
        await asyncio.sleep(1)
        assert sorted(probe.values) == list(range(4991, 5000))

    run(story())


async def nothing_but(value: int) -> int:
    return value


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("handler", [nothing_but, lambda n: n, lambda n: nothing_but(n)])
def test_nothing_is_emitted_that_was_not_asked_for(run: Run, handler: Any, ordered: bool) -> None:
    async def story() -> None:
        probe = Probe[int](request=2)
        flow = CountedSource(range(50)).pipe(adaptive_flat_map(handler, Fixed(9), ordered=ordered))
        flow.connect(probe)
        for wanted in (2, 3, 10):
            await asyncio.sleep(1)
            assert len(probe.values) == wanted
            probe.request({2: 1, 3: 7, 10: 100}[wanted])
        await asyncio.sleep(1)
        assert sorted(probe.values) == list(range(50))
        assert probe.completed

    run(story())


class Asked(Stage[int, int]):
    """Records requests."""

    def __init__(self, downstream: Subscriber[int], requests: list[int]) -> None:
        super().__init__(downstream)
        self._requests = requests

    def request(self, n: int, /) -> None:
        self._requests.append(n)
        super().request(n)


def test_places_that_become_free_in_one_loop_iteration_are_asked_for_at_once(run: Run) -> None:
    requests: list[int] = []
    source = from_iterable(range(1000))
    asked = Flowable[int](
        lambda downstream, run: source.attach(Asked(downstream, requests), run),
        StageInfo("asked"),
        source,
    )
    sink = MemorySink()
    run(asked.pipe(adaptive_flat_map(nothing_later, Fixed(100))).to(sink).run())
    assert sink.values == list(range(1000))
    assert requests == [100] * 10


async def nothing_later(value: int) -> int:
    await asyncio.sleep(1)
    return value


@pytest.mark.parametrize("by", [lambda n: n % 10, None])
def test_calls_that_never_wait_keep_no_more_results_than_the_window(run: Run, by: Any) -> None:
    waiting: list[int] = []
    sink = MemorySink()

    async def work(value: int) -> int:
        stage = running.statistics()["stages"][-2]
        waiting.append(stage["undelivered"])
        return value

    source = from_iterable(range(1000))
    flow: Any = source if by is None else source.pipe(group_by(by), spread())

    async def story() -> None:
        nonlocal running
        running = flow.pipe(adaptive_flat_map(work, Fixed(1), window=20)).to(sink).start()
        await running.wait()

    running: Any = None
    run(story())
    assert len(sink.values) == 1000
    assert max(waiting) <= 20


def test_leaving_the_iteration_early_gives_back_what_was_in_flight(run: Run) -> None:
    async def story() -> None:
        source = MemorySource(range(50))
        values = source.pipe(adaptive_flat_map(none_later, Fixed(3)))
        iterator = aiter(values)
        await anext(iterator)
        await iterator.aclose()  # type: ignore[attr-defined]
        assert source.acked == []
        assert len(source.returned) >= 3
        assert source.unsettled == []

    run(story())


def test_take_ends_calls_that_are_not_wanted_any_more(run: Run) -> None:
    ended: list[int] = []

    async def handler(value: int) -> int:
        try:
            await asyncio.sleep(value)
        finally:
            ended.append(value)
        return value

    source, sink = MemorySource([1, 2, 30, 40]), MemorySink()
    for one in (handler, lambda n: handler(n)):
        ended.clear()
        source, sink = MemorySource([1, 2, 30, 40]), MemorySink()
        run(source.pipe(adaptive_flat_map(one, Fixed(4)), rx.take(2)).to(sink).run())
        assert sink.values == [1, 2]
        assert sorted(ended) == [1, 2, 30, 40]
        assert source.acked == [1, 2]


def test_a_plain_handler_is_lazy_without_a_loop() -> None:
    called: list[int] = []

    def handler(value: int) -> int:
        called.append(value)
        return value

    probe = Probe[int]()
    from_iterable(range(9)).pipe(adaptive_flat_map(handler)).connect(probe)
    assert called == []
    probe.request(2)
    assert called == [0, 1]


def test_a_call_that_is_cancelled_before_its_first_step_is_given_back(run: Run) -> None:
    async def never(_: int) -> None:
        raise AssertionError("it must not begin")

    async def story() -> None:
        source = MemorySource([1, 2])
        running = (
            source.pipe(adaptive_flat_map(lambda n: never(n), Fixed(1))).to(MemorySink()).start()
        )
        # Right after the stream has begun, before the first step of the call.
        asyncio.get_running_loop().call_soon(running.cancel)
        await running.wait()
        assert source.returned == [1]

    run(story())
