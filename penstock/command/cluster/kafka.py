"""A pipeline whose members share a topic of Apache Kafka, `--on kafka://BROKERS/TOPIC`."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, cast

from penstock.command.cluster.broker import (
    PATIENCE,
    Beside,
    Letters,
    Look,
    Publishing,
    Stored,
    head,
    name_of,
    states_that_move,
)
from penstock.command.kafka_config import settings_in
from penstock.command.output import aligned, counted, mention
from penstock.command.pipelines.options import Options
from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By, key_function
from penstock.streams.failures.policy import retry, route
from penstock.streams.io.body import json_value
from penstock.streams.io.encoding import encoded
from penstock.streams.kafka.cluster.layout import Layout, address_of, key_of
from penstock.streams.kafka.cluster.letters import KafkaLetters, Replay, StoredLetter, letters_of
from penstock.streams.kafka.cluster.view import GroupView, groups_of, look
from penstock.streams.kafka.offsets.state import state_of
from penstock.streams.kafka.record import KafkaRecord
from penstock.streams.keyed.written import key_json
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.pipeline import Engine, Pipeline
from penstock.streams.pipelines.running import Report, Running

__all__ = ["Kafka", "as_text", "engine_of", "layout_of", "record_of"]

# Seconds for which `run` and `publish` look for a broker.
_CONNECTING = 10.0
# Milliseconds between two signs of life, unless the lease is shorter than three of them.
_HEARTBEAT = 3000
# Characters of a key that are shown.
_LONGEST = 40


def layout_of(options: argparse.Namespace) -> Layout:
    """The layout that the options ask for; its group is "" where they name none."""
    sizes = {name: getattr(options, name, None) for name in ("partitions", "replicas")}
    for option, number in sizes.items():
        if number is not None and number < 1:
            raise BuildError(f"--{option} {number}: at least 1 is needed")
    servers, topic = address_of(options.on)
    file = getattr(options, "file", None)
    group = (options.name or "") if file is None else name_of(file, options.name)
    config = {} if options.kafka_config is None else settings_in(options.kafka_config)
    return Layout(servers, topic, group, config, **sizes)


class Kafka:
    """The `Broker` whose members are of one group."""

    refused: ClassVar[Mapping[str, str]] = {
        "room": "the topic's retention says how much it keeps",
        "batch": "the client packs records by itself (batch.size)",
        "pool": "work pools are on NATS",
    }
    moves_states: ClassVar[bool] = False

    def __init__(self, options: argparse.Namespace) -> None:
        self._layout = layout = layout_of(options)
        self._worker = getattr(options, "worker", None) or f"{socket.gethostname()}-{os.getpid()}"
        lease = getattr(options, "lease", None)
        self._of_member = replace(layout, config=_member_settings(layout, self._worker, lease))

    def prepare(self, pipeline: Pipeline) -> str:
        self._layout.prepare(_CONNECTING)
        return f"'{self._layout.group}' on topic '{self._layout.topic}'"

    @asynccontextmanager
    async def member(
        self, pipeline: Pipeline, attempts: int, options: Options, beside: Beside
    ) -> AsyncGenerator[tuple[_Member, Callable[[], Awaitable[GroupView]]]]:
        layout = self._of_member
        layout.prepare_letters(_CONNECTING)
        engine = engine_of(layout, attempts)
        member = _Member(self._worker, pipeline, engine, options, beside)
        yield member, partial(member.look, layout)

    @asynccontextmanager
    async def publishing(self, pipeline: Pipeline) -> AsyncGenerator[Publishing]:
        from penstock.sinks.kafka import write_kafka

        layout = self._layout
        flow = (
            cast("Flowable[Any]", pipeline.flowable.chain()[0])
            .map(record_of(key_of(pipeline)))
            .to(write_kafka(layout.topic, layout.servers, config=layout.config))
        )
        yield flow, _stored

    @asynccontextmanager
    async def looking(self) -> AsyncGenerator[Look]:
        layout = self._layout

        async def texts() -> list[str]:
            groups = [layout.group] if layout.group else groups_of(layout, PATIENCE)
            if not groups:
                return [f"No group has read the topic '{layout.topic}' on {layout.servers}.\n"]
            return [as_text(look(replace(layout, group=one), PATIENCE)) for one in groups]

        yield texts

    @asynccontextmanager
    async def letters(self) -> AsyncGenerator[Letters]:
        replay: Replay | None = None

        async def send(letter: StoredLetter) -> None:
            nonlocal replay
            replay = replay or Replay(self._layout)
            replay.send(letter)

        async def stored() -> AsyncIterator[Stored]:
            for one in letters_of(self._layout, PATIENCE, mention):
                yield one.letter, partial(send, one)

        yield Letters(stored())


def _stored(report: Report) -> str:
    return f"{report.statistics['finished']:,}"


def _member_settings(layout: Layout, worker: str, lease: float | None) -> dict[str, Any]:
    config: dict[str, Any] = {"client.id": worker, **layout.config}
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
    return config


def engine_of(layout: Layout, attempts: int) -> Engine:
    """The engine that makes a pipeline a member of the group."""
    from penstock.sources.kafka import read_kafka

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


class _Member:
    """A run with the engine of `engine_of`. Brokers share the partitions: losing one does not end
    the run."""

    id = ""
    running: Running | None = None
    restarts = 0

    def __init__(
        self, name: str, pipeline: Pipeline, engine: Engine, options: Options, beside: Beside
    ) -> None:
        self.name = name
        self._start = partial(
            pipeline.start,
            drain_deadline=options.drain_deadline,
            limit=options.limit,
            engine=engine,
        )
        self._beside = beside

    async def run(self) -> Report:
        self.running = self._start()
        async with await self._beside(self.running):
            return await self.running.wait()

    def begin_drain(self, deadline: float | None = None, *, by_signal: bool = False) -> None:
        assert self.running is not None
        self.running.begin_drain(deadline, by_signal=by_signal)

    def cancel(self) -> None:
        assert self.running is not None
        self.running.cancel()

    async def look(self, layout: Layout) -> GroupView:
        """A view in which this member is as it is now; others are as they were a second ago."""
        view = await asyncio.to_thread(look, layout, PATIENCE)
        self.id = next((one.id for one in view.members if one.name == self.name), "")
        assert self.running is not None
        now = {"name": self.name} | state_of(self.name, self.running.statistics()).counts
        return replace(view, workers=view.workers | ({self.id: now} if self.id else {}))


def record_of(by: By[Any] | None) -> Callable[[Any], KafkaRecord[bytes]]:
    """A function that makes an event's record, with the key of the pipeline's `group_by`."""
    key = None if by is None else key_function(by)

    # Named for messages about an event whose key cannot be read.
    def record(value: Any) -> KafkaRecord[bytes]:
        if key is None:
            return KafkaRecord(encoded(value))
        # The key None is one of the group_by; a record without a key may be in any partition.
        found = key(value)
        return KafkaRecord(encoded(value), key_json(found) if found is None else found)

    return record


def as_text(view: GroupView) -> str:
    """A few lines, and tables of the members and of the partitions."""
    lines = head(view, f" in '{view.topic}'")
    if view.keys:
        keys = ", ".join(f"{_cut(key)} {count:,}" for key, count in view.keys)
        lines.append(f"  hottest keys of {counted(view.sampled, 'unfinished event')}: {keys}")
    if view.members:
        workers = [
            (
                member.name,
                member.host,
                f"{len(member.partitions):,}",
                f"{sum(view.lag[one] for one in member.partitions):,}",
            )
            for member in view.members
        ]
        lines += aligned([("worker", "host", "partitions", "behind"), *workers], texts=2)
        if view.follows:
            lines.append(
                f"  the group assigns partitions of '{view.follows}': in a join a member has those "
                f"of '{view.topic}' with the same numbers"
            )
    else:
        lines.append("  no worker is there")
    names = {number: member.name for member in view.members for number in member.partitions}
    partitions = [
        (
            str(number),
            names.get(number, "-"),
            *(f"{n:,}" for n in (part.floor, part.above, part.end, part.unfinished)),
        )
        for number, part in sorted(view.parts.items())
    ]
    heading = ("partition", "worker", "floor", "finished above", "end", "behind")
    lines += aligned([heading, *partitions], texts=2)
    lines += states_that_move(view, "records")
    lines += [f"  partition {number}: {why} (ignored)" for number, why in view.ignored.items()]
    return "\n".join([*lines, ""])


def _cut(key: str) -> str:
    return key if len(key) <= _LONGEST else key[:_LONGEST] + "..."
