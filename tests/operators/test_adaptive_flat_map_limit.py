from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators import adaptive_flat_map
from streams import Fixed, HillClimb
from streams.errors import BuildError
from streams.limits import Outcome
from streams.testing import CountedSource, ManualPublisher, MemorySink, Probe, run_virtual
from streams.testing.plugin import Run


class Gauge:
    """A handler that takes some seconds and knows how many of its calls are open."""

    def __init__(self, seconds: Callable[[Any], float] = lambda _: 1.0) -> None:
        self.open = self.peak = 0
        self.started: list[tuple[float, Any]] = []
        self._seconds = seconds

    async def __call__(self, value: Any) -> Any:
        self.open += 1
        self.peak = max(self.peak, self.open)
        self.started.append((asyncio.get_running_loop().time(), value))
        try:
            await asyncio.sleep(self._seconds(value))
        finally:
            self.open -= 1
        return value


@given(
    st.integers(1, 6),
    st.lists(st.floats(0, 3), max_size=30),
    st.booleans(),
    st.sampled_from([1, 7]),
)
def test_never_more_than_limit_calls_are_open(
    limit: int, seconds: list[float], ordered: bool, window: int
) -> None:
    gauge, sink = Gauge(lambda i: seconds[i]), MemorySink()
    operator = adaptive_flat_map(gauge, Fixed(limit), ordered=ordered, window=window)
    run_virtual(CountedSource(range(len(seconds))).pipe(operator).to(sink).run())
    assert gauge.peak <= limit
    assert gauge.peak == min(limit, len(seconds)) or min(seconds, default=0) == 0
    assert sorted(sink.values) == list(range(len(seconds)))


def test_a_call_begins_as_soon_as_a_slot_is_free(run: Run) -> None:
    gauge = Gauge(lambda value: value)
    source = CountedSource([3, 1, 1, 1])
    run(source.pipe(adaptive_flat_map(gauge, Fixed(2))).to(MemorySink()).run())
    assert gauge.started == [(0, 3), (0, 1), (1, 1), (2, 1)]


def test_a_coroutine_is_created_only_when_a_slot_is_free(run: Run) -> None:
    made: list[int] = []

    def handler(value: int) -> Any:
        made.append(value)
        return asyncio.sleep(1, value)

    async def story() -> None:
        flow = CountedSource(range(9)).pipe(adaptive_flat_map(handler, Fixed(3)))
        async with flow.to(MemorySink()).start():
            await asyncio.sleep(0.5)
            assert made == [0, 1, 2]
            await asyncio.sleep(1)
            assert made == [0, 1, 2, 3, 4, 5]

    run(story())


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("limit", "window"), [(1, 1), (3, 5), (8, 2)])
def test_the_source_is_asked_for_no_more_than_limit_and_window(
    run: Run, limit: int, window: int, ordered: bool
) -> None:
    async def story() -> None:
        source, sink = CountedSource(range(1000)), MemorySink(hold=True)
        operator = adaptive_flat_map(Gauge(), Fixed(limit), ordered=ordered, window=window)
        async with source.pipe(operator).to(sink).start() as running:
            await asyncio.sleep(100)
            # One more is with the sink.
            assert source.emitted == limit + window + 1
            sink.accept(10)
            await asyncio.sleep(100)
            assert source.emitted == limit + window + 11
            running.cancel()

    run(story())


def test_a_plain_handler_takes_nothing_that_is_not_wanted() -> None:
    source, probe = CountedSource(range(1000)), Probe[int](request=3)
    source.pipe(adaptive_flat_map(lambda n: n + 1)).connect(probe)
    assert probe.values == [1, 2, 3]
    assert source.emitted == 3
    probe.cancel()


def test_results_that_wait_and_calls_are_never_more_than_limit_and_window(run: Run) -> None:
    async def story() -> None:
        sink = MemorySink(seconds=0.7)
        operator = adaptive_flat_map(Gauge(lambda n: n % 5 * 0.3), Fixed(4), window=3)
        async with CountedSource(range(40)).pipe(operator).to(sink).start() as running:
            await asyncio.sleep(0)
            while (numbers := running.statistics())["finished"] < 40:
                stage = numbers["stages"][1]
                assert stage["in_flight"] + stage["undelivered"] <= 4 + 3
                assert stage["undelivered"] <= 3 + 4
                await asyncio.sleep(0.1)

    run(story())


# The limiter.


class Recorder:
    """A limiter that writes down what it is told."""

    def __init__(self, limit: int = 2) -> None:
        self.limit = limit
        self.told: list[tuple[float, float, int, Outcome]] = []

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        self.told.append((now, started, in_flight_at_start, outcome))


