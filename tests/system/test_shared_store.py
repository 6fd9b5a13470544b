"""Members of a group with one store in PostgreSQL: whatever happens to one of them, each record
changes its state once, and has one row."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.helpers.kafka.broker import HAS_KAFKA, Brokers
from tests.helpers.kafka.wired import WiredBrokers
from tests.helpers.servers.cable import Cable
from tests.helpers.servers.postgres import Postgres
from tests.helpers.system.children import freeze

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")

KEYS, PARTITIONS, RECORDS = 12, 4, 2_000

# Also before anything was begun.
ENDED = (0, 4, 143)

CLASSIC = {"session.timeout.ms": 2_000, "heartbeat.interval.ms": 400}
PROTOCOLS: list[dict[str, Any]] = [CLASSIC, {"group.protocol": "consumer"}]

# Longer than a session with either protocol.
PAST_SESSION = 3.2, 6

PROGRAM = """
import asyncio
import json
import random
import sys

from penstock import Fixed, Store, adaptive_flat_map, ops, read_kafka, stateful, write_table

OPTIONS = json.loads(sys.argv[1])
KEYS = OPTIONS["keys"]
store = Store(OPTIONS["url"], shared=True, every=OPTIONS["every"], cache=OPTIONS["cache"])


async def work(number):
    await asyncio.sleep(random.random() / 100)
    return number


def visit(count, number):
    return count + 1, [{"key": number % KEYS, "n": count + 1, "member": OPTIONS["member"]}]


