from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Backoff, Fixed, adaptive_flat_map, group_by, retry, route, spread
from penstock.streams.limits import Outcome
from penstock.streams.testing import MemorySink, MemorySource, Probe, run_virtual
from penstock.streams.testing.plugin import Run

EXACT = Backoff(first=1, cap=100, jitter=0)


class Flaky:
    """Fails the first `times` attempts at each value, each after `seconds`."""

    def __init__(self, failures: Callable[[int], int], seconds: float = 0) -> None:
        self.attempts: list[tuple[float, int]] = []
        self._failures = failures
        self._seconds = seconds
        self._failed: dict[int, int] = {}

    async def __call__(self, value: int) -> int:
        self.attempts.append((asyncio.get_running_loop().time(), value))
        await asyncio.sleep(self._seconds)
        return self.now(value)

    def now(self, value: int) -> int:
        failed = self._failed.get(value, 0)
        if failed < self._failures(value):
            self._failed[value] = failed + 1
            raise ValueError(f"{value}, attempt {failed + 1}")
        return value


@pytest.mark.parametrize("kind", ["async", "plain", "later"])
def test_retry_counts_attempts_in_all(run: Run, kind: str) -> None:
    flaky = Flaky(lambda _: 2)
    handler: Any = {"async": flaky, "plain": flaky.now, "later": lambda n: flaky(n)}[kind]
    source, sink = MemorySource([7]), MemorySink()
    operator = adaptive_flat_map(handler, Fixed(1), on_error=retry(3, EXACT))
    run(source.pipe(operator).to(sink).run())
    # Waits of 1 s after the first attempt, and of 2 s after the second.
    assert sink.accepted == [(3, 7)]
    assert source.acked == [7]


@pytest.mark.parametrize("kind", ["async", "plain", "later"])
def test_the_last_attempts_error_is_what_remains(run: Run, kind: str) -> None:
    flaky = Flaky(lambda _: 9)
    handler: Any = {"async": flaky, "plain": flaky.now, "later": lambda n: flaky(n)}[kind]
    source = MemorySource([7])
    operator = adaptive_flat_map(handler, Fixed(1), on_error=retry(3, EXACT))
    with pytest.raises(ValueError, match="7, attempt 3"):
        run(source.pipe(operator).to(MemorySink()).run())
    assert source.failed == [7]


@pytest.mark.parametrize("kind", ["async", "plain", "later"])
def test_attempts_after_the_first_are_counted_and_reported(run: Run, kind: str) -> None:
    flaky = Flaky(lambda value: value)
    handler: Any = {"async": flaky, "plain": flaky.now, "later": lambda n: flaky(n)}[kind]
    operator = adaptive_flat_map(handler, Fixed(2), on_error=retry(4, EXACT))
    report = run(MemorySource([0, 1, 2, 3]).pipe(operator).to(MemorySink()).run())
    assert report.statistics["stages"][1]["retries"] == 0 + 1 + 2 + 3
    assert "stage 2 'adaptive_flat_map': 6 retries" in str(report)


def test_one_attempt_is_not_a_retry(run: Run) -> None:
    flaky = Flaky(lambda _: 1)
    operator = adaptive_flat_map(flaky, Fixed(1), on_error=retry(1, then="skip"))
    report = run(MemorySource([7]).pipe(operator).to(MemorySink()).run())
    assert report.statistics["stages"][1]["skipped"] == 1
    assert report.statistics["stages"][1]["retries"] == 0
    assert len(flaky.attempts) == 1


@pytest.mark.parametrize("on", [LookupError, (OSError, LookupError), (OSError, TimeoutError)])
def test_only_errors_of_the_given_types_are_tried_again(run: Run, on: Any) -> None:
    attempts: list[str] = []

    async def fails(value: str) -> None:
        attempts.append(value)
        raise {"key": KeyError, "value": ValueError}[value](value)

    operator = adaptive_flat_map(fails, Fixed(2), on_error=retry(3, EXACT, then="skip", on=on))
    run(MemorySource(["key", "value"]).pipe(operator).to(MemorySink()).run())
    of_key = 3 if LookupError in (on if isinstance(on, tuple) else [on]) else 1
    assert (attempts.count("key"), attempts.count("value")) == (of_key, 1)


