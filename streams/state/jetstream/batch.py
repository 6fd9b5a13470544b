"""Atomic batches: messages of one stream that are all stored, or none of them.

Source: ADR-50 of NATS, "JetStream Batch Publishing"; nats-server 2.12 or newer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orjson import loads

from penstock.streams.base.errors import PayloadTooLarge
from penstock.streams.state.jetstream.messages import New

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from penstock.streams.nats.client.client import Client

__all__ = ["EXPECTED", "MOST", "batch"]

MOST = 1_000
"""The most messages of a batch, a limit of servers."""

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
"""The field with the sequence that the last message of a subject must have, or the whole batch is
refused."""

# Seconds in which servers answer.
_ANSWER = 5.0
# Bytes that a header takes at most.
_HEADER = 300


async def batch(client: Client, messages: Sequence[New]) -> dict[str, Any]:
    """Publish messages as one batch; returns the answer of the stream. Raises TimeoutError if there
    is none, and PayloadTooLarge.

    The answer has the `seq` of the last message, or an `error`. Without an answer the batch may be
    stored, or may still be.
    """
    _check_sizes(client, messages)
    answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def heard(message: Msg) -> None:
        # The first message has an answer too, which is empty if it is accepted.
        if message.data and not answer.done():
            answer.set_result(loads(message.data))
        elif (message.headers or {}).get("Status") and not answer.done():
            answer.set_exception(TimeoutError("no stream answers"))

    inbox = client.new_inbox()
    untyped: Any = client
    subscription = await untyped.subscribe(inbox, cb=heard)
    try:
        async with asyncio.timeout(_ANSWER):
            id, last = os.urandom(12).hex(), len(messages)
            for number, (subject, body, fields, _) in enumerate(messages, 1):
                header = {"Nats-Batch-Id": id, "Nats-Batch-Sequence": str(number), **fields}
                if number == last:
                    header["Nats-Batch-Commit"] = "1"
                reply = inbox if number in (1, last) else ""
                await untyped.publish(subject, body, reply=reply, headers=header)
                if answer.done():
                    break
            return await answer
    finally:
        if client.is_connected:
            await subscription.unsubscribe()


def _check_sizes(client: Client, messages: Sequence[New]) -> None:
    largest = client.max_payload - _HEADER
    for message in messages:
        if len(message.body) > largest:
            what = "a mark"
            if message.about is not None:
                stage, key = message.about
                what = f"the state of key {key.decode()[:80]} of the stage {stage!r}"
            raise PayloadTooLarge(
                f"{what} takes {len(message.body):,} bytes, and the NATS server takes messages of "
                f"{client.max_payload:,} (max_payload in its configuration, at most 64 MB): give "
                "the server a larger limit, or keep less in one state"
            )
