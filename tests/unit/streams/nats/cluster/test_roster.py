"""Leases change hands as soon as they have expired, and never before, whatever the delays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nats.js.errors import KeyWrongLastSequenceError, NotFoundError

from penstock.streams.base.errors import StreamDiffers
from penstock.streams.nats.client.connection import connect
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.layout import Layout
from penstock.streams.nats.cluster.lease_entry import LeaseEntry
from penstock.streams.nats.cluster.roster import Roster
from penstock.streams.testing import run_virtual

TTL = 2.0


class Server:
    """A table on a server with its own clock, which never deletes expired entries; each direction
    takes one of the `delays`."""

    def __init__(self, ahead: float, delays: Iterator[float]) -> None:
        self._ahead = ahead
        self._delays = delays
        self._entries: dict[str, tuple[bytes, int, datetime]] = {}
        self._revision = 0

    def _time(self) -> datetime:
        now = asyncio.get_running_loop().time() + self._ahead
        return datetime.fromtimestamp(now, UTC)

    async def request(self, subject: str, body: bytes, **_: float) -> Any:
        await asyncio.sleep(next(self._delays))
        there = {f"$KV.b.{key}": 1 for key in self._entries if key.startswith("m.")}
        answer = {"ts": self._time().isoformat(), "state": {"subjects": there}}
        await asyncio.sleep(next(self._delays))
        return SimpleNamespace(data=json.dumps(answer))

    async def get_msg(self, stream: str, subject: str) -> Any:
        await asyncio.sleep(next(self._delays))
        found = self._entries.get(subject.removeprefix("$KV.b."))
        await asyncio.sleep(next(self._delays))
        if found is None:
            raise NotFoundError
        return SimpleNamespace(data=found[0], seq=found[1], time=found[2])

    async def put(self, key: str, value: bytes) -> int:
        return await self.update(key, value, None)

    async def update(self, key: str, value: bytes, last: int | None) -> int:
        await asyncio.sleep(next(self._delays))
        if last is not None and self._entries.get(key, (b"", 0))[1] != last:
            await asyncio.sleep(next(self._delays))
            raise KeyWrongLastSequenceError
        self._revision += 1
        revision = self._revision
        self._entries[key] = value, revision, self._time()
        await asyncio.sleep(next(self._delays))
        return revision


def roster_of(server: Any) -> Roster:
    return Roster(server, server, server, "b", TTL, asyncio.get_running_loop().time)


async def taken(roster: Roster) -> LeaseEntry:
    """Check as a worker does, until it has the partition."""
    now = asyncio.get_running_loop().time
    while True:
        await roster.members()
        lease = await roster.take(0, b"another")
        if lease is not None:
            return lease
        await asyncio.sleep(max(0.001, min(TTL / 20, roster.soonest - now())))


@settings(max_examples=60, deadline=None)
@given(
    ahead=st.floats(-1e5, 1e5),
    delays=st.lists(st.floats(0, 0.1), min_size=1, max_size=9),
    renewals=st.lists(st.floats(0, 0.6), max_size=6),
    begins=st.floats(0, 3),
)
def test_what_a_worker_held_that_is_gone_is_anothers_when_its_lease_is_over_and_no_sooner(
    ahead: float, delays: list[float], renewals: list[float], begins: float
) -> None:
    async def story() -> None:
        now = asyncio.get_running_loop().time
        # The server's clock begins a day after the start of time.
        server = Server(ahead + 2e5, cycle(delays))
        lease = await roster_of(server).take(0, b"one")
        assert lease is not None
        first = now() + begins

        async def lives() -> float:
            began = now()
            for pause in renewals:
                await asyncio.sleep(pause)
                began = now()
                await lease.write(TTL)
            return began

        async def another() -> LeaseEntry:
            await asyncio.sleep(begins)
            return await taken(roster_of(server))

        last, other = await asyncio.gather(lives(), another())
        assert other.until - TTL >= lease.until
        assert not lease.held
        # Six ways at most: the last renewal's, and those of a look and of taking it.
        assert now() <= max(last + TTL * 1.01, first) + 8 * max(delays) + TTL / 20

    run_virtual(story())


def test_a_worker_counts_until_it_leaves_or_has_said_nothing_for_as_long_as_a_lease() -> None:
    async def story() -> None:
        server = Server(1e6, cycle([0.001]))
        roster = roster_of(server)
        await roster.announce("one", b'{"name": "1"}')
        await roster.announce("two", b'{"name": "2"}')
        assert await roster.members() == {"one": {"name": "1"}, "two": {"name": "2"}}
        await asyncio.sleep(1)
        await roster.announce("two", b'{"name": "2"}')
        assert roster.soonest == pytest.approx(TTL * 1.01, abs=0.01)
        await asyncio.sleep(roster.soonest - 1)
        assert set(await roster.members()) == {"two"}

    run_virtual(story())


def test_all_workers_of_a_pipeline_have_leases_of_the_same_length(server: Servers) -> None:
    async def story() -> None:
        layout = Layout("same-lease", None, None)
        client = await connect(server.urls)
        try:
            await layout.prepare(client)
            assert (await layout.roster(client, 3.0)).ttl == 3
            assert (await layout.roster(client)).ttl == 3
            with pytest.raises(StreamDiffers, match=r"leases of 3 s, this one was given 9 s"):
                await layout.roster(client, 9.0)
        finally:
            await client.close()

    asyncio.run(story())
