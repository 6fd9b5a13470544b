"""Transactions: results, and the offsets of the records that they were made from, as one.

A transaction is begun when its records and their results are known, and committed at once, so it is
never open while a handler works. The brokers check the generation of the group (KIP-447): a reader
that they have given up cannot commit, and what it did is processed by its successor.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from enum import Enum
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.streams.base.errors import PenstockError, ProducerFenced, PublishFailed
from penstock.streams.kafka.offsets.commits import NO_MEMBER, Committing, passes
from penstock.streams.kafka.offsets.partition import Mark, Partition, Token
from penstock.streams.kafka.producer import NoAnswer, TransactionalProducer, is_member
from penstock.streams.kafka.units import Result, Unit, Units, by_partition, fitting
from penstock.streams.runtime.context import Run

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, TopicPartition

__all__ = ["TransactionSettings", "Transactions"]

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


class Transactions:
    """The commits of a reader whose results are written in transactions.

    `_ready` units are finished, and go into the next transaction; `_waiting` ones go into a later
    one, because not all that is finished fits into the metadata of a commit. Memory: the results of
    both, and of records that are not finished.
    """

    def __init__(self, run: Run, settings: TransactionSettings) -> None:
        self.committed = self.aborted = self.replaced = 0
        self.accepted_at = -inf
        self.failure: PenstockError | None = None
        """Why there will be no more transactions."""
        self.settings = settings
        self.on_idle: list[Callable[[], None]] = []
        """Called when all that is finished is committed, or cannot be."""
        self._run = run
        self._units = Units()
        self._ready: deque[Unit] = deque()
        # Records and results in these.
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
        self._running: asyncio.Future[None] | None = None
        self._phase = _Phase.NONE
        # In the transaction in progress: what it commits, and why it has failed.
        self._inside: list[Unit] = []
        self._marks: dict[Partition, tuple[Mark, set[int]]] = {}
        self._refused: list[tuple[Result, KafkaError]] = []
        self._fault: KafkaError | None = None
        # Why the last attempt failed, and whether none can be made.
        self._last_fault: KafkaError | None = None
        self._is_away = False
        # Units in a transaction; fewer while it is to be found out which result is refused.
        self._most = _MANY
        self._fails_since: float | None = None

    @property
    def why(self) -> str:
        if self._is_away:
            return NO_MEMBER
        return "" if self._last_fault is None else self._last_fault.str()

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

    def add(self, tokens: Iterable[Token], result: Result) -> None:
        """A result that was made from these records, to be written when they are finished."""
        self._units.joined(tokens).results.append(result)

    def is_open(self, token: Token) -> bool:
        """Whether a record, or one that shares a result with it, is not finished yet."""
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
        self._size += 1 + len(unit.results)
        if self._size >= self.settings.most > self._size - 1 - len(unit.results):
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
        unit.release()
        self._again([token for token in unit.tokens if token.partition.is_ours])

    def due_in(self) -> float:
        if self._running is None or (self._running.done() and self._running.exception() is None):
            return self._due_at - self._run.now()
        # The error of one that has failed is raised by `commit`.
        return 0 if self._running.done() else inf

    # What the reader calls. A transaction in progress is not interrupted. The group's metadata are
    # asked for before it, since a client does one thing at a time; of a member that has lost its
    # partitions since then, the brokers refuse it.

    async def commit(
        self, consumer: Committing, partitions: Iterable[Partition], /, *, renew: bool = False
    ) -> None:
        if self._running is not None:
            if not self._running.done():
                return
            self._running.result()
        metadata = await self._asked(consumer)
        self._running = asyncio.ensure_future(self._commit(metadata, partitions if renew else ()))

    async def hand_over(self, consumer: Committing, partitions: Iterable[Partition], /) -> None:
        leaving = set(partitions)
        until = self._run.now() + _HANDOVER
        while self._has_units_of(leaving) and self._run.now() < until:
            before = self.committed
            await self._undisturbed(consumer, self._commit)
            if self.committed == before:
                await asyncio.sleep(_PAUSE)

    async def confirm(self, consumer: Committing, partitions: Iterable[Partition], /) -> bool:
        before = self.committed
        await self._undisturbed(consumer, partial(self._commit_marks, partitions=partitions))
        return self.committed > before

    async def say(self, consumer: Committing, partition: Partition, /) -> None:
        # A transaction has only the partitions whose records it finishes, and there may be none.
        await self.confirm(consumer, [partition])

    async def close(self, consumer: Committing, partitions: Iterable[Partition], /) -> bool:
        """Commit what is left; what cannot be is processed again by the next reader."""
        from confluent_kafka import KafkaException

        if self._running is not None:
            with suppress(PenstockError, KafkaException):
                await self._running
        for _ in range(_ATTEMPTS):
            if self.failure is None:
                with suppress(PenstockError, KafkaException):
                    await self._commit(await self._asked(consumer))
            if self._phase not in (_Phase.UNKNOWN, _Phase.SETTLED):
                break
        left = sum(len(unit.tokens) for unit in [*self._inside, *self._finished()])
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
        """The units that wait for a transaction; the units of a key are in their order."""
        return [*self._returned, *self._waiting, *self._ready]

    def _has_units_of(self, leaving: set[Partition]) -> bool:
        units = [*self._inside, *self._finished()]
        return any(token.partition in leaving for unit in units for token in unit.tokens)

    async def _undisturbed(
        self, consumer: Committing, work: Callable[[Any], Coroutine[Any, Any, None]]
    ) -> None:
        """Make a transaction after the one in progress, and wait for it."""
        if self._running is not None:
            await asyncio.shield(self._running)
        self._running = asyncio.ensure_future(work(await self._asked(consumer)))
        await asyncio.shield(self._running)

    async def _asked(self, consumer: Committing) -> Any:
        """The group's metadata. Before, if it is not known how the last transaction has ended, ask
        what is committed."""
        from confluent_kafka import KafkaException

        if self._phase is _Phase.SETTLED:
            try:
                await self._find_out(consumer)
            except KafkaException as raised:
                self._failed(raised.args[0])
        return await consumer.consumer_group_metadata()

    # One transaction.

    async def _commit(self, metadata: Any, renewed: Iterable[Partition] = ()) -> None:
        """Make a transaction of what is finished, or do so later. Where nothing can be committed,
        commit once more what is committed of `renewed`."""
        try:
            await self._settle()
            self._require_member(metadata)
            units = self._take()
            marks: dict[Partition, tuple[Mark, set[int]]] = {}
            for partition, offsets in by_partition(units).items():
                mark = partition.mark_after(offsets)
                assert mark is not None, "only what fits was taken"
                marks[partition] = mark, offsets
            if not units:
                marks = _unchanged(renewed)
            if marks:
                await self._transact(metadata, units, marks)
        except _Later:
            self._due_at = self._run.now() + _PAUSE
        self._wake()
        self._notify()

    async def _commit_marks(self, metadata: Any, partitions: Iterable[Partition]) -> None:
        """Commit once more what is committed."""
        with suppress(_Later):
            # First the transaction in progress: what it commits must not be undone.
            await self._settle()
            self._require_member(metadata)
            await self._transact(metadata, [], _unchanged(partitions))
        self._wake()

    def _require_member(self, metadata: Any) -> None:
        """Without a member, brokers would accept offsets of partitions that are not ours any more.
        Raises _Later."""
        self._is_away = not is_member(metadata)
        if self._is_away:
            raise _Later

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
        for unit in self._waiting:
            # Those on which they wait must not wait for room.
            unit.release()
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
        self,
        metadata: Any,
        units: list[Unit],
        marks: dict[Partition, tuple[Mark, set[int]]],
    ) -> None:
        from confluent_kafka import KafkaException

        self._inside, self._marks, self._refused, self._fault = units, marks, [], None
        try:
            producer = await self._begin()
            self._phase = _Phase.OPEN
            for unit in units:
                for result in unit.results:
                    await self._produce(producer, result)
            places = [partition.place(*mark) for partition, (mark, _) in marks.items()]
            sent_at = self._run.now()
            await producer.send_offsets_to_transaction(places, metadata)
            self.accepted_at = sent_at
            self._phase = _Phase.COMMITTING
        except KafkaException as raised:
            self._failed(raised.args[0])
        except NoAnswer:
            self._unanswered()
        await self._settle()

    async def _begin(self) -> TransactionalProducer:
        producer = await self._initialised()
        await producer.begin_transaction()
        self._began = self._run.now()
        return producer

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

    async def _produce(self, producer: TransactionalProducer, result: Result) -> None:
        topic, body, key, headers = result.parts
        refused = self._refused

        def answer(fault: KafkaError | None, _: Any) -> None:
            # Called in a thread.
            if fault is not None:
                refused.append((result, fault))

        from confluent_kafka import KafkaException

        while True:
            try:
                producer.produce(topic, body, key, headers=headers, on_delivery=answer)
            except BufferError:
                await producer.make_room()
            except KafkaException as raised:
                refused.append((result, raised.args[0]))
                raise
            else:
                return

    async def _settle(self) -> None:
        """Bring the transaction in progress to its end. Raises _Later unless it is committed."""
        from confluent_kafka import KafkaException

        if self.failure is not None:
            raise self.failure
        if self._phase is _Phase.COMMITTING:
            try:
                await self.producer.commit_transaction()
            except NoAnswer:
                self._unanswered()
            except KafkaException as raised:
                self._failed(raised.args[0])
                if self._phase is _Phase.COMMITTING:
                    if not raised.args[0].txn_requires_abort():
                        # The answer did not come in time.
                        raise _Later from None
                    self._phase = _Phase.OPEN
            else:
                self._is_committed()
        if self._phase is _Phase.UNKNOWN:
            try:
                await self._initialised()
            except NoAnswer:
                self._unanswered()
            except KafkaException as raised:
                self._failed(raised.args[0])
            else:
                self._phase = _Phase.SETTLED
        if self._phase in (_Phase.UNKNOWN, _Phase.SETTLED):
            raise _Later
        if self._phase is _Phase.OPEN:
            try:
                await self.producer.abort_transaction()
            except NoAnswer:
                self._unanswered()
            except KafkaException as raised:
                self._failed(raised.args[0])
                if self._phase is _Phase.OPEN:
                    raise _Later from None
            else:
                self._is_aborted()
        if self._inside or self._fault is not None:
            self._put_back()
            raise _Later

    async def _find_out(self, consumer: Committing) -> None:
        """Find out whether the transaction of a lost producer was committed: the offset of a
        partition that is ours is the transaction's, or the one before it."""
        from confluent_kafka import KafkaException

        ours = {one.key: mark for one, (mark, _) in self._marks.items() if one.is_ours}
        found: list[TopicPartition] = []
        if ours and self._inside:
            places = [one.place() for one in self._marks if one.is_ours]
            found = await consumer.committed(places, timeout=_ANSWER)
        for one in found:
            if one.error is not None:
                raise KafkaException(one.error)
        now = [((one.topic, one.partition), (one.offset, one.metadata or "")) for one in found]
        if any(ours[key] == mark for key, mark in now):
            self._is_committed()
        else:
            self._is_aborted()
            self._put_back()

    def _is_aborted(self) -> None:
        self._phase, self._began = _Phase.NONE, None
        self.aborted += 1

    def _is_committed(self) -> None:
        self._phase, self._began = _Phase.NONE, None
        self._fault, self._last_fault, self._fails_since = None, None, None
        self.committed += 1
        self._most = min(_MANY, 2 * self._most)
        for partition, (mark, offsets) in self._marks.items():
            partition.committed = mark
            for offset in offsets:
                partition.ledger.finish(offset)
        units, self._inside, self._marks = self._inside, [], {}
        if units:
            self._is_restarted = False
        for unit in units:
            self._units.forget(unit)
            for result in unit.results:
                result.owner.written(result)

    def _put_back(self) -> None:
        """Nothing of the transaction is committed: what was in it goes into the next one."""
        from confluent_kafka import KafkaError

        fault, self._fault = self._fault, None
        units, self._inside = self._inside, []
        refused = [(result, why) for result, why in self._refused if not _is_of_all(why)]
        if refused and len(units) == 1:
            (unit,) = units
            result, why = refused[0]
            unit.results.remove(result)
            if not result.owner.refused(result, why):
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

    def _unanswered(self) -> None:
        """A call has not returned, so the producer is of no use any more."""
        from confluent_kafka import KafkaError

        fault = KafkaError(KafkaError._TIMED_OUT, "the client has not returned", False, True)
        self._failed(fault, is_spent=True)

    def _failed(self, fault: KafkaError, *, is_spent: bool = False) -> None:
        """Give the producer up if it is of no use any more: the next one ends its transaction.
        Raises an error that ends the pipeline if no other would do better."""
        self._fault = self._last_fault = fault
        now = self._run.now()
        if self._fails_since is None or fault.code() in _rebalancing():
            # A rebalance goes on for as long as any member needs.
            self._fails_since = now
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
        elif is_spent or self._ends_producer(fault):
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


def _unchanged(partitions: Iterable[Partition]) -> dict[Partition, tuple[Mark, set[int]]]:
    """The marks that are committed of these partitions, with no new records."""
    none = set[int]()
    marks = ((one, one.mark_after(none)) for one in partitions)
    return {one: (mark, none) for one, mark in marks if mark is not None}


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