def test_a_timeout_can_be_told_from_other_errors(run: Run) -> None:
    attempts: list[str] = []

    async def handler(value: str) -> None:
        attempts.append(value)
        if value == "fails":
            raise ValueError
        await asyncio.sleep(9)

    policy = retry(2, EXACT, then="skip", on=TimeoutError)
    operator = adaptive_flat_map(handler, Fixed(2), timeout=1, on_error=policy)
    run(MemorySource(["fails", "is slow"]).pipe(operator).to(MemorySink()).run())
    assert sorted(attempts) == ["fails", "is slow", "is slow"]


def test_an_error_that_is_not_tried_again_does_not_hold_its_group_back(run: Run) -> None:
    handled: list[tuple[float, int]] = []

    def handler(value: int) -> int:
        if value == 1:
            raise KeyError(value)
        handled.append((asyncio.get_running_loop().time(), value))
        return value

    policy = retry(5, EXACT, then="skip", on=ConnectionError)
    stages = group_by(lambda _: "one"), spread(), adaptive_flat_map(handler, on_error=policy)
    run(MemorySource([1, 2]).pipe(*stages).to(MemorySink()).run())
    assert handled == [(0, 2)]


def test_a_letter_says_how_many_attempts_there_were(run: Run) -> None:
    dead = MemorySink()
    operator = adaptive_flat_map(
        Flaky(lambda _: 9), Fixed(1), on_error=retry(4, EXACT, then=route(dead))
    )
    run(MemorySource([7]).pipe(operator).to(MemorySink()).run())
    (letter,) = dead.values
    assert (letter.value, letter.attempts, str(letter.error)) == (7, 4, "7, attempt 4")


def test_a_waiting_event_takes_no_slot(run: Run) -> None:
    flaky = Flaky(lambda value: 1 if value == 0 else 0, seconds=0.25)
    sink = MemorySink()
    operator = adaptive_flat_map(flaky, Fixed(2), on_error=retry(2, EXACT))
    run(MemorySource(range(6)).pipe(operator).to(sink).run())
    assert flaky.attempts == [
        *[(0, 0), (0, 1)],
        *[(0.25, 2), (0.25, 3)],
        *[(0.5, 4), (0.5, 5)],
        (1.25, 0),
    ]


