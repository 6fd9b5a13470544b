"""Joins of two topics, and windows, whose states move between processes with the partitions, on
real brokers: processes are killed and started, and each result is there exactly once."""

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

from tests.helpers.kafka.broker import HAS_KAFKA, Brokers

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")

PARTITIONS, KEYS, ROWS, WITHIN = 3, 9, 3_000, 5
# Later than all others: it closes what they have opened.
END = 1_000_000

PROGRAM = """
import asyncio
import json
import random
import sys

from penstock import Fixed, Store, adaptive_flat_map, agg, event_time, join, ops, read_kafka
from penstock import tumbling, window, write_kafka

OPTIONS = json.loads(sys.argv[1])
store = Store(
    f"kafka://{OPTIONS['servers']}/{OPTIONS['left']}-states",
    local=OPTIONS["local"],
    every=OPTIONS["every"],
)


async def work(event):
    await asyncio.sleep(random.choice([0, 0, 0.001, 0.01]))
    return event


def read(topic):
    source = read_kafka(
        topic, OPTIONS["left"], OPTIONS["servers"], config=OPTIONS["config"], offsets=store
    )
    timed = event_time("at", idle=None, max_ahead=None)
    return source.pipe(timed, adaptive_flat_map(work, Fixed(8)))


def pair(rows):
    left, right = (-1 if row is None else row["n"] for row in rows)
    return {"key": left, "found": [left, right]}


def closed(one):
    return {"key": one.key, "found": [one.key, one.start, one.value]}


if OPTIONS["operator"] == "join":
    paired = join(read(OPTIONS["right"]), "key", OPTIONS["within"], how="outer", store=store)
    found = read(OPTIONS["left"]).pipe(paired, ops.map(pair))
else:
    counted = window(tumbling(10), agg.count(), by="key", store=store)
    found = read(OPTIONS["left"]).pipe(counted, ops.map(closed))
pipeline = found.to(
    write_kafka(OPTIONS["results"], OPTIONS["servers"], key="key", transactional=True)
)
"""

CLASSIC = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500}
PROTOCOLS: list[dict[str, Any]] = [CLASSIC, {"group.protocol": "consumer"}]


class Members:
    """Processes of one group, and the rows of two topics, in order in each partition."""

    def __init__(self, folder: Path, draw: random.Random, brokers: Brokers, operator: str) -> None:
        self.brokers = brokers
        self.topics = {"left": brokers.topic(PARTITIONS), "right": brokers.topic(PARTITIONS)}
        self.results = brokers.topic()
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.rows: dict[str, list[dict[str, int]]] = {"left": [], "right": []}
        self._draw, self._folder = draw, folder
        self._program = folder / "job.py"
        self._program.write_text(PROGRAM)
        self._options = {
            **self.topics,
            "operator": operator,
            "within": WITHIN,
            "servers": brokers.servers,
            "results": self.results,
            "every": draw.choice([0.0, 0.02, 0.2]),
            "config": draw.choice(PROTOCOLS),
        }
        self._at: Counter[tuple[str, int]] = Counter()

    def start(self, number: int) -> None:
        options = {**self._options, "local": str(self._folder / f"local{number}")}
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

    def write(self, count: int) -> None:
        for side, rows in self.rows.items():
            new: list[dict[str, int]] = []
            for n in range(len(rows), len(rows) + count):
                key = self._draw.randrange(KEYS)
                place = side, key % PARTITIONS
                self._at[place] += self._draw.choice([0, 1, 1, 3])
                new.append({"n": n, "key": key, "at": self._at[place]})
            rows += new
            self._put(side, new)

    def end(self, times: int) -> None:
        """Rows without a partner."""
        for side, of in (("left", 1_000), ("right", 2_000)):
            keys = range(PARTITIONS * of, PARTITIONS * of + PARTITIONS)
            self._put(side, [{"n": END, "key": key, "at": END + 100 * times} for key in keys])

    def _put(self, side: str, rows: list[dict[str, int]]) -> None:
        for partition in range(PARTITIONS):
            own = [json.dumps(row).encode() for row in rows if row["key"] % PARTITIONS == partition]
            self.brokers.write(self.topics[side], own, partition=partition)

    def expected(self) -> Counter[tuple[float, ...]]:
        if self._options["operator"] == "window":
            counts = Counter((row["key"], row["at"] // 10 * 10) for row in self.rows["left"])
            return Counter((*one, count) for one, count in counts.items())
        by_key: dict[int, list[dict[str, int]]] = {key: [] for key in range(KEYS)}
        for row in self.rows["right"]:
            by_key[row["key"]].append(row)
        pairs: Counter[tuple[float, ...]] = Counter()
        alone = {row["n"] for row in self.rows["right"]}
        for row in self.rows["left"]:
            near = [one for one in by_key[row["key"]] if abs(one["at"] - row["at"]) <= WITHIN]
            pairs.update((row["n"], one["n"]) for one in near)
            pairs.update([] if near else [(row["n"], -1)])
            alone -= {one["n"] for one in near}
        pairs.update((-1, n) for n in alone)
        return pairs

    def found(self) -> Counter[tuple[float, ...]]:
        results = (json.loads(one.value()) for one in self.brokers.read(self.results, 1))
        found = (tuple(one["found"]) for one in results)
        if self._options["operator"] == "window":
            return Counter(one for one in found if one[1] < END)
        return Counter(one for one in found if END not in one)

    def check(self) -> None:
        """Wait until nothing is missing: then nothing more may be there either."""
        expected, deadline = self.expected(), time.monotonic() + 150
        for times in range(30):
            self.end(times)
            time.sleep(5)
            missing = expected - self.found()
            if not missing:
                break
            dead = {n: one.poll() for n, one in self.running.items() if one.poll() is not None}
            assert not dead, (dead, self)
            assert time.monotonic() < deadline, (len(missing), missing.most_common(5), self)
        time.sleep(2)
        assert self.found() == expected, self

    def __repr__(self) -> str:
        errors = [path.read_text()[-1500:] for path in sorted(self._folder.glob("errors*"))]
        return f"{self._options} {errors}"


@pytest.fixture
def members(
    request: pytest.FixtureRequest, tmp_path: Path, run_seed: int, kafka_brokers: Brokers
) -> Iterator[Members]:
    made = Members(tmp_path, random.Random(run_seed), kafka_brokers, request.param)
    yield made
    for number in list(made.running):
        made.kill(number)


@pytest.mark.parametrize("members", ["join", "window"], indirect=True)
def test_members_that_are_killed_leave_each_result_once(members: Members, run_seed: int) -> None:
    draw = random.Random(run_seed)
    members.write(ROWS // 2)
    members.start(0)
    members.start(1)
    for step in range(2):
        time.sleep(draw.uniform(1, 6))
        members.kill(draw.choice(list(members.running)))
        members.write(ROWS // 4)
        time.sleep(draw.uniform(0, 3))
        members.start(2 + step)
    members.check()
