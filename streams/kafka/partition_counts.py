"""The numbers of partitions of topics with which states move: the same for all, and for good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.streams.base.errors import BuildError, PenstockError
from penstock.streams.kafka.group import Consumer

__all__ = ["check_alike", "look_for_more"]

# Seconds for which the brokers are waited for.
_ANSWER = 1.0


def check_alike(counts: Mapping[str, int], topic: str, other: str) -> None:
    """Raise BuildError unless two topics that are read together have as many partitions."""
    if counts[topic] != counts[other]:
        most = max(counts[topic], counts[other])
        more, less = (topic, other) if counts[topic] == most else (other, topic)
        raise BuildError(
            f"read_kafka: {topic!r} has {counts[topic]} partitions and {other!r} has "
            f"{counts[other]}, and states here move with partitions, so the events of a key must "
            f"be in those of one number. Make a topic with {most} partitions, write all events of "
            f"{less!r} to it with their keys, and read that in its place. If {more!r} had fewer "
            "partitions before, its old events are in those: do the same with it, and read both "
            "with a new store and a new group"
        )


async def look_for_more(
    consumer: Consumer, topics: Sequence[str], counts: Mapping[str, int]
) -> bool:
    """Whether the brokers have answered how many partitions topics have.

    Raises PenstockError when one has more than it had. Those of a topic that follows would not be
    read, and what would have a partner there would seem to have none.
    """
    from confluent_kafka import KafkaException

    for topic in topics:
        try:
            answer = await consumer.list_topics(topic=topic, timeout=_ANSWER)
        except KafkaException:
            return False
        before, now = counts[topic], len(answer.topics[topic].partitions)
        if now > before:
            others = "".join(f", like {one!r}" for one in topics if one != topic)
            raise PenstockError(
                f"read_kafka: {topic!r} had {before} partitions{others}, and has {now} now: "
                "events of a key are not all in one partition any more, and states here move "
                f"with partitions. Make a new topic with {now} partitions in place of "
                f"{' and of '.join(map(repr, topics))}, write all events to it with their keys, "
                "and read that, with a new store and a new group"
            )
    return True