def test_a_waiting_event_keeps_its_turn(run: Run) -> None:
    flaky = Flaky(lambda value: 2 if value == 10 else 0, seconds=0.5)
    sink = MemorySink()
    flow = MemorySource([10, 11, 20, 21, 12]).pipe(
        group_by(lambda n: n // 10),
        spread(),
        adaptive_flat_map(flaky, Fixed(2), on_error=retry(3, EXACT)),
    )
    run(flow.to(sink).run())
    assert [value for _, value in sink.accepted if value < 20] == [10, 11, 12]
    # The other group is not held up.
    assert sink.accepted[:2] == [(0.5, 20), (1, 21)]


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("kind", ["async", "plain", "later"])
def test_once_as_many_as_the_limit_wait_nothing_new_begins(run: Run, limit: int, kind: str) -> None:
    tried: set[int] = set()

    async def handler(value: int) -> int:
        return now(value)

    def now(value: int) -> int:
        tried.add(value)
        if asyncio.get_running_loop().time() < 100:
            raise ValueError
        return value

    chosen: Any = {"async": handler, "plain": now, "later": lambda n: handler(n)}[kind]

    async def story() -> None:
        source, sink = MemorySource(range(20)), MemorySink()
        operator = adaptive_flat_map(chosen, Fixed(limit), on_error=retry(2, Backoff(200, 200)))
        async with source.pipe(operator).to(sink).start() as running:
            await asyncio.sleep(50)
            stage = running.statistics()["stages"][1]
            # With the calls that had begun before so many had failed.
            assert limit <= stage["retrying"] == len(tried) < 2 * limit
            assert stage["in_flight"] == 0
        assert sorted(sink.values) == list(range(20))

    run(story())


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 3), st.floats(0.1, 3)), max_size=20),
    st.booleans(),
    st.integers(0, 99),
)
def test_whatever_fails_the_bounds_hold_and_nothing_is_lost(
    limit: int, plan: list[tuple[int, float]], ordered: bool, seed: int
) -> None:
    failures = {value: times for value, (times, _) in enumerate(plan)}
    open_calls = 0
    stages: list[dict[str, Any]] = []

    async def handler(value: int) -> int:
        nonlocal open_calls
        open_calls += 1
        assert open_calls <= limit
        await asyncio.sleep(plan[value][1])
        open_calls -= 1
        if failures[value]:
            failures[value] -= 1
            raise ValueError
        return value

    async def story() -> None:
        source, sink = MemorySource(range(len(plan))), MemorySink()
        policy = retry(3, Backoff(1, 4, jitter=1, seed=seed), then="skip")
        operator = adaptive_flat_map(handler, Fixed(limit), ordered=ordered, on_error=policy)
        async with source.pipe(operator).to(sink).start() as running:
            await asyncio.sleep(0)
            while running.statistics()["state"] == "running":
                stages.append(running.statistics()["stages"][1])
                await asyncio.sleep(0.25)
        survivors = [value for value, (times, _) in enumerate(plan) if times < 3]
        assert (sink.values if ordered else sorted(sink.values)) == survivors
        assert sorted(source.acked) == list(range(len(plan)))

    run_virtual(story())
    assert all(stage["in_flight"] <= limit for stage in stages)
    assert all(stage["in_flight"] + stage["retrying"] < 2 * limit for stage in stages)


@pytest.mark.parametrize("kind", ["async", "later"])
@pytest.mark.parametrize("ordered", [False, True])
def test_an_attempt_begins_only_where_there_is_room_for_its_result(
    run: Run, kind: str, ordered: bool
) -> None:
    async def story() -> None:
        flaky = Flaky(lambda n: 1 if n == 3 else 0, 0.1)
        handler: Any = {"async": flaky, "later": lambda n: flaky(n)}[kind]
        policy = retry(2, EXACT)
        operator = adaptive_flat_map(handler, Fixed(2), window=2, ordered=ordered, on_error=policy)
        probe = Probe[int](request=1)
        MemorySource(range(20)).pipe(operator).connect(probe)
        await asyncio.sleep(5)
        # Where there is no order four results wait: as many as the limit and the window.
        tried = [value for _, value in flaky.attempts]
        assert tried == [0, 1, 2, 3, 4, 5] + [3] * ordered
        probe.request(1)
        await asyncio.sleep(5)
        assert 3 in [value for _, value in flaky.attempts[6:]]
        probe.request(18)
        await asyncio.sleep(30)
        assert sorted(probe.values) == list(range(20))

    run(story())


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("request_", [1, 1000])
def test_no_more_results_than_the_limit_and_the_window_wait_behind_an_event_that_is_tried_again(
    run: Run, kind: str, request_: int
) -> None:
    async def story() -> None:
        flaky = Flaky(lambda n: int(n == 0))
        handler: Any = {"async": flaky, "plain": flaky.now}[kind]
        policy = retry(2, Backoff(first=100, cap=100, jitter=0))
        operator = adaptive_flat_map(handler, Fixed(3), window=2, ordered=True, on_error=policy)
        source, probe = MemorySource(range(50)), Probe[int](request=request_)
        source.pipe(operator).connect(probe)
        await asyncio.sleep(5)
        # And the event that is tried again.
        assert len(source.unsettled) == 6
        probe.request(50)
        await asyncio.sleep(200)
        assert probe.values == list(range(50))

    run(story())


def test_a_drain_lets_waiting_events_be_tried_again(run: Run) -> None:
    async def story() -> None:
        source, sink = MemorySource(range(9)), MemorySink()
        operator = adaptive_flat_map(Flaky(lambda _: 1), Fixed(2), on_error=retry(2, EXACT))
        async with source.pipe(operator).to(sink).start() as running:
            await asyncio.sleep(0.5)
            await running.drain(10)
        # 2 had been taken in the place of the first that failed.
        assert sorted(sink.values) == sorted(source.acked) == [0, 1, 2]

    run(story())


