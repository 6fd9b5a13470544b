"""Calls that end quickly: a slot goes on with the next event before the results are flushed."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from penstock import Fixed, adaptive_flat_map, for_each, from_iterable, group_by, spread
from penstock.streams.limits import Outcome
from penstock.streams.testing import CountedSource, MemorySource, run_virtual

# Ten calls of a slot in a millisecond.
QUICK = 0.0001


class Called:
    """A handler that takes as long as `seconds(value)`; notes when its calls began and ended."""

    def __init__(self, seconds: Any = lambda _: QUICK) -> None:
        self._seconds = seconds
        self.open = self.peak = 0
        self.began: dict[Any, float] = {}
        self.ended: dict[Any, float] = {}

    async def __call__(self, value: Any) -> Any:
        loop = asyncio.get_running_loop()
        self.began[value] = loop.time()
        self.open += 1
        self.peak = max(self.peak, self.open)
        try:
            await asyncio.sleep(self._seconds(value))
        finally:
            self.open -= 1
        self.ended[value] = loop.time()
        return value


def test_results_of_quick_calls_are_sent_on_within_a_millisecond_of_their_ends() -> None:
    handler = Called(lambda n: 10.0 if n == 60 else QUICK)
    arrived: dict[int, float] = {}

    def arrive(value: int) -> None:
        arrived[value] = asyncio.get_running_loop().time()

    flow = from_iterable(range(100)).pipe(adaptive_flat_map(handler, Fixed(1)))
    run_virtual(flow.to(for_each(arrive)).run())
    assert list(arrived) == list(range(100))
    delays = [arrived[n] - handler.ended[n] for n in range(100)]
    assert 0.0005 < max(delays) <= 0.001 + 1e-9


def test_quick_calls_are_never_more_at_once_than_the_limit() -> None:
    for limit in (1, 3):
        handler = Called()
        flow = from_iterable(range(300)).pipe(adaptive_flat_map(handler, Fixed(limit)))
        run_virtual(flow.to(for_each(lambda _: None)).run())
        assert handler.peak == limit


def test_a_slot_goes_on_with_the_next_event_when_a_quick_call_has_ended() -> None:
    handler = Called()
    flow = from_iterable(range(200)).pipe(adaptive_flat_map(handler, Fixed(1)))
    run_virtual(flow.to(for_each(lambda _: None)).run())
    idle = [handler.began[n + 1] - handler.ended[n] for n in range(199)]
    assert max(idle) < 1e-9


def test_no_more_events_are_requested_than_may_begin_where_calls_take_a_millisecond() -> None:
    source = CountedSource(range(40))
    handler = Called(lambda _: 0.001)
    most = 0

    def look(_: int) -> None:
        nonlocal most
        most = max(most, source.emitted - len(handler.ended))

    flow = source.pipe(adaptive_flat_map(handler, Fixed(2)))
    run_virtual(flow.to(for_each(look)).run())
    assert most <= 2


def test_quick_calls_of_a_group_are_in_turn_and_its_results_in_order() -> None:
    handler = Called(lambda n: QUICK * (1 + n % 3))
    results: list[int] = []
    flow = from_iterable(range(400)).pipe(
        group_by(lambda n: n % 7), spread(), adaptive_flat_map(handler, Fixed(3))
    )
    run_virtual(flow.to(for_each(results.append)).run())
    for key in range(7):
        of_key = [n for n in results if n % 7 == key]
        assert of_key == sorted(of_key)
        for one, following in pairwise(of_key):
            assert handler.ended[one] <= handler.began[following] + 1e-12


def test_what_was_requested_ahead_is_returned_on_cancel() -> None:
    source = MemorySource(range(1000))
    handler = Called(lambda n: 10.0 if n == 100 else QUICK)

    async def story() -> dict[str, Any]:
        pipeline = source.pipe(adaptive_flat_map(handler, Fixed(2))).to(for_each(lambda _: None))
        running = pipeline.start()
        await asyncio.sleep(0.2)
        assert running.statistics()["stages"][1]["in_flight"] <= 2
        running.cancel()
        await running.wait()
        return running.statistics()

    numbers = run_virtual(story())
    assert numbers["unfinished"] == 0
    assert sorted([*source.acked, *source.returned]) == list(range(numbers["in"]))
    assert numbers["returned"] >= 1


def test_after_an_error_no_event_that_was_requested_ahead_begins() -> None:
    source = MemorySource(range(1000))
    begun: list[int] = []

    async def handler(n: int) -> int:
        begun.append(n)
        await asyncio.sleep(QUICK)
        if n == 100:
            raise ValueError(n)
        return n

    async def story() -> None:
        pipeline = source.pipe(adaptive_flat_map(handler, Fixed(1))).to(for_each(lambda _: None))
        try:
            await pipeline.run()
        except ValueError:
            return
        raise AssertionError("it did not fail")

    run_virtual(story())
    assert begun == list(range(101))
    assert source.failed == [100]
    assert source.acked == list(range(100))
    assert source.unsettled == []


def test_a_call_that_asks_to_hold_back_lets_no_event_begin_that_was_requested_ahead() -> None:
    began: dict[int, float] = {}
    failed = 0.0

    async def handler(n: int) -> int:
        nonlocal failed
        loop = asyncio.get_running_loop()
        began[n] = loop.time()
        await asyncio.sleep(QUICK * (1 + n % 3))
        if n == 100:
            failed = loop.time()
            raise ValueError(n)
        return n

    flow = from_iterable(range(200)).pipe(
        adaptive_flat_map(handler, Fixed(3), on_error="skip", overload=lambda _: 5.0)
    )
    run_virtual(flow.to(for_each(lambda _: None)).run())
    assert [n for n, at in began.items() if failed < at < failed + 5.0] == []
    assert len(began) == 200


class Falling:
    """A limit of 5 that falls to 1 after 100 calls."""

    limit = 5
    reason = "as written"
    ended = 0

    def on_complete(self, now: float, started: float, in_flight: int, outcome: Outcome) -> None:
        self.ended += 1
        if self.ended >= 100:
            self.limit = 1


def test_a_limit_that_falls_holds_for_events_that_were_requested_ahead() -> None:
    limiter, open_at_start = Falling(), []
    calls = Called(lambda n: QUICK * (1 + n % 3))
    changed: list[float] = []

    async def handler(n: int) -> Any:
        if changed:
            open_at_start.append(calls.open)
        return await calls(n)

    flow = from_iterable(range(400)).pipe(
        adaptive_flat_map(
            handler,
            limiter,
            on_limit_change=lambda *_: changed.append(asyncio.get_running_loop().time()),
        )
    )
    run_virtual(flow.to(for_each(lambda _: None)).run())
    assert len(open_at_start) > 200
    assert set(open_at_start) == {0}
