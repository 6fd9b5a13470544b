"""What can be seen of a pipeline on the servers: workers, partitions, lag, dead letters."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streams.jetstream.layout import Layout
from streams.jetstream.worker import members_of

if TYPE_CHECKING:
    from nats.js import JetStreamContext

__all__ = ["View", "layouts_there", "look"]

_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot. `lag` is the events of each partition that are not finished; `owners` the
    partitions that somebody holds, by the worker's id; `workers` what each worker says."""

    name: str
    stored: int
    letters: int
    lag: dict[int, int]
    owners: dict[int, str]
    workers: dict[str, dict[str, Any]]

    @property
    def unfinished(self) -> int:
        return sum(self.lag.values())


async def layouts_there(js: JetStreamContext) -> list[tuple[Layout, int]]:
    """The pipelines that the servers know, with their number of partitions, by name."""
    found: list[tuple[Layout, int]] = []
    for info in await js.streams_info():
        there = info.config.metadata or {}
        name = (info.config.name or "").removeprefix("penstock-")
        if "penstock.partitions" in there:
            found.append((Layout(name, None, None), int(there["penstock.partitions"])))
    return sorted(found, key=lambda one: one[0].name)


async def look(js: JetStreamContext, layout: Layout, partitions: int) -> View:
    """Ask the servers, once for each partition."""
    from nats.js.errors import BucketNotFoundError, NotFoundError

    stored = (await js.stream_info(layout.stream)).state.messages
    letters = (await js.stream_info(layout.letters)).state.messages
    slots = asyncio.Semaphore(_AT_ONCE)
    lag: dict[int, int] = {}
    owners: dict[int, str] = {}
    workers: dict[str, dict[str, Any]] = {}

    async def read(partition: int) -> None:
        async with slots:
            try:
                info = await js.consumer_info(layout.stream, f"p{partition}")
                lag[partition] = (info.num_pending or 0) + (info.num_ack_pending or 0)
            except NotFoundError:
                # Nobody has read it yet.
                counted = await js.stream_info(
                    layout.stream, subjects_filter=layout.subject(partition)
                )
                subjects: dict[str, int] = counted.state.subjects or {}
                lag[partition] = sum(subjects.values())

    await asyncio.gather(*(read(partition) for partition in range(partitions)))
    try:
        table = await js.key_value(layout.stream)
    except BucketNotFoundError:
        return View(layout.name, stored, letters, lag, owners, workers)
    workers = await members_of(table, js, layout)

    async def owner(partition: int) -> None:
        async with slots:
            try:
                entry = await table.get(f"p.{partition}")
            except NotFoundError:
                return
            owners[partition] = (entry.value or b"").decode()

    await asyncio.gather(*(owner(partition) for partition in range(partitions)))
    return View(layout.name, stored, letters, lag, owners, workers)
