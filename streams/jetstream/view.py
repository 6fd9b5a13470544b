"""What can be seen of a pipeline on the servers: workers, partitions, lag, dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from streams.jetstream.layout import Layout
from streams.jetstream.worker import members_of

if TYPE_CHECKING:
    from nats.js import JetStreamContext

__all__ = ["View", "lag_of", "layouts_there", "look"]

T = TypeVar("T")

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


async def lag_of(js: JetStreamContext, layout: Layout, partitions: int) -> dict[int, int]:
    """The events of each partition that are not finished."""
    from nats.js.errors import NotFoundError

    async def lag(partition: int) -> int:
        try:
            info = await js.consumer_info(layout.stream, f"p{partition}")
        except NotFoundError:
            # Nobody has read it yet.
            stored = await js.stream_info(layout.stream, subjects_filter=layout.subject(partition))
            subjects: dict[str, int] = stored.state.subjects or {}
            return sum(subjects.values())
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    return await _of_each(partitions, lag)


async def look(js: JetStreamContext, layout: Layout, partitions: int) -> View:
    """Ask the servers, twice for each partition."""
    from nats.js.errors import BucketNotFoundError, NotFoundError

    stored = (await js.stream_info(layout.stream)).state.messages
    letters = (await js.stream_info(layout.letters)).state.messages
    lag = await lag_of(js, layout, partitions)
    try:
        table = await js.key_value(layout.stream)
    except BucketNotFoundError:
        return View(layout.name, stored, letters, lag, {}, {})
    workers = await members_of(table, js, layout)

    async def owner(partition: int) -> str:
        try:
            entry = await table.get(f"p.{partition}")
        except NotFoundError:
            return ""
        return (entry.value or b"").decode()

    found = await _of_each(partitions, owner)
    owners = {partition: worker for partition, worker in found.items() if worker}
    return View(layout.name, stored, letters, lag, owners, workers)


async def _of_each(partitions: int, ask: Callable[[int], Awaitable[T]]) -> dict[int, T]:
    """What `ask` says of each partition, some asked at once."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(partition: int) -> T:
        async with slots:
            return await ask(partition)

    answers = await asyncio.gather(*(one(partition) for partition in range(partitions)))
    return dict(enumerate(answers))
