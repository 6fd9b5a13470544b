"""`penstock publish FILE --on kafka://...`: feed a pipeline that runs on a topic."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from typing import Any

from penstock.command.kafka.place import CONNECTING, layout_of
from penstock.command.nats.publish import options_of
from penstock.command.output import mention, say
from penstock.command.pipelines.run import (
    Options,
    end_of,
    loaded,
    tell,
)
from penstock.sinks import write_kafka
from penstock.streams.base.keys import By, key_function
from penstock.streams.io.encoding import encoded
from penstock.streams.kafka.cluster.layout import key_of
from penstock.streams.kafka.record import KafkaRecord
from penstock.streams.keyed.written import key_json
from penstock.streams.pipeline import Pipeline, new_event_loop
from penstock.streams.runtime.process.os_signals import drain_on_signals
from penstock.streams.runtime.running import Report

__all__ = ["call"]


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Write the events of the pipeline's own source to the topic; returns the exit status.

    The key of a record is that of the pipeline's `group_by`.
    """
    said = options_of(options, for_the_file)
    layout = layout_of(options)
    pipeline = loaded(options.file, said)
    layout.prepare(CONNECTING)
    publishing = (
        pipeline.flowable.chain()[0]
        .map(_record_of(key_of(pipeline)))
        .to(write_kafka(layout.topic, layout.servers, config=layout.config))
    )
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        report = runner.run(_publish(publishing, said))
    status = tell(report, said)
    if said.report == "text":
        say(f"  stored: {report.statistics['finished']:,}")
    return status


def _record_of(by: By[Any] | None) -> Callable[[Any], KafkaRecord[bytes]]:
    key = None if by is None else key_function(by)

    # Named for messages about an event whose key cannot be read.
    def record(value: Any) -> KafkaRecord[bytes]:
        if key is None:
            return KafkaRecord(encoded(value))
        # The key None is one of the group_by; a record without a key may be in any partition.
        found = key(value)
        return KafkaRecord(encoded(value), key_json(found) if found is None else found)

    return record


async def _publish(publishing: Pipeline, options: Options) -> Report:
    running = publishing.start(drain_deadline=options.drain_deadline)
    with drain_on_signals(running, options.drain_deadline, mention):
        await end_of(running)
    return running.report()
