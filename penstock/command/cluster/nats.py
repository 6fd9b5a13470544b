"""A pipeline, or a work pool, whose events and jobs NATS JetStream keeps, `--on nats://...`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast

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
from penstock.command.cluster.nats_pools import offer_again, pool_as_text
from penstock.command.output import aligned, mention
from penstock.command.pipelines.options import Options
from penstock.streams.base import clock
from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import key_name
from penstock.streams.delivery.view import View
from penstock.streams.nats.client.addresses import addresses_of, shown
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.outbox import Outbox
from penstock.streams.nats.cluster.layout import Layout, layout_of
from penstock.streams.nats.cluster.letters import letters_of
from penstock.streams.nats.cluster.publisher import Publisher, send_again
from penstock.streams.nats.cluster.view import layouts_there, look
from penstock.streams.nats.cluster.worker import Worker
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.pipeline import Pipeline
from penstock.streams.pipelines.running import Report
from penstock.streams.work_pulling.view import look_at, pools_there

if TYPE_CHECKING:
    from penstock.streams.nats.client.client import Client

__all__ = ["Nats", "as_text", "publishing"]

# Events under way at once; one of each key, or the servers could reorder them.
_AT_ONCE = 256
# Seconds for which events wait for others of the same message.
_LINGER = 0.001
# Seconds after which the state of an empty partition is dropped.
_IDLE = 60.0


class Nats:
    """The `Broker` whose workers share the partitions by leases; or a work pool."""

    refused: ClassVar[Mapping[str, str]] = {"kafka_config": "it goes with --on kafka://"}
    moves_states: ClassVar[bool] = True

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._pool: str | None = getattr(options, "pool", None)
        if self._pool is not None and options.name is not None:
            raise BuildError("--name is of a pipeline, --pool of a work pool: give one of them")
        try:
            self._urls = addresses_of(options.on)
        except BuildError:
            raise BuildError(
                f"--on {shown(options.on.split(','))}: penstock runs on NATS or Kafka, and needs "
                "an address of it; give nats://host:port, or kafka://host:port/topic"
            ) from None
        file = getattr(options, "file", None)
        self._name: str | None = options.name if file is None else name_of(file, options.name)

    def prepare(self, pipeline: Pipeline) -> str:
        assert self._name is not None
        sizes = (getattr(self._options, one) for one in ("partitions", "replicas", "room", "batch"))
        self._layout = layout_of(pipeline, self._name, *sizes)
        return f"'{self._layout.name}'"

    @asynccontextmanager
    async def _connected(self, patience: float | None = None) -> AsyncGenerator[Client]:

        client = await (
            connect(self._urls) if patience is None else connect(self._urls, patience=patience)
        )
        try:
            yield client
        finally:
            await client.close()

    @asynccontextmanager
    async def member(
        self, pipeline: Pipeline, attempts: int, options: Options, beside: Beside
    ) -> AsyncGenerator[tuple[Worker, Callable[[], Awaitable[View]]]]:

        async with self._connected() as client:
            worker = Worker(
                client,
                self._layout,
                pipeline,
                name=self._options.worker or "",
                ttl=self._options.lease,
                attempts=attempts,
                drain_deadline=options.drain_deadline,
                limit=options.limit,
                warn=partial(mention, level="warning"),
                beside=beside,
            )
            # Its layout is known when it runs.
            yield worker, lambda: look(client, worker.layout)

    @asynccontextmanager
    async def publishing(self, pipeline: Pipeline) -> AsyncGenerator[Publishing]:

        asked = self._layout
        async with self._connected() as client:
            layout = await asked.prepare(client)

            def stored(report: Report) -> str:
                if layout.in_batches:
                    about = " in batches; workers drop the duplicates"
                else:
                    about = f", known already: {publisher.duplicates:,}"
                    if not (asked.batch or layout.is_identity_in_one_partition):
                        about += "\n" + _one_by_one(layout)
                return f"{publisher.published:,}{about}"

            async with Publisher(client, layout) as publisher:
                source = cast("Flowable[Any]", pipeline.flowable.chain()[0])
                yield publishing(source, publisher, layout), stored

    @asynccontextmanager
    async def looking(self) -> AsyncGenerator[Look]:
        async with self._connected(PATIENCE) as client:
            before: dict[str, tuple[float, int]] = {}

            async def texts() -> list[str]:
                found = [*(await self._pipelines(client, before)), *(await self._pools(client))]
                return found or [f"No pipeline or work pool of penstock at {shown(self._urls)}.\n"]

            yield texts

    async def _pipelines(self, client: Client, before: dict[str, tuple[float, int]]) -> list[str]:

        if self._pool is not None:
            return []
        layouts = await layouts_there(jetstream(client))
        if self._name is not None:
            layouts = [_one_of(layouts, self._name)]
        views = [await look(client, layout) for layout in layouts]
        return [as_text(view, _rate(view, before)) for view in views]

    async def _pools(self, client: Client) -> list[str]:

        if self._name is not None:
            return []
        pools = await pools_there(jetstream(client))
        if self._pool is not None:
            pools = [_one_of(pools, self._pool, "work pool")]
        return [pool_as_text(await look_at(client, pool)) for pool in pools]

    @asynccontextmanager
    async def letters(self) -> AsyncGenerator[Letters]:

        async with self._connected(PATIENCE) as client:
            js = jetstream(client)
            if self._pool is not None:
                pool = _one_of(await pools_there(js), self._pool, "work pool")

                async def jobs() -> AsyncGenerator[Stored]:
                    async for letter in letters_of(js, pool.letters, mention):
                        yield letter, partial(js.delete_msg, pool.letters, letter.sequence)

                yield Letters(jobs(), partial(offer_again, self._urls, pool.name))
                return
            layout = _the_one(await layouts_there(js), self._name)
            async with Outbox(client, doubt=layout.doubt) as outbox:

                async def events() -> AsyncGenerator[Stored]:
                    async for letter in letters_of(js, layout.letters, mention):
                        yield letter, partial(send_again, outbox, js, layout, letter)

                yield Letters(events())


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def _one_of(found: list[N], name: str, what: str = "pipeline") -> N:
    """The one with that name; raises BuildError that lists those that exist."""
    for one in found:
        if one.name == name:
            return one
    there = ", ".join(one.name for one in found) or "none"
    raise BuildError(f"the servers have no {what} '{name}'; there are: {there}")


def _the_one(layouts: list[Layout], name: str | None) -> Layout:
    if name is None:
        if len(layouts) != 1:
            names = ", ".join(layout.name for layout in layouts) or "none"
            raise BuildError(f"choose a pipeline by --name; there are: {names}")
        return layouts[0]
    return _one_of(layouts, name)


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
    from penstock.operators.adaptive_flat_map import adaptive_flat_map
    from penstock.operators.chunk import chunk
    from penstock.operators.group_by import group_by
    from penstock.operators.spread import spread
    from penstock.sinks.for_each import for_each
    from penstock.streams.limits import Fixed

    at_once = Fixed(_AT_ONCE)
    one = adaptive_flat_map(publisher.publish, at_once)
    several = adaptive_flat_map(publisher.publish_all, at_once)
    lists = chunk(layout.batch or 1, _LINGER)
    if not layout.in_batches:
        if layout.key is None:
            sent = source.pipe(one)
        else:
            grouped = _named("publish by key", source.pipe(group_by(layout.key)))
            sent = grouped.pipe(spread(), one)
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
        sent = _named("publish by partition", source.pipe(groups)).pipe(spread(), several)
    return sent.to(for_each(_done))


def _named(name: str, flow: Flowable[Any]) -> Flowable[Any]:
    """The stream, whose stage warnings name so: it is in no file of the user."""
    flow.info = flow.info._replace(name=name)
    return flow


def _done(_: object) -> None:
    """A stored event needs no further work."""


def _rate(view: View, before: dict[str, tuple[float, int]]) -> float | None:
    """Events finished per second since the last look, or since the workers began."""
    finished = sum(worker["finished"] for worker in view.workers.values())
    now = clock.wall()
    since = min((worker["since"] for worker in view.workers.values()), default=now)
    began, done = before.get(view.name, (since, 0))
    before[view.name] = now, finished
    return (finished - done) / (now - began) if now > began and finished >= done else None


def as_text(view: View, rate: float | None = None) -> str:
    """A few lines and a table of the workers."""
    lines = head(view, rate=rate)
    if not view.workers:
        return "\n".join([*lines, "  no worker is there", ""])
    owned = Counter(view.owners.values())
    rows: list[tuple[str, ...]] = [
        ("worker", "partitions", "behind", "in flight", "waiting", "finished", "failed")
    ]
    for id, worker in sorted(view.workers.items(), key=lambda one: str(one[1]["name"])):
        lag = sum(n for partition, n in view.lag.items() if view.owners.get(partition) == id)
        numbers = [owned[id], lag] + [
            worker[name] for name in ("in_flight", "waiting", "finished", "failed")
        ]
        rows.append((worker["name"], *(f"{number:,}" for number in numbers)))
    return "\n".join([*lines, *aligned(rows), *states_that_move(view, "keys"), ""])
