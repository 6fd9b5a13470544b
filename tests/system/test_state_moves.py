"""States that move between processes with the partitions of a topic, on real brokers: processes are
killed, frozen, cut off, drained and started, and each key counts its events exactly."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.streams.state.codec import key_in
from penstock.streams.state.kafka.backend import Kafka
from tests.helpers.kafka.broker import HAS_KAFKA, Brokers
from tests.helpers.kafka.wired import WiredBrokers
from tests.helpers.servers.command import command_in, eventually
from tests.helpers.system.children import freeze

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")

PARTITIONS, KEYS, RECORDS = 4, 12, 2_000

# Also before anything was begun.
ENDED = (0, 4, 5, 143, -signal.SIGTERM)

PROGRAM = """
import asyncio
import json
import random
import sys

from penstock import Fixed, Store, adaptive_flat_map, distinct_within, read_kafka, stateful
from penstock import write_kafka

OPTIONS = json.loads(sys.argv[1])
store = Store(
    f"kafka://{OPTIONS['servers']}/{OPTIONS['topic']}-states",
    local=OPTIONS["local"],
    every=OPTIONS["every"],
    standby=OPTIONS["standby"],
)


def count(before, event, ctx):
    if event["n"] % 100 == 7:
        ctx.timer(f"of {event['n']}", after=0.2)
    return {**before, "n": before["n"] + 1}, [{"key": event["key"], "count": before["n"] + 1}]


def fired(before, timer, ctx):
    return {**before, "fired": before["fired"] + 1}, [{"key": -1, "fired": timer}]


async def work(event):
    await asyncio.sleep(random.random() / 100)
    return event


counts = stateful(
    count, "key", start={"n": 0, "fired": 0}, on_timer=fired, name="counts", store=store
)
source = read_kafka(
    OPTIONS["topic"], OPTIONS["topic"], OPTIONS["servers"], handover=60, config=OPTIONS["config"],
    offsets=store,
)
results = write_kafka(
    OPTIONS["results"], OPTIONS["servers"], key="key", transactional=True
)
if OPTIONS["twice"]:
    source = source.pipe(distinct_within(86_400, by="n", name="once", store=store))
