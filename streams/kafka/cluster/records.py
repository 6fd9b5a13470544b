"""Reads what is in a topic now, without a group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from penstock.streams.kafka.client import error_of
from penstock.streams.kafka.cluster.layout import Layout

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

__all__ = ["ANSWER", "committed", "marks", "place_of", "records"]

ANSWER = 10.0
"""Seconds in which brokers answer."""


def marks(layout: Layout, topic: str, partitions: int) -> list[tuple[int, int]]:
    """The first offset of each partition, and the one behind its last record."""
    from confluent_kafka import TopicPartition

    what = f"topic {topic!r}"
    with _consumer(layout, what) as consumer:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        return [
            layout.answered(partial(consumer.get_watermark_offsets, place, ANSWER), what)
            for place in places
        ]


def committed(layout: Layout, partitions: int) -> list[TopicPartition]:
    """The offsets of the topic that the group has committed, with their metadata.

    Not asked of an AdminClient: its answer crashes the process while the brokers load the group.
    """
    from confluent_kafka import KafkaException, TopicPartition

    places = [TopicPartition(layout.topic, number) for number in range(partitions)]

    def ask() -> list[TopicPartition]:
        found = consumer.committed(places, ANSWER)
        for place in found:
            if place.error is not None:
                raise KafkaException(place.error)
        return found

    what = f"group {layout.group!r}"
    with _consumer(layout, what) as consumer:
        return [place for place in layout.answered(ask, what) if place.offset >= 0]


def records(
    layout: Layout,
    topic: str,
    bounds: Sequence[tuple[int, int]],
    most: float = inf,
) -> Iterator[Message]:
    """The records of each partition from one offset up to another, in order; at most so many of a
    partition."""
    from confluent_kafka import KafkaError, TopicPartition

    unread = {number for number, (begin, end) in enumerate(bounds) if begin < end}
    if not unread:
        return
    what = f"topic {topic!r}"
    with _consumer(layout, what) as consumer:
        consumer.assign([TopicPartition(topic, number, bounds[number][0]) for number in unread])
        taken: Counter[int] = Counter()
        while unread:
            message = consumer.poll(ANSWER)
            if message is None:
                raise error_of(KafkaError(KafkaError._TIMED_OUT), what, layout.servers)
            fault = message.error()
            number, offset = place_of(message)
            is_over = fault is not None and fault.code() == KafkaError._PARTITION_EOF
            if fault is not None and not is_over:
                if not fault.retriable():
                    raise error_of(fault, what, layout.servers)
                continue
            if number not in unread:
                continue
            end = bounds[number][1]
            if not is_over and offset < end:
                taken[number] += 1
                yield message
            if is_over or offset + 1 >= end or taken[number] >= most:
                unread.remove(number)
                consumer.pause([TopicPartition(topic, number)])


def place_of(message: Message) -> tuple[int, int]:
    """The partition and the offset of a record."""
    return message.partition() or 0, message.offset() or 0


@contextmanager
def _consumer(layout: Layout, what: str) -> Generator[Consumer]:
    """A client that reads without being a member of a group."""
    from confluent_kafka import Consumer

    settings = layout.client(
        **{
            # Needed, although nothing is committed.
            "group.id": layout.group or "penstock",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer: Consumer = layout.answered(lambda: Consumer(settings), what)
    try:
        yield consumer
    finally:
        consumer.close()
