"""Several stages that call one dependency, under one limit."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Subject
from reactivex import operators as rx

from penstock import (
    Backoff,
    Fixed,
    Flowable,
    HillClimb,
    Shared,
    adaptive_flat_map,
    buffer,
    from_iterable,
    group_by,
    retry,
    spread,
)
from penstock.streams.base.errors import BadLimit, BuildError
from penstock.streams.limits import Outcome
from penstock.streams.testing import CountedSource, MemorySink, VirtualTimeLoop, run_virtual
from penstock.streams.testing.plugin import Run


class Dependency:
    """Counts its open calls, and records who began which in which order."""

    def __init__(self, seconds: Callable[[Any], float] = lambda _: 1.0) -> None:
        self.open = self.peak = 0
        self.began: list[str] = []
        self._seconds = seconds

    def caller(self, name: str, kind: str = "async") -> Any:
        async def call(value: Any) -> Any:
            self.began.append(name)
            self.open += 1
            self.peak = max(self.peak, self.open)
            try:
                await asyncio.sleep(self._seconds(value))
            finally:
                self.open -= 1
            return value

        async def rows(value: Any) -> Any:
            yield await call(value)

        def at_once(value: Any) -> Any:
            assert self.open < 9
            return value

        return {"async": call, "def": lambda v: call(v), "rows": rows, "at once": at_once}[kind]


class Scripted:
    """Takes the next limit of a list at each completion."""

    reason = "as written"

    def __init__(self, *limits: Any) -> None:
        self.limit, *self._next = limits
        self.told: list[int] = []

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        self.told.append(in_flight_at_start)
        if self._next:
            self.limit = self._next.pop(0)


async def together(*flows: Any) -> list[MemorySink]:
    """Run pipelines concurrently to their ends."""
    sinks = [MemorySink() for _ in flows]
    await asyncio.gather(*(flow.to(sink).run() for flow, sink in zip(flows, sinks, strict=True)))
    return sinks


KIND = st.sampled_from(["async", "def", "at once", "rows", "ordered", "timeout", "retry"])


def stage(dependency: Dependency, shared: Shared, kind: str) -> Any:
    call = dependency.caller(kind, kind if kind in ("async", "def", "at once", "rows") else "async")
    failed: set[Any] = set()

    async def fails_once(value: Any) -> Any:
        await call(value)
        if value % 3 == 0 and value not in failed:
            failed.add(value)
            raise ValueError(value)
        return value

    return adaptive_flat_map(
        fails_once if kind == "retry" else call,
        shared,
        ordered=kind == "ordered",
        timeout=99 if kind == "timeout" else None,
        on_error=retry(2) if kind == "retry" else "stop",
        window=4,
    )


@given(
    st.integers(1, 5),
    st.lists(st.lists(KIND, min_size=1, max_size=3), min_size=1, max_size=3),
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=12, max_size=12),
    st.booleans(),
)
def test_the_sum_in_flight_of_all_stages_obeys_the_limit(
    limit: int, pipelines: list[list[str]], seconds: list[float], keyed: bool
) -> None:
    dependency, shared = Dependency(lambda n: seconds[n]), Shared(Fixed(limit))

    def flow(kinds: list[str]) -> Any:
        # Only the last may give iterators: see below.
        kinds = [kind if kind != "rows" else "async" for kind in kinds[:-1]] + kinds[-1:]
        stages = [stage(dependency, shared, kind) for kind in kinds]
        turns = [group_by(lambda n: n % 3), spread()] if keyed else []
        return CountedSource(range(12)).pipe(*turns, *stages)

    sinks = run_virtual(together(*(flow(kinds) for kinds in pipelines)))
    for sink in sinks:
        assert sorted(sink.values) == list(range(12))
    assert dependency.peak <= limit
    assert (shared.in_flight, shared.free) == (0, limit)


def test_the_limiter_hears_of_the_calls_of_all(run: Run) -> None:
    dependency, limiter = Dependency(), Scripted(6)
    shared = Shared(limiter)

    async def story() -> None:
        await together(
            CountedSource(range(2)).pipe(adaptive_flat_map(dependency.caller("a"), shared)),
            CountedSource(range(30)).pipe(adaptive_flat_map(dependency.caller("b"), shared)),
        )

    run(story())
    assert sorted(limiter.told[:6]) == [1, 2, 3, 4, 5, 6]
    assert limiter.told.count(6) >= 20
    assert len(limiter.told) == 32
    assert dependency.peak == 6


def test_a_limiter_of_arrivals_can_be_shared(run: Run) -> None:
    dependency, shared = Dependency(), Shared(HillClimb(exploration_rate=1.0, seed=3, ceiling=5))

    async def story() -> None:
        a, b = await together(
            *(
                CountedSource(range(40)).pipe(adaptive_flat_map(dependency.caller(name), shared))
                for name in "ab"
            )
        )
        assert sorted(a.values) == sorted(b.values) == list(range(40))

    run(story())
    assert 2 <= dependency.peak <= 5


@pytest.mark.parametrize("kinds", [("async", "async"), ("async", "def"), ("def", "def", "async")])
@pytest.mark.parametrize("limit", [1, 4, 7])
def test_stages_with_work_take_turns(run: Run, limit: int, kinds: tuple[str, ...]) -> None:
    dependency, shared = Dependency(), Shared(Fixed(limit))

    async def story() -> None:
        flows = [
            CountedSource(range(1000)).pipe(
                adaptive_flat_map(dependency.caller(str(n), kind), shared)
            )
            for n, kind in enumerate(kinds)
        ]
        async with asyncio.timeout(60.5):
            await together(*flows)

    with pytest.raises(TimeoutError):
        run(story())
    began = dependency.began[limit:]
    assert len(began) >= 59 * limit
    shares = [began.count(str(n)) for n in range(len(kinds))]
    assert max(shares) - min(shares) <= 1


def test_the_default_finds_what_the_dependency_bears_for_all_that_use_it(run: Run) -> None:
    """Separate limits would each see the load of the other as the dependency's weakness."""
    servers, shared = asyncio.Semaphore(16), Shared()
    done: list[tuple[str, float]] = []

    def caller(name: str) -> Any:
        draw = random.Random(name)

        async def call(value: int) -> None:
            began = asyncio.get_running_loop().time()
            async with servers:
                await asyncio.sleep(draw.gammavariate(1 / 0.09, 0.05 * 0.09))
            done.append((name, asyncio.get_running_loop().time() - began))

        return call

    async def story() -> None:
        flows = [from_iterable(count()).pipe(adaptive_flat_map(caller(n), shared)) for n in "ab"]
        runnings = [flow.to(MemorySink()).start() for flow in flows]
        await asyncio.sleep(5)
        done.clear()
        await asyncio.sleep(10)
        for running in runnings:
            running.cancel()
            await running.wait()

    run(story())
    shares = Counter(name for name, _ in done)
    # They could do 16 / 0.05 s per second, and a call alone takes 0.05 s.
    assert len(done) > 0.8 * 3200
    assert sum(seconds for _, seconds in done) / len(done) < 2 * 0.05
    assert abs(shares["a"] - shares["b"]) < 0.05 * len(done)


