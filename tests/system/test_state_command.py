"""`penstock state` reads a changelog of Kafka, on a real broker: stages, keys, marks and copies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from penstock import (
    Store,
    agg,
    collect,
    event_time,
    read_kafka,
    stateful,
    tumbling,
    window,
)
from tests.helpers.kafka.broker import HAS_KAFKA, Brokers
from tests.helpers.kafka.secured import PASSWORD, USER, SecuredBrokers

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")

PARTITIONS, KEYS, RECORDS = 3, 9, 300


def penstock(*words: object) -> tuple[int, str, str]:
    """The status of a command, what it put out, and what it said."""
    command = [sys.executable, "-m", "penstock", "state", *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return ran.returncode, ran.stdout, ran.stderr


def shown(*words: object) -> str:
    """What a command put out that has nothing to say."""
    status, out, said = penstock(*words)
    assert (status, said) == (0, "")
    return out


async def counted(brokers: Brokers, folder: Path) -> str:
    """The URL of a store with the number of the events of each key."""
    topic = brokers.topic(PARTITIONS)
    for partition in range(PARTITIONS):
        numbers = range(partition, RECORDS, PARTITIONS)
        values = [b'{"key": %d}' % (n % KEYS) for n in numbers]
        brokers.write(topic, values, partition=partition)
    url = f"kafka://{brokers.servers}/{topic}-states"
    store = Store(url, local=str(folder / "copy"))
    counts = stateful(lambda n, _: (n + 1, []), "key", start=0, name="counts", store=store)
    source = read_kafka(topic, topic, brokers.servers, follow=False, offsets=store)
    await source.pipe(counts).to(collect([])).run()
    return url


async def test_the_states_of_all_partitions_are_shown(
    kafka_brokers: Brokers, tmp_path: Path
) -> None:
    url = await counted(kafka_brokers, tmp_path)
    wanted = Counter(n % KEYS for n in range(RECORDS))

    said = json.loads(shown("show", url, "--json"))
    (stage,) = said["stages"]
    assert (stage["name"], stage["by"], stage["keys"]) == ("counts", "key", KEYS)
    # What is done of each partition is all of it.
    assert [mark["lines"] for mark in said["marks"]] == [RECORDS // PARTITIONS] * PARTITIONS
    assert "counts" in shown("show", url)

    assert json.loads(shown("peek", url, "--key", "4")) == {"key": 4, "state": wanted[4]}
    some = shown("peek", url, "--stage", "counts", "--count", 2).splitlines()
    assert len(some) == 2
    exported = [json.loads(line) for line in shown("export", url).splitlines()]
    assert {one["key"]: one["state"] for one in exported} == wanted
    assert {one["stage"] for one in exported} == {"counts"}


async def test_the_watermark_of_each_partition_is_shown(
    kafka_brokers: Brokers, tmp_path: Path
) -> None:
    topic = kafka_brokers.topic(PARTITIONS)
    for partition in range(PARTITIONS):
        rows = [b'{"key": %d, "at": %d}' % (partition, at) for at in (0, 60 + partition)]
        kafka_brokers.write(topic, rows, partition=partition)
    url = f"kafka://{kafka_brokers.servers}/{topic}-states"
    store = Store(url, local=str(tmp_path / "copy"))
    source = read_kafka(topic, topic, kafka_brokers.servers, follow=False, offsets=store)
    counts = window(tumbling(10), agg.count(), by="key", store=store)
    await source.pipe(event_time("at"), counts).to(collect([])).run()

    said = json.loads(shown("show", url, "--json"))
    lines = {line["name"]: line["time"] for line in said["event_times"]}
    assert lines == {
        f"event_time at of {topic}/{partition}": f"1970-01-01T00:01:0{partition}+00:00"
        for partition in range(PARTITIONS)
    }
    assert f"event_time at of {topic}/2" in shown("show", url)


async def test_a_key_or_a_stage_that_is_not_there_is_named(
    kafka_brokers: Brokers, tmp_path: Path
) -> None:
    url = await counted(kafka_brokers, tmp_path)
    status, out, said = penstock("peek", url, "--key", "77")
    assert (status, out, said) == (1, "", "penstock: 77 has no state in 'counts'\n")
    status, out, said = penstock("peek", url, "--stage", "other")
    assert (status, out) == (2, "")
    assert f"{url} has no stage 'other': it has 'counts'" in said


async def test_states_that_members_of_a_group_have_are_not_changed(
    kafka_brokers: Brokers, tmp_path: Path
) -> None:
    url = await counted(kafka_brokers, tmp_path)
    before = shown("export", url)
    for words in (
        ("set", url, "--key", "4", "--state", "0"),
        ("drop", url, "--stage", "counts"),
    ):
        status, out, said = penstock(*words)
        assert (status, out) == (2, "")
        assert f"the states in {url} are those of many processes" in said
    assert shown("export", url) == before


async def test_a_backup_is_a_store_in_a_file(kafka_brokers: Brokers, tmp_path: Path) -> None:
    url = await counted(kafka_brokers, tmp_path)
    status, _, said = penstock("backup", url, tmp_path / "a.state")
    assert status == 0
    assert "has a copy of the store" in said
    for words in (("export",), ("show", "--json")):
        assert shown(words[0], tmp_path / "a.state", *words[1:]) == shown(words[0], url, *words[1:])
    # What exists is not overwritten.
    status, out, said = penstock("backup", url, tmp_path / "a.state")
    assert (status, out) == (2, "")
    topic = url.rpartition("/")[2]
    where = tmp_path / "a.state"
    assert f"Cannot copy the states in the topic {topic!r} to {where}: it exists." in said


def test_a_topic_that_is_not_there_is_not_made(kafka_brokers: Brokers) -> None:
    url = f"kafka://{kafka_brokers.servers}/nothing"
    for _ in range(2):
        status, out, said = penstock("show", url)
        assert (status, out) == (2, "")
        assert said.startswith(f"penstock: There is no topic 'nothing' on {kafka_brokers.servers}")


async def test_settings_of_the_client_are_read_from_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "brokers"
    folder.mkdir()
    with SecuredBrokers(folder) as brokers:
        plain = await counted(brokers, tmp_path)
        url = plain.replace(brokers.servers, brokers.sasl)
        settings = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": brokers.ca,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        assert shown("export", url, "--kafka-config", file) == shown("export", plain)

        for wrong, why in (("sasl.password", "Authentication failed"), ("ssl.ca.location", "SSL")):
            others = {**settings, wrong: {"ssl.ca.location": brokers.stranger}.get(wrong, "wrong")}
            file.write_text("".join(f"{name}={value}\n" for name, value in others.items()))
            status, out, said = penstock("show", url, "--kafka-config", file)
            assert (status, out) == (2, "")
            assert "does not accept the credentials or the certificate" in said
            assert why in said
