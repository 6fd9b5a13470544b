"""A model of Kafka on virtual time: topics, a group with cooperative rebalances, commits.

A `Member` is what `confluent_kafka.aio.AIOConsumer` is to a reader. Partitions move as in KIP-429:
the member that has to give one up gets a call in its next `poll`, and only when it has let go does
the partition go to another member, in the next `poll` of that one.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition

from penstock.streams.kafka.producer import NoAnswer

__all__ = [
    "CLUSTER",
    "TRANSACTION",
    "Broker",
    "Member",
    "ModelProducer",
    "Record",
    "model_of",
    "numbers",
]

TRANSACTION = 10.0
"""Seconds after which brokers abort a transaction that other readers wait for."""

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


CLUSTER = "cluster"


class Broker:
    """A topic of some partitions, others by their `more` numbers of them, and one group."""

    def __init__(self, partitions: int = 1, topic: str = "t", **more: int) -> None:
        self.topic = topic
        self.topics = {topic: partitions, **more}
        self.logs: dict[Key, list[Record]] = {
            (name, n): [] for name, count in self.topics.items() for n in range(count)
        }
        self.deleted: dict[Key, int] = {}
        """Offsets below these are gone."""
        self.committed: dict[Key, tuple[int, str]] = {}
        self.commits = 0
        self.most_metadata = 4096
        self.members: list[Member] = []
        self.clients: list[Member] = []
        """All that were ever made, in order."""
        self.owner: dict[Key, Member] = {}
        self.refuse: Callable[[], KafkaError | None] = lambda: None
        """An error with which the next request is answered."""
        self.answering = asyncio.Event()
        """Clear it, and commits have no answer until it is set."""
        self.answering.set()
        self.telling = asyncio.Event()
        """Clear it, and members do not hear of partitions that they have got until it is set."""
        self.telling.set()
        self.admitting = asyncio.Event()
        """Clear it, and members that were given up do not join again until it is set."""
        self.admitting.set()
        self.generation = 0
        self.naming: Callable[[], float] = lambda: 0.0
        """Seconds until brokers say which offset is the first or the end, where a client is to
        begin there."""
        # Transactions.
        self.results: list[tuple[str, bytes | None]] = []
        """What readers of what is committed see: topics and values, in order."""
        self.producers: list[ModelProducer] = []
        self.latency: Callable[[], float] = lambda: 0.0
        """Seconds for a request of a producer."""
        self.refuse_record: Callable[[bytes | None], KafkaError | None] = lambda value: None
        self.refuse_producer: Callable[[str], KafkaError | None] = lambda method: None
        """An error for a call of a producer, by its name."""
        self.hang: Callable[[str], bool] = lambda method: False
        """Whether a call of a producer never returns, by its name."""
        self.lose_answer: Callable[[], bool] = lambda: False
        """Whether the answer to a commit is lost: it is made, and the client is of no use then."""

    def write(
        self, *values: bytes | None, partition: int = 0, topic: str = "", **rest: Any
    ) -> None:
        key = topic or self.topic, partition
        log = self.logs[key]
        for value in values:
            log.append(Record(key, self.end(key), value, **rest))
        for client in self.clients:
            if client in self.members or (client.positions and not client.topics):
                client.news.set()

    def grow(self, topic: str, count: int) -> None:
        """The topic has so many partitions from now on."""
        self.topics[topic] = count
        for number in range(count):
            self.logs.setdefault((topic, number), [])

    def delete(self, before: int, partition: int = 0) -> None:
        """The records of a partition up to this offset are deleted, as after their retention."""
        key = self.topic, partition
        self.deleted[key] = before
        self.logs[key] = [record for record in self.logs[key] if record.offset() >= before]

    def end(self, key: Key) -> int:
        log = self.logs[key]
        return log[-1].offset() + 1 if log else self.deleted.get(key, 0)

    def consumer(self, settings: dict[str, Any]) -> Any:
        """A client for `ReadingSettings.consumer`."""
        self.clients.append(Member(self, settings))
        return self.clients[-1]

    def producer(self, settings: dict[str, Any]) -> ModelProducer:
        """A client for `TransactionSettings.producer`, which fences others of the same id."""
        new = ModelProducer(self, settings)
        for other in self.producers:
            if other.id == new.id:
                other.end(fenced=True)
        self.producers.append(new)
        return new

    async def stable(self, keys: Iterable[Key], patience: float) -> None:
        """Wait until no transaction has offsets of these partitions."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while True:
            pending = [one for one in self.producers if any(key in one.offsets for key in keys)]
            for producer in pending:
                if loop.time() >= producer.began + TRANSACTION:
                    producer.end(fenced=True)
            if not any(one.offsets for one in pending):
                return
            if loop.time() >= until:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            await asyncio.sleep(0.1)

    def targets(self) -> dict[Key, Member]:
        """Who should have each partition: as even as can be, and as it is now where possible."""
        if not self.members:
            return {}
        counts = dict.fromkeys(self.members, 0)
        read = [key for key in self.logs if any(one.reads(key[0]) for one in self.members)]
        most = -(-len(read) // len(self.members))
        target: dict[Key, Member] = {}
        for key, owner in self.owner.items():
            if owner in counts and counts[owner] < most:
                target[key] = owner
                counts[owner] += 1
        for key in read:
            if key not in target:
                target[key] = min(self.members, key=lambda one: counts[one])
                counts[target[key]] += 1
        return target

    def expire(self, member: Member) -> None:
        """The member was silent for too long: its partitions go to others at once."""
        self.members.remove(member)
        self.generation += 1
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
        self.is_joining = False
        """Whether it waits for an answer of the group: it has records meanwhile, but does not learn
        what becomes of its partitions."""
        self.thawed = asyncio.Event()
        self.thawed.set()
        self.taken = self.pauses = 0
        self.generation = broker.generation
        self.topics: list[str] = []
        """What it reads as a member of the group; nothing if it is told what to read."""
        self._polling: asyncio.Task[Any] | None = None
        self._callbacks: dict[str, Any] = {}
        # Where it was told that there is nothing more.
        self._told: dict[Key, int] = {}
        self._stranded: set[Key] = set()
        # Of which it is not known yet where they begin.
        self._unknown: set[Key] = set()
        self._undecided: list[list[TopicPartition]] = []
        self._decided: list[tuple[KafkaError | None, list[Any]]] = []

    async def list_topics(self, topic: str = "", timeout: float = 1) -> Any:
        self._may_refuse()
        found = {
            name: SimpleNamespace(error=None, partitions=dict.fromkeys(range(count)))
            for name, count in self.broker.topics.items()
            if topic in ("", name)
        }
        if not found:
            fault = KafkaError(KafkaError._UNKNOWN_TOPIC)
            found = {topic: SimpleNamespace(error=fault, partitions={})}
        return SimpleNamespace(topics=found, cluster_id=CLUSTER, brokers={}, controller_id=-1)

    async def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self.topics, self._callbacks = topics, callbacks
        self._join()

    def reads(self, topic: str) -> bool:
        """Whether partitions of the topic belong to the members of the group, as far as this one
        knows."""
        return any(one.startswith("^") or one == topic for one in self.topics)

    def _join(self) -> None:
        self.broker.members.append(self)
        self.broker.generation += 1

    async def poll(self, timeout: float) -> Record | None:
        self._polling = asyncio.current_task()
        try:
            return await self._poll(timeout)
        finally:
            self._polling = None

    async def _poll(self, timeout: float) -> Record | None:
        await self.thawed.wait()
        await self._answer_commits()
        if self.topics and not self.is_joining:
            await self._rebalance()
        found = self._take(1)
        if not found:
            self.news.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self.news.wait()
            except TimeoutError:
                return None
            found = self._take(1)
        return found[0] if found else None

    async def consume(self, num_messages: int, timeout: float) -> list[Record]:
        return self._take(num_messages)

    def _take(self, most: int) -> list[Record]:
        found: list[Record] = []
        for key, position in self.positions.items():
            if key in self.paused or key in self._unknown:
                continue
            log = self.broker.logs[key]
            if not self.broker.deleted.get(key, 0) <= position <= self.broker.end(key):
                if key not in self._stranded:
                    self._stranded.add(key)
                    gone = KafkaError(KafkaError._AUTO_OFFSET_RESET)
                    found.append(Record(key, position, None, error=gone))
                continue
            first = bisect_left(log, position, key=Record.offset)
            for record in log[first : first + most - len(found)]:
                found.append(record)
                self.positions[key] = record.offset() + 1
            is_told = self._told.get(key) == self.positions[key]
            at_end = self.positions[key] >= self.broker.end(key) and not is_told
            if self.settings["enable.partition.eof"] and at_end and len(found) < most:
                self._told[key] = self.positions[key]
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
        if self not in broker.members:
            if not broker.admitting.is_set():
                return
            self._join()
        self.generation = broker.generation
        target = broker.targets()
        gone = [key for key, owner in broker.owner.items() if owner is self and target[key] != self]
        if gone:
            await self._callbacks["on_revoke"](self, _places(gone))
            for key in gone:
                if broker.owner.get(key) is self:
                    del broker.owner[key]
        if self.is_lost:
            # Given up meanwhile, of which the next call learns.
            return
        mine = [key for key, one in target.items() if one is self and key not in broker.owner]
        if mine:
            for key in mine:
                broker.owner[key] = self
            await broker.telling.wait()
            await self._callbacks["on_assign"](self, _places(mine))
        for member in broker.members:
            if gone and member is not self:
                member.news.set()

    async def committed(
        self, partitions: list[TopicPartition], timeout: float
    ) -> list[TopicPartition]:
        self._asks_alone()
        self._may_refuse()
        await self.broker.stable([_key(place) for place in partitions], timeout)
        found: list[TopicPartition] = []
        for place in partitions:
            offset, text = self.broker.committed.get(_key(place), (-1001, ""))
            found.append(TopicPartition(place.topic, place.partition, offset, text))
        return found

    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = 1, cached: bool = False
    ) -> tuple[int, int] | None:
        if not cached:
            self._may_refuse()
        key = _key(partition)
        return self.broker.deleted.get(key, 0), self.broker.end(key)

    async def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            key = _key(place)
            assert place.offset >= 0 or place.offset in (OFFSET_BEGINNING, OFFSET_END)
            self.positions[key] = max(0, place.offset)
            self._stranded.discard(key)
            self._unknown.discard(key)
            if place.offset < 0:
                self._unknown.add(key)
                wait = self.broker.naming()
                if wait:
                    loop = asyncio.get_running_loop()
                    loop.call_later(wait, self._go_to, key, place.offset)
                else:
                    self._go_to(key, place.offset)
        self.news.set()

    def _go_to(self, key: Key, name: int) -> None:
        """Brokers have said which offset has this name. The client goes there also if it was told
        meanwhile to begin somewhere else: it makes a request again whose answer came late."""
        self._unknown.discard(key)
        if key in self.positions:
            is_end = name == OFFSET_END
            start = self.broker.end(key) if is_end else self.broker.deleted.get(key, 0)
            self.positions[key] = start
            self.news.set()

    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            self.positions.pop(_key(place), None)
            self.paused.discard(_key(place))

    async def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {_key(place) for place in partitions}
        self.pauses += 1

    async def resume(self, partitions: list[TopicPartition]) -> None:
        for key in map(_key, partitions):
            self.paused.discard(key)
            self._told.pop(key, None)
        self.news.set()

    async def commit(
        self, *, offsets: list[TopicPartition], asynchronous: bool
    ) -> list[TopicPartition] | None:
        if asynchronous:
            self._undecided.append(offsets)
            if self.broker.answering.is_set():
                self._decide()
            return None
        await self.broker.answering.wait()
        return self._commit(offsets)

    async def _answer_commits(self) -> None:
        """Call back for the commits that were not waited for, as `poll` does."""
        if self.broker.answering.is_set():
            self._decide()
        while self._decided:
            await self.settings["on_commit"](*self._decided.pop(0))

    def _decide(self) -> None:
        """The brokers accept or refuse the commits that were sent, of which `poll` tells."""
        while self._undecided:
            offsets = self._undecided.pop(0)
            error, results = None, offsets
            try:
                results = self._commit(offsets)
            except KafkaException as raised:
                error = raised.args[0]
            self._decided.append((error, results))

    def _commit(self, offsets: list[TopicPartition]) -> list[Any]:
        self._may_refuse()
        broker = self.broker
        is_out = self.is_lost or self not in broker.members
        # Of a client that says it is in no group, brokers accept it while the group is empty.
        if is_out and broker.members:
            raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION))
        results: list[Any] = []
        for place in offsets:
            error = None
            if len(place.metadata or "") > broker.most_metadata:
                error = KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE)
            else:
                # What nobody reads as a member goes with the same number of what is read so.
                topic = place.topic if self.reads(place.topic) else self.topics[0]
                mine = is_out or broker.owner.get((topic, place.partition)) is self
                assert mine, "committed what is another's"
                broker.committed[_key(place)] = place.offset, place.metadata or ""
                broker.commits += 1
            results.append(
                SimpleNamespace(topic=place.topic, partition=place.partition, error=error)
            )
        return results

    async def close(self) -> None:
        broker = self.broker
        target = broker.targets() if self in broker.members else {}
        coming = [key for key, one in target.items() if one is self and key not in broker.owner]
        if coming and self._callbacks:
            # What it was about to get.
            broker.owner |= dict.fromkeys(coming, self)
            await self._callbacks["on_assign"](self, _places(coming))
        mine = [key for key, owner in broker.owner.items() if owner is self]
        if mine and self._callbacks:
            await self._callbacks["on_revoke"](self, _places(mine))
        for key in mine:
            del broker.owner[key]
        if self in broker.members:
            broker.members.remove(self)
            broker.generation += 1
        self.positions.clear()

    async def consumer_group_metadata(self) -> bytes:
        self._asks_alone()
        # A client that knows that it was given up has neither a generation nor a member id.
        knows = not self.is_joining and (self.is_lost or self not in self.broker.members)
        generation, member = (-1, b"") if knows else (self.generation, b"m%d" % id(self))
        return (
            b"CGMDv2:" + generation.to_bytes(4, "little", signed=True) + b"g\0" + member + b"\0\1"
        )

    def _asks_alone(self) -> None:
        # The client does one thing at a time: another task would wait for `poll`, and so for ever
        # for a callback in it that waits for that task.
        assert self._polling in (None, asyncio.current_task())

    def kill(self) -> None:
        """As `kill -9`: nothing more is committed, and the group notices."""
        if self in self.broker.members:
            self.broker.expire(self)
        self.positions.clear()

    def _may_refuse(self) -> None:
        error = self.broker.refuse()
        if error is not None:
            raise KafkaException(error)


