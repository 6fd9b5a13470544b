"""The leases of delivered messages, and their renewal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.streams.delivery.lease import Lease
from penstock.streams.nats.streams.replies import WORKING

if TYPE_CHECKING:
    from penstock.streams.nats.client.client import Client

__all__ = ["Leased", "Leases"]

# Seconds in which the server answers, and until it is asked again when it has not.
_ANSWER, _PAUSE = 2.0, 0.5
# The number of a message that no stream has.
_NO_MESSAGE = 1 << 62


class Leased:
    """A delivered message: the subject that acknowledges it, and its lease."""

    __slots__ = ("lease", "reply")

    def __init__(self, reply: str, lease: Lease) -> None:
        self.reply = reply
        self.lease = lease


K = TypeVar("K", bound=Hashable)
L = TypeVar("L", bound=Leased)


class Leases(Generic[K, L]):
    """The messages `held`, whose leases are renewed three times in their `length`, in seconds.

    A message is this reader's for the length of a lease from the moment at which the server was
    last asked something that it has answered since: whatever it had sent before has been read, so a
    message that arrives was sent later. One whose lease may be over, because the process was
    frozen, cut off or blocked, is not held any more, whatever a renewal returns, until the server
    delivers it here again.
    """

    def __init__(
        self,
        client: Client,
        stream: str,
        consumer: str,
        length: float,
        now: Callable[[], float],
    ) -> None:
        self.held: dict[K, L] = {}
        self.length = length
        self._client = client
        # Answered by the server that delivers, after what it has delivered before.
        self._ask = f"$JS.ACK.{stream}.{consumer}.1.{_NO_MESSAGE}.1.1.0"
        self._now = now
        self._heard = now()
        self._newest = Lease(now)
        self._answered = True

    @property
    def newest(self) -> Lease:
        """The lease of a message that arrives now."""
        until = self._heard + self.length
        if self._newest.until != until:
            self._newest = Lease(self._now, until)
        return self._newest

    def came_again(self, key: K, reply: str) -> bool:
        """A message was delivered; returns whether it is held already. Then its lease was over, and
        it is this reader's again."""
        known = self.held.get(key)
        if known is None:
            return False
        known.reply, known.lease = reply, self.newest
        return True

    async def renew(self) -> None:
        """Renew the leases, a third of their length after the last time."""
        await asyncio.sleep(self.length / 3 if self._answered else min(self.length / 3, _PAUSE))
        self._answered = await self._renew()

    async def _renew(self) -> bool:
        """Returns whether the server has answered."""
        from nats.errors import Error

        client, asked, renewed = self._client, self._now(), list(self.held.values())
        # What arrives from here on may have been sent before, and is not renewed with the others.
        self._newest = Lease(self._now)
        try:
            for one in renewed:
                await client.publish(one.reply, WORKING)
            await client.request(self._ask, WORKING, timeout=min(self.length / 3, _ANSWER))
        except (Error, TimeoutError):
            return False
        self._heard = asked
        for lease in {one.lease for one in renewed}:
            lease.renew(asked + self.length)
        return True