pipeline = source.pipe(counts, adaptive_flat_map(work, Fixed(8))).to(results)
"""

CLASSIC = {"session.timeout.ms": 2_000, "heartbeat.interval.ms": 400}
PROTOCOLS: list[dict[str, Any]] = [CLASSIC, {"group.protocol": "consumer"}]

# Longer than a session with either protocol.
PAST_SESSION = 3.2, 6


class Members:
    """Processes of one group."""

    def __init__(self, folder: Path, draw: random.Random, brokers: Brokers) -> None:
        self.brokers = brokers
        self.topic = brokers.topic(PARTITIONS)
        self.results = brokers.topic()
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self._draw, self._folder = draw, folder
        self._program = folder / "job.py"
        self._program.write_text(PROGRAM)
        self._config = draw.choice(PROTOCOLS)
        self._every = draw.choice([0.0, 0.02, 0.2])
        self._twice = draw.random() < 0.5
        """Whether each record is written twice, and the second one dropped."""
        self._seen = 0
        self._watching = Consumer(
            {
                "bootstrap.servers": brokers.servers,
                "group.id": "tests",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._watching.assign([TopicPartition(self.results, 0, 0)])

    def start(self, number: int, servers: str | None = None, *, standby: bool = False) -> None:
        options = {
            "servers": servers or self.brokers.servers,
            "topic": self.topic,
            "results": self.results,
            "local": str(self._folder / f"local{number}"),
            "every": self._every,
            "standby": standby,
            "twice": self._twice,
            "config": self._config,
        }
        with (self._folder / f"errors{number}").open("ab") as errors:
            self.running[number] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "penstock", "run", str(self._program)),
                    *("--report", "none", "--", json.dumps(options)),
                ],
                stderr=errors,
            )

    def kill(self, number: int) -> None:
        process = self.running.pop(number)
        process.kill()
        process.wait()

    def drain(self, *numbers: int) -> None:
        for number in numbers:
            self.running[number].terminate()
        for number in numbers:
            assert self.running[number].wait(60) in ENDED, (number, self)
            del self.running[number]

    def close(self) -> None:
        for number in list(self.running):
            self.running[number].send_signal(signal.SIGCONT)
            self.kill(number)
        self._watching.close()

    def write(self, first: int, end: int) -> None:
        for partition in range(PARTITIONS):
            values = [
                b'{"n": %d, "key": %d}' % (n, n % KEYS)
                for n in range(first, end)
                if n % PARTITIONS == partition
                for _ in range(2 if self._twice else 1)
            ]
            self.brokers.write(self.topic, values, once=True, partition=partition)

    def until(self, results: int, patience: float = 120) -> None:
        """Wait until so many results are committed."""
        deadline = time.monotonic() + patience
        while self._seen < results:
            found = self._watching.consume(1_000, 0.2)
            self._seen += sum(one.error() is None for one in found)
            assert time.monotonic() < deadline, (self._seen, results, self)
            dead = {n: one.poll() for n, one in self.running.items() if one.poll() is not None}
            assert not dead, (dead, self)

    def states(self) -> dict[Any, Any]:
        """The states as a member that gets all partitions has them."""
        with TemporaryDirectory(dir=self._folder) as folder:
            backend = Kafka(self.brokers.servers, f"{self.topic}-states", folder)
            backend.open()
            try:
                for partition in range(PARTITIONS):
                    backend.adopt(partition, PARTITIONS)
                return {key_in(row.key): json.loads(row.state) for row in backend.scan("counts")}
            finally:
                backend.close()

    def check(self, count: int, patience: float = 120) -> None:
        """Each of so many records has changed its state once, and has one result; so has each
        timer."""
        timers = [f"of {n}" for n in range(7, count, 100)]
        self.until(count + len(timers), patience)
        # What they would do again, they have done then.
        self.drain(*self.running)
        states = self.states()
        assert {key: one["n"] for key, one in states.items()} == Counter(
            n % KEYS for n in range(count)
        ), self
        assert sum(one["fired"] for one in states.values()) == len(timers), (states, self)
        results = [json.loads(one.value()) for one in self.brokers.read(self.results, 1)]
        found = Counter((one["key"], one.get("count") or one["fired"]) for one in results)
        wanted = [(key, n) for key, one in states.items() for n in range(1, one["n"] + 1)]
        wanted += [(-1, timer) for timer in timers]
        assert found == Counter(wanted), (found - Counter(wanted), self)

    def __repr__(self) -> str:
        errors = [path.read_text()[-1500:] for path in sorted(self._folder.glob("errors*"))]
        return f"{self._config} {self._every} {errors}"


@pytest.fixture
def members(tmp_path: Path, run_seed: int, one_or_three_brokers: WiredBrokers) -> Iterator[Members]:
    made = Members(tmp_path, random.Random(run_seed), one_or_three_brokers)
    yield made
    made.close()


@pytest.mark.parametrize("count", [2, 3])
def test_members_that_are_killed_leave_each_record_in_the_states_once(
    members: Members, run_seed: int, count: int
) -> None:
    draw = random.Random(run_seed)
    members.write(0, RECORDS // 2)
    for number in range(count):
        members.start(number)
    members.until(1)
    for step in range(2):
        time.sleep(draw.uniform(0, 2))
        number = draw.choice(list(members.running))
        members.kill(number)
        members.write(RECORDS * (2 + step) // 4, RECORDS * (3 + step) // 4)
        time.sleep(draw.uniform(0, 3))
        members.start(number if draw.random() < 0.7 else count + step)
    members.check(RECORDS)


def test_a_member_that_was_frozen_past_its_session_changes_nothing_more(
    members: Members, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    members.write(0, RECORDS // 2)
    members.start(0)
    members.start(1)
    members.until(draw.randrange(1, RECORDS // 2))
    freeze(members.running[0])
    time.sleep(draw.uniform(*PAST_SESSION))
    members.write(RECORDS // 2, RECORDS)
    time.sleep(draw.uniform(0, 2))
    members.running[0].send_signal(signal.SIGCONT)
    members.check(RECORDS)


def test_a_member_that_was_cut_off_past_its_session_changes_nothing_more(
    members: Members, run_seed: int, one_or_three_brokers: WiredBrokers
) -> None:
    draw = random.Random(run_seed)
    members.write(0, RECORDS // 2)
    members.start(0, one_or_three_brokers.by_cable)
    members.start(1)
    members.until(draw.randrange(1, RECORDS // 2))
    with one_or_three_brokers.cable.pulled():
        time.sleep(draw.uniform(*PAST_SESSION))
        members.write(RECORDS // 2, RECORDS)
        time.sleep(draw.uniform(0, 2))
    members.check(RECORDS)


def test_members_that_come_and_are_drained_take_the_states_along(
    members: Members, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    members.start(0)
    for step in range(3):
        members.write(RECORDS * step // 3, RECORDS * (step + 1) // 3)
        members.start(step + 1)
        time.sleep(draw.uniform(0.5, 4))
        members.drain(draw.choice(list(members.running)))
    members.check(RECORDS)


def test_the_status_shows_what_is_restored_and_how_far_standby_copies_are_behind(
    tmp_path: Path, one_wired_broker: WiredBrokers
) -> None:
    brokers = one_wired_broker
    members = Members(tmp_path, random.Random(0), brokers)
    address = f"kafka://{brokers.servers}/{members.topic}"
    status = command_in(tmp_path)

    def shown() -> str:
        return status("status", "--on", address, "--name", members.topic).stdout

    try:
        members.write(0, 400)
        members.start(0)
        members.until(404)
        members.drain(0)
        # The end of a transaction that is open is waited for.
        producer = Producer({"bootstrap.servers": brokers.servers, "transactional.id": "open"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(f"{members.topic}-states", b"", b"", partition=1)
        producer.flush(30)
        members.start(1, standby=True)
        told = r"  penstock-\S+ restores the states of partition 1: \d+ of \d+ records, "
        eventually(lambda: re.search(told, shown()) is not None)
        producer.abort_transaction(30)
        eventually(lambda: "restores" not in shown())
        assert re.search(r"  penstock-\S+ has standby copies, 0 records behind", shown())
        members.check(400)
    finally:
        members.close()


def test_the_status_of_a_second_topic_shows_the_members_that_have_its_partitions(
    tmp_path: Path, one_wired_broker: WiredBrokers
) -> None:
    brokers = one_wired_broker
    left, right = brokers.topic(PARTITIONS), brokers.topic(PARTITIONS)
    (tmp_path / "job.py").write_text(
        f"""
