"""The mailbox at work: jobs in, a handler, log lines out, and the curve of what happened."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from reactivex import Subject

from penstock.command.santa.jobs import Job
from penstock.operators import adaptive_flat_map
from penstock.sinks import for_each
from penstock.streams.boundary.from_observable import buffer
from penstock.streams.flowable import Flowable
from penstock.streams.limits.choice import Limit
from penstock.streams.runtime.running import Running

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
    inbox: Subject[Job] = Subject()
    readings = Curve() if curve is None else curve
    waiting: deque[Job] = deque()

    def now() -> float:
        return (loop.time() - began) * speed

    second, clock = -1, ""
    arrived = 0

    def log(text: str) -> None:
        nonlocal second, clock
        # Sums of intervals are not exact, and a batch comes at a full second.
        at = int((loop.time() - began) * speed + 0.001)
        if at != second:
            second, clock = at, f"{at // 3600}:{at // 60 % 60:02}:{at % 60:02}"
        say(f"{clock}|{text}")

    def show() -> None:
        stage = running.stage_statistics(2)
        queue = arrived - len(readings.done_at) - stage["in_flight"]
        readings.time.append(now())
        readings.queue.append(queue)
        readings.in_flight.append(stage["in_flight"])
        readings.limit.append(stage["limit"])
        # Jobs begin in the order in which they came.
        while len(waiting) > queue:
            job = waiting.popleft()
            log(f"Started batch {job.batch} job {job.number}")
        parallelism = "unlimited" if stage["limit"] >= UNLIMITED else stage["limit"]
        log(f"Queue: {queue}, In Flight: {stage['in_flight']}, Parallelism: {parallelism}")

    def done(result: tuple[Job, float]) -> None:
        job, seconds = result
        total = (loop.time() - job.arrived) * speed
        readings.done_at.append(now())
        readings.total.append(total)
        readings.processing.append(seconds * speed)
        log(
            f"Completed batch {job.batch} job {job.number} in {seconds * speed:.0f} secs "
            f"(total {total:.0f})"
        )
        # When the next job has begun in its place.
        loop.call_soon(show)

    letters = Flowable.of(inbox, on_overflow=buffer(_MOST_WAITING))
    pipeline = letters.pipe(adaptive_flat_map(handler, limit)).to(for_each(done))
    running: Running
    async with pipeline.start() as running:
        # The stream begins, and listens, with the loop's next step.
        await asyncio.sleep(0)
        began = loop.time()
        for batch, size in enumerate(islice(sizes, count), 1):
            log(f"New jobs arriving: batch {batch}, {size} jobs")
            arrived += size
            for number in range(1, size + 1):
                job = Job(batch, number, value, loop.time())
                waiting.append(job)
                inbox.on_next(job)
            # Letters that have arrived are in the pipeline after a loop iteration.
            await asyncio.sleep(0)
            show()
            await asyncio.sleep(interval / speed)
        inbox.on_completed()
    return readings
