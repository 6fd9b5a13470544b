"""The simulated plants do what their names say, worked out by hand."""

from __future__ import annotations

import math

from benchmarks.limits.plants import (
    Broken,
    OneLock,
    Outage,
    Plant,
    Quota,
    Refusing,
    Servers,
    Shared,
    TokenBucket,
)
from penstock.streams.limits import Outcome

OK, DROPPED = Outcome.SUCCESS, Outcome.DROPPED

Ends = list[tuple[float, int, Outcome]]


def ends(plant: Plant, *jobs: tuple[float, float]) -> Ends:
    """When each job, of a start and a demand, ends, and how."""
    seen: Ends = []
    left = list(enumerate(jobs))
    while left or plant.due() < math.inf:
        if left and left[0][1][0] <= plant.due():
            number, (start, demand) = left.pop(0)
            plant.start(start, number, demand)
            continue
        now = plant.due()
        number, outcome = plant.finish(now)
        seen.append((round(now, 9), number, outcome))
    return seen


def test_jobs_that_share_two_cores_slow_each_other_down_from_the_third_on() -> None:
    plant = Shared(lambda n: min(n, 2))
    # Three jobs get two thirds of a core each until the first is done.
    assert ends(plant, (0, 2), (0, 4), (0, 4)) == [(3, 0, OK), (5, 1, OK), (5, 2, OK)]


def test_a_neighbour_slows_everything_in_its_slices_of_time() -> None:
    plant = Shared(lambda n: n, pace=lambda slice: (1.0, 0.5)[slice % 2], slice=1.0)
    # A second at full pace, one at half, and the last half second at full pace again.
    assert ends(plant, (0, 2)) == [(2.5, 0, OK)]


def test_servers_serve_first_who_came_first() -> None:
    plant = Servers(lambda now: 2)
    assert ends(plant, (0, 3), (0, 1), (0, 1)) == [(1, 1, OK), (2, 2, OK), (3, 0, OK)]


def test_a_token_bucket_refuses_at_once_what_finds_no_token() -> None:
    plant = TokenBucket(rate=1, burst=2, refusal=0.1)
    jobs = [(0.0, 1.0)] * 3 + [(1.0, 1.0)]
    assert ends(plant, *jobs) == [(0.1, 2, DROPPED), (1, 0, OK), (1, 1, OK), (2, 3, OK)]


def test_in_an_outage_work_is_lost_after_its_timeout() -> None:
    plant = Outage(servers=1, begins=10, ends=20, timeout=3)
    jobs = [(8.0, 1.0), (9.0, 5.0), (15.0, 1.0), (20.0, 1.0)]
    assert ends(plant, *jobs) == [(9, 0, OK), (13, 1, DROPPED), (18, 2, DROPPED), (21, 3, OK)]


def test_servers_without_a_queue_refuse_the_one_too_many() -> None:
    plant = Refusing(servers=1, refusal=0.5)
    assert ends(plant, (0, 2), (1, 2), (2.5, 1)) == [(1.5, 1, DROPPED), (2, 0, OK), (3.5, 2, OK)]


def test_a_quota_refuses_what_is_too_much_for_this_second() -> None:
    jobs = [(0.0, 1.0)] * 3 + [(1.5, 1.0)]
    assert ends(Quota(2, refusal=0.1), *jobs) == [
        (0.1, 2, DROPPED),
        (1, 0, OK),
        (1, 1, OK),
        (2.5, 3, OK),
    ]


def test_a_share_of_the_jobs_of_a_broken_plant_fails() -> None:
    plant = Broken(Servers(lambda now: 1), share=1.0, seed=1)
    assert ends(plant, (0, 2)) == [(2, 0, Outcome.IGNORED)]


def test_threads_wait_side_by_side_and_compute_one_after_another() -> None:
    plant = OneLock(threads=2, computing=0.5)
    # Both wait a second; then each has the lock for one. The third begins when the first is done.
    assert ends(plant, (0, 2), (0, 2), (0, 2)) == [(2, 0, OK), (3, 1, OK), (4, 2, OK)]
