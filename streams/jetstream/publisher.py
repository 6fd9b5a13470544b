"""Publish events so that none is lost and none is stored twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from orjson import dumps

from streams.errors import PayloadTooLarge, PublishFailed
from streams.jetstream.connection import jetstream
from streams.jetstream.layout import token
from streams.jetstream.letters import persistently
from streams.keys import key_function

if TYPE_CHECKING:
    from nats.aio.client import Client

    from streams.jetstream.layout import Layout

__all__ = ["Publisher"]


class Publisher:
    """Waits for the server's acknowledgement of each event.

    An event that is not acknowledged is published again under the same id, with growing pauses,
    and for less long than the server remembers ids. Any number may be under way at once.
    """

    def __init__(self, client: Client, layout: Layout) -> None:
        self.published = self.duplicates = 0
        self._js = jetstream(client)
        self._largest = client.max_payload
        self._layout = layout
        self._identity: Callable[[Any], Any] | None = (
            None if layout.identity is None else key_function(layout.identity)
        )
        self._key: Callable[[Any], Any] | None = (
            None if layout.key is None else key_function(layout.key)
        )
        self._count = 0

    async def publish(self, value: Any, identity: str | None = None) -> None:
        """Have one event stored, as JSON; `identity` is used instead of the event's own.

        Raises PayloadTooLarge, PublishFailed when the servers have not taken it in time, and what
        reading the identity or the key raises.
        """
        from nats.js.errors import APIError

        body = dumps(value)
        if len(body) > self._largest:
            raise PayloadTooLarge(
                f"an event of {len(body):,} bytes is more than the server takes "
                f"({self._largest:,}, max_payload in its configuration)"
            )
        if identity is None:
            identity = token(self._identity(value)) if self._identity else uuid4().hex
        self._count += 1
        key = self._key(value) if self._key else self._count
        subject = f"{self._layout.inlet}.{token(key)}"
        headers = {"Nats-Msg-Id": identity}
        # A try beyond the window could be stored a second time.
        patience = max(1.0, self._layout.window - 2.0)
        try:
            stored = await persistently(
                lambda: self._js.publish(subject, body, headers=headers), patience
            )
        except APIError as error:
            raise PublishFailed(
                f"the stream '{self._layout.stream}' refuses an event: {error.description}"
            ) from error
        except Exception as error:
            raise PublishFailed(
                f"no server took an event within {patience:g} s "
                f"({type(error).__name__}: {error}); it may or may not be stored"
            ) from error
        if stored.duplicate:
            self.duplicates += 1
        else:
            self.published += 1
