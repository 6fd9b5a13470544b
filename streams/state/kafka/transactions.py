"""Units in transactions of Kafka, by a producer that is replaced where it is spent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.streams.base.errors import CannotOpen
from penstock.streams.state.backend import KeptStage, Moved, NotNow, PartsRefused, Unit, Unknown
from penstock.streams.state.kafka.calls import Calls, NoAnswer
from penstock.streams.state.kafka.changelog import COMMIT, records_of, stage_record
from penstock.streams.state.kafka.topic import MOST_BYTES, Topic

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

__all__ = ["Transactions"]

# Seconds in which brokers answer, and after which a call of the client will not return any more.
_ANSWER = 10.0
_LONGEST = 30.0
# Seconds after which brokers abort a transaction that was left open.
_TRANSACTION = 10.0
# Seconds between two attempts to find out whether a transaction has happened.
_PAUSE = 0.2


class Transactions:
    """Writes units into the changelog `topic`, with the results of sinks.

    `is_there` says whether these partitions of it have this commit, after they were read.
    """

    def __init__(self, topic: Topic, is_there: Callable[[Collection[int], bytes], bool]) -> None:
        self.id = ""
        """The transactional id: the start of a producer ends what the one before it with the same
        id has left open."""
        self._topic = topic
        self._is_there = is_there
        self._producer: Producer | None = None
        self._calls: Calls | None = None
        # Set while nobody waits for brokers any longer.
        self._given_up = Event()
        self._is_initialised = False
        # Of the transaction in progress: the next offset of each partition, and records that were
        # refused.
        self._next: dict[int, int] = {}
        self._refused: list[tuple[Any, KafkaError]] = []

    def write(
        self, unit: Unit, stages: Iterable[KeptStage], new: Collection[int]
    ) -> dict[int, int]:
        """Write a unit in one transaction, into `new` partitions the stages too. Returns the next
        offset of each; nothing if they were read since. Raises NotNow, Unknown, PartsRefused and
        CannotOpen.
        """
        from confluent_kafka import KafkaException

        commit = uuid4().bytes
        self._next, self._refused = {}, []
        try:
            self._send(unit, stages, new, commit)
        except (KafkaException, NoAnswer) as raised:
            self._abort(raised)
            self._raise_refused(unit)
            raise NotNow(_why(raised)) from None
        except BaseException:
            self._abort(None)
            raise
        try:
            self._finish()
        except (KafkaException, NoAnswer) as raised:
            fault = raised.args[0] if raised.args else None
            if fault is not None and fault.txn_requires_abort():
                self._abort(raised)
                self._raise_refused(unit)
                raise NotNow(_why(raised)) from None
            if not self._has_happened(unit, commit, raised):
                raise NotNow(_why(raised)) from None
        return self._next

    def begin(self) -> None:
        """Brokers are waited for, from now on."""
        self._given_up.clear()

    def give_up(self) -> None:
        """Wait for brokers no longer, until `begin`: what is under way ends, a question about the
        changelog when its answer is there or overdue."""
        self._given_up.set()
        if (calls := self._calls) is not None:
            calls.give_up()

    @property
    def is_given_up(self) -> bool:
        return self._given_up.is_set()

    def _send(
        self, unit: Unit, stages: Iterable[KeptStage], new: Collection[int], commit: bytes
    ) -> None:
        producer = self._ready()
        self._call(producer.begin_transaction)
        for number, of_it in unit.partitions.items():
            if number in new:
                for stage in stages:
                    self._write(number, *stage_record(stage))
            for record in records_of(of_it):
                self._write(number, *record)
            self._write(number, COMMIT, commit)
        for kind, values in unit.parts.items():
            kind.write(self, values)
        for metadata, places in unit.fences:
            self._call(partial(producer.send_offsets_to_transaction, places, metadata, _ANSWER))

    def _write(self, number: int, key: bytes, value: bytes | None) -> None:
        self.produce((key, value), self._topic.name, value, key, partition=number, is_state=True)

    def produce(
        self,
        part: Any,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        *,
        is_state: bool = False,
        **rest: Any,
    ) -> None:
        """Write a record in the transaction that is under way, for a part that is refused if the
        record is."""
        from confluent_kafka import KafkaException

        producer = self._producer
        assert producer is not None
        answer = partial(self._answered, part, is_state)
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=answer, **rest)
                return
            except BufferError:
                self._call(partial(producer.poll, 0.1))
            except KafkaException as raised:
                self._refused.append((part, raised.args[0]))
                raise

    def _answered(self, part: Any, is_state: bool, fault: Any, message: Any) -> None:
        if fault is not None:
            self._refused.append((part, fault))
        elif is_state:
            number, next_ = message.partition(), message.offset() + 1
            self._next[number] = max(next_, self._next.get(number, 0))

    def _finish(self) -> None:
        """Commit. Raises what leaves it open whether that has happened."""
        from confluent_kafka import KafkaException

        producer = self._producer
        assert producer is not None
        until = monotonic() + _LONGEST
        while True:
            try:
                self._call(partial(producer.commit_transaction, _ANSWER))
                return
            except KafkaException as raised:
                fault = raised.args[0]
                if not fault.retriable() or monotonic() > until:
                    raise

    def _has_happened(self, unit: Unit, commit: bytes, why: Exception) -> bool:
        """Whether a transaction was committed of which that is not known: the next producer with
        its id settles it, and the changelog has it or not. Brokers that are away are asked until
        the run waits for them no longer: then Unknown is raised."""
        from confluent_kafka import KafkaException

        self.close()
        while True:
            if self.is_given_up:
                raise Unknown(_why(why))
            try:
                self._ready()
                break
            except (KafkaException, NoAnswer) as raised:
                why = raised
                if _is_spent(raised):
                    self.close()
                self._given_up.wait(_PAUSE)
        try:
            if not self._is_there(unit.partitions, commit):
                return False
        except Moved:
            raise Unknown("the changelog could not be read") from None
        self._next = {}
        return True

    def _raise_refused(self, unit: Unit) -> None:
        """Raise the error of records that the brokers will never take."""
        from confluent_kafka import KafkaException

        for part, fault in self._refused:
            if fault.retriable() or fault.fatal() or not _is_of_record(fault):
                continue
            for kind, values in unit.parts.items():
                errors: dict[int, Exception] = {
                    place: KafkaException(fault)
                    for place, value in enumerate(values)
                    if value is part
                }
                if errors:
                    raise PartsRefused(kind, errors)
            raise CannotOpen(
                f"The topic {self._topic.name!r} does not take the state of {part[0]!r}: "
                f"{fault.str()}. Raise its max.message.bytes, or keep less in a state."
            )

    def _abort(self, raised: Exception | None) -> None:
        """Undo the transaction in progress; a producer that cannot is replaced."""
        from confluent_kafka import KafkaException

        if self._producer is None:
            return
        if not _is_spent(raised) and self._is_initialised:
            try:
                self._call(partial(self._producer.abort_transaction, _ANSWER))
                return
            except (KafkaException, NoAnswer):
                # Then the next one does.
                pass
        self.close()

    # The producer.

    def _ready(self) -> Producer:
        """The producer, or the next one, which has the same id: its start ends what the one before
        has begun."""
        if self._producer is None:
            from confluent_kafka import Producer

            self._calls = Calls("penstock changelog")
            settings = self._topic.settings(
                **{
                    "transactional.id": self.id,
                    "transaction.timeout.ms": round(_TRANSACTION * 1000),
                    "linger.ms": 2,
                    "message.max.bytes": MOST_BYTES,
                    "partitioner": "murmur2_random",
                }
            )
            self._producer = Producer(settings)
            self._is_initialised = False
        if not self._is_initialised:
            self._call(partial(self._producer.init_transactions, _ANSWER))
            self._is_initialised = True
        return self._producer

    def _call(self, function: Callable[[], Any]) -> Any:
        calls = self._calls
        assert calls is not None
        if self.is_given_up:
            raise NoAnswer
        try:
            return calls.wait(function, _LONGEST)
        except SystemError as error:
            # Of the client, when a call is interrupted.
            raise NoAnswer from error

    def close(self) -> None:
        """Use this producer no more."""
        producer, self._producer = self._producer, None
        calls, self._calls = self._calls, None
        if calls is not None:
            if producer is not None:
                # It is of no use any more, whatever it says.
                with suppress(Exception):
                    calls.wait(producer.purge, 1.0)
            calls.close()


def _is_spent(raised: Exception | None) -> bool:
    """Whether the producer that has raised this is of no use any more."""
    return isinstance(raised, NoAnswer) or bool(
        raised is not None and raised.args and raised.args[0].fatal()
    )


def _why(raised: Exception) -> str:
    return raised.args[0].str() if raised.args else "the client has not returned"


def _is_of_record(fault: Any) -> bool:
    """Whether a record was refused for what it is."""
    from confluent_kafka import KafkaError as Code

    return fault.code() in (
        Code.MSG_SIZE_TOO_LARGE,
        Code.INVALID_MSG,
        Code.INVALID_RECORD,
        Code.POLICY_VIOLATION,
        Code.UNKNOWN_TOPIC_OR_PART,
        Code._UNKNOWN_TOPIC,
        Code._UNKNOWN_PARTITION,
        Code.TOPIC_AUTHORIZATION_FAILED,
    )
