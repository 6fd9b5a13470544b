from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from penstock import Backoff, batch, in_threads, retry, route
from penstock.streams.base.errors import BatchContractError, HandlerCancelled, HandlerTimeout
from penstock.streams.testing import MemorySink, MemorySource, VirtualTimeLoop, run_virtual
from penstock.streams.testing.plugin import Run


class Poison(Exception):
    """The error of a handler when a batch has a bad event."""


class Poisoned:
    """Raises for a batch with a bad event in it, as a transaction would."""

    def __init__(self, *poisonous: int, times: int = 10**9) -> None:
        self.calls: list[list[int]] = []
        self.done: list[int] = []
        self._left = dict.fromkeys(poisonous, times)

    async def __call__(self, values: list[int]) -> list[int]:
        self.calls.append(values)
        await asyncio.sleep(0.1)
        for value in values:
            if self._left.get(value):
                if len(values) == 1:
                    self._left[value] -= 1
                raise Poison(f"{value} is poisonous")
        self.done += values
        return values


def after_growing(poisonous: int) -> list[int]:
    """Enough events before and after a bad one for batches to be large."""
    return list(range(poisonous + 100))


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_failing_batch_is_halved_until_the_bad_event_is_alone(run: Run, is_plain: bool) -> None:
    handler, source, sink = Poisoned(500), MemorySource(after_growing(500)), MemorySink()

    def later(values: list[int]) -> Any:
        return handler(values)

    given: Any = later if is_plain else handler
    report = run(source.pipe(batch(given, on_error="skip")).to(sink).run())
    assert sorted(sink.values) == [n for n in range(600) if n != 500]
    assert source.acked[-1] == 599
    assert report.statistics["failed"] == 1
    sizes = [len(values) for values in handler.calls if 500 in values]
    assert sizes[0] > 32
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    # Two calls for each halving at most.
    assert len(sizes) <= sizes[0].bit_length() + 1


def test_nobody_is_worked_on_twice_for_the_poison_of_another(run: Run) -> None:
    handler = Poisoned(200, 205, 399)
    flow = MemorySource(range(500)).pipe(batch(handler, on_error="skip"))
    run(flow.to(MemorySink()).run())
    assert sorted(handler.done) == [n for n in range(500) if n not in (200, 205, 399)]


@drawn(st.sets(st.integers(0, 300)), st.integers(1, 3), st.sampled_from([1, 7, 64]))
def test_whatever_is_poisonous_all_others_succeed(
    poisonous: set[int], parallel: int, max_size: int
) -> None:
    handler, source, sink = Poisoned(*poisonous), MemorySource(range(301)), MemorySink()
    dead = MemorySink()
    work = batch(handler, max_size, parallel=parallel, on_error=route(dead))
    run_virtual(source.pipe(work).to(sink).run())
    assert sorted(sink.values) == [n for n in range(301) if n not in poisonous]
    assert sorted(letter.value for letter in dead.values) == sorted(poisonous)
    assert all(str(letter.error) == f"{letter.value} is poisonous" for letter in dead.values)
    assert sorted(source.acked) == list(range(301))


def test_an_exception_in_the_place_of_a_result_fails_that_event_only(run: Run) -> None:
    calls: Counter[int] = Counter()

    async def handler(values: list[int]) -> list[Any]:
        calls.update(values)
        return [Poison(n) if n % 10 == 3 else n for n in values]

    source, sink, dead = MemorySource(range(200)), MemorySink(), MemorySink()
    report = run(source.pipe(batch(handler, on_error=route(dead))).to(sink).run())
    assert sink.values == [n for n in range(200) if n % 10 != 3]
    assert [letter.value for letter in dead.values] == list(range(3, 200, 10))
    assert report.statistics["failed"] == 20
    assert set(calls.values()) == {1}


def test_by_default_the_poisonous_event_stops_the_pipeline_and_is_named(run: Run) -> None:
    handler, source, sink = Poisoned(250), MemorySource(range(1000)), MemorySink()
    with pytest.raises(Poison) as raised:
        run(source.pipe(batch(handler)).to(sink).run())
    assert raised.value.__notes__ == ["in stage 2 'batch', on the event 250"]
    assert source.failed == [250]
    # The events before it in its batch were done; none of those after it was begun.
    assert sink.values == list(range(250)) == source.acked
    assert handler.done == list(range(250))
    assert source.returned