from penstock import Store, for_each, join, read_kafka
store = Store("kafka://{brokers.servers}/{left}-states", local="copy", standby=True)
left, right = (
    read_kafka(one, "g", "{brokers.servers}", offsets=store) for one in ("{left}", "{right}")
)
pipeline = left.pipe(join(right, by="key", within=5, time="n", store=store)).to(for_each(print))
"""
    )
    producer = Producer({"bootstrap.servers": brokers.servers})
    for number in range(100):
        for topic in (left, right):
            value = json.dumps({"key": number % KEYS, "n": number})
            producer.produce(topic, value, str(number % KEYS))
    producer.flush(30)
    status = command_in(tmp_path)
    running = subprocess.Popen(
        [sys.executable, "-m", "penstock", "run", "job.py", "--report", "none"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )

    def shown(topic: str) -> str:
        address = f"kafka://{brokers.servers}/{topic}"
        return status("status", "--on", address, "--name", "g").stdout

    try:
        for topic in (left, right):
            eventually(lambda topic=topic: " has standby copies" in shown(topic))
            text = shown(topic)
            assert f"{PARTITIONS} partitions, 0 of them with no worker" in text
            assert (f"the group assigns partitions of '{left}'" in text) == (topic == right)
    finally:
        running.kill()
        running.wait()


def test_members_go_on_when_brokers_restart(
    tmp_path: Path, run_seed: int, three_wired_brokers: WiredBrokers
) -> None:
    draw = random.Random(run_seed)
    brokers = three_wired_brokers
    members = Members(tmp_path, draw, brokers)
    try:
        members.write(0, RECORDS // 2)
        members.start(0)
        members.start(1)
        members.until(1)
        for number in draw.sample(range(3), draw.choice([1, 2])):
            time.sleep(draw.uniform(0, 2))
            brokers.stop(number, draw.choice([signal.SIGKILL, signal.SIGTERM]))
            time.sleep(draw.uniform(0, 3))
            brokers.start(number)
            brokers.wait()
        members.write(RECORDS // 2, RECORDS)
        members.check(RECORDS, patience=200)
    finally:
        members.close()
        brokers.start_all()


def test_members_begin_while_a_broker_of_three_is_away(
    tmp_path: Path, run_seed: int, three_kafka_brokers: Brokers
) -> None:
    brokers = three_kafka_brokers
    members = Members(tmp_path, random.Random(run_seed), brokers)
    try:
        members.write(0, RECORDS)
        # There are too few for the copies of the changelog, which is made later.
        brokers.stop(2, signal.SIGKILL)
        members.start(0)
        members.start(1)
        time.sleep(8)
        brokers.start(2)
        brokers.wait()
        members.check(RECORDS, patience=200)
    finally:
        members.close()
        brokers.start_all()
