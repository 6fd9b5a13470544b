"""The article's story, on virtual time and on a machine of eight cores."""

from __future__ import annotations

import asyncio
import random
from itertools import islice

import pytest

from penstock import Fixed
from penstock.command.santa import jobs
from penstock.command.santa.jobs import MOST, PUBLISHED, Job, batches, factorize, number_for
from penstock.command.santa.story import Curve, story
from penstock.streams.limits import HillClimb
from penstock.streams.limits.choice import Limit
from penstock.streams.testing.plugin import Run

CORES = 8
# An hour of the story: 720 batches, 3,600 jobs or so, each 5.5 seconds of a core, which takes
# 5 1/2 of the eight cores on average.
BATCHES = 720


class Machine:
    """Jobs share the cores: with n of them each goes at full speed or at cores / n of it."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._left: dict[asyncio.Future[None], float] = {}
        self._at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._rng = random.Random(7)

    async def work(self, job: Job) -> tuple[Job, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._go_on()
        done: asyncio.Future[None] = loop.create_future()
        self._left[done] = self._rng.gammavariate(400, 5.5 / 400)
        self._plan()
        await done
        return job, loop.time() - began

    def _speed(self) -> float:
        return min(1.0, self._cores / len(self._left)) if self._left else 1.0

    def _go_on(self) -> None:
        now = asyncio.get_running_loop().time()
        for done in self._left:
            self._left[done] -= (now - self._at) * self._speed()
        self._at = now

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._left:
            first = min(self._left.values()) / self._speed()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, first), self._end)

    def _end(self) -> None:
        self._go_on()
        for done in [done for done, left in self._left.items() if left <= 1e-9]:
            del self._left[done]
            done.set_result(None)
        self._plan()


def told(run: Run, limit: Limit, count: int = BATCHES) -> Curve:
    return run(story(Machine(CORES).work, limit, batches(1), count))


def late(curve: Curve) -> float:
    """The mean time in the system of the last tenth of the jobs."""
    last = curve.total[-len(curve.total) // 10 :]
    return sum(last) / len(last)


def test_four_at_once_fall_further_and_further_behind(run: Run) -> None:
    curve = told(run, Fixed(4))
    half = len(curve.queue) // 2
    arriving = [n for at, n in zip(curve.time, curve.queue, strict=True) if at <= 5 * BATCHES]
    assert max(arriving[:half]) > 50
    assert arriving[-1] > 1.5 * max(arriving[: len(arriving) // 2])
    assert max(curve.in_flight) == 4
    assert late(curve) > 300


def test_a_mailbox_that_climbs_catches_up(run: Run) -> None:
    curve = told(run, HillClimb(seed=1))
    assert late(curve) < 60
    assert max(curve.in_flight) > 4


def test_the_default_catches_up_sooner_and_does_not_drift_afterwards(run: Run) -> None:
    climbing, default = told(run, HillClimb(seed=1)), told(run, None)
    assert late(default) < 20
    # The whole wait of all letters, not of the late ones alone.
    assert sum(default.total) < sum(climbing.total)
    assert max(default.limit) <= 4 * CORES < max(climbing.limit)


def test_the_log_has_the_articles_lines(run: Run) -> None:
    lines: list[str] = []
    run(story(Machine(1).work, Fixed(4), iter([2, 0, 1]), 3, say=lines.append))
    assert [line for line in lines if line.startswith("New")] == [
        "New jobs arriving: batch 1, 2",
        "New jobs arriving: batch 2, 0",
        "New jobs arriving: batch 3, 1",
    ]
    first = next(i for i, line in enumerate(lines) if line.startswith("Completed"))
    assert lines[first] == "Completed batch 1 job 1 in 11 secs (total 11)"
    assert lines[first + 1] == "Queue: 0, In Flight: 2"
    assert lines[-1] == "Queue: 0, In Flight: 0"


def test_the_story_can_go_faster_than_the_clock(run: Run) -> None:
    async def tenth(job: Job) -> tuple[Job, float]:
        return await asyncio.sleep(0.55, (job, 0.55))

    lines: list[str] = []
    curve = run(story(tenth, Fixed(4), iter([3]), 1, speed=10, say=lines.append))
    assert curve.total == [pytest.approx(5.5)] * 3
    assert "in 6 secs (total 6)" in lines[1]


# Jobs.


def test_factors_are_found_the_articles_way() -> None:
    assert factorize(60) == [5, 3, 2, 2, 1]
    assert factorize(7919) == [7919, 1]


def test_the_number_is_a_prime_up_to_the_articles() -> None:
    assert number_for(1e9) == PUBLISHED
    small = number_for(0.001)
    assert factorize(small) == [small, 1]


def test_a_few_slow_trials_do_not_make_the_number_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    def number(*took: float) -> int:
        ends = [reading for n, seconds in enumerate(took) for reading in (n, n + seconds)]
        monkeypatch.setattr(jobs, "perf_counter", iter(ends).__next__)
        return number_for(1.0)

    assert number(0.3, 0.1, 0.1, 0.5, 0.1, 0.1, 0.1, 0.9, 0.1) == number(*[0.1] * 9)


def test_batches_have_five_jobs_on_average_and_repeat_for_a_seed() -> None:
    sizes = list(islice(batches(3), 2000))
    assert sizes == list(islice(batches(3), 2000))
    assert (min(sizes), max(sizes)) == (0, MOST)
    assert 4.7 < sum(sizes) / len(sizes) < 5.3