def test_an_event_that_failed_is_tried_again_while_others_go_on(run: Run) -> None:
    handler, source, sink = Poisoned(100, times=2), MemorySource(range(400)), MemorySink()
    policy = retry(3, Backoff(0.3, jitter=0))
    run(source.pipe(batch(handler, on_error=policy)).to(sink).run())
    assert sorted(sink.values) == list(range(400))
    assert sink.values.index(100) > 101
    # Those of its first batch are never disturbed again: it is tried again alone.
    alone = [values for values in handler.calls if values == [100]]
    assert len(alone) == 3


def test_attempts_are_counted_for_the_event_that_fails_alone(run: Run) -> None:
    handler, dead = Poisoned(100), MemorySink()
    policy = retry(4, Backoff(0.3, jitter=0), then=route(dead))
    report = run(
        MemorySource(range(300)).pipe(batch(handler, on_error=policy)).to(MemorySink()).run()
    )
    assert [(letter.value, letter.attempts) for letter in dead.values] == [(100, 4)]
    assert report.statistics["stages"][1]["routed"] == 1
    assert sum(values == [100] for values in handler.calls) == 4


def test_when_everything_fails_for_a_while_all_of_it_is_tried_again(run: Run) -> None:
    async def handler(values: list[int]) -> list[int]:
        await asyncio.sleep(0.1)
        if asyncio.get_running_loop().time() < 20:
            raise Poison("the database is down")
        return values

    source, sink = MemorySource(range(500)), MemorySink()
    policy = retry(20, Backoff(1, 5))
    run(source.pipe(batch(handler, on_error=policy)).to(sink).run())
    assert sorted(sink.values) == list(range(500))
    assert sorted(source.acked) == list(range(500))


def test_a_batch_that_takes_too_long_is_halved_too(run: Run) -> None:
    async def handler(values: list[int]) -> list[int]:
        await asyncio.sleep(9 if 100 in values else 0.1)
        return values

    source, sink, dead = MemorySource(range(200)), MemorySink(), MemorySink()
    work = batch(handler, timeout=1, on_error=route(dead))
    run(source.pipe(work).to(sink).run())
    assert sorted(sink.values) == [n for n in range(200) if n != 100]
    assert [type(letter.error) for letter in dead.values] == [HandlerTimeout]


def test_calls_that_take_too_long_for_their_size_make_it_smaller(run: Run) -> None:
    calls: list[int] = []

    async def handler(values: list[int]) -> list[int]:
        calls.append(len(values))
        await asyncio.sleep(0.01 * len(values))
        return values

    source, sink = MemorySource(range(3000)), MemorySink()
    run(source.pipe(batch(handler, timeout=0.305)).to(sink).run())
    assert sorted(sink.values) == list(range(3000))
    assert sum(size > 30 for size in calls) <= 0.1 * len(calls)


@pytest.mark.parametrize("policy", ["skip", retry(3, then="skip")])
def test_a_wrong_number_of_results_fails_all_of_the_call_once(run: Run, policy: Any) -> None:
    calls: list[list[int]] = []

    async def handler(values: list[int]) -> list[int]:
        calls.append(values)
        await asyncio.sleep(0.1)
        return values[1:] if 50 in values else values

    source, sink = MemorySource(range(100)), MemorySink()
    report = run(source.pipe(batch(handler, on_error=policy)).to(sink).run())
    (lost,) = (values for values in calls if 50 in values)
    assert len(lost) > 1
    assert sorted([*sink.values, *lost]) == list(range(100))
    assert report.statistics["failed"] == len(lost)


def test_a_wrong_number_of_results_says_how_many_were_wanted(run: Run) -> None:
    dead = MemorySink()
    flow = MemorySource([1]).pipe(batch(lambda values: [1, 2], on_error=route(dead)))
    run(flow.to(MemorySink()).run())
    (letter,) = dead.values
    assert isinstance(letter.error, BatchContractError)
    assert "'<lambda>' returned 2 results for 1 event:" in str(letter.error)
    assert letter.error.__notes__ == ["in stage 2 'batch', on the event 1"]


def test_a_handler_cancelled_by_something_of_its_own_has_failed(run: Run) -> None:
    async def handler(values: list[int]) -> list[int]:
        if 3 in values:
            raise asyncio.CancelledError
        return values

    source, dead = MemorySource(range(10)), MemorySink()
    run(source.pipe(batch(handler, on_error=route(dead))).to(MemorySink()).run())
    assert [type(letter.error) for letter in dead.values] == [HandlerCancelled]
    assert sorted(source.acked) == list(range(10))