def test_one_that_comes_later_waits_for_one_call_and_leaves_all_when_it_is_done(run: Run) -> None:
    dependency, shared = Dependency(), Shared(Fixed(3))
    late = CountedSource(range(2)).pipe(adaptive_flat_map(dependency.caller("late"), shared))

    async def story() -> None:
        busy = CountedSource(range(60)).pipe(adaptive_flat_map(dependency.caller("busy"), shared))
        async with busy.to(MemorySink()).start():
            await asyncio.sleep(3.5)
            await late.to(MemorySink()).run()
            # At 4 s three slots are free: one for each, and one for who came first.
            assert asyncio.get_running_loop().time() == 6.0
            await asyncio.sleep(0.5)
            assert dependency.open == shared.in_flight == 3

    run(story())
    assert "late" in dependency.began[12:15]


def test_a_source_is_asked_for_what_there_is_room_for_and_for_one(run: Run) -> None:
    dependency, shared = Dependency(), Shared(Fixed(5))
    first, second = CountedSource(range(99)), CountedSource(range(99))

    async def story() -> None:
        async with (
            first.pipe(adaptive_flat_map(dependency.caller("a"), shared))
            .to(MemorySink())
            .start() as a
        ):
            await asyncio.sleep(0.25)
            assert first.emitted == 5 + 1
            b = second.pipe(adaptive_flat_map(dependency.caller("b"), shared)).to(MemorySink())
            async with b.start() as running:
                await asyncio.sleep(0.25)
                assert second.emitted == 1
                running.cancel()
            a.cancel()

    run(story())
    assert (shared.in_flight, shared.free) == (0, 5)


