"""A record of a topic, with what Kafka keeps beside its value."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.streams.io import body

if TYPE_CHECKING:
    from confluent_kafka import Message

__all__ = ["TOMBSTONE", "KafkaRecord", "Place", "headers_of", "texts_of", "value_of"]

T = TypeVar("T")

TOMBSTONE = "tombstone"
"""The cause with which records without a value are dropped."""


@dataclass(frozen=True, slots=True)
class KafkaRecord(Generic[T]):
    """A record: its value, decoded; its key and its headers, as bytes; and where it is stored.

    `value` is None for a tombstone, which deletes the key from a compacted topic. `timestamp` is in
    seconds since 1970, by the producer's clock or the broker's, as the topic is set up.
    """

    value: T
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = field(default=())
    topic: str = ""
    partition: int = -1
    offset: int = -1
    timestamp: float = 0.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record is stored, for messages."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"record {self.offset} of {self.topic}, partition {self.partition}"


def value_of(message: Message, decode: Callable[[bytes], T], place: object) -> T | None:
    """The decoded value; None for a tombstone. Raises BadLine, which names the record."""
    data = message.value()
    return None if data is None else body.value_of(data, decode, place)


def headers_of(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of a record, in order; a name may be there more than once."""
    headers = message.headers() or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    return tuple(
        (name, value.encode() if isinstance(value, str) else value) for name, value in pairs
    )


def texts_of(headers: tuple[tuple[str, bytes | None], ...]) -> dict[str, str]:
    """The headers that are text, by their names; of several with one name, the last."""
    found: dict[str, str] = {}
    for name, value in headers:
        with suppress(UnicodeDecodeError):
            found[name] = (value or b"").decode()
    return found
