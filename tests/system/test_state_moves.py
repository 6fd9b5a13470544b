"""States that move between processes with the partitions of a topic, on real brokers: processes are
killed, frozen, drained and started, and each key counts its events exactly."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.streams.state.codec import key_in
from penstock.streams.state.kafka.backend import Kafka
from tests.helpers.kafka.broker import HAS_KAFKA, Brokers

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")

PARTITIONS, KEYS, RECORDS = 4, 12, 4_000

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
)


def count(before, event, ctx):
    if event["n"] % 100 == 7:
        ctx.timer(f"of {event['n']}", after=0.2)
    return {**before, "n": before["n"] + 1}, [{"key": event["key"], "count": before["n"] + 1}]


def fired(before, timer, ctx):
    return {**before, "fired": before["fired"] + 1}, []


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

CLASSIC = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500}
PROTOCOLS: list[dict[str, Any]] = [CLASSIC, {"group.protocol": "consumer"}]


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

    def start(self, number: int) -> None:
        options = {
            "servers": self.brokers.servers,
            "topic": self.topic,
            "results": self.results,
            "local": str(self._folder / f"local{number}"),
            "every": self._every,
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

    def end(self, number: int, how: signal.Signals) -> int:
        process = self.running.pop(number)
        process.send_signal(how)
        return process.wait(60)

    def write(self, first: int, end: int) -> None:
        for partition in range(PARTITIONS):
            values = [
                b'{"n": %d, "key": %d}' % (n, n % KEYS)
                for n in range(first, end)
                if n % PARTITIONS == partition
                for _ in range(2 if self._twice else 1)
            ]
            self.brokers.write(self.topic, values, partition=partition)

    def states(self) -> dict[Any, Any]:
        """The states as a member that gets all partitions has them."""
        folder = self._folder / f"look{time.monotonic()}"
        backend = Kafka(self.brokers.servers, f"{self.topic}-states", str(folder))
        backend.open()
        try:
            for partition in range(PARTITIONS):
                backend.adopt(partition, PARTITIONS)
            return {key_in(row.key): json.loads(row.state) for row in backend.scan("counts")}
        finally:
            backend.close()

    def wait_for(self, count: int, patience: float = 120) -> None:
        deadline = time.monotonic() + patience
        fired = sum(n % 100 == 7 for n in range(count))
        while True:
            states = self.states()
            events = sum(one["n"] for one in states.values())
            if events >= count and sum(one["fired"] for one in states.values()) >= fired:
                break
            assert time.monotonic() < deadline, (events, count, self)
            dead = {n: one.poll() for n, one in self.running.items() if one.poll() is not None}
            assert not dead, (dead, self)
            time.sleep(0.5)
        assert {key: one["n"] for key, one in states.items()} == Counter(
            n % KEYS for n in range(count)
        ), self
        assert sum(one["fired"] for one in states.values()) == fired, self
        results = [json.loads(one.value()) for one in self.brokers.read(self.results, 1)]
        found = Counter((one["key"], one["count"]) for one in results)
        wanted = [(key, n) for key, one in states.items() for n in range(1, one["n"] + 1)]
        assert found == Counter(wanted), (found - Counter(wanted), self)

    def __repr__(self) -> str:
        errors = [path.read_text()[-1500:] for path in sorted(self._folder.glob("errors*"))]
        return f"{self._config} {self._every} {errors}"


@pytest.fixture
def members(tmp_path: Path, run_seed: int, kafka_brokers: Brokers) -> Iterator[Members]:
    made = Members(tmp_path, random.Random(run_seed), kafka_brokers)
    yield made
    for number in list(made.running):
        made.running[number].send_signal(signal.SIGCONT)
        made.end(number, signal.SIGKILL)


def test_members_that_are_killed_leave_each_record_in_the_states_once(
    members: Members, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    members.write(0, RECORDS // 2)
    for number in range(3):
        members.start(number)
    for step in range(4):
        time.sleep(draw.uniform(0.5, 6))
        number = draw.choice(list(members.running))
        members.end(number, signal.SIGKILL)
        members.write(RECORDS // 2 + step * 500, RECORDS // 2 + (step + 1) * 500)
        time.sleep(draw.uniform(0, 3))
        members.start(number if draw.random() < 0.7 else 3 + step)
    members.wait_for(RECORDS)


def test_a_member_that_was_frozen_past_its_session_changes_nothing_more(
    members: Members, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    members.write(0, RECORDS // 2)
    members.start(0)
    members.start(1)
    time.sleep(draw.uniform(4, 8))
    members.running[0].send_signal(signal.SIGSTOP)
    time.sleep(draw.uniform(5, 9))
    members.write(RECORDS // 2, RECORDS)
    time.sleep(draw.uniform(0, 2))
    members.running[0].send_signal(signal.SIGCONT)
    members.wait_for(RECORDS)


def test_members_that_come_and_are_drained_take_the_states_along(
    members: Members, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    members.start(0)
    for step in range(4):
        members.write(step * 1_000, (step + 1) * 1_000)
        members.start(step + 1)
        time.sleep(draw.uniform(0.5, 5))
        number = draw.choice(list(members.running))
        # Or it had not begun.
        assert members.end(number, signal.SIGTERM) in (0, 4, 5, 143, -signal.SIGTERM), members
    members.wait_for(RECORDS)


def test_members_begin_while_a_broker_is_away_and_go_on_when_brokers_restart(
    tmp_path: Path, run_seed: int, three_kafka_brokers: Brokers
) -> None:
    draw = random.Random(run_seed)
    brokers = three_kafka_brokers
    members = Members(tmp_path, draw, brokers)
    try:
        members.write(0, RECORDS // 2)
        # There are too few for the copies of the changelog, which is made later.
        brokers.stop(2, signal.SIGKILL)
        members.start(0)
        members.start(1)
        time.sleep(8)
        brokers.start(2)
        brokers.wait()
        for number in draw.sample(range(3), 2):
            time.sleep(draw.uniform(1, 4))
            brokers.stop(number, draw.choice([signal.SIGKILL, signal.SIGTERM]))
            time.sleep(draw.uniform(0, 3))
            brokers.start(number)
            brokers.wait()
        members.write(RECORDS // 2, RECORDS)
        members.wait_for(RECORDS, patience=200)
    finally:
        for number in list(members.running):
            members.end(number, signal.SIGKILL)
