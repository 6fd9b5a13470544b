"""Membership: the status that a worker publishes, and notifications between workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from orjson import dumps

from penstock.streams.base import clock

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from penstock.streams.nats.client.client import Client
    from penstock.streams.pipelines.running import Running

__all__ = ["News", "about"]


def about(
    name: str,
    since: float,
    partitions: Iterable[int],
    restarts: int,
    running: Running | None,
    restoring: Sequence[Mapping[str, Any]] = (),
) -> bytes:
    """The status that a worker publishes; `restoring` has the partitions whose states are being
    restored."""
    statistics: dict[str, Any] = {} if running is None else running.statistics()
    counted = ("finished", "failed", "in_flight", "waiting")
    return dumps(
        {
            "name": name,
            "since": since,
            "partitions": sorted(partitions),
            **{what: statistics.get(what, 0) for what in counted},
            "restarts": restarts,
            "restoring": list(restoring),
            "at": clock.wall(),
        }
    )


class News:
    """Notices that a worker has come or gone, or released a partition.

    They may get lost, so workers look at intervals as well.
    """

    def __init__(self, client: Client, subject: str) -> None:
        self._client = client
        self._subject = subject
        self._subscription: Subscription | None = None
        self._heard = asyncio.Event()

    async def start(self) -> None:
        self._subscription = await self._client.listen(self._subject, self._hear)

    async def stop(self) -> None:
        from nats.errors import Error

        if self._subscription is not None:
            with suppress(Error):
                await self._subscription.unsubscribe()

    async def publish(self) -> None:
        """Make all workers, including this one, look at once."""
        from nats.errors import Error

        with suppress(Error):
            await self._client.publish(self._subject, b"")

    async def _hear(self, message: Msg) -> None:
        self._heard.set()

    async def wait(self, seconds: float) -> None:
        """Wait until there is news, at most so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._heard.wait()

    def clear(self) -> None:
        """The news so far is being handled."""
        self._heard.clear()
