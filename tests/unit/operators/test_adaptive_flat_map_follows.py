"""How a stage follows a limit that moves, and how it reports that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Fixed, Running, adaptive_flat_map, group_by, in_processes, in_threads, spread
from penstock.streams.base.errors import BuildError
from penstock.streams.limits import Outcome, default
from penstock.streams.testing import CountedSource, MemorySink, VirtualTimeLoop, run_virtual
from penstock.streams.testing.plugin import Run


class Scripted:
    """A limiter that takes the next limit of a list at each completion."""

    def __init__(self, *limits: int) -> None:
        self.limit, *self._next = limits
        self.reason = "as written"
        self.in_flight: list[int] = []

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        self.in_flight.append(in_flight_at_start)
        if self._next:
            self.limit = self._next.pop(0)


class Dependency:
    """Counts its open calls, each of which takes a second by default."""

    def __init__(self, seconds: Callable[[Any], float] = lambda _: 1.0) -> None:
        self.open = self.peak = self.cancelled = 0
        self._seconds = seconds

    async def __call__(self, value: Any) -> Any:
        self.open += 1
        self.peak = max(self.peak, self.open)
        try:
            await asyncio.sleep(self._seconds(value))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.open -= 1
        return value

    def later(self, value: Any) -> Any:
        """The same for a handler that only begins its work."""
        return self(value)


KINDS = pytest.mark.parametrize("kind", ["async", "def", "timeout", "ordered"])


def follows(dependency: Dependency, limiter: Any, kind: str) -> Any:
    handler = dependency.later if kind == "def" else dependency.__call__
    return adaptive_flat_map(
        handler,
        limiter,
        timeout=99 if kind == "timeout" else None,
        ordered=kind == "ordered",
    )


@KINDS
def test_a_limit_shrinks_and_grows_under_load_and_cancels_nothing(run: Run, kind: str) -> None:
    dependency = Dependency(lambda n: 1 + n / 100)
    # From 8 to 2 with the first to end; six more must end before anything begins.
    limiter = Scripted(8, 2, 2, 2, 2, 2, 2, 2, 2, 2, 5)

    async def story() -> None:
        sink = MemorySink()
        flow = CountedSource(range(40)).pipe(follows(dependency, limiter, kind))
        seen: list[tuple[int, int]] = []
        async with flow.to(sink).start() as running:
            await asyncio.sleep(0)
            while (numbers := running.statistics())["finished"] < 40:
                seen.append((numbers["limit"], dependency.open))
                await asyncio.sleep(0.005)
        assert (8, 8) in seen
        assert (2, 7) in seen
        assert (2, 2) in seen
        assert (5, 5) in seen
        assert dependency.peak == 8
        assert sorted(sink.values) == list(range(40))

    run(story())
    assert dependency.cancelled == 0


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=60),
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=60, max_size=60),
    st.sampled_from(["async", "def", "timeout"]),
)
def test_the_source_is_asked_for_no_more_than_the_highest_limit_since_the_event_before(
    limits: list[int], seconds: list[float], kind: str
) -> None:
    """Back-pressure: the unfinished events of the source are within the limit."""
    limiter = Scripted(*limits)
    over: list[int] = []

    def source() -> Any:
        for n in range(60):
            # This one is on its way too. What is above a limit that fell began before it fell.
            unfinished = n + 1 - len(limiter.in_flight)
            if unfinished > limiter.limit:
                over.append(n)
            yield n

    dependency = Dependency(lambda n: seconds[n])
    flow = CountedSource(source()).pipe(follows(dependency, limiter, kind))
    run_virtual(flow.to(MemorySink()).run())
    assert over == []


def test_what_may_begin_and_has_not_waits_again_when_the_limit_falls(run: Run) -> None:
    """The first call fails before the others, which may begin with it, have their slots."""
    service = Dependency()

    async def handler(value: int) -> int:
        if value == 0:
            raise ValueError("refused")
        return int(await service(value))

    operator = adaptive_flat_map(handler, Scripted(3, 1), on_error="skip")
    sink = MemorySink()
    run(CountedSource(range(4)).pipe(operator).to(sink).run())
    assert service.peak == 1
    assert sink.values == [1, 2, 3]


def test_turns_and_the_limit_compose_and_the_limiter_knows_that_it_was_not_used(run: Run) -> None:
    limiter, dependency = Scripted(40), Dependency()

    async def story() -> None:
        flow = CountedSource(range(500)).pipe(
            group_by(lambda n: n % 10), spread(), adaptive_flat_map(dependency, limiter)
        )
        async with flow.to(MemorySink()).start() as running:
            await asyncio.sleep(3.5)
            assert running.statistics()["in_flight"] == 10
            assert running.statistics()["limit"] == 40

    run(story())
    assert dependency.peak == 10
    assert set(limiter.in_flight) <= set(range(1, 11))
    assert len(limiter.in_flight) == 500


def test_the_default_does_not_grow_beyond_what_busy_groups_can_use(run: Run) -> None:
    async def story() -> None:
        flow = CountedSource(range(20_000)).pipe(
            group_by(lambda n: n % 10), spread(), adaptive_flat_map(Dependency())
        )
        report = await flow.to(MemorySink()).run()
        assert 10 <= report.statistics["limit"] <= 20

    run(story())


def test_bounds_hold_whatever_pays(run: Run) -> None:
    limits: list[int] = []

    async def story() -> None:
        # Forty servers: the default alone would pass the ceiling.
        flow = CountedSource(range(3000)).pipe(
            adaptive_flat_map(
                Dependency(), (3, 12), on_limit_change=lambda old, new, why: limits.append(new)
            )
        )
        report = await flow.to(MemorySink()).run()
        assert report.statistics["limit"] == 12

    run(story())
    assert set(limits) <= set(range(3, 13))


def test_each_stage_of_a_pipeline_follows_its_own_limiter(run: Run) -> None:
    first, second = Scripted(7), Scripted(3)
    slow, slower = Dependency(), Dependency(lambda _: 2.0)

    async def story() -> None:
        flow = CountedSource(range(60)).pipe(
            adaptive_flat_map(slow, first, window=4), adaptive_flat_map(slower, second)
        )
        async with flow.to(MemorySink()).start() as running:
            await asyncio.sleep(0.5)
            stages = running.statistics()["stages"]
            assert [stage.get("limit") for stage in stages] == [None, 7, 3, None]
            running.retune(Fixed(5), 3)

    run(story())
    assert (slow.peak, slower.peak) == (7, 5)
    assert max(first.in_flight) == 7


# Threads and processes.


class Together:
    """A limiter that gets from the pool how long each call took, among how many."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.told: list[tuple[float, int, Outcome]] = []

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        self.told.append((now - started, in_flight_at_start, outcome))


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_calls_in_a_pool_are_measured_as_those_of_an_async_handler(
    virtual_loop: VirtualTimeLoop, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = virtual_loop

    class Pool(Executor):
        """One worker, which takes two seconds per call; both kinds of pool look like this."""

        free_at = 0.0

        def submit(self, function: Any, /, *args: Any) -> Any:
            call: Future[Any] = Future()
            self.free_at = max(loop.time(), self.free_at) + 2
            loop.call_at(self.free_at, lambda: call.set_result(function(*args)))
            return call

    wrapped: Any = {"threads": in_threads, "processes": in_processes}[kind](1)(abs)
    monkeypatch.setattr(wrapped, "_make_pool", Pool)
    limiter = Together(3)
    flow = CountedSource(range(3)).pipe(adaptive_flat_map(wrapped, limiter))
    loop.run_until_complete(flow.to(MemorySink()).run())
    # One worker: each call waits for those before it, and the limiter sees that it does.
    assert [took for took, _, _ in limiter.told] == [2, 4, 6]
    assert [among for _, among, _ in limiter.told] == [1, 2, 3]
    assert {outcome for _, _, outcome in limiter.told} == {Outcome.SUCCESS}


# Reports of changes.


@pytest.mark.parametrize("kind", ["async", "def"])
def test_each_change_is_reported_with_the_previous_limit_and_the_reason(
    run: Run, kind: str
) -> None:
    changes: list[tuple[int, int, str]] = []
    handler = Dependency() if kind == "async" else Dependency().later

    def tell(old: int, new: int, reason: str) -> None:
        changes.append((old, new, reason))

    async def story() -> None:
        flow = CountedSource(range(12)).pipe(
            adaptive_flat_map(handler, Scripted(2, 2, 4, 4, 3), on_limit_change=tell)
        )
        async with flow.to(MemorySink()).start() as running:
            await asyncio.sleep(0.5)
            assert changes == []
            await asyncio.sleep(1)
            numbers = running.statistics()["stages"][1]
            assert (numbers["limit"], numbers["limit_reason"]) == (4, "as written")
            await asyncio.sleep(1)
            running.retune(Fixed(9))
            running.retune(Fixed(9))
            numbers = running.statistics()["stages"][1]
            assert (numbers["limit"], numbers["limit_reason"]) == (9, "retuned")

    run(story())
    assert changes == [(2, 4, "as written"), (4, 3, "as written"), (3, 9, "retuned")]


def test_the_defaults_own_reasons_are_reported_and_each_change_begins_where_the_last_ended(
    run: Run,
) -> None:
    changes: list[tuple[int, int, str]] = []

    async def story() -> None:
        flow = CountedSource(range(600)).pipe(
            adaptive_flat_map(Dependency(), on_limit_change=lambda *change: changes.append(change))
        )
        report = await flow.to(MemorySink()).run()
        assert changes[-1][1:] == (report.statistics["limit"], report.statistics["limit_reason"])

    run(story())
    assert changes[0][0] == default().limit
    assert [old for old, _, _ in changes[1:]] == [new for _, new, _ in changes[:-1]]
    assert all(reason for _, _, reason in changes)


def test_an_error_of_a_callback_is_named_and_calls_in_flight_finish(run: Run) -> None:
    def tell(old: int, new: int, reason: str) -> None:
        raise ZeroDivisionError(f"{old} to {new}")

    async def story() -> None:
        source, sink = CountedSource(range(30)), MemorySink()
        running = source.pipe(adaptive_flat_map(Dependency(), Scripted(3, 5), on_limit_change=tell))
        handle = running.to(sink).start()
        with pytest.raises(ZeroDivisionError, match="3 to 5") as raised:
            await handle.wait()
        assert raised.value.__notes__ == [
            "in the function given as on_limit_change= of stage 2 'adaptive_flat_map'"
        ]
        assert len(sink.values) == 3
        assert handle.statistics()["failed"] == 0

    run(story())


@pytest.mark.parametrize("action", ["retune", "cancel", "drain", "pause"])
@KINDS
def test_a_callback_may_control_the_running(run: Run, action: str, kind: str) -> None:
    handles: list[Running] = []
    dependency = Dependency()

    def tell(old: int, new: int, reason: str) -> None:
        handle = handles[0]
        if action == "retune":
            if reason != "retuned":
                handle.retune(Fixed(9))
        elif action == "cancel":
            handle.cancel()
        elif action == "drain":
            handle.begin_drain()
        else:
            handle.pause()
            handle.resume()

    async def story() -> None:
        source, sink = CountedSource(range(40)), MemorySink()
        operator = adaptive_flat_map(
            dependency.later if kind == "def" else dependency,
            Scripted(3, 5),
            on_limit_change=tell,
            timeout=99 if kind == "timeout" else None,
            ordered=kind == "ordered",
        )
        handles.append(source.pipe(operator).to(sink).start())
        report = await handles[0].wait()
        numbers = report.statistics
        assert numbers["unfinished"] == 0
        assert numbers["in"] == numbers["finished"] + numbers["returned"]
        expected = {"retune": 40, "pause": 40, "cancel": 0, "drain": 3}[action]
        assert numbers["finished"] == expected or action == "drain"
        assert dependency.peak == {"retune": 9, "cancel": 3, "drain": 3, "pause": 5}[action]

    run(story())


def test_a_limit_that_may_be_anything_is_drawn_as_what_its_limiter_says() -> None:
    limiter: Any = Scripted(3)
    limiter.floor, limiter.ceiling = "low", float("inf")
    (_, stage, _) = (
        CountedSource([]).pipe(adaptive_flat_map(Dependency(), limiter)).to(MemorySink()).describe()
    )
    assert stage.bound is None
    assert stage.note.startswith("as many at once as its limiter says")


def test_a_retuned_limiter_that_begins_with_nonsense_is_refused(run: Run) -> None:
    async def story() -> None:
        flow = CountedSource(range(3)).pipe(adaptive_flat_map(Dependency(), Fixed(1)))
        async with flow.to(MemorySink()).start() as running:
            await asyncio.sleep(0.5)
            with pytest.raises(BuildError, match="proposes 0"):
                running.retune(Scripted(0))
            assert running.statistics()["limit"] == 1

    run(story())
