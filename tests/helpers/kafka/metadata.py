"""Metadata of commits: made for the model of a broker, and read wherever it was written for."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from confluent_kafka import TopicPartition

from penstock.streams.delivery.ranges import Range, text_of_most
from penstock.streams.delivery.text import Unusable, text_of
from penstock.streams.delivery.trial import Doubt
from penstock.streams.kafka.offsets.metadata import METADATA, Metadata, about, metadata_in
from penstock.streams.kafka.offsets.state import State
from tests.helpers.kafka.model import CLUSTER

__all__ = ["finished_beside", "metadata_of", "said_in"]


def metadata_of(
    offset: int,
    finished: Sequence[Range] = (),
    *notes: Doubt | State,
    cluster: str = CLUSTER,
    topic: str = "t",
    partition: int = 0,
) -> str:
    """What penstock writes beside an offset."""
    body = text_of_most(offset, finished, METADATA).text + "".join(map(str, notes))
    return text_of(about(cluster, topic, partition, offset), body)


def said_in(text: str) -> Metadata:
    """What a text says, for whatever offset it was written."""
    if not text:
        return Metadata()
    _, _, where, _ = text.split(":", 3)
    cluster, topic, partition, offset = map(unquote, where.split("/"))
    said = metadata_in(cluster, TopicPartition(topic, int(partition), int(offset), text))
    assert not isinstance(said, Unusable), said
    return said


def finished_beside(offset: int, text: str) -> list[Range]:
    """The ranges that a text says are finished above this offset, for which it must be."""
    assert not text or f"/{offset}:" in text
    return list(said_in(text).finished)