def test_two_stages_of_one_pipeline_share_a_limit_of_one(run: Run) -> None:
    dependency, shared = Dependency(), Shared(Fixed(1))

    async def story() -> None:
        (sink,) = await together(
            CountedSource(range(9)).pipe(
                adaptive_flat_map(dependency.caller("read"), shared, window=2),
                rx.map(lambda n: n + 1),
                adaptive_flat_map(dependency.caller("write"), shared),
            )
        )
        assert sorted(sink.values) == list(range(1, 10))

    run(story())
    assert dependency.peak == 1


def test_a_change_of_the_limit_is_reported_to_all_that_share_it(run: Run) -> None:
    dependency = Dependency()
    shared = Shared(Scripted(2, 2, 6, 6, 6, 6, 6, 6, 3))
    told: dict[str, list[tuple[int, int, str]]] = {"a": [], "b": []}

    def flow(name: str) -> Any:
        return CountedSource(range(40)).pipe(
            adaptive_flat_map(
                dependency.caller(name),
                shared,
                on_limit_change=lambda *change: told[name].append(change),
            )
        )

    async def story() -> None:
        async with flow("a").to(MemorySink()).start(), flow("b").to(MemorySink()).start():
            await asyncio.sleep(1.5)
            assert dependency.open == 6
            # The sixth of them has said so, with those of its stage; the other's had begun before.
            await asyncio.sleep(1)
            assert dependency.open == 3
            await asyncio.sleep(1)
            assert dependency.open == 3

    run(story())
    assert told["a"] == told["b"] == [(2, 6, "as written"), (6, 3, "as written")]


def test_the_statistics_count_a_shared_limit_once(run: Run) -> None:
    dependency, shared = Dependency(), Shared(Fixed(4))

    async def story() -> None:
        flow = CountedSource(range(40)).pipe(
            adaptive_flat_map(dependency.caller("a"), shared),
            adaptive_flat_map(dependency.caller("b"), shared),
            adaptive_flat_map(dependency.caller("c"), Scripted(3)),
        )
        async with flow.to(MemorySink()).start() as running:
            await asyncio.sleep(1.5)
            numbers = running.statistics()
            assert (numbers["limit"], numbers["limit_reason"]) == (4 + 3, "fixed; as written")
            first, second, alone = numbers["stages"][1:4]
            assert (first["limit"], second["limit"]) == (4, 4)
            assert first["shared"] == second["shared"]
            assert first["shared"] == {"number": shared.number, "in_flight": 4, "stages": 2}
            assert first["in_flight"] + second["in_flight"] == 4
            assert alone["shared"] is None

    run(story())


