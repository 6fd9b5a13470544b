"""`penstock publish FILE --on URLS`: feed a pipeline that runs on servers."""

from __future__ import annotations

import argparse
import asyncio

from penstock.command.cluster.broker import Broker, broker_of
from penstock.command.output import mention, say
from penstock.command.pipelines.options import Options
from penstock.command.pipelines.run import end_of, loaded, tell
from penstock.streams.pipelines.pipeline import Pipeline, new_event_loop
from penstock.streams.pipelines.running import Report
from penstock.streams.runtime.process.os_signals import drain_on_signals
from penstock.streams.stages.forgetting import refuse_engine

__all__ = ["call"]


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Store the events of the pipeline's own source; returns the exit status."""
    settings = Options(
        options.input,
        drain_deadline=options.drain_deadline,
        report=options.report,
        traceback=options.traceback,
        arguments=tuple(for_the_file),
    )
    broker = broker_of(options)
    pipeline = loaded(options.file, settings)
    # As of `run`, before anything is stored that no worker could process.
    infos = (stream.info for stream in pipeline.flowable.chain())
    refuse_engine(infos, moves_states=broker.moves_states)
    broker.prepare(pipeline)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        report, stored = runner.run(_publish(broker, pipeline, settings.drain_deadline))
    status = tell(report, settings)
    if settings.report == "text":
        say(f"  stored: {stored}")
    return status


async def _publish(broker: Broker, pipeline: Pipeline, deadline: float) -> tuple[Report, str]:
    async with broker.publishing(pipeline) as (publishing, stored):
        running = publishing.start(drain_deadline=deadline)
        with drain_on_signals(running, deadline, mention):
            await end_of(running)
    report = running.report()
    return report, stored(report)
