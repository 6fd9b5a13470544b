"""A Kafka cluster in this process: that of librdkafka, which speaks the protocol over sockets.

It keeps topics, groups and transactions in memory, and needs no Java. It does not do everything
that brokers do (no cooperative hand-over between members, no KIP-848, no retention): for that,
`make test-kafka` runs real brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

__all__ = ["PARTITIONS", "Cluster", "kafka", "until"]

PARTITIONS = 4
_TIME = 10.0

# Seconds to wait for a record of a topic, or its answer, whose broker may just have come back.
_PATIENCE = 60.0


class Cluster:
    """The addresses of a cluster, and what tests do with it as others would."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._count = 0

    def topic(self) -> str:
        """The name of a new topic with four partitions."""
        self._count += 1
        name = f"topic-{self._count}"
        self.make(name)
        return name

    def make(self, name: str) -> None:
        """Make a topic of this name with four partitions."""
        # Who asks for a topic makes it, unless its client has been told not to.
        asking = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        asking.list_topics(name, timeout=_TIME)
        asking.close()

    def write(
        self, topic: str, values: Iterable[bytes | None], *, once: bool = False, **rest: Any
    ) -> None:
        """Store these values, to partition 0 or as the `rest` of `produce` says; with `once` each
        only once if a broker restarts meanwhile."""
        settings = {"linger.ms": 0, "enable.idempotence": once}
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0} | settings)
        for value in values:
            producer.produce(topic, value, **({"partition": 0} | rest))
        assert producer.flush(_PATIENCE) == 0

    def read(self, topic: str, partitions: int = PARTITIONS) -> list[Any]:
        """All records of a topic, those of one partition after those of another."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "tests",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found: list[Any] = []
        ended = 0
        while ended < partitions:
            message = consumer.poll(_PATIENCE)
            assert message is not None, "no answer"
            if message.error() is not None:
                ended += 1
            else:
                found.append(message)
        consumer.close()
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    def committed(self, topic: str, group: str, partition: int = 0) -> tuple[int, str]:
        """The committed offset of a group, and the text beside it."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 0})
        (found,) = consumer.committed([TopicPartition(topic, partition)], _TIME)
        consumer.close()
        return found.offset, found.metadata or ""


async def until(true: Callable[[], bool]) -> None:
    """Wait, on real time."""
    async with asyncio.timeout(60):
        while True:
            if true():
                return
            await asyncio.sleep(0.02)


@pytest.fixture(scope="session")
def kafka() -> Iterator[Cluster]:
    """A cluster of one broker, for all tests of the process."""
    keeper = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    brokers = keeper.list_topics(timeout=_TIME).brokers.values()
    yield Cluster(",".join(f"{broker.host}:{broker.port}" for broker in brokers))
    keeper.close()
