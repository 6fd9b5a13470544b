"""The default limiter against simulated plants, in virtual time."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.limits import Limiter, Outcome, default

Sort = Callable[[float, int], tuple[float, Outcome]]
"""For a job that starts at a time as the n-th in flight: its demand in seconds and its outcome."""


@dataclass
class Plant:
    """Servers with one queue in front; work waits without end, or arrives every `every` seconds."""

    limiter: Limiter
    job: Sort
    servers: Callable[[float], int] = lambda now: 10**9
    every: float | None = None
    now: float = 0.0
    waiting: int = 0
    busy: int = 0
    peak: int = 0
    limits: list[int] = field(default_factory=list[int])
    finishing: list[tuple[float, int, float, int, Outcome]] = field(default_factory=list)
    queue: deque[tuple[float, float, int, Outcome]] = field(default_factory=deque)
    number: int = 0
    arrived: int = 0

    def run(self, completions: int) -> Plant:
        for _ in range(completions):
            self._start()
            while not self.finishing or (
                self.every is not None and self.arrived * self.every <= self.finishing[0][0]
            ):
                self.now = self.arrived * (self.every or 0.0)
                self.arrived += 1
                self.waiting += 1
                self._start()
            self.now, _, started, in_flight, outcome = heapq.heappop(self.finishing)
            self.busy -= 1
            self._serve()
            self.limiter.on_complete(self.now, started, in_flight, outcome)
            self.limits.append(self.limiter.limit)
        return self

    def _start(self) -> None:
        in_flight = self.busy + len(self.queue)
        while in_flight < self.limiter.limit and (self.every is None or self.waiting):
            in_flight += 1
            self.waiting -= 1
            self.peak = max(self.peak, in_flight)
            demand, outcome = self.job(self.now, in_flight)
            self.queue.append((demand, self.now, in_flight, outcome))
            self._serve()

    def _serve(self) -> None:
        while self.queue and self.busy < self.servers(self.now):
            demand, started, in_flight, outcome = self.queue.popleft()
            self.busy += 1
            self.number += 1
            heapq.heappush(
                self.finishing, (self.now + demand, self.number, started, in_flight, outcome)
            )

    def mean(self, last: int) -> float:
        return sum(self.limits[-last:]) / last


def constant(seconds: float, outcome: Outcome = Outcome.SUCCESS) -> Sort:
    return lambda now, in_flight: (seconds, outcome)


def varied(seed: int, seconds: float, unit: float = 1.0, spread: float = 0.5) -> Sort:
    draw = random.Random(seed)
    return lambda now, in_flight: (
        draw.uniform(1 - spread, 1 + spread) * seconds * unit,
        Outcome.SUCCESS,
    )


def test_it_starts_at_its_floor() -> None:
    limits = [limiter.limit for limiter in (default(), default(floor=7), default(ceiling=1))]
    assert limits == [1, 7, 1]


def test_under_a_backlog_it_doubles_with_every_latency() -> None:
    plant = Plant(default(), varied(11, 0.01))
    while plant.limiter.limit < 128:
        plant.run(1)
    # Seven doublings; the longest of a round's latencies is up to half longer than their mean.
    assert plant.now < 7 * 0.015
    assert len(plant.limits) < 130


def test_what_waited_during_the_start_is_soon_worked_off() -> None:
    plant = Plant(default(), varied(12, 0.01), every=0.001)
    while plant.now < 0.1:
        plant.run(1)
    assert plant.waiting <= 1
    assert plant.busy < plant.limiter.limit <= 64


def test_with_a_sleeping_handler_it_passes_32_within_400_completions() -> None:
    assert Plant(default(), constant(0.01)).run(400).limiter.limit >= 32


def test_with_a_sleeping_handler_it_grows_up_to_the_ceiling() -> None:
    plant = Plant(default(ceiling=300), constant(0.01)).run(4000)
    assert max(plant.limits) == 300
    assert plant.mean(3000) >= 240


@pytest.mark.parametrize("servers", [8, 24])
def test_calls_that_end_together_and_are_replaced_one_after_the_other_use_the_limit(
    servers: int,
) -> None:
    limiter, in_work, now, limits = default(), deque[tuple[float, int]](), 0.0, list[int]()
    for _ in range(600):
        # All but the last of a round begin below the limit.
        while len(in_work) < limiter.limit:
            in_work.append((now, len(in_work) + 1))
        now += 0.1
        for started, in_flight in [in_work.popleft() for _ in range(min(servers, len(in_work)))]:
            limiter.on_complete(now, started, in_flight, Outcome.SUCCESS)
            limits.append(limiter.limit)
    settled = limits[len(limits) // 2 :]
    assert 0.85 * servers <= sum(settled) / len(settled) <= 1.5 * servers


def test_bursts_that_come_up_to_the_limit_do_not_make_it_drift_beyond_them() -> None:
    limiter, now = default(), 0.0
    for _ in range(2000):
        burst = min(limiter.limit, 10)
        for in_flight in range(1, burst + 1):
            limiter.on_complete(now + 0.1, now, in_flight, Outcome.SUCCESS)
        now += 1.0
    assert limiter.limit <= 20


@pytest.mark.parametrize("servers", [4, 16, 60])
@pytest.mark.parametrize("seconds", [0.002, 8.0])
def test_it_settles_near_the_number_of_servers(servers: int, seconds: float) -> None:
    plant = Plant(default(), varied(servers, seconds), lambda now: servers).run(150 * servers)
    assert 0.85 * servers <= plant.mean(50 * servers) <= 1.5 * servers


@pytest.mark.parametrize("servers", [12, 60])
def test_once_settled_it_stays_near_the_number_of_servers_and_asks_with_small_steps(
    servers: int,
) -> None:
    highest, means = list[float](), list[float]()
    for seed in range(8):
        job = varied(seed, 0.02, spread=0.25)
        plant = Plant(default(), job, lambda now: servers).run(300 * servers)
        settled = sorted(plant.limits[-150 * servers :])
        # The slowest hundredth of the calls are those of the highest limits.
        highest.append(settled[-len(settled) // 100] / servers)
        means.append(sum(settled) / len(settled) / servers)
    assert sum(highest) / len(highest) <= 1.4
    assert 1.0 <= sum(means) / len(means) <= 1.12


def test_one_server_needs_hardly_more_than_one_at_once() -> None:
    plant = Plant(default(), varied(1, 0.1), lambda now: 1).run(1500)
    assert plant.mean(500) <= 2


def test_it_never_grows_past_twice_what_was_in_flight_when_the_limit_is_not_in_use() -> None:
    plant = Plant(default(), varied(3, 0.25), every=0.25 / 3).run(3000)
    assert max(plant.limits) <= 2 * plant.peak
    # Once the backlog of the start is gone it has stopped moving.
    assert len(set(plant.limits[-2000:])) == 1


def test_with_one_event_at_a_time_it_stays_at_two_or_less() -> None:
    assert max(Plant(default(), constant(0.25), every=1.0).run(1000).limits) <= 2


def test_it_finds_a_capacity_that_has_changed() -> None:
    def servers(now: float) -> int:
        return 12 if now < 60 else 48 if now < 120 else 12

    limiter = default()
    plant = Plant(limiter, varied(5, 0.2), servers)
    means: list[float] = []
    for end in (60, 120, 180):
        while plant.now < end:
            plant.run(50)
        means.append(plant.mean(600))
    assert means[0] == pytest.approx(12, rel=0.4)
    assert means[1] == pytest.approx(48, rel=0.4)
    assert means[2] == pytest.approx(12, rel=0.4)


def test_a_capacity_that_falls_to_a_tenth_is_followed_within_a_few_latencies() -> None:
    plant = Plant(default(), varied(8, 0.1), lambda now: 40 if now < 30 else 4)
    while plant.now < 30:
        plant.run(1)
    limit = plant.limiter.limit
    assert limit >= 32
    # Until then as many wait as were allowed, which takes a limit over four servers to work off.
    while plant.now < 30 + 4 * limit / 4 * 0.1:
        plant.run(1)
    # It may just be trying whether twice as many would do more.
    assert min(plant.limits[-100:]) <= 10
    assert plant.limiter.limit <= 20


def test_work_that_becomes_ten_times_slower_does_not_need_less_at_once() -> None:
    draw = random.Random(6)

    def job(now: float, in_flight: int) -> tuple[float, Outcome]:
        return draw.uniform(0.5, 1.5) * (0.1 if now < 30 else 1.0), Outcome.SUCCESS

    plant = Plant(default(), job, lambda now: 16)
    while plant.now < 150:
        plant.run(1)
    assert 0.75 * 16 <= plant.mean(500) <= 1.5 * 16


def test_a_burst_after_idleness_is_worked_on_at_the_level_found_before() -> None:
    limiter = default()
    plant = Plant(limiter, varied(7, 0.1), lambda now: 16)
    level = round(plant.run(3000).mean(500))
    for _ in range(500):
        plant.now += 1.0
        limiter.on_complete(plant.now, plant.now - 0.1, 1, Outcome.SUCCESS)
    assert 0.6 * level <= limiter.limit <= 1.5 * level


def test_when_everything_is_dropped_it_falls_to_the_floor_and_recovers_afterwards() -> None:
    def job(now: float, in_flight: int) -> tuple[float, Outcome]:
        return (1.0, Outcome.DROPPED) if 20 <= now < 50 else (0.1, Outcome.SUCCESS)

    plant = Plant(default(), job, lambda now: 40)
    while plant.now < 20:
        plant.run(1)
    assert plant.limiter.limit >= 30
    while plant.now < 50:
        plant.run(1)
    assert plant.limiter.limit == 1
    while plant.now < 53:
        plant.run(1)
    assert plant.limiter.limit >= 30


def test_at_the_floor_it_soon_asks_rarely() -> None:
    plant = Plant(default(), varied(1, 0.1), lambda now: 1).run(200)
    assert sum(limit > 1 for limit in plant.run(1000).limits[-1000:]) < 200


def test_when_everything_is_dropped_from_the_start_it_falls_to_the_floor_at_once() -> None:
    plant = Plant(default(), constant(1.0, Outcome.DROPPED)).run(10)
    assert plant.limiter.limit == 1


def test_it_stays_where_refusals_begin() -> None:
    def job(now: float, in_flight: int) -> tuple[float, Outcome]:
        return (0.2, Outcome.SUCCESS) if in_flight <= 10 else (0.02, Outcome.DROPPED)

    plant = Plant(default(), job).run(5000)
    assert 8 <= plant.mean(2000) <= 11


def test_ordinary_errors_do_not_move_the_level() -> None:
    draw = random.Random(9)

    def job(now: float, in_flight: int) -> tuple[float, Outcome]:
        failed = draw.random() < (0.3 if now > 10 else 0.0)
        return draw.uniform(0.05, 0.15), Outcome.IGNORED if failed else Outcome.SUCCESS

    plant = Plant(default(), job, lambda now: 16).run(4000)
    assert plant.now > 20
    assert 0.85 * 16 <= plant.mean(1000) <= 1.5 * 16


@pytest.mark.parametrize("unit", [2.0**-20, 1e-3, 60.0, 1e4])
def test_only_the_proportions_of_times_matter(unit: float) -> None:
    def limits(unit: float) -> list[int]:
        return Plant(default(), varied(2, 0.1, unit), lambda now: 12).run(2000).limits

    assert limits(unit) == limits(1.0)


def test_a_handler_that_takes_no_time_teaches_nothing() -> None:
    assert set(Plant(default(), constant(0.0)).run(500).limits) == {1}


CALLS = st.lists(
    st.tuples(
        st.floats(0, 5),
        st.floats(0, 50),
        st.integers(1, 40),
        st.sampled_from([Outcome.SUCCESS] * 6 + list(Outcome)),
    ),
    max_size=300,
)


@given(CALLS, st.integers(1, 5), st.integers(5, 20))
def test_the_limit_stays_within_its_bounds_and_repeats(
    calls: list[tuple[float, float, int, Outcome]], floor: int, ceiling: int
) -> None:
    a, b = default(floor, ceiling), default(floor, ceiling)
    now = 0.0
    for gap, took, in_flight, outcome in calls:
        now += gap
        a.on_complete(now, now - took, in_flight, outcome)
        b.on_complete(now, now - took, in_flight, outcome)
        assert floor <= a.limit <= ceiling
        assert (a.limit, a.reason) == (b.limit, b.reason)


BUSY = Plant(default(), varied(4, 0.1), lambda now: 24).run(1000).limiter


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 50)), max_size=200))
def test_while_everything_is_dropped_it_only_falls(calls: list[tuple[float, float]]) -> None:
    limiter = deepcopy(BUSY)
    now, limit = 1e6, limiter.limit
    # A window under way may still end on the strength of its successes.
    for _ in range(limit):
        limiter.on_complete(now, now - 1, limit, Outcome.DROPPED)
    limit = limiter.limit
    for gap, took in calls:
        now += gap
        limiter.on_complete(now, now - took, limit, Outcome.DROPPED)
        assert limiter.limit <= limit
        limit = limiter.limit