class ModelProducer:
    """What `TransactionalProducer` is to a sink."""

    def __init__(self, broker: Broker, settings: dict[str, Any]) -> None:
        self.broker = broker
        self.settings = settings
        self.id: str = settings["transactional.id"]
        self.offsets: dict[Key, tuple[int, str]] = {}
        self.began = 0.0
        self.thawed = asyncio.Event()
        self.thawed.set()
        self.calls: list[str] = []
        self._fenced = self._hangs = False
        self._is_open = False
        self._records: list[tuple[str, bytes | None]] = []
        self._unanswered: list[tuple[Callable[..., None], KafkaError | None]] = []
        self._broken = False

    def end(self, *, fenced: bool) -> None:
        """The brokers abort the transaction."""
        self._fenced |= fenced
        self._is_open, self._broken = False, False
        self.offsets.clear()
        self._records.clear()

    async def _call(self, method: str) -> None:
        assert not self._hangs, "the one call that never returned is the last"
        self.calls.append(method)
        await asyncio.sleep(self.broker.latency())
        await self.thawed.wait()
        if self._fenced:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))
        error = self.broker.refuse_producer(method)
        if error is not None:
            self._fenced |= error.fatal()
            raise KafkaException(error)
        if method != "commit":
            await self._may_hang(method)

    async def _may_hang(self, method: str) -> None:
        if self.broker.hang(method):
            await asyncio.sleep(20)
            self._hangs = True
            raise NoAnswer

    async def topic_error(self, topic: str, /) -> Any:
        return None

    async def init_transactions(self) -> None:
        await self._call("init")

    async def begin_transaction(self) -> None:
        await self._call("begin")
        assert not self._is_open, "two transactions at once"
        self._is_open = True
        self.began = asyncio.get_running_loop().time()

    def produce(self, topic: str, value: bytes | None, key: bytes | None, **rest: Any) -> None:
        assert self._is_open or self._fenced
        refused = self.broker.refuse_producer("produce")
        if refused is not None:
            self._fenced |= refused.fatal()
            raise KafkaException(refused)
        error = self.broker.refuse_record(value)
        self._unanswered.append((rest["on_delivery"], error))
        self._broken |= error is not None
        self._records.append((topic, value))

    async def make_room(self) -> None:
        raise AssertionError("there is always room")

    def _answer(self, error: KafkaError | None = None) -> None:
        for answer, own in self._unanswered:
            answer(own or error, None)
        self._unanswered.clear()

    async def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: bytes, /
    ) -> None:
        await self._call("offsets")
        generation = int.from_bytes(group_metadata[7:11], "little", signed=True)
        member = group_metadata[11:].split(b"\0")[1]
        members = [b"m%d" % id(one) for one in self.broker.members]
        # Brokers accept everything from a client that says it is not a member.
        if generation >= 0 and (member not in members or generation != self.broker.generation):
            raise KafkaException(_abort(KafkaError.ILLEGAL_GENERATION))
        if any(len(place.metadata or "") > self.broker.most_metadata for place in positions):
            raise KafkaException(_abort(KafkaError.OFFSET_METADATA_TOO_LARGE))
        self.offsets = {_key(place): (place.offset, place.metadata or "") for place in positions}

    async def commit_transaction(self) -> None:
        await self._call("commit")
        if self._broken:
            self._answer()
            raise KafkaException(_abort(KafkaError.INVALID_RECORD))
        loses = self.broker.lose_answer()
        if not loses:
            await self._may_hang("commit")
        self._answer()
        assert self._is_open, "no transaction is open"
        self._is_open = False
        self.broker.results += self._records
        self.broker.committed.update(self.offsets)
        self.broker.commits += 1
        self._records.clear()
        self.offsets = {}
        if loses:
            await self._may_hang("commit")
            self._fenced = True
            raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, "lost", True))

    async def abort_transaction(self) -> None:
        await self._call("abort")
        assert self._is_open, "no transaction is open"
        self._answer(KafkaError(KafkaError._PURGE_QUEUE))
        self.end(fenced=False)

    async def close(self) -> None: ...


def _abort(code: int) -> KafkaError:
    return KafkaError(code, "abort", False, False, True)


def _key(place: TopicPartition) -> Key:
    return place.topic, place.partition


def _places(keys: Iterable[Key]) -> list[TopicPartition]:
    return [TopicPartition(*key) for key in keys]


@contextmanager
def model_of(broker: Broker) -> Generator[Broker, None, None]:
    """Sources and transactional sinks of the block have this broker."""
    with (
        patch("penstock.sources.kafka._consumer", broker.consumer),
        patch("penstock.sinks.kafka._transactional_producer", broker.producer),
    ):
        yield broker


def numbers(first: int, end: int) -> list[bytes]:
    """The bodies of records, each with its number."""
    return [b'{"n": %d}' % n for n in range(first, end)]
