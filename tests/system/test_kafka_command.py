"""`penstock run --on kafka://...` on a real broker: members, their death, status, dead letters."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.streams.kafka.cluster.layout import Layout
from penstock.streams.kafka.cluster.view import Part, groups_of, look
from tests.helpers.kafka.broker import HAS_KAFKA, Brokers
from tests.helpers.kafka.metadata import metadata_of
from tests.helpers.kafka.readers import POISON, Readers
from tests.helpers.servers.command import (
    PIPELINE,
    Worker,
    command_in,
    event,
    eventually,
    lines,
)
from tests.helpers.system.checker import Verdict

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")

CLIENTS, EVENTS = 100, 15_000


def penstock(*words: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "penstock", *words], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def committed(readers: Readers, partition: int) -> int:
    return readers.brokers.committed(readers.topic, "readers", partition)[0]


def test_members_share_a_topic_and_nothing_is_lost_or_misordered_when_one_is_killed(
    kafka_brokers: Brokers, tmp_path: Path
) -> None:
    async def story(readers: Readers) -> Verdict:
        readers.start("a", "b")
        await readers.until(lambda: readers.brokers.assigned("readers") == {"a": 3, "b": 3})
        # So much that a member has read more than it has finished when it commits.
        await readers.write(CLIENTS, EVENTS, 1)
        await readers.until(lambda: any(committed(readers, one) > 0 for one in range(6)))
        readers.kill("a")
        # What arrived from the killed one and was not committed comes again.
        total = readers.sent.total()
        await readers.until(lambda: sum(committed(readers, one) for one in range(6)) == total)
        return await readers.until_all_arrived()

    with Readers(kafka_brokers, tmp_path, on=True) as readers:
        verdict = asyncio.run(story(readers))
        assert (verdict.misordered, verdict.overlaps) == ([], [])
        # What the killed one had finished since its last commit.
        assert verdict.repeated < readers.sent.total() / 2
        readers.drain("b")
        assert readers.status("b") == 4
        assert "worker b of 'readers'" in readers.errors("b")
        after = penstock("status", "--on", readers.address, "--name", "readers")
    assert f"readers: 0 events unfinished, {readers.sent.total():,} kept" in after
    assert "6 partitions, 6 of them with no worker" in after


def test_an_event_that_kills_its_members_becomes_a_dead_letter_and_the_others_are_processed(
    kafka_brokers: Brokers, tmp_path: Path
) -> None:
    async def story(readers: Readers) -> int:
        await readers.write(50, 5_000, 1)
        readers.start("m0")
        killed = 0
        async with asyncio.timeout(120):
            while readers.verdict().lost != {("c7", 5)} or not settled(readers):
                if not readers.is_there(f"m{killed}"):
                    killed += 1
                    readers.start(f"m{killed}")
                await asyncio.sleep(0.1)
        return killed

    def settled(readers: Readers) -> bool:
        return sum(committed(readers, one) for one in range(6)) == readers.sent.total()

    with Readers(kafka_brokers, tmp_path, on=True, pipeline=POISON) as readers:
        killed = asyncio.run(story(readers))
        # Until it was alone, too.
        assert killed in (5, 6)
        # Those of the client that come behind it.
        assert {client for client, _ in readers.verdict().misordered} <= {"c7"}
        (letter,) = map(
            json.loads, penstock("dead-letters", "list", "--on", readers.address).splitlines()
        )
        assert letter["value"] == {"client": "c7", "seq": 5}
        assert (letter["error"], letter["attempts"]) == ("WorkerLost", 3)
        readers.drain(f"m{killed}")
        assert readers.status(f"m{killed}") == 3


def test_the_status_shows_members_floors_and_keys_and_a_dead_letter_is_tried_again(
    kafka_brokers: Brokers, tmp_path: Path
) -> None:
    run = command_in(tmp_path)
    topic = "commanded"
    on = ("--on", f"kafka://{kafka_brokers.servers}/{topic}")
    given = lines(*(event(n, "hot" if n % 2 else f"k{n}", n) for n in range(20)))
    given += lines(event(20, "bad", -1))
    missing = run("publish", "pipe.py", *on, given=given)
    assert missing.returncode == 2
    assert "With --partitions N, publish and run create it" in missing.stderr
    fed = run("publish", "pipe.py", *on, "--partitions", "3", given=given)
    assert fed.returncode == 0, fed.stderr
    other = run("publish", "pipe.py", *on, "--partitions", "4")
    assert other.returncode == 2
    assert "has 3 partitions, not 4" in other.stderr
    assert "No group has read the topic" in penstock("status", *on)
    before = penstock("status", *on, "--name", "pipe")
    assert "pipe: 21 events unfinished, 21 kept" in before
    assert "hottest keys of 21 unfinished events: hot 10, " in before
    assert "no worker is there" in before

    with Worker(tmp_path, *on, "--worker", "first", "--serve", "0") as worker:
        address = served_at(worker)
        eventually(lambda: "pipe: 0 events unfinished, 21 kept" in penstock("status", *on))
        during = penstock("status", *on)
        assert ", 1 dead letter\n" in during
        assert "3 partitions, 0 of them with no worker" in during
        assert re.search(r"first +\S+ +3 +0\n", during)
        fleet = fleet_of(address)
        assert (fleet["unfinished"], fleet["stored"], fleet["letters"]) == (0, 21, 1)
        (here,) = fleet["workers"].values()
        assert (here["name"], here["finished"], here["failed"]) == ("first", 20, 1)
        assert {one["owner"] for one in fleet["partitions"].values()} == {fleet["here"]}
        letter = json.loads(penstock("dead-letters", "list", *on).splitlines()[0])
        assert letter["value"] == event(20, "bad", -1)
        again = penstock("dead-letters", "replay", *on, "--id", str(letter["sequence"]))
        assert "1 event published again" in again
        eventually(lambda: "pipe: 0 events unfinished, 22 kept" in penstock("status", *on))
        status, output, errors = worker.drain()
    assert len(output.splitlines()) == 20
    assert status == 3, errors
    config = kafka_brokers.config(f"{topic}.dead-letters")
    assert config["cleanup.policy"] == "compact"


WAITING = PIPELINE.replace(
    "    if event",
    """    while event["n"] % 2 and not Path("go").exists():
        await asyncio.sleep(0.05)
    if event""",
).replace(
    "from penstock import write_jsonl",
    "import asyncio\nfrom pathlib import Path\nfrom penstock import write_jsonl, write_kafka",
)


@pytest.mark.parametrize("transactional", [False, True])
def test_the_page_of_a_member_shows_what_the_others_have_in_flight(
    kafka_brokers: Brokers, tmp_path: Path, transactional: bool
) -> None:
    topic = f"inflight-{transactional}".lower()
    on = ("--on", f"kafka://{kafka_brokers.servers}/{topic}")
    where = f'"{kafka_brokers.topic()}", servers="{kafka_brokers.servers}"'
    sink = f"write_kafka({where}, transactional=True)"
    run = command_in(tmp_path, WAITING.replace("write_jsonl()", sink) if transactional else WAITING)
    assert run("publish", "pipe.py", *on, "--partitions", "4").returncode == 0
    options = (*on, "--lease", "10", "--serve", "0", "--limit", "40", "--report", "json")
    with (
        Worker(tmp_path, *options, "--worker", "one") as one,
        Worker(tmp_path, *options, "--worker", "two") as two,
    ):
        addresses = served_at(one), served_at(two)

        def shown() -> list[dict[str, tuple[int | None, ...]]]:
            """What each page shows of both, by their names."""
            counts = ("in_flight", "waiting", "finished", "failed")
            return [
                {
                    by["name"]: tuple(by.get(name) for name in counts)
                    for by in fleet_of(at)["workers"].values()
                }
                for at in addresses
            ]

        def settled(total: tuple[int, int]) -> bool:
            pages = shown()
            if pages[0] != pages[1] or set(pages[0]) != {"one", "two"}:
                return False
            both = list(pages[0].values())
            sums = [sum(worker[at] or 0 for worker in both) for at in (0, 2)]
            return all(None not in worker for worker in both) and tuple(sums) == total

        eventually(lambda: sorted(kafka_brokers.assigned("pipe").values()) == [2, 2])
        # A key each, so that all may be in flight at once.
        given = lines(*(event(n, f"k{n}", n) for n in range(60)))
        fed = run("publish", "pipe.py", *on, given=given)
        assert fed.returncode == 0, fed.stderr
        eventually(lambda: settled((30, 30)))
        assert all(worker[0] > 0 for worker in shown()[0].values())
        (tmp_path / "go").touch()
        eventually(lambda: settled((0, 60)))
        for worker in (one, two):
            status, _, errors = worker.drain()
            assert status == 4, errors


def test_the_page_of_a_member_without_a_partition_shows_all_members_and_partitions(
    kafka_brokers: Brokers, tmp_path: Path
) -> None:
    on = ("--on", f"kafka://{kafka_brokers.servers}/spare")
    run = command_in(tmp_path, WAITING)
    assert run("publish", "pipe.py", *on, "--partitions", "1").returncode == 0
    options = (*on, "--lease", "10", "--serve", "0", "--limit", "40", "--report", "json")
    with (
        Worker(tmp_path, *options, "--worker", "one") as one,
        Worker(tmp_path, *options, "--worker", "two") as two,
    ):
        addresses = {"one": served_at(one), "two": served_at(two)}
        eventually(lambda: sorted(kafka_brokers.assigned("pipe").values()) == [0, 1])
        # Half of them wait until they may go.
        given = lines(*(event(n, f"k{n}", n) for n in range(20)))
        assert run("publish", "pipe.py", *on, given=given).returncode == 0

        def shown(at: str) -> tuple[dict[str, Any], list[tuple[int, str]], str]:
            """What the page shows of each member in flight, of partitions and of itself."""
            fleet = fleet_of(at)
            names = {id: member["name"] for id, member in fleet["workers"].items()}
            return (
                {member["name"]: member.get("in_flight") for member in fleet["workers"].values()},
                [(one["lag"], names.get(one["owner"], "")) for one in fleet["partitions"].values()],
                names.get(fleet["here"], ""),
            )

        def owner() -> str:
            ((_, name),) = shown(addresses["one"])[1]
            return name

        eventually(lambda: owner() in addresses and shown(addresses["one"])[1][0][0] == 10)
        has, other = owner(), ({"one", "two"} - {owner()}).pop()
        eventually(lambda: shown(addresses[other])[0] == {has: 10, other: 0})
        assert shown(addresses[other])[1:] == ([(10, has)], other)
        # A member writes its counts beside an offset, so the other page does not know them.
        eventually(lambda: shown(addresses[has])[0] == {has: 10, other: None})
        (tmp_path / "go").touch()
        eventually(lambda: shown(addresses[other])[1] == [(0, has)])
        for worker in (one, two):
            status, _, errors = worker.drain()
            assert status == 4, errors


def served_at(worker: Worker) -> str:
    """The address of the live page, which comes before all else."""
    assert worker.process.stderr is not None
    for line in worker.process.stderr:
        if found := re.search(r"live page: (http://\S+)", line):
            return found[1]
    raise AssertionError("no live page")


def fleet_of(address: str) -> dict[str, Any]:
    """All members, as the live page of one shows them."""
    with urlopen(f"{address}stream", timeout=60) as lines:
        for line in lines:
            said: dict[str, Any] = json.loads(line)
            if found := said.get("now", said.get("change", {})).get("fleet"):
                assert isinstance(found, dict)
                return found
    raise AssertionError("the stream has ended")


def commit(kafka: Brokers, topic: str, group: str, offset: int, metadata: str) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset, metadata)], asynchronous=False)
    consumer.close()


def test_what_is_finished_above_the_floor_is_not_unfinished(
    kafka_brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka_brokers.topic()
    kafka_brokers.write(topic, [b"{}"] * 8, key=b"early")
    kafka_brokers.write(topic, [b"{}"] * 12, key=b"late")
    commit(
        kafka_brokers,
        topic,
        "half",
        3,
        metadata_of(3, [(4, 10)], cluster=kafka_brokers.id, topic=topic),
    )
    layout = Layout(kafka_brokers.servers, topic, "half")
    view = look(layout, 10)
    assert view.parts == {0: Part(floor=3, above=6, end=20, unfinished=11)}
    assert (view.keys, view.sampled, view.stored) == ([("late", 10), ("early", 1)], 11, 20)
    assert groups_of(layout, 10) == ["half"]
    # Where there is too much to read, the offsets say how much is left.
    monkeypatch.setattr("penstock.streams.kafka.cluster.view._SAMPLE", 2)
    view = look(layout, 10)
    assert view.parts == {0: Part(floor=3, above=6, end=20, unfinished=11)}
    assert (view.keys, view.sampled) == ([("early", 1)], 1)


def test_a_text_that_was_moved_to_another_offset_says_nothing(kafka_brokers: Brokers) -> None:
    topic = kafka_brokers.topic()
    kafka_brokers.write(topic, [b"{}"] * 20)
    moved = metadata_of(3, [(4, 10)], cluster=kafka_brokers.id, topic=topic)
    commit(kafka_brokers, topic, "moved", 2, moved)
    view = look(Layout(kafka_brokers.servers, topic, "moved"), 10)
    assert view.parts == {0: Part(floor=2, above=0, end=20, unfinished=18)}
    assert f"it was written for {kafka_brokers.id}/{topic}/0/3, not for" in view.ignored[0]


def test_an_offset_without_a_record_is_not_an_unfinished_event(kafka_brokers: Brokers) -> None:
    topic = kafka_brokers.topic()
    producer = Producer(
        {
            "bootstrap.servers": kafka_brokers.servers,
            "transactional.id": topic,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"{}")
    producer.commit_transaction(30)
    commit(kafka_brokers, topic, "done", 1, "")
    view = look(Layout(kafka_brokers.servers, topic, "done"), 10)
    # The commit of the transaction is behind the record.
    assert view.parts == {0: Part(floor=1, above=0, end=2, unfinished=0)}
