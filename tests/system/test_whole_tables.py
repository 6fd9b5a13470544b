"""Members of a group that each hold a table whole, on a real broker, with states that move."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.kafka.broker import HAS_KAFKA, Brokers

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")

PARTITIONS, ROWS = 2, 30

PROGRAM = """
import json
import sys

from penstock import Store, lookup, ops, read_kafka, stateful, table, write_jsonl

OPTIONS = json.loads(sys.argv[1])
SOON = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500, "client.id": OPTIONS["id"]}
names, clicks, servers = OPTIONS["names"], OPTIONS["clicks"], OPTIONS["servers"]
if OPTIONS["database"]:
    store = Store(OPTIONS["database"], shared=True)
else:
    store = Store(f"kafka://{servers}/{clicks}-states", local=OPTIONS["local"])
rows = table(read_kafka(names, clicks, servers), by="key", whole=True)


def count(n, pair):
    click, row = pair
    return n + 1, [{**click, "name": row and row["name"], "count": n + 1}]


pipeline = (
    read_kafka(clicks, clicks, servers, config=SOON, offsets=store)
    .pipe(lookup(rows, by="key"), stateful(count, lambda p: p[0]["key"], start=0, store=store))
    .to(write_jsonl(OPTIONS["results"], append=True))
)
"""


class Members:
    """Processes of one group; `results` has what each has found."""

    def __init__(self, folder: Path, brokers: Brokers, database: str) -> None:
        self.brokers = brokers
        self._database = database
        # The table has more partitions than the events.
        self.clicks, self.names = brokers.topic(PARTITIONS), brokers.topic(PARTITIONS + 1)
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self._folder = folder
        self._program = folder / "job.py"
        self._program.write_text(PROGRAM)

    def start(self, number: int) -> None:
        options = {
            "names": self.names,
            "clicks": self.clicks,
            "servers": self.brokers.servers,
            "id": f"member {number}",
            "database": self._database,
            "local": str(self._folder / f"local{number}"),
            "results": str(self._folder / f"results{number}"),
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
        process.send_signal(signal.SIGKILL)
        process.wait(60)

    def name(self, first: int, end: int) -> None:
        for key in range(first, end):
            row = json.dumps({"key": key, "name": f"name {key}"}).encode()
            self.brokers.write(self.names, [row], partition=key % (PARTITIONS + 1))

    def click(self, run: int, first: int, end: int) -> None:
        """Events of each key, those of one in one partition."""
        for partition in range(PARTITIONS):
            keys = [key for key in range(first, end) if key % PARTITIONS == partition]
            rows = [json.dumps({"key": key, "run": run}).encode() for key in keys]
            self.brokers.write(self.clicks, rows, partition=partition)

    def results(self, number: int) -> list[dict[str, Any]]:
        path = self._folder / f"results{number}"
        lines = path.read_bytes().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def of_run(self, run: int) -> dict[int, dict[str, Any]]:
        every = [one for number in (0, 1) for one in self.results(number)]
        return {one["key"]: one for one in every if one["run"] == run}

    def until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 90
        while not true():
            dead = [n for n, one in self.running.items() if one.poll() is not None]
            assert not dead, self
            assert time.monotonic() < deadline, self
            time.sleep(0.1)

    def until_shared(self) -> None:
        self.until(lambda: sorted(self.brokers.assigned(self.clicks).values()) == [1, 1])

    def __repr__(self) -> str:
        errors = [path.read_text()[-1500:] for path in sorted(self._folder.glob("errors*"))]
        return f"{[len(self.results(number)) for number in (0, 1)]} {errors}"


@pytest.fixture(params=["states in Kafka", "states in PostgreSQL"])
def members(
    request: pytest.FixtureRequest, tmp_path: Path, kafka_brokers: Brokers
) -> Iterator[Members]:
    """The members; with their states in Kafka or in a database that they share."""
    is_shared = request.param == "states in PostgreSQL"
    database: str = request.getfixturevalue("postgres") if is_shared else ""
    made = Members(tmp_path, kafka_brokers, database)
    yield made
    for number in list(made.running):
        made.kill(number)


def test_every_member_finds_all_rows_also_when_it_was_killed_and_started_again(
    members: Members,
) -> None:
    members.name(0, ROWS)
    members.start(0)
    members.start(1)
    members.until_shared()
    members.click(1, 0, ROWS)
    members.until(lambda: len(members.of_run(1)) == ROWS)
    assert members.results(0)
    assert members.results(1)
    members.kill(1)
    # A row that comes while it is away, and clicks that wait for whoever has their partition.
    members.name(ROWS, ROWS + 2)
    members.start(1)
    members.until_shared()
    before = len(members.results(1))
    members.click(2, 0, ROWS + 2)
    members.until(lambda: len(members.of_run(2)) == ROWS + 2)
    assert len(members.results(1)) > before
    for run, count in ((1, ROWS), (2, ROWS + 2)):
        found = members.of_run(run)
        assert {key: one["name"] for key, one in found.items()} == {
            key: f"name {key}" for key in range(count)
        }
    assert {one["count"] for key, one in members.of_run(2).items() if key < ROWS} == {2}
