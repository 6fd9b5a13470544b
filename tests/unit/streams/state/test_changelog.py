"""The records of a changelog, and the local copy that is made of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from penstock import Store
from penstock.streams.base.errors import BuildError
from penstock.streams.kafka.offsets.commits import passes
from penstock.streams.state.backend import Columns, KeptStage, Moved, Unit
from penstock.streams.state.copy import Copy
from penstock.streams.state.kafka.backend import Kafka
from penstock.streams.state.kafka.changelog import COMMIT, changes_in, records_of, stage_record
from penstock.streams.state.kafka.topic import Topic

TEXTS = st.binary(max_size=20)
DUES = st.none() | st.floats(-1e300, 1e300)
# Timers are JSON, which has no line feed outside of a text, and escapes it there.
TIMERS = TEXTS.filter(lambda text: b"\n" not in text)


@given(
    st.dictionaries(TEXTS, st.tuples(TEXTS, st.integers(0, 99), TIMERS, DUES), max_size=5),
    st.lists(TEXTS, max_size=3, unique=True),
    st.dictionaries(st.text(max_size=5), TEXTS, max_size=3),
)
def test_what_is_read_from_records_is_what_was_written(
    rows: dict[bytes, Any], gone: list[bytes], marks: dict[str, bytes]
) -> None:
    columns: list[Columns] = [(key, *rest) for key, rest in rows.items()]
    stage = KeptStage("a stage", "user", 3)
    records = [stage_record(stage), *records_of(Unit({"a": columns}, {"b": gone}, marks))]
    found = changes_in([*records, (COMMIT, b"7")])
    wanted: dict[tuple[str, bytes], Columns | None] = {("a", one[0]): one for one in columns}
    assert found.rows == wanted | {("b", key): None for key in gone}
    assert (found.marks, found.stages, found.commits) == (marks, [stage], {b"7"})


def test_the_newest_record_of_a_key_counts() -> None:
    (first,) = records_of(Unit({"a": [(b"1", b"old", 1, b"", None)]}))
    (second,) = records_of(Unit({"a": [(b"1", b"new", 1, b"", 2.5)]}))
    (deletion,) = records_of(Unit(gone={"a": [b"1"]}))
    assert changes_in([first, second]).rows == {("a", b"1"): (b"1", b"new", 1, b"", 2.5)}
    assert changes_in([first, second, deletion]).rows == {("a", b"1"): None}


def copy_at(folder: Path, topic: str) -> Copy:
    copy = Copy(str(folder / "states"), "Kafka")
    copy.open(topic)
    copy.declare([KeptStage("a", "user", 1)])
    copy.partitions = frozenset({0})
    return copy


def test_a_copy_goes_on_where_it_was_and_has_nothing_of_another_topic(tmp_path: Path) -> None:
    copy = copy_at(tmp_path, "an id")
    assert copy.next(0) is None
    row = b"1", b"2", 1, b"", None
    copy.write({0: Unit({"a": [row]}, marks={"p": b"m"})}, {0: 7})
    copy.close()
    copy = copy_at(tmp_path, "an id")
    assert (copy.next(0), copy.marks_of(0), copy.size("a")) == (7, [("p", b"m")], (1, 2))
    copy.close()
    copy = copy_at(tmp_path, "another id")
    assert (copy.next(0), copy.marks_of(0), copy.size("a")) == (None, [], (0, 0))
    copy.close()


@pytest.mark.parametrize(
    ("where", "options", "said"),
    [
        ("kafka://localhost:9092/counts", {}, "give a folder for the copy"),
        ("kafka://localhost", {"local": "a"}, r"kafka://BROKERS/TOPIC"),
        ("kafka:///counts", {"local": "a"}, r"kafka://BROKERS/TOPIC"),
        ("a.state", {"standby": True}, "are for a store in Kafka"),
        ("a.state", {"config": {}}, "are for a store in Kafka"),
        ("kafka://a:1/t", {"local": "a", "standby": 7}, "standby=7.: True or False"),
    ],
)
def test_wrong_options_of_a_store_in_kafka_are_refused(
    where: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(BuildError, match=said):
        Store(where, **options)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError._TRANSPORT,
        # What the client says if a partition has no leader.
        KafkaError._NOENT,
    ],
)
def test_brokers_that_restart_are_asked_again(code: int) -> None:
    topic = Topic("localhost:1", "states", {})
    answers: list[Any] = [KafkaException(KafkaError(code)), 7]

    def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    assert topic._asked(lambda: False, "an answer", ask) == 7
    assert passes(KafkaError(code)) or code == KafkaError._NOENT


@pytest.mark.parametrize("ends", [lambda kafka: kafka.release(0), lambda kafka: kafka.close()])
def test_brokers_that_do_not_answer_are_not_waited_for_when_a_partition_is_given_up(
    ends: Callable[[Kafka], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = Event()

    class Client:
        def __init__(self, _: Any) -> None:
            pass

        def get_watermark_offsets(self, *_: Any, **__: Any) -> Any:
            asked.set()
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))

        def close(self) -> None:
            pass

    monkeypatch.setattr("confluent_kafka.Consumer", Client)
    # It would be an error after this time.
    monkeypatch.setattr("penstock.streams.state.kafka.topic._PATIENCE", 5.0)
    monkeypatch.setattr(Topic, "prepare", lambda *_: ("an id", 1))
    kafka = Kafka("localhost:1", "states", str(tmp_path))
    kafka.open()
    with ThreadPoolExecutor() as threads:
        adopted = threads.submit(kafka.adopt, 0, 1)
        assert asked.wait(60)
        ends(kafka)
        assert isinstance(adopted.exception(60), Moved)


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again_how_it_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests: list[Any] = []

    class Answer:
        """Of one request, which stays as it is."""

        def result(self) -> Any:
            if self is requests[0]:
                raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
            return {"cleanup.policy": SimpleNamespace(value="compact")}

    class Client:
        def describe_configs(self, asked: Any, **_: Any) -> dict[Any, Answer]:
            requests.append(Answer())
            return dict.fromkeys(asked, requests[-1])

    # Soon, and not in the two minutes for which brokers may be away.
    monkeypatch.setattr("penstock.streams.state.kafka.topic._PATIENCE", 1.0)
    Topic("localhost:1", "states", {})._check_policy(Client(), lambda: False)
    assert len(requests) == 2


def test_another_client_asks_where_one_keeps_to_a_leader_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[int] = []

    class Client:
        def __init__(self, _: Any) -> None:
            left.append(1)
            self._number = len(left)

        def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
            if self._number == 1:
                raise KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH))
            return 3, 7

        def close(self) -> None:
            left[self._number - 1] = 0

    monkeypatch.setattr("confluent_kafka.Consumer", Client)
    # Soon, and not in the two minutes for which brokers may be away.
    monkeypatch.setattr("penstock.streams.state.kafka.topic._PATIENCE", 1.0)
    assert Topic("localhost:1", "states", {}).end(0) == (3, 7)
    assert left == [0, 0]


def test_brokers_that_restart_are_asked_by_few_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    made, now = 0, 0.0

    class Client:
        def __init__(self, _: Any) -> None:
            nonlocal made
            made += 1

        def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int] | None:
            return (3, 7) if now > 60 else None

        def close(self) -> None:
            pass

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("confluent_kafka.Consumer", Client)
    monkeypatch.setattr("penstock.streams.state.kafka.topic.sleep", sleep)
    monkeypatch.setattr("penstock.streams.state.kafka.topic.monotonic", lambda: now)
    assert Topic("localhost:1", "states", {}).end(0) == (3, 7)
    assert made < 30
