"""Commits of offsets, made by the consumer itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from penstock.streams.base.errors import PenstockError
from penstock.streams.kafka.offsets.partition import Mark, Partition, Token
from penstock.streams.kafka.producer import is_member
from penstock.streams.runtime.context import Run
from penstock.streams.state.kafka.topic import is_away

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, TopicPartition

__all__ = ["NO_MEMBER", "Commits", "Committing", "OffsetCommits", "passes"]

# Seconds between two commits: what finished in between is repeated after a kill.
_EVERY = 1.0

NO_MEMBER = "the client has left the group, and joins again"
"""Why a reader that knows that it is not a member commits nothing."""

# What is committed, by topic and number of the partition.
_Marks = dict[tuple[str, int], tuple[Partition, Mark]]


# ruff: noqa: ASYNC109 (these are the arguments of the client)


class Committing(Protocol):
    """The part of a consumer that is needed to commit."""

    async def commit(
        self, *, offsets: list[TopicPartition], asynchronous: bool
    ) -> list[TopicPartition] | None: ...
    async def committed(
        self, partitions: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]: ...
    async def consumer_group_metadata(self) -> Any: ...


class Commits(Protocol):
    """Records what has finished, and commits it. The methods that await have one caller at a
    time."""

    accepted_at: float
    """When the last commit was sent that the brokers have accepted. They accept none of a member
    that they have given up."""

    @property
    def why(self) -> str:
        """Why the last commit was not accepted; empty if it was, or if that is not known."""
        ...

    def finish(self, tokens: Iterable[Token], /) -> None:
        """The events of records have ended, and need not be emitted again."""
        ...

    def take_back(self, token: Token, /) -> None:
        """The event of a record was returned."""
        ...

    def due_in(self) -> float:
        """Seconds until `commit` is due."""
        ...

    async def commit(
        self, consumer: Committing, partitions: Iterable[Partition], /, *, renew: bool = False
    ) -> None:
        """Commit what has changed, or begin to. What brokers refuse now is committed later. With
        `renew` what has not changed is committed again, so that `accepted_at` grows."""
        ...

    async def hand_over(self, consumer: Committing, partitions: Iterable[Partition], /) -> None:
        """`commit` what has changed in these partitions, before they go to others."""
        ...

    async def confirm(self, consumer: Committing, partitions: Iterable[Partition], /) -> bool:
        """Whether the brokers accept commits for these partitions."""
        ...

    async def say(self, consumer: Committing, partition: Partition, /) -> None:
        """Commit the holder's counts with this partition, unless `commit` is about to do so."""
        ...

    async def close(self, consumer: Committing, partitions: Iterable[Partition], /) -> bool:
        """`commit` what has changed, at the end. Returns False if the brokers have not taken it
        yet, as while members join."""
        ...

    def stop(self, error: PenstockError, /) -> None:
        """`commit` is not called any more, because of an error."""
        ...

    async def answered(self, fault: KafkaError | None, results: list[TopicPartition], /) -> None:
        """The callback of the consumer for the result of a commit that was not waited for."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether nothing above the floor may begin, since it could not be remembered."""
        ...


