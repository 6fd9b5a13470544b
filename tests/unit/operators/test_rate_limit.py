from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Flowable, from_iterable, rate_limit
from penstock.operators.rate_limit import RateLimit
from penstock.streams.errors import BuildError
from penstock.streams.testing import (
    COMPLETED,
    CountedSource,
    ManualPublisher,
    MemorySource,
    Probe,
    VirtualClock,
    run_virtual,
)


def times_of(source: Flowable[Any], operator: Any, seconds: float = 1000) -> list[float]:
    async def story() -> list[float]:
        probe = Probe[Any](request=10_000)
        source.pipe(operator).connect(probe)
        await asyncio.sleep(seconds)
        if not probe.ended:
            probe.cancel()
        return [at for at, _ in probe.timed]

    return run_virtual(story())


# The story.


def test_events_pass_one_a_period_after_the_first(clock: VirtualClock) -> None:
    seen = clock.play("(1,2,3)-|", rate_limit(1, per=2))
    assert seen == [(0, 1), (2, 2), (4, 3), (8, COMPLETED)]


def test_the_diagram_of_the_documentation_plays(clock: VirtualClock) -> None:
    seen = clock.play("a-b-c-d------|", rate_limit(1, 1), tick=0.25)
    assert seen == [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (3.25, COMPLETED)]


def test_a_burst_passes_at_once_after_a_pause(clock: VirtualClock) -> None:
    seen = clock.play("(1,2,3,4)-(5,6,7)", rate_limit(1, per=1, burst=3))
    assert [value for _, value in seen] == [1, 2, 3, 4, 5, 6, 7]
    assert [at for at, _ in seen] == pytest.approx([0, 0, 0, 1, 10, 10, 10])


def test_slow_events_are_not_delayed(clock: VirtualClock) -> None:
    assert clock.play("-a---b-|", rate_limit(1, per=2)) == [(1, "a"), (5, "b"), (7, COMPLETED)]


def test_completion_waits_for_the_event_that_waits(clock: VirtualClock) -> None:
    assert clock.play("(1,2,|)", rate_limit(1, per=5)) == [(0, 1), (5, 2), (5, COMPLETED)]


def test_an_error_does_not_wait_and_the_waiting_event_is_given_back() -> None:
    async def story() -> None:
        source, probe = ManualPublisher[int](), Probe[int](request=9)
        source.pipe(rate_limit(1)).connect(probe)
        source.send(1, 2)
        source.fail(ValueError("from above"))
        assert (probe.values, str(probe.error)) == ([1], "from above")
        assert source.returned == [2]

    run_virtual(story())


def test_cancel_gives_the_waiting_event_back_and_leaves_no_timer() -> None:
    async def story() -> None:
        source, probe = MemorySource([1, 2, 3]), Probe[int](request=9)
        source.pipe(rate_limit(1)).connect(probe)
        probe.cancel()
        await asyncio.sleep(10)
        assert (probe.values, source.returned) == ([1], [2])

    run_virtual(story())


# The law.


@given(
    st.integers(1, 40),
    st.sampled_from([1, 2, 3, 7, 100]),
    st.sampled_from([0.5, 1.0, 3.0]),
    st.integers(1, 5),
)
def test_in_no_period_do_more_than_the_rate_and_a_burst_pass(
    count: int, rate: int, per: float, burst: int
) -> None:
    times = times_of(from_iterable(range(count)), rate_limit(rate, per, burst))
    assert len(times) == count
    for i, start in enumerate(times):
        in_period = [at for at in times[i:] if at < start + per - 1e-6]
        assert len(in_period) <= rate + burst
    # Nor is any time lost: the last passes when its token is there.
    assert times[-1] == pytest.approx(max(0, count - burst) * per / rate)


@given(st.lists(st.integers(0, 20).map(lambda n: n / 4), max_size=20), st.integers(1, 3))
def test_order_is_kept_and_nothing_dropped(pauses: list[float], burst: int) -> None:
    async def story() -> list[int]:
        source, probe = ManualPublisher[int](), Probe[int](request=100)
        source.pipe(rate_limit(2, burst=burst)).connect(probe)
        for n, pause in enumerate(pauses):
            await asyncio.sleep(pause)
            # A token comes every half second: by then there is room for one more.
            await asyncio.sleep(0 if source.demand else 0.5)
            source.send(n)
        source.complete()
        await asyncio.sleep(100)
        assert source.unsettled == []
        return probe.values

    assert run_virtual(story()) == list(range(len(pauses)))


# The bound.


def test_one_event_is_read_ahead_and_no_more() -> None:
    async def story() -> None:
        source, probe = CountedSource(range(100)), Probe[int](request=50)
        source.pipe(rate_limit(1)).connect(probe)
        for seconds in range(5):
            assert (len(probe.values), source.emitted) == (seconds + 1, seconds + 2)
            await asyncio.sleep(1)
        probe.cancel()

    run_virtual(story())


def test_nothing_is_read_without_demand() -> None:
    async def story() -> None:
        source, probe = CountedSource(range(9)), Probe[int](request=1)
        source.pipe(rate_limit(1)).connect(probe)
        await asyncio.sleep(100)
        assert (probe.values, source.emitted) == ([0], 1)
        probe.cancel()

    run_virtual(story())


# A rate that is shared, and changed.


def test_stages_that_share_a_rate_keep_it_together() -> None:
    async def story() -> list[float]:
        limit = RateLimit(1, per=1.0)
        probes = [Probe[int](request=100) for _ in range(3)]
        for probe in probes:
            from_iterable(range(4)).pipe(rate_limit(limit)).connect(probe)
        await asyncio.sleep(100)
        assert all(probe.completed for probe in probes)
        return sorted(at for probe in probes for at, _ in probe.timed)

    assert run_virtual(story()) == pytest.approx([float(n) for n in range(12)])


def test_a_rate_that_is_changed_counts_from_the_next_token_on() -> None:
    async def story() -> list[float]:
        limit = RateLimit(1, per=1.0)
        probe = Probe[int](request=100)
        from_iterable(range(7)).pipe(rate_limit(limit)).connect(probe)
        await asyncio.sleep(2.5)
        limit.rate = 4
        await asyncio.sleep(50)
        return [at for at, _ in probe.timed]

    times = run_virtual(story())
    assert times[:3] == pytest.approx([0, 1, 2])
    assert len(times) == 7
    assert times[-1] <= 4.01


def test_every_running_of_a_pipeline_has_a_bucket_of_its_own() -> None:
    operator = rate_limit(1, per=10)
    for _ in range(2):
        assert times_of(from_iterable([1, 2]), operator) == [0, 10]


def test_after_a_million_seconds_the_rate_still_holds() -> None:
    async def story() -> list[float]:
        await asyncio.sleep(900_000)
        probe = Probe[int](request=100)
        from_iterable(range(50)).pipe(rate_limit(7_000, per=1.0)).connect(probe)
        await asyncio.sleep(1)
        return [at - 900_000 for at, _ in probe.timed]

    times = run_virtual(story())
    assert times == pytest.approx([n / 7_000 for n in range(50)], abs=1e-6)


@pytest.mark.parametrize(
    "arguments",
    [(0,), (-1,), (float("nan"),), (1, 0), (1, 1, 0), (RateLimit(1), 2.0), (RateLimit(1), 1.0, 3)],
)
def test_nonsense_is_refused_when_the_operator_is_built(arguments: Any) -> None:
    with pytest.raises(BuildError, match="rate_limit"):
        rate_limit(*arguments)