@pytest.mark.parametrize("ordered", [False, True])
def test_a_stop_gives_waiting_events_back_at_once(run: Run, ordered: bool) -> None:
    async def handler(value: int) -> int:
        await asyncio.sleep(value)
        if value == 0:
            raise KeyError
        if value == 1:
            raise asyncio.CancelledError
        return value

    policy = retry(2, Backoff(1000, 1000))
    source, sink = MemorySource([0, 3, 1]), MemorySink()

    class Fatal(BaseException):
        pass

    async def fatal(value: int) -> int:
        if value == 1:
            await asyncio.sleep(1)
            raise Fatal
        return await handler(value)

    operator = adaptive_flat_map(fatal, Fixed(3), ordered=ordered, on_error=policy)
    with pytest.raises(Fatal):
        run(source.pipe(operator).to(sink).run())
    assert (source.returned, source.failed) == ([0], [1])
    assert sink.accepted == [(3, 3)]


@pytest.mark.parametrize("then", ["stop", "skip", "revert"])
def test_what_fails_during_a_stop_with_attempts_left_is_given_back(
    run: Run, then: Literal["stop", "skip", "revert"]
) -> None:
    class Broken:
        limit = 3

        def on_complete(
            self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
        ) -> None:
            raise ZeroDivisionError

    async def handler(value: int) -> int:
        await asyncio.sleep(value)
        raise ValueError(value)

    source = MemorySource([1, 2, 3])
    operator = adaptive_flat_map(handler, Broken(), on_error=retry(2, EXACT, then))
    with pytest.raises(ZeroDivisionError):
        run(source.pipe(operator).to(MemorySink()).run())
    assert (source.returned, source.failed, source.acked) == ([1, 2, 3], [], [])


def test_a_cancel_gives_waiting_events_back(run: Run) -> None:
    async def story() -> None:
        source = MemorySource(range(9))
        operator = adaptive_flat_map(Flaky(lambda _: 1), Fixed(2), on_error=retry(2, EXACT))
        running = source.pipe(operator).to(MemorySink()).start()
        await asyncio.sleep(0.5)
        running.cancel()
        await running.wait()
        assert sorted(source.returned) == [0, 1, 2]

    run(story())


# Back-off.


@given(st.integers(1, 10**9), st.floats(0, 1e3), st.floats(0, 1e6), st.floats(0, 1), st.integers())
def test_a_wait_is_within_its_cap_however_many_attempts_there_were(
    attempts: int, first: float, more: float, jitter: float, seed: int
) -> None:
    backoff = Backoff(first, first + more, jitter)
    delay = backoff.delay(attempts, random.Random(seed))
    assert 0 <= delay <= backoff.cap
    assert delay >= min(backoff.cap, first) * (1 - jitter) - 1e-9


def test_waits_double_up_to_the_cap() -> None:
    backoff = Backoff(first=0.5, cap=10, jitter=0)
    rng = random.Random(0)
    assert [backoff.delay(n, rng) for n in range(1, 8)] == [0.5, 1, 2, 4, 8, 10, 10]


def test_jitter_comes_from_its_seed() -> None:
    def delays(seed: int) -> list[tuple[float, int]]:
        flaky = Flaky(lambda _: 4)
        policy = retry(5, Backoff(1, 100, jitter=1, seed=seed))
        operator = adaptive_flat_map(flaky, Fixed(4), on_error=policy)
        run_virtual(MemorySource(range(4)).pipe(operator).to(MemorySink()).run())
        return flaky.attempts

    assert delays(1) == delays(1)
    assert delays(1) != delays(2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: retry(0),
        lambda: retry(True),
        lambda: Backoff(first=-1),
        lambda: Backoff(first=2, cap=1),
        lambda: Backoff(jitter=1.5),
    ],
)
def test_policies_that_make_no_sense_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="needed"):
        make()
