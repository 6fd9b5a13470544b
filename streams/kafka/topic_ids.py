"""The ids of topics, which tell a topic from an earlier one of the same name (KIP-516)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from penstock.streams.kafka.client import connection_of

__all__ = ["topic_ids"]

# Seconds in which brokers answer.
_ANSWER = 5.0


async def topic_ids(settings: Mapping[str, Any], topics: Collection[str]) -> dict[str, str]:
    """The ids of topics, asked for over another connection with the same settings, since the client
    tells them only to administrators. Without those that brokers before Kafka 2.8 do not have.

    Raises KafkaException if the brokers do not say them within some seconds.
    """
    from confluent_kafka import TopicCollection, Uuid
    from confluent_kafka.admin import AdminClient

    def ask() -> dict[str, str]:
        asking: Any = AdminClient({**connection_of(settings), "log_level": 0})
        answers = asking.describe_topics(TopicCollection(list(topics)), request_timeout=_ANSWER)
        found = {name: answer.result().topic_id for name, answer in answers.items()}
        return {name: str(id) for name, id in found.items() if id != Uuid(0, 0)}

    return await asyncio.to_thread(ask)
