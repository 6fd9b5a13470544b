"""The size of batches in simulations where the cost of a call of n events is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from math import exp, log2, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.limits import Outcome
from penstock.streams.limits.batch_size import BatchSize

Cost = Callable[[int], float]


def affine(a: float, b: float) -> Cost:
    return lambda n: a + b * n


def knee(at: int, a: float = 0.05, b: float = 0.001) -> Cost:
    """Beyond the knee every event costs ten times as much."""
    return lambda n: a + b * min(n, at) + 10 * b * max(0, n - at)


def steady(_: random.Random) -> Iterator[float]:
    while True:
        yield 1.0


def stumbling(rng: random.Random) -> Iterator[float]:
    """One call in fifty takes six times as long, as when a database writes a checkpoint."""
    while True:
        yield (6.0 if rng.random() < 0.02 else 1.0) * rng.gammavariate(100, 0.01)


def drifting(deviation: float, calls: float) -> Callable[[random.Random], Iterator[float]]:
    """A machine whose speed drifts, as other programs come and go, and changes once."""
    kept = exp(-1 / calls)

    def speeds(rng: random.Random) -> Iterator[float]:
        slowness = 0.0
        while True:
            slowness = kept * slowness + deviation * sqrt(1 - kept * kept) * rng.gauss(0, 1)
            yield exp(slowness) * rng.gammavariate(400, 1 / 400)

    return speeds


def work(
    sizes: BatchSize,
    cost: Cost,
    calls: int,
    cv: float = 0.0,
    seed: int = 0,
    disturbed: Callable[[random.Random], Iterator[float]] = steady,
) -> list[tuple[int, float]]:
    """Work on an endless backlog; the size of every call, and what it should have cost."""
    rng = random.Random(seed)
    speeds = disturbed(rng)
    done: list[tuple[int, float]] = []
    for _ in range(calls):
        size = sizes.size
        seconds = cost(size) * (rng.gammavariate(cv**-2, cv**2) if cv else next(speeds))
        # The events that wait came when the previous call began.
        sizes.on_complete(seconds, size, size, 2 * seconds, Outcome.SUCCESS)
        done.append((size, cost(size)))
    return done


def rate(calls: list[tuple[int, float]]) -> float:
    return sum(size for size, _ in calls) / sum(seconds for _, seconds in calls)


def best_rate(cost: Cost, ceiling: int) -> float:
    return max(size / cost(size) for size in range(1, ceiling + 1))


PLANTS: dict[str, tuple[Cost, int]] = {
    "per call and per event": (affine(0.05, 0.001), 1000),
    "the article's": (affine(0.04, 0.0103), 1000),
    "up to a large ceiling": (affine(0.05, 0.001), 4000),
    "per event only": (affine(0.0, 0.001), 1000),
    "per call only": (affine(0.05, 0.0), 1000),
    "nothing to gain beyond a few": (affine(0.001, 0.001), 1000),
    "knee at 600": (knee(600), 1000),
    "knee at 60": (knee(60), 1000),
    "knee at 7": (knee(7), 1000),
    "jump at 200": (lambda n: 0.05 + 0.001 * n + (0.2 if n > 200 else 0.0), 1000),
    "n log n": (lambda n: 0.05 + 0.0001 * n * log2(n + 1), 4000),
    "n log n, best at 8": (lambda n: 0.01 + 0.001 * n * log2(n + 1), 1000),
    "n squared": (lambda n: 0.05 + 0.001 * n + 0.00001 * n * n, 1000),
}


@pytest.mark.parametrize("name", PLANTS)
def test_it_comes_within_3_percent_of_the_best_fixed_size_without_knowing_it(
    name: str,
) -> None:
    cost, ceiling = PLANTS[name]
    calls = work(BatchSize(ceiling), cost, 1000)
    assert rate(calls[200:]) >= 0.97 * best_rate(cost, ceiling)


@pytest.mark.parametrize("name", PLANTS)
def test_calls_that_differ_by_a_tenth_cost_it_no_more_than_3_percent(name: str) -> None:
    cost, ceiling = PLANTS[name]
    best = best_rate(cost, ceiling)
    rates = [rate(work(BatchSize(ceiling), cost, 3000, 0.1, s)[200:]) / best for s in range(5)]
    assert min(rates) >= 0.97
    assert sum(rates) / 5 >= 0.98


@pytest.mark.parametrize("name", PLANTS)
@pytest.mark.parametrize(
    "disturbed",
    [stumbling, drifting(0.2, 300), drifting(0.2, 30), drifting(0.4, 100)],
    ids=["stumbles", "drifts slowly", "drifts fast", "drifts far"],
)
def test_a_machine_that_stumbles_or_drifts_costs_it_no_more_than_5_percent(
    name: str, disturbed: Callable[[random.Random], Iterator[float]]
) -> None:
    cost, ceiling = PLANTS[name]
    calls = work(BatchSize(ceiling), cost, 3000, disturbed=disturbed)
    assert rate(calls[200:]) >= 0.95 * best_rate(cost, ceiling)


def test_where_calls_differ_wildly_it_still_finds_most_of_what_there_is() -> None:
    rates: list[float] = []
    for cost, ceiling in PLANTS.values():
        rates.append(
            rate(work(BatchSize(ceiling), cost, 3000, 0.3)[200:]) / best_rate(cost, ceiling)
        )
    assert min(rates) >= 0.85
    assert sum(rates) / len(rates) >= 0.96


def test_it_stays_small_where_more_would_only_make_events_wait() -> None:
    sizes = BatchSize(1000)
    work(sizes, affine(0.001, 0.001), 1000)
    assert sizes.size < 100


@pytest.mark.parametrize("latency", [0.12, 0.2, 0.5, 1.0])
def test_it_does_as_much_as_a_latency_allows(latency: float) -> None:
    cost = affine(0.05, 0.001)
    calls = work(BatchSize(1000, latency), cost, 2000)
    allowed = [size for size in range(1, 1001) if 2 * cost(size) <= latency]
    assert rate(calls[200:]) >= 0.8 * max(size / cost(size) for size in allowed)
    late = [seconds for _, seconds in calls[200:] if 2 * seconds > latency]
    assert len(late) <= 0.1 * len(calls[200:])


def test_a_latency_that_nothing_meets_leaves_calls_of_one() -> None:
    calls = work(BatchSize(1000, 0.01), affine(0.05, 0.001), 200)
    assert max(size for size, _ in calls[20:]) <= 2


def test_late_calls_below_the_size_lower_it_too() -> None:
    sizes = BatchSize(1000, 0.5)
    work(sizes, affine(0.001, 0.00001), 200)
    before = sizes.size
    for _ in range(30):
        some = max(1, sizes.size // 2)
        sizes.on_complete(0.01 * some, some, sizes.size, 0.02 * some, Outcome.SUCCESS)
    assert before > 50
    assert sizes.size <= 50


@pytest.mark.parametrize("factor", [4.0, 0.25])
def test_it_follows_a_plant_whose_cost_a_call_changes(factor: float) -> None:
    sizes = BatchSize(1000)
    work(sizes, affine(0.004, 0.001), 1000)
    after = affine(0.004 * factor, 0.002)
    assert rate(work(sizes, after, 1000)[300:]) >= 0.93 * best_rate(after, 1000)


def test_it_follows_a_knee_that_moves() -> None:
    sizes = BatchSize(1000)
    for at in (600, 60, 600):
        calls = work(sizes, knee(at), 3000)
        assert rate(calls[1500:]) >= 0.93 * best_rate(knee(at), 1000)


def test_a_size_that_is_not_used_does_not_grow() -> None:
    sizes = BatchSize(1000)
    for _ in range(10):
        sizes.on_complete(0.1, 1, 1, 0.1, Outcome.SUCCESS)
    size = sizes.size
    assert size > 1
    for _ in range(1000):
        sizes.on_complete(0.1, size - 1, size, 0.1, Outcome.SUCCESS)
    assert sizes.size == size


def test_a_call_that_is_dropped_halves_the_size_once_for_all_that_ran_beside_it() -> None:
    sizes = BatchSize(1000)
    work(sizes, affine(0.05, 0.001), 100)
    size = sizes.size
    for _ in range(3):
        sizes.on_complete(1.0, size, size, 1.0, Outcome.DROPPED)
    assert sizes.size == size // 2
    assert sizes.reason == "a call was dropped"


def test_sizes_that_time_out_are_left_alone_more_and_more() -> None:
    sizes = BatchSize(1000)
    dropped = 0
    for _ in range(2000):
        size = sizes.size
        late = size > 100
        dropped += late
        seconds = 1.0 if late else 0.05 + 0.001 * size
        outcome = Outcome.DROPPED if late else Outcome.SUCCESS
        sizes.on_complete(seconds, size, size, seconds, outcome)
    assert sizes.size >= 50
    assert dropped <= 60


@given(st.lists(st.floats(0.001, 10), max_size=200), st.integers(1, 50), st.integers(-9, 9))
def test_the_unit_of_time_does_not_matter(seconds: list[float], ceiling: int, power: int) -> None:
    one, other = BatchSize(ceiling), BatchSize(ceiling)
    for took in seconds:
        assert 1 <= one.size <= ceiling
        assert one.size == other.size
        one.on_complete(took, one.size, one.size, took, Outcome.SUCCESS)
        scaled = took * 2.0**power
        other.on_complete(scaled, other.size, other.size, scaled, Outcome.SUCCESS)


@given(
    st.lists(
        st.tuples(st.floats(0, 10), st.integers(0, 60), st.sampled_from(list(Outcome))),
        max_size=200,
    ),
    st.integers(1, 50),
    st.sampled_from([None, 0.001, 1.0]),
)
def test_whatever_is_reported_the_size_is_within_its_bounds(
    calls: list[tuple[float, int, Outcome]], ceiling: int, latency: float | None
) -> None:
    sizes = BatchSize(ceiling, latency)
    for seconds, less, outcome in calls:
        size = sizes.size
        sizes.on_complete(seconds, max(1, size - less), size, 2 * seconds, outcome)
        assert 1 <= sizes.size <= ceiling
        assert isinstance(sizes.size, int)


@pytest.mark.parametrize("ceiling", [0, -1])
def test_a_ceiling_below_1_is_refused(ceiling: int) -> None:
    with pytest.raises(ValueError, match="ceiling"):
        BatchSize(ceiling)
