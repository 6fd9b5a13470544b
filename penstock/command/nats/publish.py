"""`penstock publish FILE --on URLS`: feed a pipeline that runs on NATS JetStream."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from penstock.command.nats.run import Cluster
from penstock.command.output import mention, say
from penstock.command.pipelines.run import (
    Options,
    end_of,
    loaded,
    tell,
)
from penstock.streams.base.keys import key_name
from penstock.streams.flowable import Flowable
from penstock.streams.pipeline import Pipeline, new_event_loop
from penstock.streams.runtime.process.os_signals import drain_on_signals
from penstock.streams.runtime.running import Report

if TYPE_CHECKING:
    from penstock.streams.nats.cluster.layout import Layout
    from penstock.streams.nats.cluster.publisher import Publisher

__all__ = ["call", "options_of", "publish", "publishing"]

# Events under way at once; one of each key, or the servers could reorder them.
_AT_ONCE = 256
# Seconds for which events wait for others of the same message.
_LINGER = 0.001
# Seconds after which the state of an empty partition is dropped.
_IDLE = 60.0


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Run the sub-command; returns the exit status."""
    return publish(options.file, options_of(options, for_the_file), Cluster.of(options))


def options_of(options: argparse.Namespace, for_the_file: list[str]) -> Options:
    """The options of the command line besides those about servers."""
    return Options(
        options.input,
        drain_deadline=options.drain_deadline,
        report=options.report,
        traceback=options.traceback,
        arguments=tuple(for_the_file),
    )


def publish(where: str, options: Options, cluster: Cluster) -> int:
    """Store the events of the pipeline's own source; returns the exit status.

    The identity and the key are those of the pipeline's `distinct_within` and `group_by`.
    """
    pipeline = loaded(where, options)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        report, stored = runner.run(_publish(pipeline, options, cluster))
    status = tell(report, options)
    if options.report == "text":
        say(f"  stored: {stored}")
    return status


async def _publish(pipeline: Pipeline, options: Options, cluster: Cluster) -> tuple[Report, str]:
    from penstock.streams.nats.client.connection import connect
    from penstock.streams.nats.cluster.publisher import Publisher

    asked = cluster.layout_of(pipeline)
    client = await connect(cluster.urls)
    try:
        layout = await asked.prepare(client)
        async with Publisher(client, layout) as publisher:
            flow = publishing(pipeline.flowable.chain()[0], publisher, layout)
            running = flow.start(drain_deadline=options.drain_deadline)
            with drain_on_signals(running, options.drain_deadline, mention):
                await end_of(running)
        if layout.in_batches:
            about = " in batches; workers drop the duplicates"
        else:
            about = f", known already: {publisher.duplicates:,}"
            if not (asked.batch or layout.is_identity_in_one_partition):
                about += "\n" + _one_by_one(layout)
        return running.report(), f"{publisher.published:,}{about}"
    finally:
        await client.close()


def _one_by_one(layout: Layout) -> str:
    """Why messages hold one event each, as a line of the report."""
    identity, key = (key_name(by) for by in (layout.identity, layout.key) if by is not None)
    return (
        f"  one event in a message, so that duplicates by {identity} are dropped whatever their "
        f"{key}; --batch packs several"
    )


def publishing(source: Flowable[Any], publisher: Publisher, layout: Layout) -> Pipeline:
    """The pipeline that publishes: one event of a key at a time, in order, or in batches one
    message of a partition."""
    from penstock.operators import adaptive_flat_map, chunk, group_by, spread
    from penstock.sinks import for_each
    from penstock.streams.limits import Fixed

    at_once = Fixed(_AT_ONCE)
    one = adaptive_flat_map(publisher.publish, at_once)
    several = adaptive_flat_map(publisher.publish_all, at_once)
    lists = chunk(layout.batch or 1, _LINGER)
    if not layout.in_batches:
        if layout.key is None:
            sent = source.pipe(one)
        else:
            sent = source.pipe(group_by(layout.key), spread(), one)
    elif layout.key is None and layout.identity is None:
        sent = source.pipe(lists, several)
    else:
        groups = group_by(
            publisher.partition_of,
            each=lambda group: group.pipe(lists),
            idle=_IDLE,
            # In each partition one message is under way while the next one is filled.
            buffer=2 * len(layout.numbers) * (layout.batch or 1),
        )
        sent = source.pipe(
            groups,
            spread(),
            several,
        )
    return sent.to(for_each(_done))


def _done(_: object) -> None:
    """A stored event needs no further work."""
