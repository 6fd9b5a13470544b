"""The encoding of several events of one partition in one message.

The first line of its body is a JSON array of their identities, empty where nothing drops
duplicates; each line after it is the JSON of an event. A field of the header says how many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orjson import dumps, loads

from penstock.streams.nats.client.message import Message

__all__ = ["LARGEST", "body_of", "events_of", "header_of", "identities_of"]

LARGEST = 1024
"""How many events one message holds at most."""

_FIELD = "Penstock-Events"
_MARK = _FIELD.encode()
# The JSON types of identities.
_OWN = {int, str}


def header_of(count: int) -> dict[str, str]:
    """The header fields of a message with so many events."""
    return {_FIELD: str(count)}


def body_of(events: Sequence[bytes], identities: Sequence[int | str]) -> bytes:
    """The body of a message of these events, the JSON of each."""
    return b"\n".join([dumps(identities), *events])


def identities_of(message: Message) -> tuple[list[int | str], int] | None:
    """The identities of its events, and how many events there are; None for a message with a single
    event, or in another format."""
    if _MARK not in message.header:
        return None
    count = message.data.count(b"\n")
    try:
        own: Any = loads(message.data[: message.data.index(b"\n")])
    except ValueError:
        return None
    if own.__class__ is not list or len(own) not in (0, count) or not set(map(type, own)) <= _OWN:
        return None
    return own, count


def events_of(body: bytes) -> list[bytes]:
    """The JSON of each event of such a body."""
    return body.split(b"\n")[1:]