def test_what_was_learnt_stays_from_running_to_running(run: Run) -> None:
    limiter = Scripted(1, 2, 3)
    shared = Shared(limiter)
    pipeline = (
        CountedSource(range(4))
        .pipe(adaptive_flat_map(Dependency().caller("a"), shared))
        .to(MemorySink())
    )

    async def story() -> None:
        for _ in range(3):
            report = await pipeline.run()
            assert report.statistics["limit"] == 3

    run(story())
    assert len(limiter.told) == 12


def test_calls_that_were_cancelled_keep_their_slots_until_they_have_ended(run: Run) -> None:
    dependency, shared = Dependency(), Shared(Fixed(2))

    async def stubborn(value: int) -> int:
        try:
            return await asyncio.sleep(1, value)
        except asyncio.CancelledError:
            await asyncio.sleep(3)
            raise

    async def story() -> None:
        first = CountedSource(range(9)).pipe(adaptive_flat_map(stubborn, shared))
        second = CountedSource(range(9)).pipe(adaptive_flat_map(dependency.caller("b"), shared))
        running = first.to(MemorySink()).start()
        await asyncio.sleep(0.5)
        async with second.to(MemorySink()).start():
            running.cancel()
            await asyncio.sleep(2.5)
            assert dependency.open == 0
            assert shared.in_flight == 2
            await asyncio.sleep(1)
            assert dependency.open == 2
        await running.wait()

    run(story())
    assert shared.free == 2


@pytest.mark.parametrize("kind", ["async", "def"])
def test_a_stage_may_leave_a_shared_limit_and_come_back(run: Run, kind: str) -> None:
    dependency, shared = Dependency(), Shared(Fixed(4))

    async def story() -> None:
        flow = CountedSource(range(200)).pipe(
            adaptive_flat_map(dependency.caller("a", kind), shared)
        )
        other = CountedSource(range(200)).pipe(adaptive_flat_map(dependency.caller("b"), shared))
        async with flow.to(MemorySink()).start() as a, other.to(MemorySink()).start() as b:
            await asyncio.sleep(0.5)
            assert dependency.open == 4
            a.retune(Fixed(3))
            await asyncio.sleep(2)
            assert dependency.open == 3 + 4
            a.retune(shared)
            await asyncio.sleep(2)
            assert dependency.open == 4
            assert a.statistics()["stages"][1]["shared"]["stages"] == 2
            a.cancel()
            b.cancel()
            await a.wait()
            a.retune(shared)

    run(story())
    assert (shared.in_flight, shared.free) == (0, 4)


@pytest.mark.parametrize("kind", ["plain", "def", "async"])
def test_a_stage_may_join_while_it_runs(run: Run, kind: str) -> None:
    dependency, shared = Dependency(), Shared(Fixed(2))
    handler: Any = str if kind == "plain" else dependency.caller("a", kind)

    async def story() -> None:
        sink = MemorySink(seconds=0.1)
        flow = CountedSource(range(50)).pipe(adaptive_flat_map(handler, Fixed(9)))
        async with flow.to(sink).start() as running:
            await asyncio.sleep(0.5)
            running.retune(shared)
            await asyncio.sleep(1)
            assert shared.in_flight <= 2
        assert len(sink.values) == 50

    run(story())
    assert (shared.in_flight, shared.free) == (0, 2)


def test_a_broken_limiter_stops_all_that_hear_from_it_and_loses_nothing(run: Run) -> None:
    dependency, shared = Dependency(), Shared(Scripted(4, 4, 4, 0))

    async def story() -> None:
        runnings = [
            CountedSource(range(30))
            .pipe(adaptive_flat_map(dependency.caller(name), shared))
            .to(MemorySink())
            .start()
            for name in "ab"
        ]
        for running in runnings:
            with pytest.raises(BadLimit, match="'Scripted' proposes 0"):
                await running.wait()
            numbers = running.statistics()
            assert numbers["failed"] == numbers["unfinished"] == 0
            assert numbers["finished"] >= 1

    run(story())
    assert shared.in_flight == 0


