"""The metadata of a commit: what the next reader is told beside the offset.

Kafka keeps a short text with each committed offset. Ours is the text of a ledger, which is about
the cluster, the topic, the partition and the offset. MirrorMaker copies it beside another offset of
another cluster, and so may any tool that moves offsets: there it says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.streams.delivery.ranges import Range, finished_in
from penstock.streams.delivery.text import About, Unusable, body_in, text_of
from penstock.streams.delivery.trial import NOTE, Doubt, doubt_in
from penstock.streams.kafka.offsets.state import COUNTS, State, state_in

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

__all__ = ["METADATA", "Metadata", "about", "metadata_in", "with_counts"]

METADATA = 4096
"""Bytes of metadata that a broker accepts by default (`offset.metadata.max.bytes`)."""


class Metadata(NamedTuple):
    """The finished ranges above the committed offset, the note of the partition's holder, if it has
    left one, and its counts."""

    finished: Sequence[Range] = ()
    doubt: Doubt | None = None
    state: State | None = None


def about(cluster: str, topic: str, partition: int, offset: int) -> About:
    """The subject of the metadata beside an offset. `cluster` is the id that brokers give: a copy
    of a topic may have the same name and the same offset, and other records above it."""
    return cluster, topic, partition, offset


def metadata_in(cluster: str, committed: TopicPartition) -> Metadata | Unusable:
    """The metadata beside a committed offset, or the reason why it says nothing."""
    if not committed.metadata:
        return Metadata()
    where = about(cluster, committed.topic, committed.partition, committed.offset)
    body = body_in(committed.metadata, where)
    if isinstance(body, Unusable):
        return body
    rest, _, counts = body.partition(COUNTS)
    finished, _, note = rest.partition(NOTE)
    return Metadata(finished_in(committed.offset, finished), doubt_in(note), state_in(counts))


def with_counts(cluster: str, committed: TopicPartition, counts: str) -> TopicPartition:
    """What is committed of a partition, with these counts in place of others."""
    from confluent_kafka import TopicPartition as Place

    topic, number, offset = committed.topic, committed.partition, committed.offset
    where = about(cluster, topic, number, offset)
    body = body_in(committed.metadata or "", where)
    rest = "" if isinstance(body, Unusable) else body.partition(COUNTS)[0]
    return Place(topic, number, offset, text_of(where, rest + counts))
