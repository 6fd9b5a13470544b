"""`overload=` may return the seconds for which no call begins."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from penstock import Fixed, adaptive_flat_map, from_iterable, retry
from penstock.streams.base.errors import BadOverload, DrainTimeout
from penstock.streams.limits import Limiter, Shared, default
from penstock.streams.testing import MemorySink, MemorySource
from penstock.streams.testing.plugin import Run


class Refused(Exception):
    """Come back later."""


Handler = Callable[[int], Any]


def refusing(begun: list[tuple[float, int]], plain: bool) -> Handler:
    """Refuses 2 once; records when each call begins."""
    refused: list[int] = []

    def handler(number: int) -> int:
        begun.append((asyncio.get_running_loop().time(), number))
        if number == 2 and not refused:
            refused.append(number)
            raise Refused
        return number

    async def later(number: int) -> int:
        result = handler(number)
        await asyncio.sleep(1)
        return result

    return handler if plain else later


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("limit", [Fixed(2), default(2, 2), Shared(Fixed(2))])
def test_after_a_number_of_seconds_from_overload_no_call_begins_for_so_long(
    run: Run, plain: bool, limit: Limiter
) -> None:
    begun, sink = list[tuple[float, int]](), MemorySink()
    operator = adaptive_flat_map(
        refusing(begun, plain), limit, on_error=retry(3), overload=lambda error: 7
    )
    source = MemorySource(range(6))
    run(source.pipe(operator).to(sink).run())
    refused_at = next(time for time, number in begun if number == 2)
    later = [time for time, _ in begun[begun.index((refused_at, 2)) + 1 :]]
    assert min(later) == refused_at + 7
    assert sorted(value for _, value in sink.accepted) == list(range(6))


@pytest.mark.parametrize(("seconds", "held"), [(0, 0), (0.5, 0.5), (3600, 60), (math.inf, 60)])
def test_the_seconds_are_capped_at_sixty(run: Run, seconds: float, held: float) -> None:
    begun, sink = list[tuple[float, int]](), MemorySink()
    operator = adaptive_flat_map(
        refusing(begun, plain=False), Fixed(1), on_error="skip", overload=lambda error: seconds
    )
    run(MemorySource(range(4)).pipe(operator).to(sink).run())
    assert begun == [(0, 0), (1, 1), (2, 2), (2 + held, 3)]


def test_of_two_hold_backs_the_one_that_lasts_longer_counts(run: Run) -> None:
    begun = list[float]()

    async def handler(seconds: int) -> None:
        begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1)
        if seconds:
            raise Refused(seconds)

    operator = adaptive_flat_map(
        handler, Fixed(2), on_error="skip", overload=lambda error: float(error.args[0])
    )
    run(MemorySource([9, 3, 0]).pipe(operator).to(MemorySink()).run())
    assert begun == [0, 0, 10]


def test_stages_that_share_a_limit_hold_back_together(run: Run) -> None:
    async def story() -> None:
        limit, begun = Shared(Fixed(4)), list[float]()

        async def refuse(number: int) -> None:
            await asyncio.sleep(0.5)
            raise Refused

        async def work(number: int) -> None:
            begun.append(asyncio.get_running_loop().time())
            await asyncio.sleep(1)

        one = adaptive_flat_map(refuse, limit, on_error="skip", overload=lambda error: 10)
        other = adaptive_flat_map(work, limit, on_error="skip")
        await asyncio.gather(
            MemorySource(range(1)).pipe(one).to(MemorySink()).run(),
            MemorySource(range(8)).pipe(other).to(MemorySink()).run(),
        )
        assert {time for time in begun if time > 0} <= {time for time in begun if time >= 10.5}
        assert len(begun) == 8

    run(story())


@pytest.mark.parametrize("answer", [-1, math.nan, "5", b"", [], object()])
def test_what_is_neither_a_bool_nor_seconds_stops_the_pipeline_by_name(
    run: Run, answer: Any
) -> None:
    operator = adaptive_flat_map(
        refusing([], plain=False), Fixed(1), on_error="skip", overload=lambda error: answer
    )
    with pytest.raises(BadOverload, match="overload= returned") as raised:
        run(MemorySource(range(4)).pipe(operator).to(MemorySink()).run())
    assert raised.value.__notes__ == [
        "in the function given as overload= of stage 2 'adaptive_flat_map'"
    ]


def test_the_statistics_say_for_how_long_it_holds_back(run: Run) -> None:
    async def story() -> None:
        operator = adaptive_flat_map(
            refusing([], plain=False), Fixed(1), on_error="skip", overload=lambda error: 30
        )
        running = MemorySource(range(4)).pipe(operator).to(MemorySink()).start()
        await asyncio.sleep(2.5)
        numbers = running.statistics()
        stage = next(stage for stage in numbers["stages"] if "held_back" in stage)
        assert (stage["held_back"], numbers["limit_reason"]) == (29.5, "holding back")
        await running.wait()

    run(story())


def test_a_cancel_does_not_wait_for_the_end_of_a_hold_back(run: Run) -> None:
    async def story() -> None:
        source = MemorySource(range(9))
        operator = adaptive_flat_map(
            refusing([], plain=False), Fixed(1), on_error=retry(3), overload=lambda error: 60
        )
        running = source.pipe(operator).to(MemorySink()).start()
        await asyncio.sleep(3)
        running.cancel()
        await running.wait()
        assert asyncio.get_running_loop().time() == 3
        assert source.unsettled == []

    run(story())


def test_a_drain_finishes_what_a_hold_back_keeps_waiting_or_gives_it_back_at_its_deadline(
    run: Run,
) -> None:
    async def story(deadline: float) -> float:
        source = MemorySource(range(9))
        operator = adaptive_flat_map(
            refusing([], plain=False), Fixed(1), on_error=retry(3), overload=lambda error: 20
        )
        running = source.pipe(operator).to(MemorySink()).start()
        await asyncio.sleep(3)
        began = asyncio.get_running_loop().time()
        with suppress(DrainTimeout):
            await running.drain(deadline)
        assert source.unsettled == []
        return asyncio.get_running_loop().time() - began

    assert run(story(100)) == pytest.approx(20)
    assert run(story(5)) == pytest.approx(5)


def test_a_plain_handler_is_drawn_as_one_at_a_time() -> None:
    async def later(number: int) -> int:
        return number

    notes = [
        from_iterable([1]).pipe(adaptive_flat_map(handler)).info.note for handler in (str, later)
    ]
    assert notes == ["1 at once, 256 results", "1 to 1,000 at once, 256 results"]
