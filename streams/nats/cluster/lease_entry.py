"""The lease of a partition: an entry of a bucket, which its owner writes again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.streams.delivery.lease import Lease

if TYPE_CHECKING:
    from nats.js.kv import KeyValue

__all__ = ["LeaseEntry", "take"]


class LeaseEntry(Lease):
    """`epoch` is the fencing token: the revision at which the lease was taken, which only grows.

    A write that changes the owner's own entry is the proof that nobody had it in between, however
    late it comes.
    """

    def __init__(
        self,
        table: KeyValue,
        key: str,
        owner: bytes,
        revision: int,
        until: float,
        now: Callable[[], float],
    ) -> None:
        super().__init__(now, until)
        self.epoch = revision
        self._table = table
        self._key = key
        self.owner = owner
        self._revision = revision
        self._lost = False

    @property
    def held(self) -> bool:
        return not self._lost and self.now() < self.until

    def lose(self) -> None:
        """Have lost it, whatever the servers say."""
        self._lost = True

    async def write(self, ttl: float) -> None:
        """Hold the lease for `ttl` more seconds, or find it lost if another worker has taken it."""
        from nats.js.errors import KeyWrongLastSequenceError

        began = self.now()
        try:
            self._revision = await self._table.update(self._key, self.owner, self._revision)
        except KeyWrongLastSequenceError:
            await self._look()
        else:
            self.until = began + ttl

    async def _look(self) -> None:
        """The entry has changed: was it our own renewal, whose answer was lost?"""
        from nats.js.errors import NotFoundError

        try:
            entry = await self._table.get(self._key)
        except NotFoundError:
            self._lost = True
            return
        if entry.value == self.owner:
            # Or one is still under way: servers without a quorum have not agreed on it yet.
            self._revision = max(entry.revision or 0, self._revision)
        else:
            self._lost = True

    async def release(self) -> None:
        """Let the next owner have it at once, instead of when it runs out."""
        from nats.errors import Error

        self._lost = True
        try:
            await self._table.delete(self._key, self._revision)
        except Error:
            # It expires by itself.
            return


async def take(
    table: KeyValue,
    key: str,
    owner: bytes,
    ttl: float,
    now: Callable[[], float],
    free: int | None = None,
) -> LeaseEntry | None:
    """The lease of `key`, or None if another worker holds it; `free` is a revision at which it was
    seen free, 0 for no entry."""
    from nats.js.errors import KeyWrongLastSequenceError

    began = now()
    try:
        revision = await (
            table.create(key, owner) if free is None else table.update(key, owner, free)
        )
    except KeyWrongLastSequenceError:
        return await _taken_before(table, key, owner, ttl, now)
    return LeaseEntry(table, key, owner, revision, began + ttl, now)


async def _taken_before(
    table: KeyValue, key: str, owner: bytes, ttl: float, now: Callable[[], float]
) -> LeaseEntry | None:
    """The lease that this owner took in an attempt whose answer was lost."""
    from nats.js.errors import NotFoundError

    try:
        entry = await table.get(key)
    except NotFoundError:
        return None
    if entry.value != owner:
        return None
    # How long ago is unknown.
    lease = LeaseEntry(table, key, owner, entry.revision or 0, now(), now)
    await lease.write(ttl)
    return lease if lease.held else None
