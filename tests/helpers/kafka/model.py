"""A model of Kafka on virtual time: topics, a group with cooperative rebalances, commits.

A `Member` is what `confluent_kafka.aio.AIOConsumer` is to a reader. Partitions move as in KIP-429:
the member that has to give one up gets a call in its next `poll`, and only when it has let go does
the partition go to another member, in the next `poll` of that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

__all__ = ["Broker", "Member", "Record"]

# ruff: noqa: ASYNC109 (these are the arguments of the client)

Key = tuple[str, int]


class Record:
    """A stored record, or an error in the place of one."""

    def __init__(
        self,
        key: Key,
        offset: int,
        value: bytes | None,
        *,
        record_key: bytes | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
        timestamp: float = 0.0,
        error: KafkaError | None = None,
    ) -> None:
        self._key, self._offset, self._value = key, offset, value
        self._record_key, self._headers = record_key, headers
        self._timestamp, self._error = timestamp, error

    def topic(self) -> str:
        return self._key[0]

    def partition(self) -> int:
        return self._key[1]

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return self._record_key

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, round(self._timestamp * 1000)

    def error(self) -> KafkaError | None:
        return self._error


class Broker:
    """One topic of some partitions, and one group."""

    def __init__(self, partitions: int = 1, topic: str = "t") -> None:
        self.topic = topic
        self.logs: dict[Key, list[Record]] = {(topic, n): [] for n in range(partitions)}
        self.deleted: dict[Key, int] = {}
        """Offsets below these are gone."""
        self.committed: dict[Key, tuple[int, str]] = {}
        self.commits = 0
        self.most_metadata = 4096
        self.members: list[Member] = []
        self.owner: dict[Key, Member] = {}
        self.refuse: Callable[[], KafkaError | None] = lambda: None
        """An error with which the next request is answered."""

    def write(self, *values: bytes | None, partition: int = 0, **rest: Any) -> None:
        log = self.logs[self.topic, partition]
        for value in values:
            key = self.topic, partition
            log.append(Record(key, self.end(key), value, **rest))
        for member in self.members:
            member.news.set()

    def end(self, key: Key) -> int:
        log = self.logs[key]
        return log[-1].offset() + 1 if log else self.deleted.get(key, 0)

    def consumer(self, settings: dict[str, Any]) -> Any:
        """A client for `ReadingSettings.consumer`."""
        return Member(self, settings)

    def targets(self) -> dict[Key, Member]:
        """Who should have each partition: as even as can be, and as it is now where possible."""
        if not self.members:
            return {}
        counts = dict.fromkeys(self.members, 0)
        most = -(-len(self.logs) // len(self.members))
        target: dict[Key, Member] = {}
        for key, owner in self.owner.items():
            if owner in counts and counts[owner] < most:
                target[key] = owner
                counts[owner] += 1
        for key in self.logs:
            if key not in target:
                target[key] = min(self.members, key=lambda one: counts[one])
                counts[target[key]] += 1
        return target

    def expire(self, member: Member) -> None:
        """The member was silent for too long: its partitions go to others at once."""
        self.members.remove(member)
        member.is_lost = True
        for key in [key for key, owner in self.owner.items() if owner is member]:
            del self.owner[key]


class Member:
    """One client of the group."""

    def __init__(self, broker: Broker, settings: dict[str, Any]) -> None:
        self.broker = broker
        self.settings = settings
        self.positions: dict[Key, int] = {}
        self.paused: set[Key] = set()
        self.news = asyncio.Event()
        self.is_lost = False
        self.thawed = asyncio.Event()
        self.thawed.set()
        self.taken = 0
        self._callbacks: dict[str, Any] = {}
        self._told: set[Key] = set()

    async def list_topics(self, topic: str, timeout: float) -> Any:
        self._may_refuse()
        error = None if topic == self.broker.topic else KafkaError(KafkaError._UNKNOWN_TOPIC)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error)})

    async def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self._callbacks = callbacks
        self.broker.members.append(self)

    async def poll(self, timeout: float) -> Record | None:
        await self.thawed.wait()
        await self._rebalance()
        found = self._take(1)
        if not found:
            self.news.clear()
            try:
                await asyncio.wait_for(self.news.wait(), timeout)
            except TimeoutError:
                return None
            found = self._take(1)
        return found[0] if found else None

    async def consume(self, num_messages: int, timeout: float) -> list[Record]:
        return self._take(num_messages)

    def _take(self, most: int) -> list[Record]:
        found: list[Record] = []
        for key, position in self.positions.items():
            if key in self.paused:
                continue
            for record in self.broker.logs[key]:
                if len(found) == most:
                    break
                if record.offset() >= position:
                    found.append(record)
                    self.positions[key] = record.offset() + 1
            at_end = self.positions[key] >= self.broker.end(key) and key not in self._told
            if self.settings["enable.partition.eof"] and at_end and len(found) < most:
                self._told.add(key)
                eof = KafkaError(KafkaError._PARTITION_EOF)
                found.append(Record(key, self.positions[key], None, error=eof))
        self.taken += sum(record.error() is None for record in found)
        return found

    async def _rebalance(self) -> None:
        broker = self.broker
        if self.is_lost:
            gone = list(self.positions)
            await self._callbacks["on_lost"](self, _places(gone))
            self.is_lost = False
            self.positions.clear()
            broker.members.append(self)
        target = broker.targets()
        gone = [key for key, owner in broker.owner.items() if owner is self and target[key] != self]
        if gone:
            await self._callbacks["on_revoke"](self, _places(gone))
            for key in gone:
                if broker.owner.get(key) is self:
                    del broker.owner[key]
        mine = [key for key, one in target.items() if one is self and key not in broker.owner]
        if mine:
            for key in mine:
                broker.owner[key] = self
            await self._callbacks["on_assign"](self, _places(mine))
        for member in broker.members:
            if gone and member is not self:
                member.news.set()

    async def committed(
        self, partitions: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]:
        self._may_refuse()
        found: list[TopicPartition] = []
        for place in partitions:
            offset, text = self.broker.committed.get(_key(place), (-1001, ""))
            found.append(TopicPartition(place.topic, place.partition, offset, text))
        return found

    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = 1, cached: bool = False
    ) -> tuple[int, int] | None:
        key = _key(partition)
        return self.broker.deleted.get(key, 0), self.broker.end(key)

    async def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            key = _key(place)
            is_first = self.settings["auto.offset.reset"] == "earliest"
            start = self.broker.deleted.get(key, 0) if is_first else self.broker.end(key)
            self.positions[key] = place.offset if place.offset >= 0 else start
        self.news.set()

    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            self.positions.pop(_key(place), None)
            self.paused.discard(_key(place))

    async def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {_key(place) for place in partitions}

    async def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {_key(place) for place in partitions}
        self.news.set()

    async def commit(
        self, *, offsets: list[TopicPartition], asynchronous: bool
    ) -> list[TopicPartition]:
        self._may_refuse()
        broker = self.broker
        if self.is_lost or self not in broker.members:
            raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION))
        results: list[Any] = []
        for place in offsets:
            error = None
            if len(place.metadata) > broker.most_metadata:
                error = KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE)
            else:
                assert broker.owner.get(_key(place)) is self, "committed what is another's"
                broker.committed[_key(place)] = place.offset, place.metadata
                broker.commits += 1
            results.append(SimpleNamespace(topic=place.topic, error=error))
        return results

    async def close(self) -> None:
        broker = self.broker
        mine = [key for key, owner in broker.owner.items() if owner is self]
        if mine and self._callbacks:
            await self._callbacks["on_revoke"](self, _places(mine))
        for key in mine:
            del broker.owner[key]
        if self in broker.members:
            broker.members.remove(self)

    def kill(self) -> None:
        """As `kill -9`: nothing more is committed, and the group notices."""
        if self in self.broker.members:
            self.broker.expire(self)

    def _may_refuse(self) -> None:
        error = self.broker.refuse()
        if error is not None:
            raise KafkaException(error)


def _key(place: TopicPartition) -> Key:
    return place.topic, place.partition


def _places(keys: Iterable[Key]) -> list[TopicPartition]:
    return [TopicPartition(*key) for key in keys]