source = read_kafka(
    OPTIONS["topic"],
    OPTIONS["topic"],
    OPTIONS["servers"],
    decode=int,
    config=OPTIONS["config"],
    handover=5,
    offsets=store,
)
pipeline = source.pipe(
    adaptive_flat_map(work, Fixed(16)),
    stateful(visit, lambda number: number % KEYS, start=0, name="visits", store=store),
).to(write_table(OPTIONS["url"], "visits", columns=["key", "n", "member"]))
"""


class Members:
    """Processes of one group, by their names, and what is in their store."""

    def __init__(self, folder: Path, draw: random.Random, kafka: Brokers, url: str) -> None:
        self._program = folder / "member.py"
        self._program.write_text(PROGRAM)
        self._url, self._kafka = url, kafka
        self.topic = kafka.topic(PARTITIONS)
        self.options = {
            "url": url,
            "topic": self.topic,
            "servers": kafka.servers,
            "keys": KEYS,
            "config": draw.choice(PROTOCOLS),
            "every": draw.choice([0.0, 0.02, 0.2]),
            "cache": draw.choice([1, 4, 1000]),
        }
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.execute("CREATE TABLE visits (key int, n int, member text)")

    def execute(self, statement: str) -> list[Any]:
        with psycopg.connect(self._url, autocommit=True) as db:
            cursor = db.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self, name: str, **options: str) -> None:
        given = json.dumps({**self.options, "member": name, **options})
        words = ["-m", "penstock", "run", str(self._program), "--", given]
        self.running[name] = subprocess.Popen([sys.executable, *words])

    def kill(self, name: str) -> None:
        member = self.running.pop(name)
        member.kill()
        member.wait()

    def write(self, first: int, end: int) -> None:
        """Numbers, those of one key in one partition."""
        for key in range(KEYS):
            values = [b"%d" % number for number in range(first, end) if number % KEYS == key]
            self._kafka.write(self.topic, values, partition=key % PARTITIONS)

    def states(self) -> dict[int, int]:
        """The counts of the keys."""
        if self.execute("SELECT to_regclass('penstock_state')") == [(None,)]:
            return {}
        found = self.execute("SELECT key, state::text FROM penstock_state")
        assert len(found) == len({key for key, _ in found}), f"a key has two states: {found}"
        return {int(key): int(state) for key, state in found}

    def until(self, true: Callable[[], bool], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, (self.states(), self.options)
            for name, member in self.running.items():
                assert member.poll() is None, (name, member.returncode, self.options)
            time.sleep(0.2)

    def check(self, records: int) -> None:
        """Each record has changed its state once, and has one row."""
        wanted = Counter(number % KEYS for number in range(records))
        self.until(lambda: sum(self.states().values()) >= records)
        # What comes again would be counted again.
        time.sleep(1)
        assert self.states() == wanted, self.options
        rows = self.execute("SELECT key, n FROM visits ORDER BY key, n")
        assert rows == [(key, n) for key in range(KEYS) for n in range(1, wanted[key] + 1)]

    def drain(self) -> None:
        for member in self.running.values():
            member.terminate()
        for name, member in self.running.items():
            assert member.wait(60) in ENDED, name

    def end(self) -> None:
        for member in self.running.values():
            with suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGCONT)
            member.kill()
            member.wait()


@pytest.fixture
def members(
    tmp_path: Path, run_seed: int, one_or_three_brokers: WiredBrokers, postgres: str
) -> Iterator[Members]:
    found = Members(tmp_path, random.Random(run_seed), one_or_three_brokers, postgres)
    yield found
    found.end()


def disturbed(members: Members, draw: random.Random, count: int, disturb: str) -> None:
    names = "abc"[:count]
    for name in names:
        members.start(name)
    members.write(0, RECORDS // 2)
    done = draw.randrange(RECORDS // 4)
    members.until(lambda: sum(members.states().values()) > done)
    one = draw.choice(names)
    match disturb:
        case "kill":
            members.kill(one)
        case "freeze":
            # Longer than its session: the others get its partitions while it stands still.
            freeze(members.running[one])
            time.sleep(draw.uniform(*PAST_SESSION))
            members.write(RECORDS // 2, RECORDS)
            members.until(lambda: sum(members.states().values()) >= RECORDS)
            members.running[one].send_signal(signal.SIGCONT)
        case "leave":
            leaving = members.running.pop(one)
            leaving.terminate()
            assert leaving.wait(60) in ENDED
        case "join":
            members.start("d")
        case "cut":
            for _ in range(10):
                time.sleep(draw.random() / 3)
                members.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'penstock' AND random() < 0.5"
                )
        case "storm":
            for _ in range(4):
                one = draw.choice(list(members.running))
                members.kill(one)
                members.start(one)
                time.sleep(draw.random() * 4)
        case other:
            raise AssertionError(other)
    if disturb != "freeze":
        members.write(RECORDS // 2, RECORDS)
    members.check(RECORDS)
    members.drain()
    members.check(RECORDS)


@pytest.mark.parametrize("disturb", ["kill", "freeze", "leave", "join", "cut", "storm"])
@pytest.mark.parametrize("count", [2, 3])
def test_each_record_counts_once(members: Members, run_seed: int, count: int, disturb: str) -> None:
    disturbed(members, random.Random(run_seed), count, disturb)


@pytest.mark.parametrize("what", ["brokers", "database"])
def test_a_member_that_is_cut_off_for_longer_than_its_session_counts_nothing_twice(
    members: Members, run_seed: int, what: str, one_or_three_brokers: WiredBrokers, postgres: str
) -> None:
    draw = random.Random(run_seed)
    with Cable([postgres]) as to_database:
        by_cable = {"brokers": {"servers": one_or_three_brokers.by_cable}}
        by_cable["database"] = {"url": to_database.urls[0]}
        cable = {"brokers": one_or_three_brokers.cable, "database": to_database}[what]
        members.start("a", **by_cable[what])
        members.start("b")
        members.write(0, RECORDS // 2)
        done = draw.randrange(RECORDS // 2)
        members.until(lambda: sum(members.states().values()) > done)
        with cable.pulled():
            time.sleep(draw.uniform(*PAST_SESSION))
            members.write(RECORDS // 2, RECORDS)
            time.sleep(draw.uniform(0, 2))
        members.check(RECORDS)
        members.drain()
        members.check(RECORDS)


@pytest.mark.parametrize("what", ["broker", "database"])
def test_servers_that_are_killed_and_come_back_lose_nothing(
    tmp_path: Path, run_seed: int, what: str
) -> None:
    draw = random.Random(run_seed)
    folder = tmp_path / "kafka"
    folder.mkdir()
    database = Postgres()
    try:
        with Brokers(folder) as kafka:
            members = Members(tmp_path, draw, kafka, database.url)
            try:
                members.start("a")
                members.start("b")
                members.write(0, RECORDS // 2)
                done = draw.randrange(RECORDS // 4)
                members.until(lambda: sum(members.states().values()) > done)
                if what == "broker":
                    kafka.stop(0, signal.SIGKILL)
                    time.sleep(draw.random() * 3)
                    kafka.start(0)
                    kafka.wait()
                else:
                    database.kill()
                    time.sleep(draw.random() * 3)
                    database.start()
                members.write(RECORDS // 2, RECORDS)
                members.check(RECORDS)
            finally:
                members.end()
    finally:
        database.stop()
