"""`penstock status --on URLS`: workers, lag and dead letters of pipelines and work pools."""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.command.nats.pool_status import pool_as_text
from penstock.command.nats.run import PATIENCE, urls_of
from penstock.command.output import aligned, counted, put_one
from penstock.streams import clock
from penstock.streams.errors import BuildError
from penstock.streams.nats.client.addresses import shown
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.cluster.view import View, layouts_there, look
from penstock.streams.work_pulling.view import look_at, pools_there

if TYPE_CHECKING:
    from penstock.streams.nats.client.client import Client

__all__ = ["as_text", "call", "check_names", "one_of"]

_EVERY = 1.0


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Print the state of one pipeline, of one work pool, or of all, once or (`--watch`) each
    second. Raises BuildError for both names."""
    check_names(options)
    try:
        return asyncio.run(_show(options))
    except KeyboardInterrupt:
        return 0


def check_names(options: argparse.Namespace) -> None:
    """Raise BuildError if both a pipeline and a work pool are named."""
    if options.pool is not None and options.name is not None:
        raise BuildError("--name is of a pipeline, --pool of a work pool: give one of them")


async def _show(options: argparse.Namespace) -> int:
    urls = urls_of(options.on)
    client = await connect(urls, patience=PATIENCE)
    try:
        before: dict[str, tuple[float, int]] = {}
        while True:
            texts = [
                *(await _pipelines(client, options, before)),
                *(await _pools(client, options)),
            ]
            if not texts:
                texts = [f"No pipeline or work pool of penstock at {shown(urls)}.\n"]
            status = put_one("\n".join(texts), of_many=options.watch)
            if status is not None:
                return status
            await asyncio.sleep(_EVERY)
    finally:
        await client.close()


async def _pipelines(
    client: Client, options: argparse.Namespace, before: dict[str, tuple[float, int]]
) -> list[str]:
    if options.pool is not None:
        return []
    layouts = await layouts_there(jetstream(client))
    if options.name is not None:
        layouts = [one_of(layouts, options.name)]
    views = [await look(client, layout) for layout in layouts]
    return [as_text(view, _rate(view, before)) for view in views]


async def _pools(client: Client, options: argparse.Namespace) -> list[str]:
    if options.name is not None:
        return []
    pools = await pools_there(jetstream(client))
    if options.pool is not None:
        pools = [one_of(pools, options.pool, "work pool")]
    return [pool_as_text(await look_at(client, pool)) for pool in pools]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def one_of(found: list[N], name: str, what: str = "pipeline") -> N:
    """The one of that name; raises BuildError that lists those that exist."""
    for one in found:
        if one.name == name:
            return one
    there = ", ".join(one.name for one in found) or "none"
    raise BuildError(f"the servers have no {what} '{name}'; there are: {there}")


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
    count = len(view.lag)
    free = count - len(view.owners)
    lines = [
        f"{view.name}: {counted(view.unfinished, view.unit)} unfinished, {view.stored:,} kept, "
        f"{counted(view.letters, 'dead letter')}"
        + ("" if rate is None else f", {rate:,.0f} events/s finished")
    ]
    fullest, most = max(view.lag.items(), key=lambda one: one[1], default=(0, 0))
    behind = f"; most behind is {fullest} with {most:,}" if most else ""
    lines.append(f"  {counted(count, 'partition')}, {free} of them with no worker{behind}")
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
    return "\n".join([*lines, *aligned(rows), ""])
