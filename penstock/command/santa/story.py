"""The mailbox at work: jobs in, a handler, log lines out, and the curve of what happened."""

from __future__ import annotations

import asyncio
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
_STAGE = 2


@dataclass
class Curve:
    """Readings over the time of the story, in seconds: one at each arrival and completion."""

    time: list[float] = field(default_factory=list[float])
    queue: list[int] = field(default_factory=list[int])
    in_flight: list[int] = field(default_factory=list[int])
    limit: list[int] = field(default_factory=list[int])
    done_at: list[float] = field(default_factory=list[float])
    total: list[float] = field(default_factory=list[float])
    """Seconds in the system of each job, waiting included; done at the time beside it."""


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
) -> Curve:
    """Let `count` batches arrive, one each `interval` seconds of the story, and do all jobs.

    The story goes `speed` times as fast as the clock. `handler` takes a job and returns it with
    the seconds it took. `say` gets the lines of the article's log.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    inbox: Subject[Job] = Subject()
    curve = Curve()

    def now() -> float:
        return (loop.time() - began) * speed

    def read() -> None:
        statistics = running.statistics()
        stage = statistics["stages"][_STAGE - 1]
        curve.time.append(now())
        curve.queue.append(statistics["stages"][0]["buffered"] + stage["waiting"])
        curve.in_flight.append(stage["in_flight"])
        curve.limit.append(stage["limit"])

    def done(result: tuple[Job, float]) -> None:
        job, seconds = result
        total = (loop.time() - job.arrived) * speed
        curve.done_at.append(now())
        curve.total.append(total)
        say(
            f"Completed batch {job.batch} job {job.number} in {seconds * speed:.0f} secs "
            f"(total {total:.0f})"
        )
        # When the next job has begun in its place.
        loop.call_soon(show)

    def show() -> None:
        read()
        say(f"Queue: {curve.queue[-1]}, In Flight: {curve.in_flight[-1]}")

    letters = Flowable.of(inbox, on_overflow=buffer(_MOST_WAITING))
    pipeline = letters.pipe(adaptive_flat_map(handler, limit)).to(for_each(done))
    running: Running
    async with pipeline.start() as running:
        # The stream begins, and listens, with the loop's next step.
        await asyncio.sleep(0)
        for batch, size in enumerate(islice(sizes, count), 1):
            say(f"New jobs arriving: batch {batch}, {size}")
            for number in range(1, size + 1):
                inbox.on_next(Job(batch, number, value, loop.time()))
            # Letters that have arrived are in the pipeline after a loop iteration.
            await asyncio.sleep(0)
            read()
            await asyncio.sleep(interval / speed)
        inbox.on_completed()
    return curve
