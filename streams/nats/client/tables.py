"""Opens or creates the key-value bucket that belongs to a stream."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.streams.nats.client.answers import answered

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue

__all__ = ["table_of"]


async def table_of(
    js: JetStreamContext, stream: str, bucket: str, ttl: float | None = None
) -> KeyValue:
    """The bucket, which is created with as many replicas as the stream has if it does not exist.

    `ttl` is the seconds after which the entries of a new one expire. Raises CannotConnect.
    """
    from nats.js.api import KeyValueConfig
    from nats.js.errors import BucketNotFoundError, KeyNotFoundError

    try:
        table = await answered(lambda: js.key_value(bucket))
    except BucketNotFoundError:
        info = await answered(lambda: js.stream_info(stream))
        untyped: Any = js
        config = KeyValueConfig(bucket=bucket, ttl=ttl, replicas=info.config.num_replicas or 1)
        table = await answered(lambda: untyped.create_key_value(config))

    async def look() -> None:
        with suppress(KeyNotFoundError):
            await table.get("p.0")

    # A bucket that was just created has no leader yet.
    await answered(look)
    return table
