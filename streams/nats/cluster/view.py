"""A view of a pipeline on the servers: workers, partitions, lag, dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from orjson import dumps

from penstock.streams.delivery.view import View
from penstock.streams.nats.client.answers import answered
from penstock.streams.nats.client.connection import jetstream
from penstock.streams.nats.cluster.layout import Layout
from penstock.streams.nats.cluster.roster import Roster

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from penstock.streams.nats.client.client import Client

__all__ = ["lag_of", "layouts_there", "look"]

T = TypeVar("T")

_AT_ONCE = 16


async def layouts_there(js: JetStreamContext) -> list[Layout]:
    """The pipelines that the servers know, by name."""
    found: list[Layout] = []
    for info in await answered(js.streams_info):
        there = info.config.metadata or {}
        name = (info.config.name or "").removeprefix("penstock-")
        if "penstock.partitions" in there:
            found.append(Layout(name, None, None).as_there(info))
    return sorted(found, key=lambda one: one.name)


async def lag_of(client: Client, layout: Layout, partitions: Iterable[int]) -> dict[int, int]:
    """The number of unfinished messages of each of these partitions."""
    js = jetstream(client)
    floors = await answered(lambda: layout.floors(js))
    subject = f"$JS.API.DIRECT.GET.{layout.stream}"

    async def lag(partition: int) -> int:
        floor, _ = await answered(lambda: floors.read(partition))
        after = floor.sequence + 1
        first = {"seq": after, "next_by_subj": layout.subject(partition), "batch": 1}
        answer = await answered(lambda: client.request(subject, dumps(first), timeout=2))
        headers: dict[str, str] = answer.headers or {}
        return 0 if headers.get("Status") == "404" else int(headers["Nats-Num-Pending"]) + 1

    return await _of_each(partitions, lag)


async def look(client: Client, layout: Layout) -> View:
    """Ask the servers, three times for each partition."""
    from nats.js.errors import BucketNotFoundError

    js = jetstream(client)
    stored = (await answered(lambda: js.stream_info(layout.stream))).state.messages
    letters = (await answered(lambda: js.stream_info(layout.letters))).state.messages
    lag = await lag_of(client, layout, layout.numbers)
    view = View(
        name=layout.name,
        stored=stored,
        letters=letters,
        lag=lag,
        owners={},
        workers={},
        unit="message" if layout.in_batches else "event",
    )
    try:
        roster = await answered(lambda: Roster.open(client, layout.stream))
    except BucketNotFoundError:
        return view
    workers = await answered(roster.members)
    found = await _of_each(
        layout.numbers, lambda partition: answered(lambda: roster.owner(partition))
    )
    owners = {partition: worker for partition, worker in found.items() if worker}
    return replace(view, owners=owners, workers=workers)


async def _of_each(partitions: Iterable[int], ask: Callable[[int], Awaitable[T]]) -> dict[int, T]:
    """The results of `ask` for each partition, some requested concurrently."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(partition: int) -> T:
        async with slots:
            return await ask(partition)

    asked = list(partitions)
    answers = await asyncio.gather(*(one(partition) for partition in asked))
    return dict(zip(asked, answers, strict=True))
