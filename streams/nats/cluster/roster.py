"""The roster, a bucket of workers and leases: who is present, and which partitions are free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from orjson import dumps, loads

from penstock.streams.base import clock
from penstock.streams.nats.client.answers import answered
from penstock.streams.nats.client.connection import jetstream
from penstock.streams.nats.cluster.lease_entry import LeaseEntry, take

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue

    from penstock.streams.nats.client.client import Client

__all__ = ["LEASE", "Roster"]

LEASE = 10.0
"""Default seconds after which others take over; long enough for an election of servers."""

# The fraction of a lease by which two clocks may drift apart.
_DRIFT = 0.01


class _Entry(NamedTuple):
    """`value` is empty, and `over` past, if there is no entry."""

    value: bytes
    revision: int
    over: float


def _patience(ttl: float) -> float:
    """Seconds to wait for an answer: several fit into a lease."""
    return max(0.5, ttl / 4)


class Roster:
    """Entries expire `ttl` seconds after their last write.

    The server deletes them a quarter of a second later, or more (measured; it looks four times a
    second at most), which nobody waits for here. It dates what it stores and what it answers, so a
    lower bound of an entry's age is known by the server's own clock. An expired entry is taken by
    the revision that was seen: if it was renewed meanwhile, the write is refused.
    """

    def __init__(
        self,
        client: Client,
        js: JetStreamContext,
        table: KeyValue,
        bucket: str,
        ttl: float,
        now: Callable[[], float] = clock.monotonic,
    ) -> None:
        self.ttl = ttl
        self.soonest = inf
        """When the first entry seen expires, unless it is renewed."""
        self._client = client
        self.js = js
        self._table = table
        self._bucket = bucket
        self._now = now
        # A lower bound of how far the server's clock is ahead of ours.
        self._ahead = -inf

    @classmethod
    async def open(cls, client: Client, bucket: str) -> Roster:
        """Open the bucket of that name, with the lifetime of entries that it was created with. Its
        requests get an answer in less than that. Raises BucketNotFoundError and CannotConnect."""
        table = await answered(lambda: jetstream(client).key_value(bucket))
        ttl = (await answered(table.status)).ttl or LEASE
        js = jetstream(client, _patience(ttl))
        return cls(client, js, await answered(lambda: js.key_value(bucket)), bucket, ttl)

    async def members(self) -> dict[str, dict[str, Any]]:
        """The present workers by id, with the status of each."""
        from nats.js.errors import APIError

        self.soonest = inf
        prefix = f"$KV.{self._bucket}."
        answer = await self._client.request(
            f"$JS.API.STREAM.INFO.KV_{self._bucket}",
            dumps({"subjects_filter": f"{prefix}m.>"}),
            timeout=_patience(self.ttl),
        )
        heard = self._now()
        info: dict[str, Any] = loads(answer.data)
        if "error" in info:
            raise APIError.from_error(info["error"])
        self._ahead = datetime.fromisoformat(info["ts"]).timestamp() - heard
        keys = [subject.removeprefix(prefix) for subject in info["state"].get("subjects") or ()]
        entries = await asyncio.gather(*(self._entry(key) for key in keys))
        there = {key: one for key, one in zip(keys, entries, strict=True) if self._lasts(one)}
        self.soonest = min((entry.over for entry in there.values()), default=inf)
        return {key.removeprefix("m."): loads(entry.value) for key, entry in there.items()}

    async def owner(self, partition: int) -> str:
        """The owner of a partition, empty for none."""
        from nats.js.errors import NotFoundError

        try:
            entry = await self._table.get(f"p.{partition}")
        except NotFoundError:
            return ""
        return (entry.value or b"").decode()

    async def announce(self, id: str, about: bytes) -> None:
        """Announce a worker, with its status."""
        await self._table.put(f"m.{id}", about)

    async def leave(self, id: str) -> None:
        """Announce that a worker has left."""
        await self._table.delete(f"m.{id}")

    async def take(self, partition: int, owner: bytes) -> LeaseEntry | None:
        """The lease of a partition, or None if another worker holds it."""
        key = f"p.{partition}"
        entry = await self._entry(key)
        if self._lasts(entry):
            self.soonest = min(self.soonest, entry.over)
            return None
        return await take(self._table, key, owner, self.ttl, self._now, entry.revision)

    def _lasts(self, entry: _Entry) -> bool:
        return bool(entry.value) and entry.over > self._now()

    async def _entry(self, key: str) -> _Entry:
        from nats.js.errors import NotFoundError

        try:
            message = await self.js.get_msg(
                f"KV_{self._bucket}", subject=f"$KV.{self._bucket}.{key}"
            )
        except NotFoundError:
            return _Entry(b"", 0, -inf)
        assert message.time is not None
        over = message.time.timestamp() - self._ahead + self.ttl * (1 + _DRIFT)
        # A deleted entry leaves a marker without a value.
        return _Entry(message.data or b"", message.seq or 0, over)