def test_a_stage_that_fails_leaves_its_slots_to_the_others(run: Run) -> None:
    dependency, shared = Dependency(), Shared(Fixed(2))

    async def fails(value: int) -> int:
        await asyncio.sleep(1)
        raise ValueError(value)

    async def story() -> None:
        failing = CountedSource(range(9)).pipe(adaptive_flat_map(fails, shared))
        other = CountedSource(range(6)).pipe(adaptive_flat_map(dependency.caller("b"), shared))
        running = failing.to(MemorySink()).start()
        await other.to(MemorySink()).run()
        with pytest.raises(ValueError, match="0"):
            await running.wait()

    run(story())
    assert shared.free == 2


def test_a_stage_whose_source_fails_keeps_the_slots_of_its_calls_only(run: Run) -> None:
    dependency, shared = Dependency(lambda n: 3.0), Shared(Fixed(2))

    def breaks() -> Any:
        yield 0
        yield 1
        raise OSError("source")

    async def story() -> None:
        busy = CountedSource([0]).pipe(adaptive_flat_map(dependency.caller("busy"), shared))
        broken = CountedSource(breaks()).pipe(adaptive_flat_map(dependency.caller("b"), shared))
        async with busy.to(MemorySink()).start():
            running = broken.to(MemorySink()).start()
            await asyncio.sleep(1)
            assert (shared.in_flight, shared.free) == (2, 0)
            with pytest.raises(OSError, match="source"):
                await running.wait()
            assert asyncio.get_running_loop().time() == 3.0

    run(story())
    assert dependency.began == ["busy", "b"]
    assert shared.free == 2


def test_iterators_above_a_stage_that_shares_their_limit_are_refused(run: Run) -> None:
    dependency, shared = Dependency(), Shared(Fixed(2))

    async def many(value: int) -> Any:
        for n in range(9):
            yield n

    async def story() -> None:
        flow = CountedSource(range(9)).pipe(
            adaptive_flat_map(many, shared, window=1),
            adaptive_flat_map(dependency.caller("b"), shared),
        )
        with pytest.raises(BuildError, match="shares its limit with a stage below it"):
            await flow.to(MemorySink()).run()

    run(story())
    assert shared.free == 2


def test_a_limiter_is_shared_on_one_loop_at_a_time() -> None:
    dependency, shared = Dependency(), Shared(Fixed(2))
    pipeline = (
        CountedSource(range(3))
        .pipe(adaptive_flat_map(dependency.caller("a"), shared))
        .to(MemorySink())
    )
    first, second = VirtualTimeLoop(), VirtualTimeLoop()

    async def begin() -> Any:
        running = pipeline.start()
        await asyncio.sleep(0)
        return running

    running = first.run_until_complete(begin())
    with pytest.raises(BuildError, match="in use on another event loop"):
        second.run_until_complete(pipeline.run())
    first.run_until_complete(running.wait())
    first.close()
    # Nobody uses it there any more.
    second.run_until_complete(pipeline.run())
    second.close()


def test_an_inline_stage_needs_no_loop_for_a_shared_limit() -> None:
    shared, values = Shared(Fixed(2)), []
    from_iterable(range(5)).pipe(adaptive_flat_map(str, shared)).subscribe(values.append)
    assert values == ["0", "1", "2", "3", "4"]
    assert shared.free == 2


def test_only_a_limiter_can_be_shared() -> None:
    with pytest.raises(BuildError):
        Shared("3")  # type: ignore[arg-type]
    with pytest.raises(BuildError):
        Shared((3, 1))


def test_a_shared_limit_is_drawn_with_the_bounds_of_its_limiter() -> None:
    flow = CountedSource([]).pipe(adaptive_flat_map(Dependency().caller("a"), Shared((2, 8))))
    (_, drawn, _) = flow.to(MemorySink()).describe()
    assert drawn.bound == 256 + 8 + 1
    assert drawn.note == "2 to 8 at once with other stages, 256 results"


