"""The kata with work that needs the processor, in one process or in several.

Such work is what one process of Python cannot do at the same time. The handler may run in another
process, so it returns when it began and ended, and the sink reports that to the observer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from penstock.command.kata.load.events import DUPLICATE_WINDOW, Event, Load
from penstock.command.kata.load.feed import live
from penstock.command.kata.observe import Measured, Observer
from penstock.command.kata.solutions.reference import REFERENCE, Watch, reporting_drops
from penstock.operators.adaptive_flat_map import adaptive_flat_map
from penstock.operators.distinct_within import distinct_within
from penstock.operators.group_by import group_by
from penstock.operators.spread import spread
from penstock.sinks.for_each import for_each
from penstock.streams.base import clock
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.pipeline import Pipeline, in_processes_of, new_event_loop

__all__ = ["cpu_name", "cpu_pipeline", "cpu_rate", "run_cpu"]

# How much more arrives than one process can do, where no rate is given: two are enough for it.
_LOAD = 1.6


def cpu_rate(seconds: float) -> float:
    """The events a second that are more than one process can do, each of so much processor time."""
    return _LOAD / seconds


def cpu_name(workers: int | None) -> str:
    """Its name in the table."""
    if workers is None:
        return REFERENCE
    return f"{REFERENCE}, {workers} worker{'s' * (workers != 1)}"


def cpu_pipeline(load: Load, observer: Observer, seconds: float) -> Pipeline:
    """The kata's pipeline, whose handler uses the processor for so many seconds an event."""

    def burn(event: Event) -> tuple[Event, float, float]:
        started = clock.monotonic()
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
        return event, started, clock.monotonic()

    source = Flowable.from_async_iterable(lambda: live(load, observer))
    return (
        reporting_drops(source, observer)
        .pipe(
            distinct_within(DUPLICATE_WINDOW, by="uuid"),
            group_by("client_id"),
            spread(),
            adaptive_flat_map(burn),
        )
        .to(for_each(lambda worked: observer.worked(*worked)))
    )


def run_cpu(
    load: Load,
    seconds: float,
    workers: int | None,
    observer: Observer,
    watch: Watch,
    *,
    grace: float = 1.0,
) -> Measured:
    """Run it on a load, in worker processes or in this one, and measure it; blocks the caller.

    After the end of the load it has `grace` seconds to catch up; what is left then is unfinished.
    """
    pipeline = cpu_pipeline(load, observer, seconds)

    async def main() -> None:
        running = pipeline.start(workers=crew)
        left = observer.start + load.seconds + grace - observer.now()
        with _within(left, running.cancel), watch(running):
            await running.wait()

    with (
        in_processes_of(pipeline, workers) as crew,
        asyncio.Runner(loop_factory=new_event_loop) as runner,
    ):
        runner.run(main())
    return observer.measured(cpu_name(workers))


@contextmanager
def _within(seconds: float, otherwise: Callable[[], None]) -> Generator[None]:
    deadline = asyncio.get_running_loop().call_later(seconds, otherwise)
    try:
        yield
    finally:
        deadline.cancel()
