"""The layout of a pipeline on the brokers: a topic, a group of members, a topic of dead letters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import sleep
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.streams.base.errors import BuildError, StreamDiffers, StreamMissing, describe
from penstock.streams.base.keys import By
from penstock.streams.kafka.client import (
    client_settings,
    error_of,
    needs_client,
    servers_of,
    settings_refused,
)
from penstock.streams.kafka.reason import reason

if TYPE_CHECKING:
    from penstock.streams.pipelines.pipeline import Pipeline

__all__ = ["Address", "Layout", "address_of", "key_of"]

T = TypeVar("T")

_SCHEME = "kafka://"
_DEAD = ".dead-letters"
# Characters of a topic's name, which may have 249 with the ending of the dead letters.
_LONGEST = 249 - len(_DEAD)
_WHO = "penstock"
# How often, and how many seconds apart, brokers are asked that are not ready.
_ASKED, _PAUSE = 40, 0.25


class Address(NamedTuple):
    """The parts of `kafka://host:port,host:port/topic`."""

    servers: str
    topic: str


def address_of(text: str) -> Address:
    """The servers and the topic in an address. Raises BuildError if it has not both."""
    servers, _, topic = text.removeprefix(_SCHEME).partition("/")
    example = f"give the brokers and the topic, as in {_SCHEME}localhost:9092/orders"
    if "@" in servers:
        raise BuildError(
            f"--on {_SCHEME}***: credentials are not a part of the address; give them as "
            "sasl.username and sasl.password in the file of --kafka-config"
        )
    if not servers or not topic:
        raise BuildError(f"--on {text}: {example}")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", topic) or topic in (".", ".."):
        raise BuildError(
            f"--on {text}: {topic!r} is not the name of a topic, which has letters, digits, ., - "
            f"and _; {example}"
        )
    if len(topic) > _LONGEST:
        raise BuildError(
            f"--on {describe(text, 60)}: the name of the topic is too long; use at most {_LONGEST} "
            f"characters, since the topic of the dead letters is called TOPIC{_DEAD}"
        )
    try:
        return Address(servers_of(servers, _WHO), topic)
    except BuildError:
        raise BuildError(f"--on {text}: {example}") from None


def key_of(pipeline: Pipeline) -> By[Any] | None:
    """The key by which its events are partitioned: the first `group_by`'s, or else a
    `distinct_within`'s behind the source, so that equal events meet."""
    stages = pipeline.describe()
    keys = [stage.placement.by for stage in stages if stage.name == "group_by"]
    if not keys and stages[1].name == "distinct_within":
        keys = [stages[1].placement.by]
    return keys[0] if keys else None


@dataclass(frozen=True, slots=True)
class Layout:
    """The topic and the group of one pipeline, and the client's settings for their brokers.

    A topic is created with `partitions` and `replicas`; without the first, none is.
    """

    servers: str
    topic: str
    group: str
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    partitions: int | None = None
    replicas: int | None = None

    def __post_init__(self) -> None:
        needs_client("--on kafka://")

    @property
    def letters(self) -> str:
        """The topic of the dead letters."""
        return self.topic + _DEAD

    def client(self, **own: Any) -> dict[str, Any]:
        """The settings of a client."""
        return client_settings(self.servers, self.config, own, _WHO)

    # To be used in a `with` block: destroyed by the garbage collector, which may run in a thread of
    # its own, it would end the process. Any: the stubs leave out what it answers.
    def admin(self) -> Any:
        """A client that asks about topics and groups."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            return AdminClient(self.client())
        except KafkaException as error:
            raise settings_refused(error, _WHO) from None

    def answered(self, ask: Callable[[], T], what: str) -> T:
        """The answer of the brokers. Their errors become ours, and begin with `what`.

        Asks again for a few seconds while the brokers choose who answers.
        """
        from confluent_kafka import KafkaError, KafkaException

        fault = KafkaError(KafkaError._TIMED_OUT)
        for _ in range(_ASKED):
            try:
                return ask()
            except TimeoutError:
                break
            except KafkaException as raised:
                fault = raised.args[0]
            if fault.code() not in (
                KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
                KafkaError.COORDINATOR_NOT_AVAILABLE,
                KafkaError.NOT_COORDINATOR,
                # The client has replaced the connection, since it learned which brokers there are.
                KafkaError._DESTROY_BROKER,
            ):
                break
            sleep(_PAUSE)
        raise error_of(reason(fault, self.client()), what, self.servers)

    def count(self, topic: str, patience: float) -> int:
        """How many partitions a topic has. Raises StreamMissing, and CannotConnect after `patience`
        seconds."""
        return len(self._listed(topic, patience).topics[topic].partitions)

    def cluster(self, patience: float) -> str:
        """The id of the cluster in which the topic is. Raises as `count` does."""
        return self._listed(self.topic, patience).cluster_id or ""

    # Any: the stubs leave out what it answers.
    def _listed(self, topic: str, patience: float) -> Any:
        what = f"topic {topic!r}"
        with self.admin() as admin:
            found = self.answered(lambda: admin.list_topics(topic, timeout=patience), what)
        fault = found.topics[topic].error
        if fault is not None:
            raise error_of(fault, what, self.servers)
        return found

    def prepare(self, patience: float) -> None:
        """Find the topic, or create it where `partitions` are given.

        Raises StreamMissing, StreamDiffers, RightsMissing, and CannotConnect after `patience`
        seconds.
        """
        try:
            count = self.count(self.topic, patience)
        except StreamMissing as error:
            if self.partitions is None:
                raise StreamMissing(
                    f"{error} With --partitions N, publish and run create it."
                ) from None
            self._create(self.topic, self.partitions, {}, patience)
            return
        if self.partitions not in (None, count):
            raise StreamDiffers(
                f"The topic {self.topic!r} has {count} partitions, not {self.partitions}. Nothing "
                "was changed. Leave --partitions out, or use another topic."
            )

    def prepare_letters(self, patience: float) -> None:
        """Create the topic of the dead letters if there is none."""
        try:
            self.count(self.letters, patience)
        except StreamMissing:
            # Letters stay until they are deleted, and what is deleted goes away.
            self._create(self.letters, 1, {"cleanup.policy": "compact"}, patience)

    def _create(self, name: str, partitions: int, config: dict[str, str], patience: float) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic

        # -1: as the brokers have it by default.
        topic = NewTopic(name, partitions, self.replicas or -1, config=config)

        def create() -> None:
            try:
                admin.create_topics([topic])[name].result(patience)
            except KafkaException as raised:
                # Another member may have been quicker.
                if raised.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        with self.admin() as admin:
            self.answered(create, f"the topic {name!r} cannot be created")
        for _ in range(_ASKED):
            # The brokers learn of it one after the other.
            with suppress(StreamMissing):
                self.count(name, patience)
                return
            sleep(_PAUSE)
