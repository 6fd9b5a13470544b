"""A broken limiter of the user's, or a broken callback for its changes."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock import adaptive_flat_map
from penstock.streams.base.errors import BadLimit, BuildError, HandlerCancelled
from penstock.streams.limits import Outcome, default
from penstock.streams.protocol.event import Ending
from penstock.streams.testing import CountedSource, MemorySink
from penstock.streams.testing.plugin import Run

NONSENSE = [0, -3, math.nan, math.inf, "8", 2.5, None, True]


class Limiter:
    """A limiter of 3 that breaks at its second completion."""

    def __init__(self) -> None:
        self.limit: Any = 3
        self.told = 0

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        self.told += 1
        if self.told == 2:
            self.breaks()

    def breaks(self) -> None:
        raise ZeroDivisionError("limiter")


class Nonsense(Limiter):
    """One that proposes an invalid limit."""

    def __init__(self, limit: Any) -> None:
        super().__init__()
        self._next = limit

    def breaks(self) -> None:
        self.limit = self._next


class Arrivals(Limiter):
    """One that breaks at an arrival, or at the completion of what arrived."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self._when = when

    def on_arrive(self) -> None:
        self.told += 1
        if self.told >= 5 and self._when == "arrival":
            self.breaks()

    def on_depart(self, now: float, arrived: float, in_flight: int, outcome: Outcome) -> None:
        if self._when == "departure":
            self.breaks()


class NoReason(Nonsense):
    @property
    def reason(self) -> str:
        if self.limit != 3:
            raise ZeroDivisionError("reason")
        return "start"


async def declared(value: int) -> int:
    return await asyncio.sleep(1 + value % 3, value)


def later(value: int) -> Any:
    return declared(value)


def stopped(run: Run, operator: Any) -> tuple[BaseException, dict[str, Any], list[int], list[str]]:
    """Run ten events to the error: the error, the statistics, the results, the returned events."""

    async def story() -> tuple[BaseException, dict[str, Any], list[int], list[str]]:
        source, sink = CountedSource(range(10)), MemorySink()
        running = source.pipe(operator).to(sink).start()
        with pytest.raises(Exception) as raised:  # noqa: PT011 - each test compares the error
            await running.wait()
        numbers = running.statistics()
        back = source.ledger.ended(Ending.RETURNED)
        assert sorted([*sink.values, *back]) == list(range(source.emitted))
        return raised.value, numbers, sink.values, raised.value.__notes__

    return run(story())


@pytest.mark.parametrize("handler", [later, declared], ids=["def", "async def"])
@pytest.mark.parametrize(
    "make",
    [Limiter, lambda: Arrivals("arrival"), lambda: Arrivals("departure")],
    ids=["completion", "arrival", "departure"],
)
def test_a_limiter_that_raises_is_named_and_what_is_in_flight_finishes(
    run: Run, make: Callable[[], Limiter], handler: Any
) -> None:
    limiter = make()
    error, numbers, values, notes = stopped(run, adaptive_flat_map(handler, limiter))
    assert isinstance(error, ZeroDivisionError)
    name = type(limiter).__name__
    assert notes == [f"in the limiter '{name}' of stage 2 'adaptive_flat_map'"]
    assert values
    assert (numbers["failed"], numbers["unfinished"]) == (0, 0)
    assert numbers["finished"] == len(values)


class Cancelled(Limiter):
    """One that breaks as if it had been cancelled."""

    def breaks(self) -> None:
        raise asyncio.CancelledError


@pytest.mark.parametrize("handler", [later, declared], ids=["def", "async def"])
def test_a_limiter_that_raises_a_cancellation_stops_the_pipeline_as_well(
    run: Run, handler: Any
) -> None:
    error, numbers, values, _ = stopped(run, adaptive_flat_map(handler, Cancelled()))
    assert isinstance(error, HandlerCancelled)
    assert str(error) == "the limiter 'Cancelled' was cancelled from inside"
    assert (numbers["failed"], numbers["unfinished"]) == (0, 0)
    assert numbers["finished"] == len(values)


@pytest.mark.parametrize("handler", [later, declared], ids=["def", "async def"])
@pytest.mark.parametrize("limit", NONSENSE, ids=str)
def test_a_limit_that_is_none_is_named_and_what_is_in_flight_finishes(
    run: Run, limit: Any, handler: Any
) -> None:
    error, numbers, values, notes = stopped(run, adaptive_flat_map(handler, Nonsense(limit)))
    assert isinstance(error, BadLimit)
    assert str(error) == (
        f"the limiter 'Nonsense' proposes {limit!r}; a limit is a whole number of at least 1"
    )
    assert notes == ["in the limiter 'Nonsense' of stage 2 'adaptive_flat_map'"]
    # Three calls were in flight at the second completion: itself, and two that may finish.
    assert len(values) == 4
    assert numbers["failed"] == 0
    assert numbers["stages"][1]["limit"] == 3


def test_a_reason_that_raises_is_named_too(run: Run) -> None:
    error, _, _, notes = stopped(run, adaptive_flat_map(declared, NoReason(5)))
    assert isinstance(error, ZeroDivisionError)
    assert notes == ["in the limiter 'NoReason' of stage 2 'adaptive_flat_map'"]


def test_a_broken_limiter_gets_no_more_completions(run: Run) -> None:
    limiter = Limiter()
    stopped(run, adaptive_flat_map(declared, limiter))
    assert limiter.told == 2


