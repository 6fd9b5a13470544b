from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Fixed, Shared, adaptive_flat_map
from penstock.streams.base.errors import BadArgument, BuildError
from penstock.streams.testing import CountedSource, ManualPublisher, MemorySink, Probe, run_virtual
from penstock.streams.testing.plugin import Run
from tests.helpers.gauge import Gauge, declared, later


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


def test_a_limit_that_a_plain_call_lowers_holds_for_those_that_would_follow_at_once(
    run: Run,
) -> None:
    begun = list[int]()

    def work(value: int) -> Any:
        begun.append(value)
        if value == 4:
            running.retune(Fixed(2))
        return later(value) if value < 3 else value

    async def story() -> None:
        nonlocal running
        source, sink = CountedSource(range(10)), MemorySink()
        running = source.pipe(adaptive_flat_map(work, Fixed(6))).to(sink).start()
        await asyncio.sleep(0.5)
        # Three calls are still open.
        assert begun == [0, 1, 2, 3, 4]
        await running.wait()
        assert sorted(sink.values) == list(range(10))

    running: Any = None
    run(story())


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
        lambda: adaptive_flat_map(later, 0),
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


@pytest.mark.parametrize("kind", ["alone", "shared"])
def test_a_limit_that_is_assigned_wakes_the_events_that_wait(run: Run, kind: str) -> None:
    made: list[int] = []
    changes: list[tuple[int, int, str]] = []
    fixed = Fixed(1)

    async def handler(value: int) -> int:
        made.append(value)
        return await asyncio.sleep(100, value)

    async def story() -> None:
        operator = adaptive_flat_map(
            handler,
            fixed if kind == "alone" else Shared(fixed),
            on_limit_change=lambda *change: changes.append(change),
        )
        async with CountedSource(range(9)).pipe(operator).to(MemorySink()).start() as running:
            await asyncio.sleep(1)
            assert made == [0]
            fixed.limit = 3
            await asyncio.sleep(1)
            assert made == [0, 1, 2]
            fixed.limit = 2
            with pytest.raises(BadArgument, match="at least 1, got 0"):
                fixed.limit = 0
            await asyncio.sleep(100)
            # Two of the three have ended, and the first one's place is gone.
            assert made == [0, 1, 2, 3, 4]
            running.cancel()
        # It has no followers any more.
        fixed.limit = 5

    run(story())
    assert changes == [(1, 3, "fixed"), (3, 2, "fixed")]


@pytest.mark.parametrize("kind", ["alone", "shared"])
def test_a_limit_that_another_thread_assigns_is_followed_in_the_thread_of_the_loop(
    kind: str,
) -> None:
    fixed, loop_thread = Fixed(1), threading.get_ident()
    all_began = asyncio.Event()
    threads: list[int] = []

    async def handler(value: int) -> None:
        if value == 2:
            all_began.set()
        await all_began.wait()

    async def story() -> None:
        operator = adaptive_flat_map(
            handler,
            fixed if kind == "alone" else Shared(fixed),
            on_limit_change=lambda *_: threads.append(threading.get_ident()),
        )
        running = CountedSource(range(3)).pipe(operator).to(MemorySink()).start()
        await asyncio.sleep(0)
        await asyncio.to_thread(setattr, fixed, "limit", 3)
        await running.wait()

    asyncio.run(story())
    assert threads == [loop_thread]
    # The loop is closed, and its stage may still be there.
    fixed.limit = 4


def test_a_copy_of_a_limit_has_no_part_in_assignments() -> None:
    fixed = Fixed(3)
    for other in (copy.copy(fixed), copy.deepcopy(fixed), pickle.loads(pickle.dumps(fixed))):
        assert other.limit == 3
        fixed.limit = 4
        assert other.limit == 3
        fixed.limit = 3
