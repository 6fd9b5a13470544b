"""A transactional producer whose calls do not block the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from confluent_kafka import Producer, TopicPartition

__all__ = ["NoAnswer", "TransactionalProducer", "in_thread", "is_member"]

# Seconds in which brokers answer; a call that takes longer is made again.
_ANSWER = 10.0
# Seconds after which a call will not return any more; it may wait for one that was cancelled.
_LONGEST = 3 * _ANSWER


class NoAnswer(Exception):
    """A call has not returned: the producer is of no use any more, and is to be replaced.

    librdkafka's `send_offsets_to_transaction` does not observe its timeout while it looks for the
    coordinator of the group (librdkafka's issue 5456), and looks for ever where it has dropped the
    connection of the one that it knows (5511).
    """


class TransactionalProducer(Protocol):
    """The methods used of a producer with a transactional id. Errors are KafkaExceptions; a call
    that failed with a `retriable` one can be made again. After NoAnswer no call can be."""

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


_Call = tuple["Future[Any]", Callable[[], Any]]


class _InThread:
    """Calls that are cancelled go on in the thread, and those that follow wait for them. None waits
    for one that was given up.

    The process does not wait for the thread at its end, since a call may never return.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._is_stuck = False
        Thread(None, self._work, "penstock write_kafka", daemon=True).start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            answer, method = call
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(method())
                except BaseException as error:
                    answer.set_exception(error)

    def produce(self, topic: str, value: bytes | None, key: bytes | None, **rest: Any) -> None:
        self._producer.produce(topic, value, key, **rest)

    async def _call(self, method: Callable[..., Any], *args: Any) -> Any:
        if self._is_stuck:
            raise NoAnswer
        answer: Future[Any] = Future()
        self._calls.put((answer, partial(method, *args)))
        try:
            async with asyncio.timeout(_LONGEST):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            self._give_up()
            raise NoAnswer from None

    def _give_up(self) -> None:
        self._is_stuck = True
        with suppress(Empty):
            while (call := self._calls.get_nowait()) is not None:
                if call[0].set_running_or_notify_cancel():
                    call[0].set_exception(NoAnswer())
        self._calls.put(None)

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
        from confluent_kafka import KafkaException

        await self._call(self._producer.purge)
        # One that ended by an error raises it here once more.
        with suppress(KafkaException):
            await self._call(self._producer.poll, 0)
        self._calls.put(None)


_HEAD = b"CGMDv2:"


def is_member(group_metadata: Any) -> bool:
    """Whether the metadata of a group has a generation and a member, by which brokers recognise a
    member that they have given up.

    A client that has learned that it was given up has neither until it joins again, and brokers
    accept every offset with such metadata. The format is written by librdkafka's
    `rd_kafka_consumer_group_metadata_write`; True for an unknown one.
    """
    if not isinstance(group_metadata, bytes) or not group_metadata.startswith(_HEAD):
        return True
    generation = int.from_bytes(group_metadata[len(_HEAD) :][:4], "little", signed=True)
    _, member, *_ = group_metadata[len(_HEAD) + 4 :].split(b"\0")
    return generation >= 0 and member != b""
