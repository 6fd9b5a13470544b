"""Where a reader begins in partitions: by what a store or the group has of them, and by brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from penstock.streams.delivery.ranges import Range
from penstock.streams.delivery.text import Unusable
from penstock.streams.delivery.trial import Doubt
from penstock.streams.kafka.group import Consumer, GroupSettings, reading_error
from penstock.streams.kafka.offsets.commits import passes
from penstock.streams.kafka.offsets.metadata import Metadata, metadata_in
from penstock.streams.kafka.offsets.partition import Partition
from penstock.streams.kafka.offsets.stored import StoredOffsets
from penstock.streams.kafka.reason import reason
from penstock.streams.kafka.topic_ids import topic_ids
from penstock.streams.runtime.context import Run
from penstock.streams.state.kafka.topic import has_no_leader

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

__all__ = ["ANSWER", "SILENT", "Beginnings", "from_first"]

_Answer = TypeVar("_Answer")

ANSWER = 10.0
"""Seconds in which brokers answer."""

SILENT = 10.0
"""Seconds without a confirmation of the brokers that are always in order."""

# Seconds until brokers are asked again.
_AGAIN = 0.1


class Beginning(NamedTuple):
    """A partition, and the place from which it is read; the note of its last holder, and the offset
    behind its last record, if that was asked for."""

    partition: Partition
    place: TopicPartition
    doubt: Doubt | None
    end: int | None


class Beginnings:
    """Finds topics, and where to begin in their partitions."""

    def __init__(self, run: Run, settings: GroupSettings, stored: StoredOffsets | None) -> None:
        self.cluster = ""
        """The id of the brokers' cluster."""
        self.counts: dict[str, int] = {}
        """How many partitions each topic had when it was found."""
        self.expired = 0
        """Records that were deleted before they were read."""
        self.ignored = 0
        """Metadata that were not written for their offsets."""
        self.silences = 0
        """How often brokers have not said for long where to begin."""
        self._run = run
        self._settings = settings
        self._stored = stored
        self._error = partial(reading_error, settings)
        # The ids of topics, empty where brokers do not say one, and whether they can be asked.
        self._ids: dict[str, str] = {}
        self._has_controller = False

    async def find(self, consumer: Consumer, topic: str) -> None:
        """Find a topic, or all that match an expression. Raises PenstockError."""
        from confluent_kafka import KafkaException

        # All: the client chooses the topics that match the expression.
        named = {} if topic.startswith("^") else {"topic": topic}
        try:
            answer = await consumer.list_topics(**named, timeout=ANSWER)
        except KafkaException as raised:
            fault = await asyncio.to_thread(reason, raised.args[0], self._settings.client)
            raise self._error(fault, topic) from None
        found = answer.topics.get(topic)
        if found is not None and found.error is not None:
            raise self._error(found.error, topic)
        self.cluster = answer.cluster_id or ""
        self._has_controller = answer.controller_id in answer.brokers
        self.counts |= {name: len(about.partitions) for name, about in answer.topics.items()}

    def place(self, key: tuple[str, int]) -> TopicPartition:
        """A place for a partition that is paused: nothing is fetched from there. Its offset is a
        number, since for a name, such as the end, the client asks the brokers: when they answer
        late, it goes there even if it has been told since where to begin."""
        return Partition(self.cluster, *key, None).place(0)

    async def identify(self, topics: set[str]) -> None:
        """Find out the ids of topics, where they are not known and brokers can be asked."""
        from confluent_kafka import KafkaException

        unknown = topics - self._ids.keys()
        if not unknown or not self._has_controller:
            return
        try:
            found = await topic_ids(self._settings.client, unknown)
        except KafkaException as raised:
            found = dict[str, str]()
            self._run.errors.warn(
                f"read_kafka: the brokers do not say the ids of {', '.join(sorted(unknown))} "
                f"({raised.args[0].str()}): errors and dead letters do not name identities of "
                "their records"
            )
        self._ids |= {topic: found.get(topic, "") for topic in unknown}

    async def identify_anew(self, topic: str) -> None:
        """Find out the id of a topic that may have been created again."""
        self._ids.pop(topic, None)
        await self.identify({topic})

    def partition(
        self,
        key: tuple[str, int],
        floor: int | None,
        known: Sequence[Range] = (),
        accepted: int = 0,
    ) -> Partition:
        """A partition of a topic that is identified."""
        made = Partition(self.cluster, *key, floor, known, accepted)
        made.generation = self._ids.get(key[0], "")
        return made

    async def of(self, consumer: Consumer, committed: TopicPartition) -> Beginning:
        """Where to begin in a partition with the offset that the group has committed, if any."""
        key = committed.topic, committed.partition
        floor = end = None
        offset, metadata = await self._finished(committed)
        is_new = offset is None
        if offset is not None:
            first, end = await self.bounds(consumer, key)
            self.expire(key, offset, first)
            floor = max(offset, first)
        elif self._settings.since == "new":
            first, end = await self.bounds(consumer, key)
            # All records are new in a partition, or a topic, that was added since the start.
            floor = first if key[1] >= self.counts.get(key[0], 0) else end
        # What is committed must not be forgotten.
        accepted = len(committed.metadata or "") if metadata.finished else 0
        partition = self.partition(key, floor, metadata.finished, accepted)
        # With a store, the group may not have followed the last run.
        has_moved = self._stored is not None and floor != committed.offset
        partition.begins = (is_new or has_moved) and floor is not None
        is_there = floor == committed.offset
        place = committed if is_there else partition.place(from_first(floor))
        return Beginning(partition, place, metadata.doubt, end)

    async def _finished(self, committed: TopicPartition) -> tuple[int | None, Metadata]:
        """The offset up to which all of a partition is finished, None if nothing is, and what is
        finished above it: by the store, or else by the group."""
        if self._stored is not None:
            key = committed.topic, committed.partition
            done = await self._stored.done(self.cluster, key, self._ids.get(key[0], ""))
            if done is not None:
                return done.floor, Metadata(done.finished)
            if self._settings.since == "first":
                self._stored.begin_anew(key, committed.offset)
                return None, Metadata()
        if committed.offset < 0:
            return None, Metadata()
        return committed.offset, self._metadata(committed)

    def _metadata(self, committed: TopicPartition) -> Metadata:
        """The metadata beside the offset; none if not written for it, which is said."""
        metadata = metadata_in(self.cluster, committed)
        if isinstance(metadata, Unusable):
            self.ignored += 1
            self._run.errors.warn(
                f"read_kafka: the metadata beside offset {committed.offset} of {committed.topic}, "
                f"partition {committed.partition}, is ignored: {metadata}. Every record from this "
                "offset on is read, also what may have been finished"
            )
            return Metadata()
        return metadata

    async def committed(
        self, consumer: Consumer, places: list[TopicPartition]
    ) -> list[TopicPartition]:
        """The offsets that the group has committed. Waits while a transaction with offsets of these
        partitions is open, as a killed reader leaves it, until the brokers end it."""
        from confluent_kafka import KafkaException

        async def ask() -> list[TopicPartition]:
            found = await consumer.committed(places, timeout=ANSWER)
            for one in found:
                if one.error is not None and passes(one.error):
                    raise KafkaException(one.error)
            return found

        return await self._asked(ask)

    async def _asked(self, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """The answer of the brokers, which may be away, or electing a new leader."""
        from confluent_kafka import KafkaException

        began, has_warned = self._run.now(), False
        while True:
            try:
                return await ask()
            except KafkaException as raised:
                fault = raised.args[0]
                waited = self._run.now() - began
                if not passes(fault) or waited >= self._settings.handover * 0.8:
                    raise
                if waited >= SILENT and not has_warned:
                    has_warned = True
                    self.silences += 1
                    self._run.errors.warn(
                        "read_kafka: partitions have come, and the brokers do not say from where "
                        f"to read ({fault.str()}). It waits for them, or for the end of a "
                        "transaction that another reader has left open"
                    )
            await asyncio.sleep(_AGAIN)

    async def bounds(self, consumer: Consumer, key: tuple[str, int]) -> tuple[int, int]:
        """The offset of the first record that is in a partition, and the one behind the last."""
        from confluent_kafka import KafkaError, KafkaException

        place = Partition(self.cluster, *key, None).place()

        async def ask() -> tuple[int, int]:
            try:
                marks = await consumer.get_watermark_offsets(place, timeout=ANSWER)
            except KafkaException as raised:
                # It was there when it was assigned.
                if has_no_leader(raised.args[0]):
                    raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)) from raised
                raise
            if marks is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return marks

        return await self._asked(ask)

    def expire(self, key: tuple[str, int], floor: int, first: int) -> None:
        """Count and report what was deleted before it was read, if anything was."""
        if floor >= first:
            return
        self.expired += first - floor
        self._run.errors.warn(
            f"read_kafka: offsets {floor} to {first - 1} of {key[0]}, partition {key[1]}, were "
            "deleted before they were read (retention of the topic)"
        )


def from_first(offset: int | None) -> int:
    """An offset as the client takes it; None is the one of the first record."""
    from confluent_kafka import OFFSET_BEGINNING

    return OFFSET_BEGINNING if offset is None else offset