class Arrivals(Recorder):
    """A limiter that measures from arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = 0

    def on_arrive(self) -> None:
        self.arrived += 1

    def on_depart(self, now: float, arrived: float, in_flight: int, outcome: Outcome) -> None:
        self.told.append((now, arrived, in_flight, outcome))


def later(value: int) -> Any:
    return asyncio.sleep(1, value)


async def declared(value: int) -> int:
    return await asyncio.sleep(1, value)


@pytest.mark.parametrize("handler", [later, declared], ids=["def", "async def"])
def test_the_limiter_is_told_of_each_completion(run: Run, handler: Any) -> None:
    limiter = Recorder()
    run(CountedSource(range(3)).pipe(adaptive_flat_map(handler, limiter)).to(MemorySink()).run())
    success = Outcome.SUCCESS
    assert [told[:2] for told in limiter.told] == [(1, 0), (1, 0), (2, 1)]
    assert sorted(told[2] for told in limiter.told[:2]) == [1, 2]
    assert {told[3] for told in limiter.told} == {success}


def test_a_limiter_of_arrivals_is_told_of_each_and_of_when_it_came(run: Run) -> None:
    limiter = Arrivals()
    run(CountedSource(range(3)).pipe(adaptive_flat_map(declared, limiter)).to(MemorySink()).run())
    assert limiter.arrived == 3
    assert limiter.told == [
        (1, 0, 2, Outcome.SUCCESS),
        (1, 0, 2, Outcome.SUCCESS),
        (2, 1, 1, Outcome.SUCCESS),
    ]


def test_a_limit_that_grows_at_an_arrival_is_used_at_once(run: Run) -> None:
    class Growing(Arrivals):
        def on_arrive(self) -> None:
            super().on_arrive()
            self.limit += 1

    gauge = Gauge()
    run(CountedSource(range(8)).pipe(adaptive_flat_map(gauge, Growing())).to(MemorySink()).run())
    assert gauge.peak == 8


@pytest.mark.parametrize("handler", [later, declared], ids=["def", "async def"])
def test_the_default_limit_rises_for_any_kind_of_handler(run: Run, handler: Any) -> None:
    async def story() -> None:
        flow = CountedSource(range(400)).pipe(adaptive_flat_map(handler))
        async with flow.to(MemorySink()).start() as running:
            pass
        assert running.statistics()["stages"][1]["peak_in_flight"] > 10

    run(story())


def test_each_running_begins_with_a_fresh_limiter(run: Run) -> None:
    limiter = HillClimb(exploration_rate=1.0, seed=3)
    pipeline = CountedSource(range(50)).pipe(adaptive_flat_map(declared, limiter)).to(MemorySink())

    async def limit_at_the_end() -> tuple[int, float]:
        report = await pipeline.run()
        return report.statistics["limit"], report.statistics["seconds"]

    async def story() -> None:
        first = await limit_at_the_end()
        assert await limit_at_the_end() == first
        assert limiter.limit == first[0]

    run(story())


@pytest.mark.parametrize("limit", [0, -3])
def test_a_limit_below_one_counts_as_one(run: Run, limit: int) -> None:
    gauge = Gauge()
    flow = CountedSource(range(3)).pipe(adaptive_flat_map(gauge, Recorder(limit)))
    run(flow.to(MemorySink()).run())
    assert gauge.peak == 1


@pytest.mark.parametrize("method", ["on_complete", "on_arrive", "on_depart"])
def test_a_limiter_that_raises_stops_the_pipeline_and_loses_nothing(run: Run, method: str) -> None:
    class Broken(Arrivals):
        pass

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("limiter")

    async def story() -> None:
        limiter = Recorder() if method == "on_complete" else Broken()
        setattr(limiter, method, broken)
        running = (
            CountedSource(range(5))
            .pipe(adaptive_flat_map(declared, limiter))
            .to(MemorySink())
            .start()
        )
        with pytest.raises(ZeroDivisionError) as raised:
            await running.wait()
        assert raised.value.__notes__ == ["in the limiter of stage 2 'adaptive_flat_map'"]
        numbers = running.statistics()
        assert numbers["unfinished"] == 0
        assert numbers["failed"] == 0

    run(story())


# Retuning.


def test_a_higher_limit_begins_more_at_once_and_a_lower_one_cancels_nothing(run: Run) -> None:
    gauge = Gauge(lambda _: 10)

    async def story() -> None:
        flow = CountedSource(range(30)).pipe(adaptive_flat_map(gauge, Fixed(2)))
        async with flow.to(MemorySink()).start() as running:
            await asyncio.sleep(1)
            running.retune(Fixed(5))
            assert running.statistics()["limit"] == 5
            await asyncio.sleep(1)
            assert gauge.open == 5
            running.retune((1, 1))
            await asyncio.sleep(1)
            assert gauge.open == 5
            await asyncio.sleep(10)
            assert gauge.open == 1
            running.retune(Fixed(30))
        assert running.statistics()["finished"] == 30

    run(story())


@pytest.mark.parametrize("handler", [later, declared], ids=["def", "async def"])
def test_an_adaptive_limit_may_take_the_place_of_a_fixed_one(run: Run, handler: Any) -> None:
    limiter = Recorder(7)

    async def story() -> None:
        flow = CountedSource(range(20)).pipe(adaptive_flat_map(handler, Fixed(1)))
        async with flow.to(MemorySink()).start() as running:
            await asyncio.sleep(1.5)
            running.retune(limiter)
            await asyncio.sleep(0.1)
            assert running.statistics()["in_flight"] == 7

    run(story())
    assert len(limiter.told) == 19


# Kinds of handlers.


class Callable_:
    async def __call__(self, value: int) -> int:
        return await declared(value)


def plain_later(_: str, value: int) -> Any:
    return later(value)


async def declared_later(_: str, value: int) -> int:
    return await declared(value)


@pytest.mark.parametrize(
    "handler",
    [
        declared,
        later,
        Callable_(),
        lambda value: later(value),
        partial(declared_later, "x"),
        partial(plain_later, "x"),
        partial(Callable_()),
        lambda value: asyncio.ensure_future(later(value)),
    ],
    ids=["async def", "def", "object", "lambda", "partial", "plain partial", "wrapped", "future"],
)
@pytest.mark.parametrize("ordered", [False, True])
def test_def_and_async_def_give_the_same_results_at_the_same_times(
    run: Run, handler: Any, ordered: bool
) -> None:
    sink = MemorySink()
    operator = adaptive_flat_map(handler, Fixed(2), ordered=ordered)
    run(CountedSource(range(5)).pipe(operator).to(sink).run())
    assert sink.accepted == [(1, 0), (1, 1), (2, 2), (2, 3), (3, 4)]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_handler_may_answer_at_once_or_later(run: Run, ordered: bool) -> None:
    def cached(value: int) -> Any:
        return later(value) if value % 10 == 9 else value

    sink = MemorySink()
    operator = adaptive_flat_map(cached, Fixed(3), ordered=ordered)
    run(CountedSource(range(100)).pipe(operator).to(sink).run())
    assert sorted(sink.values) == list(range(100))
    if ordered:
        assert sink.values == list(range(100))


def test_a_handler_that_begins_to_answer_later_keeps_its_limit(run: Run) -> None:
    gauge = Gauge()
    sink = MemorySink()
    # By then a stride of many events is under way.
    operator = adaptive_flat_map(lambda n: n if n < 200 else gauge(n), Fixed(3))
    run(CountedSource(range(600)).pipe(operator).to(sink).run())
    assert gauge.peak == 3
    assert sorted(sink.values) == list(range(600))


def test_two_pipelines_in_one_loop_do_not_share_a_limit(run: Run) -> None:
    gauge = Gauge()
    operator = adaptive_flat_map(gauge, Fixed(2))

    async def story() -> None:
        await asyncio.gather(
            *(CountedSource(range(4)).pipe(operator).to(MemorySink()).run() for _ in range(3))
        )

    run(story())
    assert gauge.peak == 6


@pytest.mark.parametrize(
    "make",
    [
        lambda: adaptive_flat_map(3),  # type: ignore[call-overload]
        lambda: adaptive_flat_map(later, 8),  # type: ignore[call-overload]
        lambda: adaptive_flat_map(later, (5, 2)),
        lambda: adaptive_flat_map(later, window=0),
        lambda: adaptive_flat_map(declared, timeout=0),
        lambda: adaptive_flat_map(later, timeout=1),
        lambda: adaptive_flat_map(later, on_error="ignore"),  # type: ignore[call-overload]
    ],
)
def test_options_that_cannot_work_are_refused_when_built(make: Callable[[], Any]) -> None:
    with pytest.raises(BuildError):
        make()


def test_calls_in_flight_end_when_the_reader_cancels(run: Run) -> None:
    async def story() -> None:
        publisher, probe, gauge = ManualPublisher[int](), Probe[int](request=9), Gauge()
        publisher.pipe(adaptive_flat_map(gauge, Fixed(3))).connect(probe)
        publisher.send(1, 2)
        await asyncio.sleep(0.5)
        assert gauge.open == 2
        probe.cancel()
        await asyncio.sleep(0)
        assert gauge.open == 0
        assert publisher.cancels == 1
        assert publisher.returned == [1, 2]

    run(story())


@pytest.mark.parametrize("handler", [later, declared], ids=["def", "async def"])
def test_no_worker_is_left_when_the_stream_ends_inside_its_own_result(
    run: Run, handler: Any
) -> None:
    async def story() -> None:
        probe = Probe[int](request=9, on_event=lambda probe, _: probe.cancel())
        CountedSource(range(5)).pipe(adaptive_flat_map(handler, Fixed(2))).connect(probe)
        await asyncio.sleep(3)
        assert len(probe.values) == 1

    run(story())