def test_an_attempt_made_again_in_order_takes_a_slot_of_the_shared_limit(run: Run) -> None:
    dependency, shared = Dependency(), Shared(Fixed(1))

    async def story() -> None:
        ordered = adaptive_flat_map(
            failing_first(dependency.caller("a")),
            shared,
            ordered=True,
            on_error=retry(2, Backoff(0)),
        )
        await together(
            from_iterable(range(4)).pipe(ordered),
            from_iterable(range(9)).pipe(adaptive_flat_map(dependency.caller("b"), shared)),
        )

    run(story())
    assert dependency.peak == 1


def failing_first(call: Any) -> Any:
    """`call`, of which the first one with each value fails."""
    failed: set[Any] = set()

    async def handler(value: Any) -> Any:
        await call(value)
        if value not in failed:
            failed.add(value)
            raise ValueError(value)
        return value

    return handler


def test_a_plain_handler_takes_turns_with_a_stage_that_waits_for_its_slot(run: Run) -> None:
    dependency, shared = Dependency(), Shared(Fixed(1))

    def plain(value: int) -> int:
        dependency.began.append("plain")
        return value

    async def story() -> None:
        await together(
            CountedSource(range(20)).pipe(adaptive_flat_map(dependency.caller("slow"), shared)),
            CountedSource(range(20)).pipe(adaptive_flat_map(plain, shared)),
        )

    run(story())
    # The other was in line for its second call before the plain one came.
    assert dependency.began == ["slow", *["slow", "plain"] * 19, "plain"]
    assert (shared.in_flight, shared.free) == (0, 1)


def test_a_plain_handler_with_many_events_makes_one_call_at_a_time_once_another_stage_waits(
    run: Run,
) -> None:
    dependency, shared = Dependency(), Shared(Fixed(1))
    calls = Subject[int]()

    def plain(value: int) -> int:
        dependency.began.append("plain")
        if value == 300:
            for number in range(9):
                calls.on_next(number)
            calls.on_completed()
        return value

    async def story() -> None:
        slow = Flowable.of(calls, buffer(9)).pipe(
            adaptive_flat_map(dependency.caller("slow"), shared)
        )
        await together(slow, CountedSource(range(2_000)).pipe(adaptive_flat_map(plain, shared)))

    run(story())
    began = "".join(name[0] for name in dependency.began)
    assert began.lstrip("p").startswith("sp" * 8 + "s")
    assert began.index("s") <= 300 + 256


def test_a_plain_call_is_reported_to_a_shared_limiter_only_while_another_is_in_flight(
    run: Run,
) -> None:
    limiter = Scripted(2)
    shared = Shared(limiter)

    async def story() -> None:
        await together(CountedSource(range(3)).pipe(adaptive_flat_map(abs, shared)))
        assert limiter.told == []
        await together(
            CountedSource(range(1)).pipe(adaptive_flat_map(Dependency().caller("slow"), shared)),
            CountedSource(range(1)).pipe(adaptive_flat_map(abs, shared)),
        )

    run(story())
    assert limiter.told == [2, 1]


def test_one_slot_serves_a_plain_handler_that_shares_its_limit_with_none_at_work(run: Run) -> None:
    shared, lists = Shared(Fixed(2)), list[int]()

    class Lists(MemorySink):
        def open(self, run: Any, closed: Any) -> Any:
            stage = super().open(run, closed)
            accept = stage.on_events

            def on_events(events: Any) -> None:
                lists.append(len(events))
                accept(events)

            stage.on_events = on_events
            return stage

    async def story() -> None:
        calling = adaptive_flat_map(abs, shared)
        await from_iterable(range(5_000)).pipe(calling).to(Lists()).run()

    run(story())
    assert sum(lists) == 5_000
    assert max(lists) == 256
