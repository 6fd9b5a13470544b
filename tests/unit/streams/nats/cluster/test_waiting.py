"""A worker says for whom it waits, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock import Pipeline, adaptive_flat_map, for_each, from_iterable, group_by, spread
from penstock.streams.nats.client.connection import connect
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.layout import layout_of
from penstock.streams.nats.cluster.roster import Roster
from penstock.streams.nats.cluster.worker import Worker
from tests.helpers.until import until


def pipeline() -> Pipeline:
    grouped = from_iterable(list[Any]()).pipe(group_by("k"), spread())
    return grouped.pipe(adaptive_flat_map(dict)).to(for_each(bool))


@asynccontextmanager
async def working(server: Servers, name: str, texts: list[str], count: int) -> AsyncIterator[None]:
    """So many workers of one partition, and what they warn of."""
    client = await connect(tuple(server.urls))
    layout = layout_of(pipeline(), name, 1, room=1 << 20)
    workers = [
        Worker(client, layout, pipeline(), name=f"w{n}", ttl=0.5, warn=texts.append)
        for n in range(count)
    ]
    runs = [asyncio.ensure_future(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.begin_drain(1)
        await asyncio.gather(*runs)
        await client.close()


def test_a_worker_that_is_one_too_many_says_so(
    server: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.streams.nats.cluster.worker._SAY", 0.0)
    texts: list[str] = []

    async def story() -> None:
        async with working(server, "too-many", texts, 2):
            await until(lambda: bool(texts))
            await asyncio.sleep(0.3)

    asyncio.run(story())
    (text,) = texts
    assert "'too-many' has more workers (2) than partitions (1)" in text


def test_a_worker_whose_share_another_one_keeps_says_who_has_it(
    server: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.streams.nats.cluster.worker._SAY", 0.0)
    texts: list[str] = []

    async def nothing(roster: Roster, *_: object) -> None:
        return None

    async def story() -> None:
        monkeypatch.setattr(Roster, "take", nothing)
        async with working(server, "kept", texts, 1):
            await until(lambda: bool(texts))

    asyncio.run(story())
    assert "for partition 0 of its share (and 0 more), which nobody has" in texts[0]


def test_a_worker_says_once_that_the_servers_do_not_answer(
    server: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []

    async def silent(roster: Roster) -> dict[str, dict[str, Any]]:
        raise TimeoutError

    async def story() -> None:
        monkeypatch.setattr(Roster, "members", silent)
        async with working(server, "silent", texts, 1):
            await until(lambda: bool(texts))
            await asyncio.sleep(0.3)

    asyncio.run(story())
    (text,) = texts
    assert "w0 waits for the NATS servers of 'silent', which do not answer (TimeoutError)" in text
