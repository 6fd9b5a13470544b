"""What is finished, as the brokers keep it: commits of offsets by the consumer itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from penstock.streams.errors import PenstockError
from penstock.streams.kafka.partition import Partition, Token
from penstock.streams.runtime.context import Run

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, TopicPartition

__all__ = ["Commits", "Committing", "OffsetCommits", "passes"]

# Seconds between two commits: what finished in between is repeated after a kill.
_EVERY = 1.0


class Committing(Protocol):
    """The part of a consumer that is needed to commit."""

    async def commit(
        self, *, offsets: list[TopicPartition], asynchronous: bool
    ) -> list[TopicPartition]: ...
    async def consumer_group_metadata(self) -> Any: ...


class Commits(Protocol):
    """Records what has finished, and commits it. The methods that await have one caller at a
    time."""

    def finish(self, tokens: Iterable[Token], /) -> None:
        """The events of records have ended, and need not be emitted again."""
        ...

    def take_back(self, token: Token, /) -> None:
        """The event of a record was returned."""
        ...

    def due_in(self) -> float:
        """Seconds until `commit` is due."""
        ...

    async def commit(self, consumer: Committing, partitions: Iterable[Partition], /) -> None:
        """Commit what has changed; what the brokers do not take now is committed later."""
        ...

    async def hand_over(self, consumer: Committing, partitions: Iterable[Partition], /) -> None:
        """`commit` what has changed in these partitions, before they go to others."""
        ...

    async def confirm(self, consumer: Committing, partitions: Iterable[Partition], /) -> bool:
        """Whether the brokers accept commits for these partitions."""
        ...

    async def close(self, consumer: Committing, partitions: Iterable[Partition], /) -> bool:
        """`commit` what has changed, at the end. Returns False if the brokers do not take it now,
        as while members join."""
        ...

    def stop(self, error: PenstockError, /) -> None:
        """`commit` is not called any more, because of an error."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether nothing above the floor may begin, since it could not be remembered."""
        ...


class OffsetCommits:
    """Commits by the consumer, once a second.

    `error` makes an error of the client ours; it is given the topic that the error is about.
    """

    def __init__(self, run: Run, error: Callable[[KafkaError, str], PenstockError]) -> None:
        self._now = run.now
        self._error = error
        self._committed_at = run.now()

    def finish(self, tokens: Iterable[Token], /) -> None:
        for token in tokens:
            token.partition.progress.finish(token.offset)

    def take_back(self, token: Token, /) -> None: ...

    def stop(self, error: PenstockError, /) -> None: ...

    @property
    def is_full(self) -> bool:
        return False

    def due_in(self) -> float:
        return self._committed_at + _EVERY - self._now()

    async def commit(self, consumer: Committing, partitions: Iterable[Partition], /) -> None:
        from confluent_kafka import KafkaError, KafkaException

        self._committed_at = self._now()
        due = [(one, mark) for one in partitions if (mark := one.due()) is not None]
        if not due:
            return
        try:
            results = await consumer.commit(
                offsets=[partition.place(*mark) for partition, mark in due], asynchronous=False
            )
        except KafkaException as raised:
            fault: KafkaError = raised.args[0]
            if fault.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
                for partition, _ in due:
                    partition.remember_less()
            elif not passes(fault):
                raise
            return
        for (partition, mark), result in zip(due, results, strict=True):
            if result.error is None:
                partition.committed = mark
            elif result.error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
                partition.remember_less()
            elif not passes(result.error):
                raise self._error(result.error, partition.topic)

    async def hand_over(self, consumer: Committing, partitions: Iterable[Partition], /) -> None:
        await self.commit(consumer, partitions)

    async def close(self, consumer: Committing, partitions: Iterable[Partition], /) -> bool:
        from confluent_kafka import KafkaException

        with suppress(PenstockError, KafkaException):
            await self.commit(consumer, partitions)
            return all(partition.due() is None for partition in partitions)
        return True

    async def confirm(self, consumer: Committing, partitions: Iterable[Partition], /) -> bool:
        from confluent_kafka import KafkaException

        places = [one.place(*mark) for one in partitions if (mark := one.mark())]
        if not places:
            return True
        try:
            results = await consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as raised:
            if not passes(raised.args[0]):
                raise
            return False
        return all(result.error is None for result in results)


def passes(fault: KafkaError) -> bool:
    """Whether a commit may succeed later, or is somebody else's by then."""
    from confluent_kafka import KafkaError as Code

    return fault.retriable() or fault.code() in (
        Code.ILLEGAL_GENERATION,
        Code.UNKNOWN_MEMBER_ID,
        Code.REBALANCE_IN_PROGRESS,
        Code.FENCED_INSTANCE_ID,
        Code.STALE_MEMBER_EPOCH,
        Code.NOT_COORDINATOR,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code._TRANSPORT,
        Code._TIMED_OUT,
        Code._WAIT_COORD,
        Code._NO_OFFSET,
        Code._ASSIGNMENT_LOST,
    )
