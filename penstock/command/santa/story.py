"""The mailbox at work: jobs in, a handler, log lines out, and the curve of what happened."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from penstock.command.santa.jobs import Job
from penstock.operators.adaptive_flat_map import adaptive_flat_map
from penstock.sinks.for_each import for_each
from penstock.sources.inbox import Inbox, inbox
from penstock.streams.base.errors import counted
from penstock.streams.limits.choice import Limit
from penstock.streams.pipelines.running import Running

__all__ = ["Curve", "story"]

_MOST_WAITING = 1_000_000
# No story has as many jobs: a limit of so many is none.
UNLIMITED = 1_000_000


# Asyncio shows the result of a task, which takes a second with the lists of a day.
@dataclass(repr=False)
class Curve:
    """Readings over the time of the story, in seconds: one at each arrival and completion."""

    time: list[float] = field(default_factory=list[float])
    queue: list[int] = field(default_factory=list[int])
    in_flight: list[int] = field(default_factory=list[int])
    limit: list[int] = field(default_factory=list[int])
    done_at: list[float] = field(default_factory=list[float])
    total: list[float] = field(default_factory=list[float])
    """Seconds in the system of each job, waiting included; done at the time beside it."""
    processing: list[float] = field(default_factory=list[float])
    """The part of them without the waiting."""


async def story(
    handler: Callable[[Job], Any],
    limit: Limit,
    sizes: Iterator[int],
    count: int,
    *,
    value: int = 0,
    interval: float = 5.0,
    speed: float = 1.0,
    say: Callable[[str], None] = lambda line: None,
    curve: Curve | None = None,
) -> Curve:
    """Let `count` batches arrive, one each `interval` seconds of the story, and do all jobs.

    The story goes `speed` times as fast as the clock. `handler` takes a job and returns it with
    the seconds it took. `say` gets the lines of the article's log. Returns `curve`, which can be
    read while the story goes on, or a new one.
    """
    loop = asyncio.get_running_loop()
    time = loop.time
    mailbox: Inbox[Job] = inbox(_MOST_WAITING)
    readings = Curve() if curve is None else curve
    waiting: deque[Job] = deque()
    second, clock = -1, ""
    arrived = 0

    def clock_at(at: float) -> str:
        nonlocal second, clock
        # Sums of intervals are not exact, and a batch comes at a full second.
        full = int(at + 0.001)
        if full != second:
            second, clock = full, f"{full // 3600}:{full // 60 % 60:02}:{full % 60:02}"
        return clock

    def show() -> None:
        stage = running.stage_statistics(2)
        in_flight, parallelism = stage["in_flight"], stage["limit"]
        queue = arrived - len(readings.done_at) - in_flight
        at = (time() - began) * speed
        readings.time.append(at)
        readings.queue.append(queue)
        readings.in_flight.append(in_flight)
        readings.limit.append(parallelism)
        moment = clock_at(at)
        # Jobs begin in the order in which they came.
        while len(waiting) > queue:
            job = waiting.popleft()
            say(f"{moment}|Started batch {job.batch} job {job.number}")
        if parallelism >= UNLIMITED:
            parallelism = "unlimited"
        say(f"{moment}|Queue: {queue}, In Flight: {in_flight}, Parallelism: {parallelism}")

    def done(result: tuple[Job, float]) -> None:
        job, seconds = result
        at = (time() - began) * speed
        total = at - (job.arrived - began) * speed
        readings.done_at.append(at)
        readings.total.append(total)
        readings.processing.append(seconds * speed)
        say(
            f"{clock_at(at)}|Completed batch {job.batch} job {job.number} in "
            f"{seconds * speed:.0f} secs (total {total:.0f})"
        )
        # When the next job has begun in its place.
        loop.call_soon(show)

    pipeline = mailbox.pipe(adaptive_flat_map(handler, limit)).to(for_each(done))
    running: Running
    async with pipeline.start() as running:
        # The mailbox is open after the loop's next iteration.
        await asyncio.sleep(0)
        began = time()
        for batch, size in enumerate(islice(sizes, count), 1):
            at = time()
            moment = clock_at((at - began) * speed)
            say(f"{moment}|New jobs arriving: batch {batch}, {counted(size, 'job')}")
            arrived += size
            for number in range(1, size + 1):
                job = Job(batch, number, value, at)
                waiting.append(job)
                mailbox.put_nowait(job)
            # Letters that have arrived are in the pipeline after a loop iteration.
            await asyncio.sleep(0)
            show()
            await asyncio.sleep(interval / speed)
    return readings