@pytest.mark.parametrize("reads", range(3, 9))
def test_a_limit_that_cannot_be_read_loses_no_call_that_has_just_begun(
    run: Run, reads: int
) -> None:
    class Unreadable(Limiter):
        def __init__(self) -> None:
            self.told = self.reads = 0

        @property
        def limit(self) -> int:  # type: ignore[override]
            self.reads += 1
            if self.reads > reads:
                raise ZeroDivisionError("limit")
            return 3

        def __deepcopy__(self, memo: object) -> Unreadable:
            return self

    limiter = Unreadable()
    operator = adaptive_flat_map(later, limiter)
    limiter.reads = 0
    error, numbers, values, _ = stopped(run, operator)
    assert isinstance(error, ZeroDivisionError)
    assert (numbers["failed"], numbers["unfinished"]) == (0, 0)
    assert numbers["finished"] == len(values)


def test_a_whole_number_of_another_kind_is_a_limit(run: Run) -> None:
    class Whole:
        def __index__(self) -> int:
            return 5

    async def story() -> None:
        flow = CountedSource(range(20)).pipe(adaptive_flat_map(declared, Nonsense(Whole())))
        async with flow.to(MemorySink()).start() as running:
            pass
        assert running.statistics()["limit"] == 5

    run(story())


@pytest.mark.parametrize("limit", NONSENSE, ids=str)
def test_a_limiter_that_begins_with_nonsense_is_refused_when_built(limit: Any) -> None:
    limiter = Limiter()
    limiter.limit = limit
    with pytest.raises(BuildError, match=r"the limiter 'Limiter' proposes .* of at least 1"):
        adaptive_flat_map(declared, limiter)


def test_a_limiter_that_cannot_be_copied_is_refused_when_built() -> None:
    limiter: Any = Limiter()
    limiter.lock = threading.Lock()
    with pytest.raises(BuildError, match="every run begins with its own copy"):
        adaptive_flat_map(declared, limiter)


def test_a_limiter_whose_limit_raises_is_refused_when_built() -> None:
    class Raising(Limiter):
        @property  # type: ignore[override]
        def limit(self) -> int:
            raise ZeroDivisionError("no limit yet")

        @limit.setter
        def limit(self, value: int) -> None: ...

    with pytest.raises(BuildError, match="no limit yet"):
        adaptive_flat_map(declared, Raising())


@pytest.mark.parametrize("bad", [3, "log", declared], ids=["number", "text", "async def"])
def test_what_cannot_listen_to_the_limit_or_judge_errors_is_refused_when_built(bad: Any) -> None:
    with pytest.raises(BuildError, match="give a plain function of the old limit"):
        adaptive_flat_map(declared, on_limit_change=bad)
    with pytest.raises(BuildError, match="give a plain function of the error, that says whether"):
        adaptive_flat_map(declared, overload=bad)


def test_a_limiter_may_say_that_it_has_no_reason(run: Run) -> None:
    limiter: Any = Nonsense(4)
    limiter.reason = None

    async def story() -> None:
        report = (
            await CountedSource(range(9))
            .pipe(adaptive_flat_map(declared, limiter))
            .to(MemorySink())
            .run()
        )
        assert (report.statistics["limit"], report.statistics["limit_reason"]) == (4, "")

    run(story())


# Times that make no sense.


class Jumping:
    """A handler during which the clock jumps ahead by a day, every third time."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, value: int) -> int:
        self.calls += 1
        if self.calls % 3 == 0:
            loop: Any = asyncio.get_running_loop()
            loop.advance(86_400.0)
        return await asyncio.sleep(0.1, value)


async def instant(value: int) -> int:
    return value


@pytest.mark.parametrize("handler", [Jumping(), instant], ids=["jumping", "instant"])
def test_a_clock_that_jumps_or_stands_still_loses_nothing_and_keeps_the_bounds(
    run: Run, handler: Any
) -> None:
    changes: list[int] = []

    def note(old: int, new: int, reason: str) -> None:
        changes.append(new)

    async def story() -> None:
        sink = MemorySink()
        # Eleven days are as far as a virtual clock goes by itself.
        flow = CountedSource(range(30 if handler is not instant else 3000)).pipe(
            adaptive_flat_map(handler, default(2, 20), on_limit_change=note)
        )
        report = await flow.to(sink).run()
        assert sorted(sink.values) == list(range(report.statistics["in"]))

    run(story())
    assert all(2 <= limit <= 20 for limit in changes)


def test_a_handler_that_always_fails_leaves_the_default_where_it_was(run: Run) -> None:
    async def fails(value: int) -> int:
        await asyncio.sleep(0.1)
        raise ValueError(value)

    async def story() -> None:
        flow = CountedSource(range(2000)).pipe(adaptive_flat_map(fails, on_error="skip"))
        report = await flow.to(MemorySink()).run()
        assert report.statistics["failed"] == 2000
        assert report.statistics["limit"] == default().limit

    run(story())


def test_a_handler_that_always_times_out_is_not_called_more(run: Run) -> None:
    async def hangs(value: int) -> int:
        return await asyncio.sleep(9, value)

    async def story() -> None:
        operator = adaptive_flat_map(hangs, timeout=1.0, on_error="skip")
        report = await CountedSource(range(300)).pipe(operator).to(MemorySink()).run()
        assert report.statistics["failed"] == 300
        assert report.statistics["limit"] <= default().limit

    run(story())
