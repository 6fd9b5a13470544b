"""The article's story, on virtual time and on a machine of eight cores."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from itertools import islice
from types import FrameType
from typing import Any

import pytest

from penstock import Fixed
from penstock.command.santa import jobs
from penstock.command.santa.jobs import (
    MOST,
    PUBLISHED,
    Job,
    batches,
    factorize,
    largest_factor,
    seconds_for,
    value_for,
)
from penstock.command.santa.machine import Machine
from penstock.command.santa.story import Curve, story
from penstock.streams.limits import HillClimb
from penstock.streams.limits.choice import Limit
from penstock.streams.testing.plugin import Run

CORES = 8
# An hour of the story: 720 batches, 3,600 jobs or so, each 5.5 seconds of a core, which takes
# 5 1/2 of the eight cores on average.
BATCHES = 720


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
    assert [line for line in lines if "|New" in line] == [
        "0:00:00|New jobs arriving: batch 1, 2 jobs",
        "0:00:05|New jobs arriving: batch 2, 0 jobs",
        "0:00:10|New jobs arriving: batch 3, 1 job",
    ]
    assert lines[1:4] == [
        "0:00:00|Started batch 1 job 1",
        "0:00:00|Started batch 1 job 2",
        "0:00:00|Queue: 0, In Flight: 2, Parallelism: 4",
    ]
    first = next(i for i, line in enumerate(lines) if "|Completed" in line)
    assert lines[first].endswith("|Completed batch 1 job 1 in 11 secs (total 11)")
    assert lines[first + 1].endswith("|Queue: 0, In Flight: 2, Parallelism: 4")
    assert lines[-1].endswith("|Queue: 0, In Flight: 0, Parallelism: 4")


def test_a_job_is_started_when_there_is_room(run: Run) -> None:
    lines: list[str] = []
    curve = run(story(Machine(1).work, Fixed(1), iter([2]), 1, say=lines.append))
    assert [line.partition("|")[2].partition(" in ")[0] for line in lines] == [
        "New jobs arriving: batch 1, 2 jobs",
        "Started batch 1 job 1",
        "Queue: 1, In Flight: 1, Parallelism: 1",
        "Completed batch 1 job 1",
        "Started batch 1 job 2",
        "Queue: 0, In Flight: 1, Parallelism: 1",
        "Completed batch 1 job 2",
        "Queue: 0, In Flight: 0, Parallelism: 1",
    ]
    assert curve.processing == pytest.approx([5.5, 5.5], rel=0.2)
    assert curve.total == pytest.approx([5.5, 11], rel=0.2)


def test_cores_that_are_taken_away_slow_what_is_in_work(run: Run) -> None:
    async def scene() -> float:
        machine = Machine(2, seconds=10)
        loop = asyncio.get_running_loop()
        loop.call_later(5, machine.use, 1)
        (_, first), _ = await asyncio.gather(
            *(machine.work(Job(1, number, 0, 0.0)) for number in (1, 2))
        )
        return first

    assert run(scene()) == pytest.approx(15, rel=0.2)


def test_cores_that_are_added_bring_the_next_end_forward(run: Run) -> None:
    async def scene() -> list[float]:
        machine = Machine(1, seconds=10)
        asyncio.get_running_loop().call_later(10, machine.use, 2)
        jobs = (machine.work(Job(1, number, 0, 0.0)) for number in (1, 2))
        return [seconds for _, seconds in await asyncio.gather(*jobs)]

    assert run(scene()) == pytest.approx([15, 15], rel=0.1)


def test_jobs_that_are_hardly_longer_than_the_clock_can_show_end(run: Run) -> None:
    async def scene() -> None:
        machine = Machine(1, seconds=1e-9)
        loop = asyncio.get_running_loop()
        timers = Counter[float]()
        plain = loop.call_at

        def few(when: float, *call: Any, **options: Any) -> asyncio.TimerHandle:
            timers[when] += 1
            assert timers[when] < 10, "time does not go on"
            return plain(when, *call, **options)

        loop.call_at = few  # type: ignore[method-assign]
        for batch in range(20):
            jobs = [Job(batch, number, 0, 0.0) for number in range(3)]
            working = [asyncio.create_task(machine.work(job)) for job in jobs]
            await asyncio.sleep(0.1)
            assert all(job.done() for job in working)

    run(scene())


def test_a_job_that_begins_moves_the_timer_only_if_it_is_the_next_to_end(run: Run) -> None:
    async def scene() -> tuple[list[float], int]:
        machine = Machine(8, seconds=10)
        loop = asyncio.get_running_loop()
        timers: list[float] = []
        plain = loop.call_at
        # What is counted here are the calls.
        loop.call_at = lambda when, *call, **options: (  # type: ignore[method-assign]
            timers.append(when) or plain(when, *call, **options)  # type: ignore[func-returns-value]
        )
        jobs = (machine.work(Job(1, number, 0, 0.0)) for number in range(40))
        return [seconds for _, seconds in await asyncio.gather(*jobs)], len(timers)

    took, timers = run(scene())
    # Forty jobs of ten seconds on eight cores.
    assert max(took) == pytest.approx(50, rel=0.05)
    # One for each job that ends, some for those that came before the next to end.
    assert timers < 60


def test_a_job_takes_five_callbacks_of_the_loop(run: Run) -> None:
    async def scene() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        calls = 0
        plain = loop.call_soon

        def counted(*call: Any, **options: Any) -> asyncio.Handle:
            nonlocal calls
            calls += 1
            return plain(*call, **options)

        loop.call_soon = counted  # type: ignore[method-assign]
        machine = Machine(CORES, seconds=0.0055)
        curve = await story(machine.work, None, batches(1), 200, speed=1000)
        return calls, len(curve.total)

    calls, jobs = run(scene())
    # A slot is woken for it and at its end, it is flushed and shown; five jobs are a batch.
    assert calls < 5.1 * jobs


def test_a_job_takes_few_calls_of_python_functions(run: Run) -> None:
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call"

    async def scene() -> int:
        # What is imported at the first use does not count.
        await story(Machine(CORES).work, None, batches(1), 1, speed=1000)
        machine = Machine(CORES, seconds=0.0055)
        sys.setprofile(count)
        try:
            curve = await story(machine.work, None, batches(1), 300, speed=1000)
        finally:
            sys.setprofile(None)
        return len(curve.total)

    jobs = run(scene())
    # From the mailbox to the log: half of them are those of the loop, the machine and the log.
    assert calls / jobs < 125


def test_the_story_can_go_faster_than_the_clock(run: Run) -> None:
    async def tenth(job: Job) -> tuple[Job, float]:
        return await asyncio.sleep(0.55, (job, 0.55))

    lines: list[str] = []
    curve = run(story(tenth, Fixed(4), iter([3]), 1, speed=10, say=lines.append))
    assert curve.total == [pytest.approx(5.5)] * 3
    assert "in 6 secs (total 6)" in lines[5]


# Jobs.


def test_factors_are_found_the_articles_way() -> None:
    assert factorize(60) == [5, 3, 2, 2, 1]
    assert factorize(7919) == [7919, 1]


def test_the_number_is_a_prime_up_to_the_articles_and_the_same_each_time() -> None:
    assert value_for(0.001) == PUBLISHED
    assert value_for(20) == 2_130_061
    assert factorize(value_for(20_000)) == [value_for(20_000), 1]
    assert value_for(1e9) == 3


@pytest.mark.parametrize("x", [1, 2, 12, 60, 49, 7919, 2 * 7919])
def test_the_largest_factor_is_the_first_that_the_article_lists(x: int) -> None:
    assert largest_factor(x) == factorize(x)[0]


def test_a_few_slow_trials_do_not_make_the_time_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(*took: float) -> float:
        ends = [reading for n, seconds in enumerate(took) for reading in (n, n + seconds)]
        monkeypatch.setattr(jobs, "perf_counter", iter(ends).__next__)
        return seconds_for(2_000_030)

    assert seconds(0.3, 0.1, 0.1, 0.5, 0.1, 0.1, 0.1, 0.9, 0.1) == pytest.approx(
        seconds(*[0.1] * 9)
    )


def test_batches_have_five_jobs_on_average_and_repeat_for_a_seed() -> None:
    sizes = list(islice(batches(3), 2000))
    assert sizes == list(islice(batches(3), 2000))
    assert (min(sizes), max(sizes)) == (0, MOST)
    assert 4.7 < sum(sizes) / len(sizes) < 5.3
    assert max(islice(batches(3, most=2), 2000)) == 2
