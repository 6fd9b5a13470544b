"""A transactional producer whose calls do not block the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from confluent_kafka import Producer, TopicPartition

__all__ = ["TransactionalProducer", "in_thread", "is_member"]

# Seconds in which brokers answer; a call that takes longer is made again.
_ANSWER = 10.0


class TransactionalProducer(Protocol):
    """What is used of a producer with a transactional id. Errors are KafkaExceptions; a call that
    failed with one that is `retriable` can be made again."""

    async def topic_error(self, topic: str, /) -> Any:
        """The error of a topic that cannot be written to; None for one that can."""
        ...

    async def init_transactions(self) -> None: ...
    async def begin_transaction(self) -> None: ...
    def produce(self, topic: str, value: bytes | None, key: bytes | None, **rest: Any) -> None: ...
    async def make_room(self) -> None:
        """Wait until some records are sent."""
        ...

    async def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, /
    ) -> None: ...
    async def commit_transaction(self) -> None: ...
    async def abort_transaction(self) -> None: ...
    async def close(self) -> None: ...


def in_thread(producer: Producer) -> TransactionalProducer:
    """A producer of the client, whose calls block, as one whose calls are awaited."""
    return _InThread(producer)


class _InThread:
    """Calls that are cancelled go on in the thread, and those that follow wait for them."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._threads = ThreadPoolExecutor(1, "penstock write_kafka")

    def produce(self, topic: str, value: bytes | None, key: bytes | None, **rest: Any) -> None:
        self._producer.produce(topic, value, key, **rest)

    async def _call(self, method: Callable[..., Any], *args: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(method, *args))

    async def topic_error(self, topic: str, /) -> Any:
        ask = partial(self._producer.list_topics, timeout=_ANSWER)
        found = (await self._call(ask, topic)).topics.get(topic)
        return None if found is None else found.error

    async def init_transactions(self) -> None:
        await self._call(self._producer.init_transactions, _ANSWER)

    async def begin_transaction(self) -> None:
        await self._call(self._producer.begin_transaction)

    async def make_room(self) -> None:
        await self._call(self._producer.poll, 0.1)

    async def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, /
    ) -> None:
        await self._call(
            self._producer.send_offsets_to_transaction, positions, group_metadata, _ANSWER
        )

    async def commit_transaction(self) -> None:
        await self._call(self._producer.commit_transaction, _ANSWER)

    async def abort_transaction(self) -> None:
        await self._call(self._producer.abort_transaction, _ANSWER)

    async def close(self) -> None:
        await self._call(self._producer.purge)
        await self._call(self._producer.poll, 0)
        self._threads.shutdown(wait=False)


_HEAD = b"CGMDv2:"


def is_member(group_metadata: Any) -> bool:
    """Whether the metadata of a group has a generation and a member, by which brokers recognise a
    member that they have given up.

    A client that has learned that it was given up has neither until it joins again, and brokers
    accept every offset with such metadata. The format is that of librdkafka's
    `rd_kafka_consumer_group_metadata_write`; of one that is not known nothing is said.
    """
    if not isinstance(group_metadata, bytes) or not group_metadata.startswith(_HEAD):
        return True
    generation = int.from_bytes(group_metadata[len(_HEAD) :][:4], "little", signed=True)
    _, member, *_ = group_metadata[len(_HEAD) + 4 :].split(b"\0")
    return generation >= 0 and member != b""
