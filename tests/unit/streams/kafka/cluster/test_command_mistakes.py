from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.streams.base.errors import MissingExtra
from penstock.streams.kafka.cluster.layout import Layout
from tests.helpers.kafka.mock import Cluster
from tests.helpers.servers.command import Penstock

AWAY = "kafka://127.0.0.1:1/orders"


@pytest.mark.parametrize(
    "words", [("publish", "pipe.py"), ("run", "pipe.py"), ("status",), ("dead-letters", "list")]
)
def test_brokers_that_do_not_answer_and_topics_that_are_not_there_are_named(
    penstock: Penstock, kafka: Cluster, words: tuple[str, ...]
) -> None:
    away = penstock(*words, "--on", AWAY)
    assert away.returncode == 2
    assert "no Kafka broker answers at 127.0.0.1:1" in away.stderr
    missing = penstock(*words, "--on", f"kafka://{kafka.servers}/nowhere")
    assert missing.returncode == 2
    assert "topic 'nowhere': there is no such topic on" in missing.stderr
    assert "Traceback" not in away.stderr + missing.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "pipe.py", "--on", "kafka://a"), "kafka://localhost:9092/orders"),
        (("run", "pipe.py", "--on", AWAY, "--input", "b"), "penstock publish pipe.py"),
        (("run", "pipe.py", "--on", AWAY, "--workers", "2"), "give one of them"),
        (("run", "pipe.py", "--on", AWAY, "--attempts", "0"), "at least 1 is needed"),
        (("run", "pipe.py", "--on", AWAY, "--batch", "8"), "--batch does not go with --on kafka"),
        (("publish", "pipe.py", "--on", AWAY, "--partitions", "0"), "at least 1 is needed"),
        (("publish", "pipe.py", "--on", AWAY, "--room", "1000"), "--room does not go with"),
        (("status", "--on", AWAY, "--pool", "p"), "work pools are on NATS"),
        (("status", "--on", AWAY, "--kafka-config", "none"), "--kafka-config none: "),
        (("status", "--on", "nats://a", "--kafka-config", "c"), "goes with --on kafka://"),
        (("run", "pipe.py", "--kafka-config", "c"), "--kafka-config goes with --on"),
    ],
)
def test_what_is_impossible_is_reported_before_anything_runs(
    penstock: Penstock, words: tuple[str, ...], said: str
) -> None:
    ran = penstock(*words)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# from the brokers' side\nsecurity.protocol\n", "line 2: write name=value"),
        ("group.id=other\n", "penstock sets this itself"),
        ("no.such.setting=1\n", "no.such.setting"),
    ],
)
def test_settings_that_cannot_be_meant_are_reported(
    penstock: Penstock, kafka: Cluster, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "client.properties").write_text(text, encoding="utf-8")
    on = ("--on", f"kafka://{kafka.servers}/orders", "--kafka-config", "client.properties")
    ran = penstock("run", "pipe.py", *on)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_lease_is_refused_where_the_brokers_choose_it(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "c.properties").write_text("group.protocol=consumer\n", encoding="utf-8")
    ran = penstock("run", "pipe.py", "--on", AWAY, "--lease", "3", "--kafka-config", "c.properties")
    assert ran.returncode == 2
    assert "--lease does not go with group.protocol=consumer" in ran.stderr


def test_settings_of_the_client_are_used(
    penstock: Penstock, kafka: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "c.properties").write_text("! a comment\n\nmessage.max.bytes = 1000\n")
    topic = kafka.topic()
    on = ("--on", f"kafka://{kafka.servers}/{topic}", "--kafka-config", "c.properties")
    ran = penstock("publish", "pipe.py", *on, given='{"key": "a", "text": "%s"}\n' % ("x" * 2000))
    assert ran.returncode == 1
    assert "raise message.max.bytes" in ran.stderr


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingExtra, match=r"--on kafka:// needs confluent-kafka.*\[kafka\]"):
        Layout("a", "orders", "g")