class OffsetCommits:
    """Commits by the consumer, once a second.

    A commit is sent without waiting for the brokers, which may take long when the one that keeps
    the offsets is away: `answered` gets what they say, while the consumer is asked for records.
    Nothing is sent while the client knows that it is in no group: brokers would accept it while the
    group is empty. `error` makes an error of the client ours; it is given the topic that the error
    is about.
    """

    def __init__(self, run: Run, error: Callable[[KafkaError, str], PenstockError]) -> None:
        self._now = run.now
        self._error = error
        self._committed_at = run.now()
        self.accepted_at = -inf
        self.why = ""
        # What was sent and is not answered, and why one was refused for good.
        self._sent: _Marks = {}
        self._sent_at = -inf
        self._failure: PenstockError | None = None

    def finish(self, tokens: Iterable[Token], /) -> None:
        for token in tokens:
            token.partition.ledger.finish(token.offset)

    def take_back(self, token: Token, /) -> None: ...

    def stop(self, error: PenstockError, /) -> None: ...

    @property
    def is_full(self) -> bool:
        return False

    def due_in(self) -> float:
        return self._committed_at + _EVERY - self._now()

    async def commit(
        self, consumer: Committing, partitions: Iterable[Partition], /, *, renew: bool = False
    ) -> None:
        if self._failure is not None:
            raise self._failure
        self._committed_at = self._now()
        if self._sent:
            # One at a time, or an earlier one might be the last that the brokers get.
            return
        due = _due(partitions) or (_marks(partitions) if renew else {})
        if not due:
            return
        if is_member(await consumer.consumer_group_metadata()):
            self._sent, self._sent_at = due, self._now()
            await consumer.commit(offsets=_places(due), asynchronous=True)
        else:
            self.why = NO_MEMBER

    async def answered(self, fault: KafkaError | None, results: list[TopicPartition], /) -> None:
        """The brokers have answered a commit that was sent, or the client has given it up."""
        sent, self._sent = self._sent, {}
        try:
            self._decided(sent, self._sent_at, fault, results)
        except PenstockError as error:
            # Not to the client, which calls this, but to who commits next.
            self._failure = error

    async def hand_over(self, consumer: Committing, partitions: Iterable[Partition], /) -> None:
        # The client calls back for a commit that was sent only after this.
        if due := _due(partitions):
            await self._commit(consumer, due)

    async def say(self, consumer: Committing, partition: Partition, /) -> None: ...

    async def close(self, consumer: Committing, partitions: Iterable[Partition], /) -> bool:
        from confluent_kafka import KafkaException

        with suppress(PenstockError, KafkaException):
            await self.commit(consumer, partitions)
            return not self._sent and not _due(partitions)
        return True

    async def confirm(self, consumer: Committing, partitions: Iterable[Partition], /) -> bool:
        if not is_member(await consumer.consumer_group_metadata()):
            return False
        marks = _marks(partitions)
        return not marks or await self._commit(consumer, marks)

    async def _commit(self, consumer: Committing, marks: _Marks) -> bool:
        """Commit these, and wait for the brokers. Returns whether they have taken all."""
        from confluent_kafka import KafkaException

        sent_at = self._now()
        try:
            results = await consumer.commit(offsets=_places(marks), asynchronous=False)
        except KafkaException as raised:
            self._decided(marks, sent_at, raised.args[0], [])
            return False
        assert results is not None
        self._decided(marks, sent_at, None, results)
        return all(result.error is None for result in results)

    def _decided(
        self,
        marks: _Marks,
        sent_at: float,
        fault: KafkaError | None,
        results: list[TopicPartition],
    ) -> None:
        """Raises the error of what will not be taken later either."""
        from confluent_kafka import KafkaError

        self.why = ""
        answers = {(one.topic, one.partition): one.error for one in results}
        for key, (partition, mark) in marks.items():
            error = answers[key] if fault is None else fault
            if error is None:
                partition.committed = mark
                self.accepted_at = max(self.accepted_at, sent_at)
                continue
            self.why = error.str()
            if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
                partition.remember_less()
            elif not passes(error):
                raise self._error(error, partition.topic)


def _due(partitions: Iterable[Partition]) -> _Marks:
    """The marks that have changed in these partitions since they were committed."""
    return {one.key: (one, mark) for one in partitions if (mark := one.due()) is not None}


def _marks(partitions: Iterable[Partition]) -> _Marks:
    """The marks of these partitions, whether they have changed or not."""
    return {one.key: (one, mark) for one in partitions if (mark := one.mark()) is not None}


def _places(marks: _Marks) -> list[TopicPartition]:
    return [partition.place(*mark) for partition, mark in marks.values()]


def passes(fault: KafkaError) -> bool:
    """Whether the same request may succeed later, or is somebody else's by then."""
    from confluent_kafka import KafkaError as Code

    return is_away(fault) or fault.code() in (
        # Another member has it, or the members join.
        Code.ILLEGAL_GENERATION,
        Code.UNKNOWN_MEMBER_ID,
        Code.REBALANCE_IN_PROGRESS,
        Code.FENCED_INSTANCE_ID,
        Code.STALE_MEMBER_EPOCH,
        Code._NO_OFFSET,
        Code._ASSIGNMENT_LOST,
        # A transaction is open.
        Code.UNSTABLE_OFFSET_COMMIT,
    )
