"""Transactions: results, and the offsets of the records that they were made of, as one.

A transaction is begun when its records and their results are known, and committed at once, so it is
never open while a handler works. The brokers check the generation of the group (KIP-447): a reader
that they have given up cannot commit, and what it did is processed by its successor.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from enum import Enum
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.streams.base.errors import PenstockError, ProducerFenced, PublishFailed
from penstock.streams.delivery.commit import Commit, Part, by_kind
from penstock.streams.kafka.offsets.commits import NO_MEMBER, Committing, passes
from penstock.streams.kafka.offsets.partition import Mark, Partition, Token
from penstock.streams.kafka.producer import NoAnswer, TransactionalProducer, is_member
from penstock.streams.kafka.units import Unit, Units, by_partition, fitting
from penstock.streams.kafka.writing import Record
from penstock.streams.runtime.context import Run

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, TopicPartition

__all__ = ["RECORDS", "TransactionSettings", "Transactions"]

# Seconds between two attempts while brokers do not answer, or a rebalance goes on.
_PAUSE = 0.1
# Seconds that are left for transactions when partitions are handed over.
_HANDOVER = 10.0
# Seconds in which brokers say what is committed.
_ANSWER = 5.0
# Attempts to make the last transaction: one may end a producer and the next replace it.
_ATTEMPTS = 3
_MANY = 1_000_000


class TransactionSettings(NamedTuple):
    """How often transactions are made, and by which producer.

    `every` is the seconds for which the first record waits, `most` the number of records or of
    results that do not wait longer; after `patience` seconds without success it is an error.
    `error` makes an error of the client ours. The transactional `id` is the user's if `is_named`:
    only then another process may have it too. Brokers abort a transaction after `timeout` seconds.
    """

    id: str
    is_named: bool
    timeout: float
    every: float
    most: int
    patience: float
    producer: Callable[[], TransactionalProducer]
    error: Callable[[KafkaError], PenstockError]


class _Phase(Enum):
    """The transaction in progress."""

    NONE = "there is none"
    OPEN = "it will be aborted, unless it is committed"
    COMMITTING = "the brokers may have committed it"
    UNKNOWN = "the same, and its producer is of no use any more"
    SETTLED = "the next producer has settled it: what is committed says how it ended"


class _Later(Exception):
    """The transaction cannot be made now."""


class _Records:
    """The kind of parts that are records to write: the topic, value, key and headers of each."""

    async def write(self, transaction: Transactions, values: list[Record], /) -> None:
        await transaction.produce(zip(values, values, strict=True))


RECORDS = _Records()


class Transactions:
    """The commits of a reader whose results are written in transactions.

    `_ready` units are finished, and go into the next transaction; `_waiting` ones go into a later
    one, because not all that is finished fits into the metadata of a commit. Memory: the parts of
    both, and of records that are not finished.
    """

    def __init__(self, run: Run, settings: TransactionSettings) -> None:
        self.committed = self.aborted = self.replaced = 0
        self.accepted_at = -inf
        self.why = ""
        self.failure: PenstockError | None = None
        """Why there will be no more transactions."""
        self.settings = settings
        self.on_idle: list[Callable[[], None]] = []
        """Called when all that is finished is committed, or cannot be."""
        self._run = run
        self._units = Units()
        self._ready: deque[Unit] = deque()
        # Records and parts in these.
        self._size = 0
        self._waiting: list[Unit] = []
        # Whether any were there, which is said once.
        self._has_waited = False
        # What was in a transaction that was aborted.
        self._returned: list[Unit] = []
        # Whether only records on the floor begin until one is committed.
        self._is_restarted = False
        self._due_at = inf
        self._wake: Callable[[], None] = lambda: None
        self._again: Callable[[list[Token]], None] = lambda tokens: None
        # Whether a reader calls `commit`.
        self._is_driven = False
        self._producer: TransactionalProducer | None = None
        self._is_initialised = False
        # Whether it is of no use any more, and when it has begun the transaction in progress.
        self._is_spent = False
        self._began: float | None = None
        self._commit = Commit(
            "make a transaction",
            lambda: self._write(*self._asked),
            partial(run.call_soon, run.attaching),
            self._ended_by,
        )
        # For the next transaction: the metadata of the group, the partitions whose marks are
        # committed if nothing else is, and whether nothing else is to be.
        self._asked: tuple[Any, Iterable[Partition], bool] = None, (), False
        # Whether the last one was committed.
        self._is_made = False
        self._phase = _Phase.NONE
        # In the transaction in progress: what it commits, the values that were refused, and why it
        # has failed.
        self._inside: list[Unit] = []
        self._marks: dict[Partition, Mark] = {}
        self._refused: list[tuple[Any, KafkaError]] = []
        self._fault: KafkaError | None = None
        # Units in a transaction; fewer while it is to be found out which value is refused.
        self._most = _MANY
        # Since when transactions fail, and whether a producer has hung since then.
        self._fails_since: float | None = None
        self._has_hung = False

    def serve(self, wake: Callable[[], None], again: Callable[[list[Token]], None]) -> None:
        """Make the transactions of a reader, which calls `commit` when it is due. `wake` is called
        when it is due earlier, `again` with records that have to be emitted again."""
        self._is_driven = True
        self._wake, self._again = wake, again

    def stop(self, error: PenstockError, /) -> None:
        self._is_driven = False
        if self.failure is None:
            self.failure = error
        self._notify()

    def _notify(self) -> None:
        if self.is_idle:
            for call in self.on_idle:
                call()

    @property
    def producer(self) -> TransactionalProducer:
        """The producer, which is made when it is first needed."""
        if self._producer is None:
            self._producer = self.settings.producer()
        return self._producer

    @property
    def is_idle(self) -> bool:
        """Whether nothing that is finished will still be committed, if nothing else finishes."""
        return not self._is_driven or not (self._inside or self._returned or self._ready)

    @property
    def is_full(self) -> bool:
        return bool(self._waiting) or self._is_restarted

    # What is finished.

    def add(self, part: Part[Token]) -> None:
        """A part, to be written when the records that it was made of are finished."""
        self._units.joined(part.roots).parts.append(part)

    def is_open(self, token: Token) -> bool:
        """Whether a record, or one that shares a part with it, is not finished yet."""
        return self._units.of(token).open > 0

    def finish(self, tokens: Iterable[Token], /) -> None:
        for token in tokens:
            self._finish(token)

    def _finish(self, token: Token) -> None:
        unit = self._units.of(token)
        unit.open -= 1
        if unit.open:
            return
        if unit.is_dropped:
            self._drop(unit)
            return
        if not self._ready:
            self._due_at = min(self._due_at, self._run.now() + self.settings.every)
            self._wake()
        self._ready.append(unit)
        self._size += 1 + len(unit.parts)
        if self._size >= self.settings.most > self._size - 1 - len(unit.parts):
            self._due_at = self._run.now()
            self._wake()

    def take_back(self, token: Token, /) -> None:
        unit = self._units.leave(token)
        unit.is_dropped = True
        unit.open -= 1
        if not unit.open:
            self._drop(unit)

    def _drop(self, unit: Unit) -> None:
        """Commit nothing of a unit; what is still ours of it is emitted again."""
        self._units.forget(unit)
        for part in unit.parts:
            part.settle(is_void=True)
        self._again([token for token in unit.tokens if token.partition.is_ours])

    def due_in(self) -> float:
        if self._commit.is_busy:
            return inf
        return self._due_at - self._run.now() if self.failure is None else 0

    # What the reader calls. A transaction in progress is not interrupted. The group's metadata are
    # asked for before it, since a client does one thing at a time; of a member that has lost its
    # partitions since then, the brokers refuse it.

    async def commit(
        self, consumer: Committing, partitions: Iterable[Partition], /, *, renew: bool = False
    ) -> None:
        if self.failure is not None:
            raise self.failure
        if not self._commit.is_busy:
            await self._begin_with(consumer, partitions if renew else ())

    def _ended_by(self, error: BaseException) -> None:
        # `commit` raises the failure.
        if error is not self.failure:
            self._run.failed(error)

    async def hand_over(self, consumer: Committing, partitions: Iterable[Partition], /) -> None:
        leaving = set(partitions)
        until = self._run.now() + _HANDOVER
        while not leaving.isdisjoint(by_partition(self._finished())) and self._run.now() < until:
            before = self.committed
            await self._make(consumer)
            if self.committed == before:
                await asyncio.sleep(_PAUSE)

    async def confirm(self, consumer: Committing, partitions: Iterable[Partition], /) -> bool:
        return await self._make(consumer, partitions, renews=True)

    async def say(self, consumer: Committing, partition: Partition, /) -> None:
        # A transaction has only the partitions whose records it finishes, and there may be none.
        await self.confirm(consumer, [partition])

    async def close(self, consumer: Committing, partitions: Iterable[Partition], /) -> bool:
        """Commit what is left; what cannot be is processed again by the next reader."""
        from confluent_kafka import KafkaException

        # If this is cancelled, nobody waits for a transaction any more, and its producer is closed.
        with suppress(PenstockError, KafkaException):
            await self._commit.flush()
        for _ in range(_ATTEMPTS):
            if self.failure is None:
                with suppress(PenstockError, KafkaException):
                    await self._begin_with(consumer)
                    await self._commit.flush()
            if self._phase not in (_Phase.UNKNOWN, _Phase.SETTLED):
                break
        left = sum(len(unit.tokens) for unit in self._finished())
        if left:
            self._run.errors.warn(
                f"the transaction of {left} records was not committed: they are processed again, "
                "and consumers that read only committed records do not see their results"
            )
        return True

    async def answered(self, fault: KafkaError | None, results: list[TopicPartition], /) -> None:
        """The consumer itself commits nothing."""

    async def disconnect(self) -> None:
        """Close the producer."""
        if self._producer is not None:
            with suppress(NoAnswer):
                await self._producer.close()

    def _finished(self) -> list[Unit]:
        """The units that are not committed; the units of a key are in their order."""
        return [*self._inside, *self._returned, *self._waiting, *self._ready]

    async def _make(
        self, consumer: Committing, partitions: Iterable[Partition] = (), *, renews: bool = False
    ) -> bool:
        """Make a transaction after the one in progress, and wait for it. Returns whether it is
        committed."""
        await self._commit.flush(asyncio.shield)
        await self._begin_with(consumer, partitions, renews=renews)
        await self._commit.flush(asyncio.shield)
        return self._is_made

    async def _begin_with(
        self, consumer: Committing, partitions: Iterable[Partition] = (), *, renews: bool = False
    ) -> None:
        """Begin a transaction. Before, if it is not known how the last one has ended, ask what is
        committed."""
        if self._phase is _Phase.SETTLED:
            await self._has_done(self._find_out(consumer))
        self._asked = await consumer.consumer_group_metadata(), partitions, renews
        self._commit.due()

    # One transaction.

    async def _write(self, metadata: Any, partitions: Iterable[Partition], renews: bool) -> None:
        """Make a transaction of what is finished, or do so later. Where nothing can be committed,
        or if it only `renews`, commit once more what is committed of `partitions`."""
        self._is_made = False
        try:
            # First the transaction in progress: what it commits must not be undone.
            await self._settle()
            if not is_member(metadata):
                # Brokers would accept offsets of partitions that are not ours any more.
                self._no_failure()
                self.why = NO_MEMBER
                raise _Later
            units = [] if renews else self._take()
            offsets = by_partition(units) or {one: set[int]() for one in partitions}
            marks = ((one, one.mark_after(done)) for one, done in offsets.items())
            found = {one: mark for one, mark in marks if mark is not None}
            assert not units or len(found) == len(offsets), "only what fits was taken"
            if found or renews:
                await self._transact(metadata, units, found)
                self._is_made = True
            else:
                self._no_failure()
        except _Later:
            self._due_at = self._run.now() + _PAUSE
        self._wake()
        self._notify()

    def _take(self) -> list[Unit]:
        """The units of the next transaction."""
        units = self._finished()
        self._returned.clear()
        self._waiting.clear()
        self._ready.clear()
        for unit in [unit for unit in units if not unit.is_ours]:
            units.remove(unit)
            self._drop(unit)
        units, rest = units[: self._most], units[self._most :]
        units, self._waiting = fitting(units)
        if not units and self._is_stuck:
            self._is_restarted = True
            stuck, self._waiting = self._waiting, []
            for unit in stuck:
                self._drop(unit)
        if self._waiting and not self._has_waited:
            self._has_waited = True
            first = self._waiting[0].tokens[0].partition
            self._run.errors.warn(
                f"write_kafka: {len(self._waiting)} finished records wait, since what is finished "
                f"above offset {first.ledger.floor} of {first.topic}, partition {first.number}, "
                "does not fit into the metadata of a commit. Nothing more begins until it does. A "
                "handler that does not return may be the cause (timeout=)"
            )
        for part in chain.from_iterable(unit.parts for unit in self._waiting):
            part.release()
        self._ready.extend(rest)
        self._size, self._due_at = 0, self._run.now() if rest else inf
        return units

    @property
    def _is_stuck(self) -> bool:
        """Whether no record that will be finished makes room for what waits. A record on the floor
        may be in one result with others that do not fit; the next time it is alone."""
        tokens = [token for unit in self._waiting for token in unit.tokens]
        on_floor = any(token.offset == token.partition.ledger.floor for token in tokens)
        return on_floor and not any(token.partition.inside for token in tokens)

    async def _transact(
        self, metadata: Any, units: list[Unit], marks: dict[Partition, Mark]
    ) -> None:
        self._inside, self._marks, self._refused, self._fault = units, marks, [], None
        if await self._has_done(self._send(metadata)):
            self._phase = _Phase.COMMITTING
        await self._settle()

    async def _has_done(self, call: Awaitable[object]) -> bool:
        """Await a call of the client. Returns False if that has failed for now."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            await call
        except NoAnswer:
            why = "the client has not returned"
            self._failed(KafkaError(KafkaError._TIMED_OUT, why, False, True), hangs=True)
        except KafkaException as raised:
            self._failed(raised.args[0])
        else:
            return True
        return False

    async def _send(self, metadata: Any) -> None:
        producer = await self._initialised()
        await producer.begin_transaction()
        self._began = self._run.now()
        self._phase = _Phase.OPEN
        parts = by_kind(chain.from_iterable(unit.parts for unit in self._inside))
        for kind, values in parts.items():
            await kind.write(self, values)
        places = [partition.place(*mark) for partition, mark in self._marks.items()]
        sent_at = self._run.now()
        await producer.send_offsets_to_transaction(places, metadata)
        self.accepted_at = sent_at

    async def _initialised(self) -> TransactionalProducer:
        """The producer, or the next one, which has the same id: its start ends what the one before
        has begun."""
        if self._is_spent:
            await self.disconnect()
            self._producer, self._is_spent, self._is_initialised = None, False, False
        producer = self.producer
        if not self._is_initialised:
            await producer.init_transactions()
            self._is_initialised = True
        return producer

    async def produce(self, records: Iterable[tuple[Any, Record]]) -> None:
        """Write records, each for the value of a part, which is refused if its record is."""
        producer, refused = self.producer, self._refused
        for value, (topic, body, key, headers) in records:
            answer = partial(_answered, refused, value)
            while True:
                try:
                    producer.produce(topic, body, key, headers=headers, on_delivery=answer)
                    break
                except BufferError:
                    await producer.make_room()
                except Exception as raised:
                    from confluent_kafka import KafkaException

                    if isinstance(raised, KafkaException):
                        answer(raised.args[0], None)
                    raise

    async def _settle(self) -> None:
        """Bring the transaction in progress to its end. Raises _Later unless it is committed."""
        if self.failure is not None:
            raise self.failure
        if self._phase is _Phase.COMMITTING:
            if await self._has_done(self.producer.commit_transaction()):
                self._is_committed()
            elif self._phase is _Phase.COMMITTING:
                if self._fault is None or not self._fault.txn_requires_abort():
                    # The answer did not come in time.
                    raise _Later
                self._phase = _Phase.OPEN
        if self._phase is _Phase.UNKNOWN and await self._has_done(self._initialised()):
            self._phase = _Phase.SETTLED
        if self._phase in (_Phase.UNKNOWN, _Phase.SETTLED):
            raise _Later
        if self._phase is _Phase.OPEN:
            if await self._has_done(self.producer.abort_transaction()):
                self._is_aborted()
            elif self._phase is _Phase.OPEN:
                raise _Later
        if self._inside or self._fault is not None:
            self._put_back()
            raise _Later

    async def _find_out(self, consumer: Committing) -> None:
        """Find out whether the transaction of a lost producer was committed: the offset of a
        partition that is ours is the transaction's, or the one before it."""
        from confluent_kafka import KafkaException

        ours = {one.key: mark for one, mark in self._marks.items() if one.is_ours}
        found: list[TopicPartition] = []
        if ours and self._inside:
            places = [one.place() for one in self._marks if one.is_ours]
            found = await consumer.committed(places, timeout=_ANSWER)
        for one in found:
            if one.error is not None:
                raise KafkaException(one.error)
        if any(ours[one.topic, one.partition] == (one.offset, one.metadata or "") for one in found):
            self._is_committed()
        else:
            self._is_aborted()
            self._put_back()

    def _is_aborted(self) -> None:
        self._phase, self._began = _Phase.NONE, None
        self.aborted += 1

    def _is_committed(self) -> None:
        self._phase, self._began = _Phase.NONE, None
        self._fault = None
        self._no_failure()
        self.committed += 1
        self._most = min(_MANY, 2 * self._most)
        for partition, mark in self._marks.items():
            partition.committed = mark
        units, self._inside, self._marks = self._inside, [], {}
        if units:
            self._is_restarted = False
        for unit in units:
            for token in unit.tokens:
                token.partition.ledger.finish(token.offset)
            self._units.forget(unit)
            for part in unit.parts:
                part.settle()

    def _put_back(self) -> None:
        """Nothing of the transaction is committed: what was in it goes into the next one."""
        from confluent_kafka import KafkaError, KafkaException

        fault, self._fault = self._fault, None
        units, self._inside = self._inside, []
        refused = [(value, why) for value, why in self._refused if not _is_of_all(why)]
        if refused and len(units) == 1:
            (unit,) = units
            value, why = refused[0]
            if not any(p.settle(KafkaException(why)) for p in unit.parts if p.value is value):
                self._units.forget(unit)
                units = []
            self._most = _MANY
        elif refused:
            self._most = max(1, len(units) // 2)
        elif fault is not None and fault.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
            for partition in self._marks:
                # What is committed must not be forgotten.
                partition.remember_less(partition.accepted)
        self._returned = [*units, *self._returned]

    def _no_failure(self) -> None:
        """Count the time without success anew: a transaction was committed, or none can be made."""
        self._fails_since, self._has_hung, self.why = None, False, ""

    def _failed(self, fault: KafkaError, *, hangs: bool = False) -> None:
        """Give the producer up if it is of no use any more: the next one ends its transaction.
        Raises an error that ends the pipeline if no other would do better."""
        self._fault, self.why = fault, fault.str()
        now = self._run.now()
        if self._fails_since is None or fault.code() in _rebalancing():
            # A rebalance goes on for as long as any member needs.
            self._fails_since = now
        if hangs and not self._has_hung:
            # Of the client, not of the brokers: the next producer has all its time.
            self._fails_since, self._has_hung = now, True
        if self._is_another(fault):
            self.failure = ProducerFenced(
                f"write_kafka: another producer has the transactional id {self.settings.id!r} now "
                f"({fault.str()}). Give each process a transactional_id= of its own, and start "
                "this one again."
            )
        elif now >= self._fails_since + self.settings.patience:
            self.failure = PublishFailed(
                f"write_kafka: no transaction was committed for {self.settings.patience:g} s "
                f"({fault.str()}); what is in it is processed again"
            )
        elif hangs or self._ends_producer(fault):
            self._is_spent = True
            self.replaced += 1
            self._run.errors.warn(
                f"write_kafka: the producer can write nothing more ({fault.str()}). Another one "
                "takes over: what is not committed is written again"
            )
            if self._phase is _Phase.COMMITTING:
                self._phase = _Phase.UNKNOWN
            elif self._phase is _Phase.OPEN:
                self._is_aborted()
        elif not (
            fault.retriable()
            or fault.txn_requires_abort()
            or self._phase is _Phase.OPEN
            or passes(fault)
        ):
            self.failure = self.settings.error(fault)
        if self.failure is not None:
            raise self.failure

    def _ends_producer(self, fault: KafkaError) -> bool:
        """Whether the producer is of no use any more, and another one may be."""
        # One that could not even start was refused for what the next one would be refused for.
        is_fatal = fault.fatal() or fault.code() == fault._FATAL
        return fault.code() in _fenced() or (is_fatal and self._is_initialised)

    def _is_another(self, fault: KafkaError) -> bool:
        """Whether another process has the transactional id. Brokers say the same to a producer
        whose transaction they have aborted because it took too long."""
        if not self.settings.is_named or fault.code() not in _fenced():
            return False
        return self._began is None or self._run.now() < self._began + self.settings.timeout


def _answered(refused: list[tuple[Any, KafkaError]], value: Any, fault: Any, _: object) -> None:
    # Called in a thread.
    if fault is not None:
        refused.append((value, fault))


def _fenced() -> tuple[int, ...]:
    """The codes of a producer whose id another one has by now, or whose transaction took too
    long."""
    from confluent_kafka import KafkaError as Code

    return (
        Code._FENCED,
        Code.PRODUCER_FENCED,
        Code.INVALID_PRODUCER_EPOCH,
        Code.INVALID_PRODUCER_ID_MAPPING,
    )


def _rebalancing() -> tuple[int, ...]:
    """The codes of those whom the group waits for, or has given up: they have to join first."""
    from confluent_kafka import KafkaError as Code

    return (
        Code.ILLEGAL_GENERATION,
        Code.UNKNOWN_MEMBER_ID,
        Code.REBALANCE_IN_PROGRESS,
        Code.STALE_MEMBER_EPOCH,
    )


def _is_of_all(fault: KafkaError) -> bool:
    """Whether a record was not written for a reason that is not its own."""
    from confluent_kafka import KafkaError as Code

    return (
        fault.fatal()
        or fault.retriable()
        or fault.code()
        in (
            *_fenced(),
            Code._FATAL,
            Code._PURGE_QUEUE,
            Code._PURGE_INFLIGHT,
            Code._MSG_TIMED_OUT,
            Code._TIMED_OUT,
            Code._TRANSPORT,
            Code._STATE,
            Code.INVALID_TXN_STATE,
            Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
            Code.UNKNOWN_PRODUCER_ID,
            Code.TRANSACTION_ABORTABLE,
        )
    )
