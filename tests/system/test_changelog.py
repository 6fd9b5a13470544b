"""States in a changelog of Kafka keep the laws of backends whose states move, on real brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.streams.base.errors import CannotOpen
from penstock.streams.state.backend import KeptStage, Moving, NotNow, Unit
from penstock.streams.state.kafka.backend import Kafka
from penstock.streams.testing import backend_laws as laws
from penstock.streams.testing import moving_laws
from penstock.streams.testing.backend_laws import LAWS, Law
from penstock.streams.testing.moving_laws import MOVING_LAWS, MovingLaw, whole
from tests.helpers.kafka.broker import HAS_KAFKA, Brokers

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")

# Who has a partition is decided by the group, which a backend alone is not in.
OF_THE_GROUP = {
    moving_laws.commits_nothing_of_a_partition_that_another_has_adopted,
    laws.lets_only_the_last_run_commit,
    # Its parts are written by the client of the transaction, and not by a connection.
    laws.writes_parts_or_says_which_are_refused,
}


class Member(Kafka):
    """A backend that is a member of a group, so that the brokers accept its commits."""

    proof: Any = None

    def commit(self, unit: Unit) -> None:
        unit.fences.append(self.proof)
        super().commit(unit)


class Results:
    """The results of sinks, in a topic."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def write(self, backend: Kafka, values: list[bytes]) -> None:
        for value in values:
            backend.produce(value, self._topic, value, None)


@pytest.fixture
def make(tmp_path: Path, kafka_brokers: Brokers) -> Iterator[Callable[[], Moving]]:
    topic = kafka_brokers.topic()
    consumer = Consumer({"bootstrap.servers": kafka_brokers.servers, "group.id": topic})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    changelog, members = f"{topic}-states", list[Member]()

    def member(*, standby: bool = False) -> Moving:
        folder = str(tmp_path / str(len(members)))
        made = Member(kafka_brokers.servers, changelog, folder, standby=standby)
        made.proof = consumer.consumer_group_metadata(), [TopicPartition(topic, 0, 0)]
        members.append(made)
        return made

    yield member
    consumer.close()


@pytest.mark.parametrize("law", [law for law in MOVING_LAWS if law not in OF_THE_GROUP])
def test_a_changelog_keeps_the_law(law: MovingLaw, make: Callable[[], Moving]) -> None:
    law(make)


@pytest.mark.parametrize("law", [law for law in LAWS if law not in OF_THE_GROUP])
def test_a_partition_of_a_changelog_is_a_backend(law: Law, make: Callable[[], Moving]) -> None:
    law(lambda: whole(make()))


def test_a_topic_that_is_not_compacted_is_refused(tmp_path: Path, kafka_brokers: Brokers) -> None:
    backend = Kafka(kafka_brokers.servers, kafka_brokers.topic(), str(tmp_path))
    with pytest.raises(CannotOpen, match=r"cleanup.policy='delete', and would lose states"):
        backend.open()


def test_states_of_a_stage_that_is_gone_are_refused(make: Callable[[], Moving]) -> None:
    one = make()
    one.open()
    one.declare([KeptStage("before", "user", 1)])
    one.adopt(0, 1)
    row = b"1", b"2", 1, b"", None
    one.commit(Unit(partitions={0: Unit({"before": [row]})}))
    one.close()
    other = make()
    other.open()
    other.declare([KeptStage("after", "user", 1)])
    with pytest.raises(CannotOpen, match=r"states of the stage 'before'.* are 'after'"):
        other.adopt(0, 1)
    other.close()


@pytest.mark.parametrize("is_made", [True, False])
def test_results_without_states_are_written_once_if_the_answer_to_their_commit_is_lost(
    make: Any, kafka_brokers: Brokers, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    one = make()
    one.open()
    one.adopt(0, 1)
    finish = one._transactions._finish

    def lose_the_answer() -> None:
        if is_made:
            finish()
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    topic = kafka_brokers.topic()
    unit = Unit(parts={Results(topic): [b"a", b"b"]})
    monkeypatch.setattr(one._transactions, "_finish", lose_the_answer)
    with nullcontext() if is_made else pytest.raises(NotNow):
        one.commit(unit)
    monkeypatch.setattr(one._transactions, "_finish", finish)
    one.commit(Unit(parts={Results(topic): [b"c"]}))
    one.close()
    found = [record.value() for record in kafka_brokers.read(topic, 1)]
    assert found == [*([b"a", b"b"] if is_made else []), b"c"]


def test_a_standby_has_what_others_have_committed(make: Any) -> None:
    one = make()
    one.open()
    one.declare([KeptStage("one", "user", 1)])
    one.adopt(0, 2)
    other = make(standby=True)
    other.open()
    other.declare([KeptStage("one", "user", 1)])
    other.adopt(1, 2)
    rows = [(b"%d" % key, b"7", 1, b"", None) for key in range(1_000)]
    one.commit(Unit(partitions={0: Unit({"one": rows})}))
    deadline = time.monotonic() + 30
    while (other._copy.next(0) or 0) < other._topic.end(0)[1]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert other.size("one") == (0, 0)
    one.close()
    other.adopt(0, 2)
    assert other.size("one")[0] == 1_000
    other.close()
