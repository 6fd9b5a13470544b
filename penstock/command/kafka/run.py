"""`penstock run FILE --on kafka://...`: be one member of a pipeline that runs on a topic."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.command.kafka.place import CONNECTING, PATIENCE, layout_of
from penstock.command.output import counted, mention
from penstock.command.pipelines.run import (
    Options,
    end_of,
    loaded,
    recorded,
    served,
    tell,
)
from penstock.sources import read_kafka
from penstock.streams.errors import BuildError
from penstock.streams.failures.policy import retry, route
from penstock.streams.io.body import json_value
from penstock.streams.kafka.cluster.layout import Layout
from penstock.streams.kafka.cluster.letters import KafkaLetters
from penstock.streams.kafka.cluster.view import Member, look
from penstock.streams.pipeline import Pipeline, new_event_loop
from penstock.streams.running.engine import Engine
from penstock.streams.runtime.process.os_signals import drain_on_signals, keep_exit_status
from penstock.streams.runtime.running import Report, Running

__all__ = ["ATTEMPTS", "engine_of", "work_on_topic"]

ATTEMPTS = 3
"""The default number of attempts for an event."""

# Milliseconds between two signs of life, unless the lease is shorter than three of them.
_HEARTBEAT = 3000


def work_on_topic(options: argparse.Namespace, said: Options) -> int:
    """Load, join the group, work until a signal; report; returns the exit status."""
    where = options.file
    if said.input is not None:
        raise BuildError(
            "--input does not go with --on, where events come from the servers: feed them with "
            f"`penstock publish {where} --on ... --input {said.input}`"
        )
    attempts = ATTEMPTS if options.attempts is None else options.attempts
    if attempts < 1:
        raise BuildError(f"{attempts} attempts: at least 1 is needed")
    worker = options.worker or f"{socket.gethostname()}-{os.getpid()}"
    layout = _with(layout_of(options), worker, options.lease)
    pipeline = loaded(where, said)
    layout.prepare(CONNECTING)
    layout.prepare_letters(CONNECTING)
    if said.report == "text":
        mention(
            f"worker {worker} of '{layout.group}' on topic '{layout.topic}'; in a stage without "
            f"on_error, an event that fails {counted(attempts, 'time')} goes to the dead letters"
        )
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        report = runner.run(_work(pipeline, layout, worker, attempts, said))
    return tell(report, said)


def _with(layout: Layout, worker: str, lease: float | None) -> Layout:
    """The layout with the settings of a member that has this name."""
    config = {"client.id": worker, **layout.config}
    if lease is not None:
        if lease <= 0:
            raise BuildError(f"a lease of {lease:g} s: must be positive seconds")
        if config.get("group.protocol") == "consumer":
            raise BuildError(
                "--lease does not go with group.protocol=consumer, where the brokers choose it: "
                "group.consumer.session.timeout.ms"
            )
        config["session.timeout.ms"] = round(lease * 1000)
        config["heartbeat.interval.ms"] = min(_HEARTBEAT, max(1, round(lease * 1000 / 3)))
    return replace(layout, config=config)


def engine_of(layout: Layout, attempts: int) -> Engine:
    """What makes a pipeline a member of the group."""
    letters = KafkaLetters(layout)
    source = read_kafka(
        layout.topic,
        layout.group,
        layout.servers,
        decode=json_value,
        on_bad_record=route(letters),
        attempts=attempts,
        config=layout.config,
    )
    return Engine(source, retry(attempts, then=route(letters)))


async def _work(
    pipeline: Pipeline, layout: Layout, worker: str, attempts: int, options: Options
) -> Report:
    running = pipeline.start(
        drain_deadline=options.drain_deadline,
        limit=options.limit,
        engine=engine_of(layout, attempts),
    )
    await recorded(running, options)
    page, fleet = options.page, partial(_fleet, layout, worker, running)
    async with nullcontext() if page is None else await served(running, page, fleet):
        if options.alone:
            keep_exit_status(lambda: running.report().exit_status)
        tell_people = mention if options.report == "text" else None
        with drain_on_signals(running, options.drain_deadline, tell_people):
            await end_of(running)
    return running.report()


async def _fleet(layout: Layout, worker: str, running: Running) -> dict[str, Any]:
    """All members and partitions, as a live page shows them; others as they were a second ago."""
    view = await asyncio.to_thread(look, layout, PATIENCE)
    here = next((member.id for member in view.members if member.name == worker), "")
    numbers = running.statistics()
    counted = ("in_flight", "waiting", "finished", "failed")

    def known(member: Member) -> dict[str, int]:
        if member.id == here:
            return {name: numbers[name] for name in counted}
        return {} if member.state is None else {n: getattr(member.state, n) for n in counted}

    return {
        "here": here,
        "unfinished": view.unfinished,
        "unit": "event",
        "stored": view.kept,
        "letters": view.letters,
        "workers": {member.id: {"name": member.name, **known(member)} for member in view.members},
        "partitions": {
            str(number): {
                "lag": part.unfinished,
                "owner": view.owners[number].id if number in view.owners else None,
            }
            for number, part in view.parts.items()
        },
    }
