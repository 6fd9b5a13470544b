"""A backend with its states in a changelog of Kafka, and a copy of them in a local file.

A commit is one transaction: the changes of states, the marks, the results of sinks, and the offsets
of the group, by which the brokers refuse a member that has lost its partitions (KIP-447). The copy
is written after it. A partition that comes is read from where the copy ends: from the beginning, if
there is no copy of it. Source: KIP-447, and the state stores of Kafka Streams.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from tempfile import TemporaryDirectory
from threading import Event, Lock
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from penstock.streams.base.errors import CannotOpen
from penstock.streams.io.file_lock import locked
from penstock.streams.state.backend import (
    MOST_OVER,
    KeptStage,
    Moved,
    NotNow,
    PartsRefused,
    Restoring,
    Row,
    Unit,
)
from penstock.streams.state.copy import Copy
from penstock.streams.state.kafka.calls import Calls, NoAnswer
from penstock.streams.state.kafka.changelog import COMMIT, Change, records_of, stage_record
from penstock.streams.state.kafka.standby import Standby
from penstock.streams.state.kafka.topic import MOST_BYTES, Topic

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

__all__ = ["Kafka"]

# Seconds in which brokers answer, and after which a call of the client will not return any more.
_ANSWER = 10.0
_LONGEST = 30.0
# Seconds after which brokers abort a transaction that was left open.
_TRANSACTION = 10.0
# Seconds between two attempts to find out whether a transaction has happened.
_PAUSE = 0.2


class Kafka:
    """States in the changelog `topic` on these `servers`, with a copy in the folder `local`;
    without one they can only be read."""

    in_thread = True
    reads_in_thread = False
    most_rows: int | None = None

    def __init__(
        self,
        servers: str,
        topic: str,
        local: str | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        standby: bool = False,
    ) -> None:
        self.database: tuple[Any, ...] | None = ("kafka", servers)
        self._topic = Topic(servers, topic, config or {})
        # Who only reads has a folder for as long as it is open.
        self._temporary = None if local else TemporaryDirectory(prefix="penstock-")
        self._folder = local or cast(TemporaryDirectory[str], self._temporary).name
        self._copy = Copy(os.path.join(self._folder, "states"))
        self._lock: int | None = None
        self._id = ""
        self._is_prepared = False
        # Of the above, which several partitions need that come together.
        self._preparing = Lock()
        self._stages: dict[str, KeptStage] = {}
        self._adopted: set[int] = set()
        # Those and the ones that are being adopted.
        self._own: set[int] = set()
        self._keeps_standby = standby
        self._standby: Standby | None = None
        # Adopted partitions whose stages are written.
        self._told: set[int] = set()
        self._stops: dict[int, Event] = {}
        self._progress: dict[int, Restoring] = {}
        self._producer: Producer | None = None
        self._calls: Calls | None = None
        self._is_initialised = False
        # Of the transaction in progress: the next offset of each partition, and records that were
        # refused.
        self._next: dict[int, int] = {}
        self._refused: list[tuple[Any, KafkaError]] = []

    def open_to_read(self) -> None:
        """Read all that is committed, of all partitions. Raises CannotOpen if there is no topic."""
        topic, count = self._topic.prepare(None)
        self._copy.open(topic)
        for partition in range(count):
            self._catch_up(partition, lambda: False)
        self._progress.clear()
        self._adopted = set(range(count))
        self._show()

    def open(self) -> None:
        if self._temporary is not None:
            raise CannotOpen(
                f"The states in the topic {self._topic.name!r} can be read here, and not changed: "
                "they are those of the members of a group, and each changes those of its partitions"
            )
        try:
            os.makedirs(self._folder, exist_ok=True)
        except OSError as error:
            raise CannotOpen(f"Cannot make the folder {self._folder}: {error.strerror}.") from error
        self._lock = locked(
            os.path.join(self._folder, "lock"),
            "another run has its copy there. Give each member a folder of its own by local=.",
        )
        self._id = self._read_id()
        self._adopted.clear()
        self._told.clear()
        self._is_prepared = False
        found = self._topic_known()
        self._copy.open(found)
        self._show()

    def _topic_known(self) -> str:
        """The id of the topic that is there, or "" if it is to be made."""
        try:
            return self._topic.prepare(None)[0]
        except CannotOpen as error:
            if "There is no topic" in str(error):
                return ""
            raise

    def _read_id(self) -> str:
        """The transactional id of this folder: the start of a run ends what the one before it has
        left open."""
        path = os.path.join(self._folder, "id")
        try:
            with open(path, encoding="ascii") as file:
                return file.read()
        except FileNotFoundError:
            made = f"penstock-{self._topic.name}-{uuid4().hex}"
            with open(path, "w", encoding="ascii") as file:
                file.write(made)
            return made

    def close(self) -> None:
        for stop in self._stops.values():
            stop.set()
        if self._standby is not None:
            self._standby.close()
            self._standby = None
        self._drop_producer()
        self._adopted.clear()
        self._own.clear()
        self._copy.close()
        if self._temporary is not None:
            self._temporary.cleanup()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # Stages.

    def stages(self) -> list[KeptStage]:
        return self._copy.stages()

    def declare(self, stages: Iterable[KeptStage]) -> None:
        for stage in stages:
            self._stages[stage.name] = stage
        self._copy.declare(self._stages.values())
        self._told.clear()

    def forget(self, stage: str) -> None:
        keys: dict[int, list[bytes]] = {}
        for row in self._copy.scan(stage):
            if row.partition is not None:
                keys.setdefault(row.partition, []).append(row.key)
        units = {number: Unit(gone={stage: gone}) for number, gone in keys.items()}
        self._stages.pop(stage, None)
        if units:
            self._transact(Unit(partitions=units))
            self._copy.write(units, self._next)
        self._copy.forget(stage)

    # Partitions.

    def adopt(self, partition: int, count: int) -> None:
        stop = self._stops[partition] = Event()
        try:
            with self._preparing:
                if not self._is_prepared:
                    topic = self._topic.prepare(count)[0]
                    self._copy.expect(topic)
                    self._is_prepared = True
                self._own.add(partition)
                if self._keeps_standby and self._standby is None:
                    self._standby = Standby(self._topic, self._copy, count, self._own)
            if self._standby is not None:
                self._standby.leave()
            self._catch_up(partition, stop.is_set)
            self._check_stages(partition)
            if stop.is_set():
                raise Moved([partition])
            self._adopted.add(partition)
            self._told.discard(partition)
            self._show()
        except BaseException:
            self._own.discard(partition)
            raise
        finally:
            if self._stops.get(partition) is stop:
                del self._stops[partition]
            self._progress.pop(partition, None)

    def _catch_up(
        self, partition: int, is_stopped: Callable[[], bool], commit: bytes | None = None
    ) -> bool:
        """Read what the copy does not have of a partition; returns whether this commit is in it."""
        began, found = monotonic(), False
        first, end = self._topic.end(partition)
        at = self._copy.next(partition)
        if at is None or not first <= at <= end:
            # What it had was deleted, or is of another topic of this name.
            self._copy.clear(partition)
            at = first
        total = end - at
        start = at

        def apply(change: Change, next_: int) -> None:
            nonlocal found
            found = found or commit in change.commits
            self._copy.change(partition, change, next_)
            self._progress[partition] = Restoring(
                partition, next_ - start, total, monotonic() - began
            )

        self._progress[partition] = Restoring(partition, 0, total, 0.0)
        self._topic.read(partition, at, end, apply, is_stopped)
        return found

    def _check_stages(self, partition: int) -> None:
        """Raise CannotOpen for states of a stage that this run does not have."""
        for stage in self._copy.stages_in(partition):
            # Nothing was declared by who only looks into it.
            if self._stages and stage not in self._stages:
                raise CannotOpen(
                    f"The topic {self._topic.name!r} has states of the stage {stage!r}, which the "
                    "pipeline does not have: its stages with state are "
                    f"{', '.join(map(repr, self._stages))}. If the stage has another name now, "
                    "give it the old one by name=; or use another topic."
                )

    def release(self, partition: int) -> None:
        self._adopted.discard(partition)
        if partition not in self._stops:
            self._own.discard(partition)
        stop = self._stops.get(partition)
        if stop is not None:
            stop.set()
        self._show()

    def _show(self) -> None:
        self._copy.partitions = frozenset(self._adopted)

    def marks_of(self, partition: int) -> list[tuple[str, bytes]]:
        return self._copy.marks_of(partition)

    def restoring(self) -> list[Restoring]:
        return sorted(self._progress.values())

    def standby_lag(self) -> int | None:
        return None if self._standby is None else self._standby.lag

    # Reading.

    def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
        return self._copy.read(stage, keys)

    def due(self, stage: str, after: float, until: float, most: int) -> list[tuple[float, bytes]]:
        return self._copy.due(stage, after, until, most)

    def mark(self, partition: str) -> bytes | None:
        return dict(self._copy.marks()).get(partition)

    def marks(self) -> list[tuple[str, bytes]]:
        return self._copy.marks()

    def scan(self, stage: str) -> Iterator[Row]:
        return self._copy.scan(stage)

    def size(self, stage: str) -> tuple[int, int]:
        return self._copy.size(stage)

    def backup(self, path: str) -> None:
        """Write a copy of the current state to a new file. Raises CannotOpen."""
        if os.path.exists(path):
            raise CannotOpen(
                f"Cannot copy the states in the topic {self._topic.name!r} to {path}: it exists."
            )
        self._copy.backup(path)

    # Committing.

    def commit(self, unit: Unit) -> None:
        moved = [number for number in unit.partitions if number not in self._adopted]
        if moved:
            raise Moved(moved)
        self._add_over(unit)
        if not unit.partitions:
            if not unit.parts:
                return
            if not self._adopted:
                raise NotNow("this member has no partition now")
            # By its record in the changelog it is known whether it has happened.
            unit.partitions[min(self._adopted)] = Unit()
        if not any(places for _, places in unit.fences):
            raise NotNow("this member is not in the group now")
        self._transact(unit)
        self._copy.write(unit.partitions, self._next)
        self._told |= unit.partitions.keys()

    def _add_over(self, unit: Unit) -> None:
        """Delete rows that are over, except for those that the unit writes."""
        for stage, until in unit.over.items():
            written = {
                columns[0]
                for one in unit.partitions.values()
                for columns in one.rows.get(stage, ())
            }
            for number, key in self._copy.over(stage, until, MOST_OVER):
                if key not in written:
                    of_it = unit.partitions.setdefault(number, Unit())
                    of_it.gone.setdefault(stage, []).append(key)

    def _transact(self, unit: Unit) -> None:
        """Write a unit in one transaction. Raises NotNow, PartsRefused and CannotOpen."""
        from confluent_kafka import KafkaException

        commit = uuid4().bytes
        self._next, self._refused = {}, []
        try:
            self._send(unit, commit)
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
            if not self._has_happened(unit, commit):
                raise NotNow(_why(raised)) from None

    def _send(self, unit: Unit, commit: bytes) -> None:
        producer = self._ready()
        self._call(producer.begin_transaction)
        for number, of_it in unit.partitions.items():
            if number not in self._told:
                for stage in self._stages.values():
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

    def _has_happened(self, unit: Unit, commit: bytes) -> bool:
        """Whether a transaction was committed of which that is not known: the next producer with
        its id settles it, and the changelog has it or not."""
        from confluent_kafka import KafkaException

        self._drop_producer()
        while True:
            try:
                self._ready()
                break
            except (KafkaException, NoAnswer):
                sleep(_PAUSE)
        number = next(iter(unit.partitions))
        found = self._catch_up(number, lambda: False, commit)
        if found:
            for other in unit.partitions:
                self._catch_up(other, lambda: False)
                self._progress.pop(other, None)
            self._next = {}
        self._progress.pop(number, None)
        return found

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

        fault = raised.args[0] if isinstance(raised, KafkaException) else None
        is_spent = isinstance(raised, NoAnswer) or (fault is not None and fault.fatal())
        if self._producer is None:
            return
        if not is_spent and self._is_initialised:
            try:
                self._call(partial(self._producer.abort_transaction, _ANSWER))
                return
            except (KafkaException, NoAnswer):
                # Then the next one does.
                pass
        self._drop_producer()

    # The producer.

    def _ready(self) -> Producer:
        """The producer, or the next one, which has the same id: its start ends what the one before
        has begun."""
        if self._producer is None:
            from confluent_kafka import Producer

            self._calls = Calls("penstock changelog")
            settings = self._topic.settings(
                **{
                    "transactional.id": self._id,
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
        try:
            return calls.wait(function, _LONGEST)
        except SystemError as error:
            # Of the client, when a call is interrupted.
            raise NoAnswer from error

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        calls, self._calls = self._calls, None
        if calls is not None:
            if producer is not None:
                # It is of no use any more, whatever it says.
                with suppress(Exception):
                    calls.wait(producer.purge, 1.0)
            calls.close()


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
