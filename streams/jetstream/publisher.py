"""Publish events so that none is lost and none is stored twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from orjson import dumps

from streams.jetstream.layout import token
from streams.jetstream.outbox import Outbox
from streams.keys import key_function

if TYPE_CHECKING:
    from streams.jetstream.client import Client
    from streams.jetstream.layout import Layout

__all__ = ["Publisher"]


class Publisher:
    """Has events stored while its block is open. Any number may be under way at once.

    An event that no server takes is tried again for a minute, which is longer than servers take
    to restart one by one; one that may be stored, for less long than the server remembers ids.
    """

    def __init__(self, client: Client, layout: Layout) -> None:
        self.published = self.duplicates = 0
        self._outbox = Outbox(client, doubt=layout.doubt)
        self._layout = layout
        self._identity: Callable[[Any], Any] | None = (
            None if layout.identity is None else key_function(layout.identity)
        )
        self._key: Callable[[Any], Any] | None = (
            None if layout.key is None else key_function(layout.key)
        )
        self._count = 0

    async def __aenter__(self) -> Publisher:
        await self._outbox.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._outbox.stop()

    async def publish(self, value: Any) -> None:
        """Have one event stored, as JSON.

        Raises PayloadTooLarge, StreamMissing, PublishFailed when the servers have not taken it in
        time, which says whether it may be stored, and what reading the identity or the key raises.
        """
        body = dumps(value)
        identity = token(self._identity(value)) if self._identity else uuid4().hex
        self._count += 1
        key = self._key(value) if self._key else self._count
        known = await self._outbox.stored(f"{self._layout.inlet}.{token(key)}", body, identity)
        self.duplicates += known
        self.published += not known
