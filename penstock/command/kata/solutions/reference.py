"""The kata on this library: the pipeline that keeps every promise of it.

    live load > distinct_within > group_by > spread > adaptive_flat_map > latency_histogram

Source: T. Nurkiewicz, "Small scale stream processing kata", parts 1 and 2 (2016).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from penstock.command.kata.load.events import DUPLICATE_WINDOW, Event, Load
from penstock.command.kata.load.feed import live
from penstock.command.kata.load.work import Work
from penstock.command.kata.observe import Measured, Observer
from penstock.operators.adaptive_flat_map import adaptive_flat_map
from penstock.operators.distinct_within import distinct_within
from penstock.operators.group_by import group_by
from penstock.operators.spread import spread
from penstock.sinks.latency import latency_histogram
from penstock.streams.base.clock import clock_of
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.pipeline import Pipeline
from penstock.streams.pipelines.running import Running
from penstock.streams.protocol.acknowledgement import AckHook
from penstock.streams.protocol.event import Ending
from penstock.streams.protocol.event import Event as Envelope
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.own import Stage

__all__ = ["REFERENCE", "Watch", "reference_pipeline", "reporting_drops", "run_reference"]

REFERENCE = "penstock"
"""Its name in the table, beside the article's variants."""

Watch = Callable[[Running], AbstractContextManager[None]]


def reference_pipeline(
    load: Load, observer: Observer, handler: Callable[[Event], Awaitable[object]]
) -> Pipeline:
    """The kata's pipeline over a live load, every step of which is reported to `observer`."""

    async def project(event: Event) -> Event:
        observer.started(event)
        try:
            await handler(event)
        except Exception:
            observer.failed(event)
            raise
        observer.finished(event)
        return event

    source = Flowable.from_async_iterable(lambda: live(load, observer))
    return (
        reporting_drops(source, observer)
        .pipe(
            distinct_within(DUPLICATE_WINDOW, by="uuid"),
            group_by("client_id"),
            spread(),
            adaptive_flat_map(project),
        )
        .to(latency_histogram(None, report=None))
    )


async def run_reference(
    load: Load,
    handler: Callable[[Event], Awaitable[object]] | None = None,
    *,
    grace: float = 1.0,
    watch: Watch = lambda running: nullcontext(),
    observer: Observer | None = None,
) -> Measured:
    """Run the kata's pipeline on a load, and measure it.

    `handler` is awaited for each event (`Work().pause` where none is given). After the end of the
    load the pipeline has `grace` seconds to catch up; events still waiting then are returned and
    counted as unfinished. `watch(running)` is entered for as long as it runs. An `observer` that
    is given must have the time of the running loop. Raises what the handler raised.
    """
    loop = asyncio.get_running_loop()
    observer = observer or Observer(clock_of(loop))
    pipeline = reference_pipeline(load, observer, handler or Work().pause)
    running = pipeline.start()
    deadline = loop.call_later(load.seconds + grace, running.cancel)
    try:
        with watch(running):
            await running.wait()
    finally:
        deadline.cancel()
    return observer.measured(REFERENCE)


def reporting_drops(source: Flowable[Event], observer: Observer) -> Flowable[Event]:
    """The same stream, whose duplicates are reported when they are dropped.

    Its events were created when they were due, however late they are taken.
    """

    def attach(downstream: Subscriber[Event], run: Run) -> None:
        source.attach(_Reporting(downstream, observer), run)

    return Flowable(attach, StageInfo("observed"), source)


class _Reporting(Stage[Event, Event]):
    def __init__(self, downstream: Subscriber[Event], observer: Observer) -> None:
        super().__init__(downstream)
        self._drops = _Drops(observer)

    def on_events(self, events: list[Envelope[Any]], /) -> None:
        for event in events:
            event.outer = (event.origin, event.outer, event.value)
            event.origin = self._drops
            event.created = event.value["created"]
        self.downstream.on_events(events)


class _Drops(AckHook):
    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def ended(
        self, events: list[Envelope[Any]], ending: Ending, error: BaseException | None, /
    ) -> None:
        if ending is Ending.DROPPED:
            for event in events:
                self._observer.dropped(event.outer[2])