def test_results_of_gather_may_hold_the_cancellation_of_one(run: Run) -> None:
    async def one(value: int) -> int:
        if value == 3:
            raise asyncio.CancelledError
        return value

    async def handler(values: list[int]) -> list[Any]:
        return await asyncio.gather(*map(one, values), return_exceptions=True)

    dead, sink = MemorySink(), MemorySink()
    run(MemorySource(range(6)).pipe(batch(handler, on_error=route(dead))).to(sink).run())
    assert [(letter.value, type(letter.error)) for letter in dead.values] == [(3, HandlerCancelled)]
    assert sink.values == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_inside_a_call_ends_the_program_and_loses_nothing(
    kind: type[BaseException],
) -> None:
    source = MemorySource(range(4))

    def handler(values: list[int]) -> list[int]:
        if 2 in values:
            raise kind
        return values

    with pytest.raises(kind):
        run_virtual(source.pipe(batch(handler)).to(MemorySink()).run())
    assert source.acked == [0, 1]
    assert source.unsettled == []


def test_a_thread_past_its_time_keeps_its_place_until_it_has_ended(
    virtual_loop: VirtualTimeLoop,
) -> None:
    ended = threading.Event()

    def handler(values: list[int]) -> list[int]:
        if values == [1]:
            assert ended.wait(10)
        return values

    async def story() -> None:
        source = MemorySource([1, 2, 3])
        work = batch(in_threads(1)(handler), timeout=2, on_error="skip")
        async with source.pipe(work).to(MemorySink()).start() as running:
            await asyncio.sleep(5)
            stage = running.statistics()["stages"][1]
            assert (stage["stuck"], stage["calls"], stage["waiting"]) == (1, 1, 1)
            ended.set()
        assert source.acked == [1, 2, 3]

    virtual_loop.run_until_complete(story())


def test_what_fails_during_a_stop_with_attempts_left_is_given_back(run: Run) -> None:
    class Fatal(BaseException):
        pass

    async def handler(values: list[int]) -> list[int]:
        await asyncio.sleep(values[0])
        raise (Fatal if 1 in values else Poison)

    source = MemorySource([1, 2])
    operator = batch(handler, 1, parallel=2, on_error=retry(2, then="skip"))
    with pytest.raises(Fatal):
        run(source.pipe(operator).to(MemorySink()).run())
    assert (source.returned, source.failed, source.acked) == ([2], [1], [])


@pytest.mark.parametrize("obeys", [True, False])
def test_a_cancel_during_a_half_gives_back_the_other_half_too(run: Run, obeys: bool) -> None:
    calls: list[list[int]] = []

    async def handler(values: list[int]) -> list[int]:
        calls.append(values)
        await asyncio.sleep(0.1)
        if values[0] >= 20:
            if len(calls) == begun + 1:
                raise Poison
            with nullcontext() if obeys else suppress(asyncio.CancelledError):
                await asyncio.sleep(100)
        return values

    begun = 0

    async def story() -> None:
        nonlocal begun
        source = MemorySource(range(60))
        running = source.pipe(batch(handler, 8)).to(MemorySink()).start()
        while not any(values[0] >= 20 for values in calls):
            begun = len(calls)
            await asyncio.sleep(0.05)
        await asyncio.sleep(10)
        whole, half = calls[-2:]
        assert len(whole) > 1
        assert half == whole[: len(whole) // 2]
        running.cancel()
        await running.wait()
        assert calls[-1] is half
        assert set(whole) <= set(source.returned)
        assert source.unsettled == []

    run(story())


def test_a_batch_that_fails_after_an_error_is_given_back_without_its_halves_being_tried(
    run: Run,
) -> None:
    class Fatal(BaseException):
        pass

    calls: list[list[int]] = []

    async def handler(values: list[int]) -> list[int]:
        calls.append(values)
        number = len(calls)
        await asyncio.sleep(1 if number == 21 else 0.1)
        if number > 20:
            raise (Poison if number == 21 else Fatal)
        return values

    source = MemorySource(range(1000))
    with pytest.raises(Fatal):
        run(source.pipe(batch(handler, 8, parallel=2)).to(MemorySink()).run())
    late = calls[20]
    assert len(calls) == 22
    assert len(late) > 1
    assert set(late) <= set(source.returned)
    assert source.unsettled == []
