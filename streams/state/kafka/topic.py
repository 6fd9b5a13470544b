"""The topic of a changelog: made where it is not there, checked where it is, and read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.streams.base.errors import BuildError, CannotOpen
from penstock.streams.state.backend import Moved, another_count
from penstock.streams.state.kafka.changelog import Change, changes_in

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

__all__ = ["MOST_BYTES", "Topic", "has_no_leader", "is_away"]

T = TypeVar("T")

log = logging.getLogger("penstock")

MOST_BYTES = 16 * 1024 * 1024
"""The largest record with a state: brokers take one of a mebibyte by default."""

# Seconds in which brokers answer, for which they may be away, and between two attempts: twice as
# many each time, since a client has five threads or more, and brokers that start are busy.
_ANSWER = 10.0
_PATIENCE = 120.0
_PAUSE, _LONGEST = 0.2, 3.0
# Seconds after which somebody who looks is told that no broker has answered.
_LOOK = 6.0
# Seconds for which errors of connections are waited for at a time.
_STEP = 0.1
# Seconds after which it is said what is waited for.
_SILENT = 5.0
# Records that are put into a copy at once.
_MOST = 5_000


def _never() -> bool:
    return False


class Topic:
    """A changelog on these `servers`."""

    def __init__(
        self, servers: str, name: str, config: Mapping[str, Any], *, is_looked_at: bool = False
    ) -> None:
        self.name = name
        self._servers = servers
        self._config = {
            "bootstrap.servers": servers,
            "client.id": "penstock",
            "log_level": 0,
            **config,
        }
        # Seconds for which a first answer is waited for.
        self._patience = _LOOK if is_looked_at else _PATIENCE
        # Whether a broker has ever answered; and why none accepts the client, as one has said.
        self._is_known = False
        self._refusal = ""

    def settings(self, **own: Any) -> dict[str, Any]:
        """The settings of a client, with these."""
        return {**self._config, **own}

    def reading(self, reset: str) -> dict[str, Any]:
        """The settings of a consumer, which begins there if its offset is not there."""
        return self.settings(
            **{
                "group.id": f"penstock {self.name}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": reset,
                "queued.min.messages": 50_000,
                "fetch.queue.backoff.ms": 10,
            }
        )

    def _client(self) -> Any:
        """A client that asks about the topic, and hears why brokers do not accept it. Raises
        BuildError for settings that it does not take."""
        from confluent_kafka import KafkaException

        try:
            return _administration().AdminClient(self.settings(error_cb=self._noticed))
        except KafkaException as error:
            raise BuildError(
                f"The topic {self.name!r}: the Kafka client does not accept a setting that was "
                f"given for it ({error.args[0].str()})"
            ) from None

    def _noticed(self, fault: Any) -> None:
        from confluent_kafka import KafkaError as Code

        # In TLS 1.3 brokers look at a certificate when the handshake is over for the client.
        if fault.code() in (Code._AUTHENTICATION, Code._SSL) or "SSL routines" in fault.str():
            self._refusal = fault.str()
        given: Any = self._config.get("error_cb")
        if given is not None:
            given(fault)

    def prepare(
        self, count: int | None, is_stopped: Callable[[], bool] = _never
    ) -> tuple[str, int]:
        """The id of the topic and the number of its partitions. It is made with `count` of them if
        it is not there. Raises CannotOpen, also if it has another number; and Moved if stopped."""
        admin, asked = self._client(), partial(self._asked, is_stopped)
        found = asked("the brokers to say its partitions", lambda: self._about(admin))
        if found is None:
            if count is None:
                raise CannotOpen(f"There is no topic {self.name!r} on {self._servers}.")
            asked("enough brokers to make it", lambda: self._make(admin, count))
            found = asked("it to be there", lambda: self._made(admin))
        if count is not None and found[1] != count:
            raise another_count(f"the topic {self.name!r}", found[1], count)
        self._check_policy(admin, is_stopped)
        return found

    def _about(self, admin: Any) -> tuple[str, int] | None:
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        (answer,) = admin.describe_topics(
            TopicCollection([self.name]), request_timeout=_ANSWER
        ).values()
        try:
            about = self._result(admin, answer)
        except KafkaException as raised:
            if raised.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise
        return str(about.topic_id), len(about.partitions)

    # Any: the stubs of the client say less.
    def _result(self, admin: Any, answer: Any) -> Any:
        """The result of a request. Raises CannotOpen as soon as it is known that no broker accepts
        the client, which the request itself is not answered."""
        until = monotonic() + self._patience
        while not (self._is_known or answer.done()):
            admin.poll(_STEP)
            if self._refusal:
                raise CannotOpen(
                    f"The topic {self.name!r}: {self._servers} does not accept the credentials or "
                    f"the certificate ({self._refusal}). Correct security.protocol, sasl.* or "
                    "ssl.* in config=, or in the file of --kafka-config."
                )
            if monotonic() > until:
                raise _NotYet("no broker has answered")
        return answer.result()

    def _made(self, admin: Any) -> tuple[str, int]:
        found = self._about(admin)
        if found is None:
            raise _NotYet
        return found

    def _make(self, admin: Any, count: int) -> None:
        from confluent_kafka import KafkaError, KafkaException

        new_topic = _administration().NewTopic
        # -1: the brokers' own number of copies.
        settings = {"cleanup.policy": "compact", "max.message.bytes": str(MOST_BYTES)}
        new = new_topic(self.name, count, -1, config=settings)
        (answer,) = admin.create_topics([new], request_timeout=_ANSWER).values()
        try:
            answer.result()
        except KafkaException as raised:
            fault = raised.args[0]
            # Another member was first.
            if fault.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            # While a broker is away there may be too few for the copies.
            if fault.code() == KafkaError.INVALID_REPLICATION_FACTOR:
                raise _NotYet(fault.str()) from None
            raise

    def _check_policy(self, admin: Any, is_stopped: Callable[[], bool]) -> None:
        client = _administration()
        asked = client.ConfigResource(client.ResourceType.TOPIC, self.name)

        def ask() -> Any:
            (answer,) = admin.describe_configs([asked], request_timeout=_ANSWER).values()
            return answer.result()

        found = self._asked(is_stopped, "the brokers to say how it is kept", ask)
        policy = found["cleanup.policy"].value
        if policy != "compact":
            raise CannotOpen(
                f"The topic {self.name!r} has cleanup.policy={policy!r}, and would lose states: "
                "set it to compact, or give the store another topic."
            )

    def end(self, partition: int, is_stopped: Callable[[], bool] = _never) -> tuple[int, int]:
        """The offset of the first record of a partition that is there, and the one behind the last,
        also of a transaction that is open. Raises CannotOpen, and Moved if it is stopped."""
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        place = TopicPartition(self.name, partition)
        settings = self.settings(
            **{"group.id": f"penstock {self.name}", "isolation.level": "read_uncommitted"}
        )

        def ask() -> tuple[int, int]:
            # A new one each time: it would go on to name a leader of before, and be refused. Not
            # an AdminClient: that tries all the time to reach a leader that is away.
            consumer: Any = Consumer(settings)
            try:
                found: tuple[int, int] | None = consumer.get_watermark_offsets(
                    place, timeout=_ANSWER
                )
            finally:
                consumer.close()
            if found is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return found

        return self._asked(is_stopped, f"the brokers to say what partition {partition} has", ask)

    def read(
        self,
        partition: int,
        first: int,
        end: int,
        apply: Callable[[Change, int], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        """Read what is committed from one offset up to another, and have it applied, a part at a
        time, each with the offset behind it. Waits for the end of a transaction that is open.
        Raises Moved if it is stopped."""
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        if first >= end:
            return
        consumer: Any = Consumer(self.reading("error"))
        try:
            consumer.assign([TopicPartition(self.name, partition, first)])
            began, at = monotonic(), first
            while at < end:
                if is_stopped():
                    raise Moved([partition])
                messages = consumer.consume(_MOST, 0.2)
                records: list[tuple[bytes, bytes | None]] = []
                before = at
                for message in messages:
                    fault = message.error()
                    if fault is None:
                        records.append((message.key() or b"", message.value()))
                        at = message.offset() + 1
                    elif fault.code() == KafkaError._PARTITION_EOF:
                        at = max(at, message.offset())
                    elif fault.fatal() or fault.code() == KafkaError._AUTO_OFFSET_RESET:
                        raise KafkaException(fault)
                if at > before:
                    apply(changes_in(records), at)
                    began = monotonic()
                elif monotonic() > began + _PATIENCE:
                    raise CannotOpen(
                        f"Cannot read partition {partition} of {self.name!r} on {self._servers}: "
                        f"nothing came for {_PATIENCE:.0f} s after offset {at} of {end}."
                    )
        except KafkaException as raised:
            raise CannotOpen(
                f"Cannot read partition {partition} of {self.name!r}: {raised.args[0].str()}."
            ) from raised
        finally:
            consumer.close()

    def _asked(self, is_stopped: Callable[[], bool], what: str, ask: Callable[[], T]) -> T:
        """The answer of brokers, which may be away for a while. Raises Moved if it is stopped."""
        from confluent_kafka import KafkaError as Code
        from confluent_kafka import KafkaException

        began, is_said, pause = monotonic(), False, _PAUSE
        while True:
            if is_stopped():
                raise Moved([])
            try:
                answer = ask()
                self._is_known = True
                return answer
            except _NotYet as error:
                why = str(error) or "not yet"
            except KafkaException as raised:
                fault = raised.args[0]
                why = fault.str()
                # A topic that was just made is not known to all.
                is_new = fault.code() == Code.UNKNOWN_TOPIC_OR_PART
                passes = is_away(fault) or has_no_leader(fault) or is_new
                if not passes:
                    raise CannotOpen(
                        f"The topic {self.name!r} on {self._servers} cannot be used: {why}."
                    ) from raised
            waited = monotonic() - began
            if waited > (_PATIENCE if self._is_known else self._patience):
                raise CannotOpen(
                    f"The topic {self.name!r} on {self._servers}: waited {waited:.0f} s for {what} "
                    f"({why})."
                )
            if waited > _SILENT and not is_said:
                is_said = True
                log.warning("the states in topic %r wait for %s (%s)", self.name, what, why)
            again = monotonic() + pause
            pause = min(2 * pause, _LONGEST)
            while monotonic() < again and not is_stopped():
                sleep(_PAUSE)


# Any: the stubs of the module do not say what it has.
def _administration() -> Any:
    from confluent_kafka import admin

    return admin


class _NotYet(Exception):
    pass


def has_no_leader(fault: KafkaError) -> bool:
    """Whether this is what the client says of a partition that has no leader, if it is there."""
    from confluent_kafka import KafkaError as Code

    return fault.code() in (Code._NOENT, Code._UNKNOWN_PARTITION)


def is_away(fault: KafkaError) -> bool:
    """Whether a broker did not answer, or another one is chosen in its place: the same request may
    succeed later."""
    from confluent_kafka import KafkaError as Code

    return fault.retriable() or fault.code() in (
        Code.NOT_COORDINATOR,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.NOT_CONTROLLER,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_FOR_PARTITION,
        # Of brokers that do not know yet who leads.
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.OFFSET_NOT_AVAILABLE,
        Code.KAFKA_STORAGE_ERROR,
        Code.REQUEST_TIMED_OUT,
        Code.NETWORK_EXCEPTION,
        Code._TRANSPORT,
        Code._TIMED_OUT,
        Code._WAIT_COORD,
        Code._ALL_BROKERS_DOWN,
        # The client has replaced the connection, as it learned which brokers there are.
        Code._DESTROY_BROKER,
    )
